"""The query of a question to the daemon: whole numbers are read or refused with a line."""

from __future__ import annotations

import pytest

from kubectl_nodelife.commands.answering.query import as_sent, number
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
