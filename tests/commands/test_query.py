"""The query of a question to the daemon: whole numbers are read or refused with a line."""

import pytest

from kubectl_nodelife.commands.answering import QuestionFlags, as_sent, flags_of, number
from kubectl_nodelife.commands.drain import DrainFlags
from kubectl_nodelife.errors import BadInput

REFUSED = ("x", "1.5", "1e3", "²", "٣", "0x10", "--1", "9" * 30)
READ = {"0": 0, "007": 7, "-5": -5, "1767225600000000000": 1767225600000000000}


@pytest.mark.parametrize(("text", "value"), READ.items())
def test_a_whole_number_is_read(text: str, value: int) -> None:
    assert number(as_sent({"since": text}), "since") == value


def test_a_number_that_was_not_given_is_zero() -> None:
    assert number({}, "since") == 0


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_whole_number_is_refused_with_a_line(text: str) -> None:
    with pytest.raises(BadInput, match="is not a whole number"):
        number(as_sent({"since": text}), "since")


SENT = {
    "none-given": DrainFlags(),
    "each-type": DrainFlags(force=True, grace_period=0, low_water=12.5, cordon="first"),
    "a-whole-share": DrainFlags(max_parallel=3, low_water=20.0, pod_selector="app in (a,b)"),
    "several-values": QuestionFlags(ignored=("a/Deployment/b", "x=y"), why=("node/a",), until="2h"),
    "text-that-looks-like-none": QuestionFlags(until="null", fail_on="zero"),
}


@pytest.mark.parametrize("flags", SENT.values(), ids=SENT)
def test_flags_are_read_as_they_were_sent(flags: DrainFlags | QuestionFlags) -> None:
    assert flags_of(as_sent(flags._asdict()), type(flags)) == flags


@pytest.mark.parametrize(
    ("field", "text"), [("grace_period", "soon"), ("force", "maybe"), ("low_water", "[]")]
)
def test_a_flag_of_another_type_is_refused_with_a_line(field: str, text: str) -> None:
    with pytest.raises(BadInput, match=f"^{field}: the daemon cannot read it: "):
        flags_of(as_sent({field: text}), DrainFlags)
