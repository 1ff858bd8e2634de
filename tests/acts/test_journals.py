"""The journal of an act, without which nothing is written."""

from pathlib import Path

import pytest

from kubectl_nodelife.acts.session import open_journal
from kubectl_nodelife.errors import Refused


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        (0o755, "{}: others may enter it (mode 0755): there is no folder for a journal, and"),
        (None, "{}: is not a folder: there is no folder for a journal, and without one"),
    ],
)
def test_a_folder_that_is_not_ones_own_is_named(
    tmp_path: Path, mode: int | None, line: str
) -> None:
    state = tmp_path / "state"
    if mode is None:
        state.write_text("")
    else:
        state.mkdir(mode=mode)
    with pytest.raises(Refused) as refused:
        open_journal({"NODELIFE_STATE_DIR": str(state)}, "c" * 16)
    assert str(refused.value).startswith(line.format(state))
    assert "; run: chmod 700 " in str(refused.value) or "; move it away: mv " in str(refused.value)


def test_each_act_has_a_journal_of_its_own(tmp_path: Path) -> None:
    environ = {"NODELIFE_STATE_DIR": str(tmp_path / "state")}
    one, other = open_journal(environ, "c" * 16), open_journal(environ, "c" * 16)
    assert one.path != other.path
