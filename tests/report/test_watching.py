"""What is drawn in its place on a terminal, and warnings: once, and short."""

import os
from typing import Any

import pytest

from kubectl_nodelife.commands import ask
from kubectl_nodelife.errors import Unreachable
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.live_line import LiveScreen
from kubectl_nodelife.report.terminal import WARNING_LENGTH, broken_into_lines

Capture = pytest.CaptureFixture[str]


def rows(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A terminal of so many rows."""
    monkeypatch.setattr(
        "kubectl_nodelife.report.live_line.os.get_terminal_size",
        lambda descriptor: os.terminal_size((80, number)),
    )
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1, raising=False)


def test_a_text_is_drawn_over_the_one_before(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows(monkeypatch, 24)
    screen = LiveScreen()
    screen.show("NAME\na1\na2\n")
    screen.show("NAME\na1\n")
    clear = "\x1b[K\n"
    first = f"NAME{clear}a1{clear}a2{clear}\x1b[J"
    assert capsys.readouterr().out == f"{first}\x1b[3FNAME{clear}a1{clear}\x1b[J"


@pytest.mark.parametrize(
    "newest_last, shown",
    [
        (False, ["TIME", "1", "2", "(3 more lines)"]),
        (True, ["TIME", "(3 lines before)", "4", "5"]),
    ],
)
def test_it_is_never_longer_than_the_terminal(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, newest_last: bool, shown: list[str]
) -> None:
    rows(monkeypatch, 5)
    LiveScreen(newest_last=newest_last).show("TIME\n1\n2\n3\n4\n5\n")
    out = capsys.readouterr().out.replace("\x1b[K", "").removesuffix("\x1b[J")
    assert out.splitlines() == shown


def test_of_many_rows_the_answer_the_header_and_the_newest_are_shown(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows(monkeypatch, 8)
    LiveScreen(newest_last=True).show("5 changes\nThe last\n\nTIME\n1\n2\n3\n4\n5\n")
    out = capsys.readouterr().out.replace("\x1b[K", "").removesuffix("\x1b[J")
    assert out.splitlines() == ["5 changes", "The last", "", "TIME", "(3 lines before)", "4", "5"]


def test_watching_ends_with_the_daemon(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask.time, "sleep", lambda seconds: None)
    answers: list[Any] = [{"text": "one\n", "warnings": ["w"]}, {"text": "two\n"}, None]
    with pytest.raises(Unreachable, match="the daemon has ended"):
        ask.draw_each_second(lambda: answers.pop(0))
    said = capsys.readouterr()
    assert "one" in said.out and "two" in said.out
    assert said.err == "Warning: w\n"


def test_a_warning_is_said_once_and_its_beginning_alone(capsys: Capture) -> None:
    terminal.prepare()
    long = "the nodes " + "are far away " * 40
    for _ in range(3):
        terminal.warn(long)
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) <= len("Warning: ") + WARNING_LENGTH
    assert line.endswith("... (-v 1 shows all of it)")
    terminal.prepare()
    terminal.choose_verbose()
    terminal.warn(long)
    assert capsys.readouterr().err == f"Warning: {long}\n"
    terminal.prepare()


def test_a_command_in_prose_is_not_broken() -> None:
    text = "that is too much: kubectl delete pod -n shop db-0 --force, and nobody makes it anew"
    lines = broken_into_lines(text, 50).splitlines()
    assert any("kubectl delete pod -n shop db-0 --force," in line for line in lines)
    assert max(map(len, lines)) <= 50
    piped = """echo '{"kind":"DeleteOptions","a":"b c"}' | kubectl delete --raw /api/v1/x -f -"""
    assert broken_into_lines(piped, 50) == piped
    assert broken_into_lines("x" * 70, 40).splitlines() == ["x" * 40, "x" * 30]
    assert broken_into_lines(text, 0) == text


def test_a_warning_with_a_command_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"{'n' * 190}; to take it out: kubectl uncordon a1; kubectl annotate node a1 key-"
    terminal.warn(text)
    assert capsys.readouterr().err == f"Warning: {text}\n"


def test_a_long_name_does_not_take_all_of_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.warn(f"Node {'a' * 300} is odd")
    said = capsys.readouterr().err
    assert said.startswith(f"Warning: Node {'a' * 100}")
    assert said.endswith("(-v 1 shows all of it)\n")
