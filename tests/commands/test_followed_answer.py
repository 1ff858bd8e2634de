"""How far the daemon is with an answer: shown on a terminal alone, and gone with the answer."""

import io
from collections.abc import Iterator
from typing import Any

import pytest

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.flags import Connection, Where

FIRST = "2 nodes with 9 pods"
PLAYS = {"progress": {"says": "plays on", "seconds": 1.5, "first": FIRST}}


class Terminal(io.StringIO):
    """A stream that is one."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_how_far_it_is_goes_to_a_terminal_alone(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def follow(*asked: Any, **query: Any) -> Iterator[dict[str, Any]]:
        yield PLAYS
        yield PLAYS
        yield {"text": "the answer\n", "inTrouble": True}

    monkeypatch.setattr(ask, "follow", follow)
    monkeypatch.setattr("sys.stderr", stream)
    assert ask.followed_answer(Where(Connection()), "what_if", {}, exit_code=True) == 4
    assert capsys.readouterr().out == "the answer\n"
    shown = stream.getvalue()
    if stream.isatty():
        assert shown.count(FIRST) == 1 and "plays on (1s)" in shown
        assert shown.endswith("\r\x1b[K")
    else:
        assert shown == ""
