"""Nothing that a terminal would obey gets out."""

import io
import sys
import unicodedata

import pytest

from kubectl_nodelife.report import terminal

EVERYTHING = "".join(map(chr, range(0x3000)))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain-name", "plain-name"),
        ("naïve 名前", "naïve 名前"),
        ("\x1b[31mred\x1b[0m", "^[[31mred^[[0m"),
        ("a\rb\nc\td", "a\\rb\\nc\\td"),
        ("\x00\x07\x7f", "^@^G^?"),
        ("\x9b2J", "\\x9b2J"),
        ("evil\u202etxt.exe", "evil\\u202etxt.exe"),
        ("file\udcff", "file\\udcff"),
    ],
)
def test_printable(raw: str, shown: str) -> None:
    assert terminal.printable(raw) == shown


def test_no_control_character_survives() -> None:
    shown = terminal.printable(EVERYTHING)
    assert {c for c in shown if unicodedata.category(c) == "Cc"} == set()
    assert {
        c for c in shown if unicodedata.bidirectional(c) in ("RLO", "LRO", "RLE", "LRE")
    } == set()
    shown = terminal.printable_text(EVERYTHING)
    assert {c for c in shown if unicodedata.category(c) == "Cc"} == {"\n", "\t"}


def test_write_cleans_and_ends_the_line(capsys: pytest.CaptureFixture) -> None:
    terminal.write("")
    terminal.write("one\x1b[2J")
    terminal.write("two\n\tthree\n")
    assert capsys.readouterr().out == "one^[[2J\ntwo\n\tthree\n"


def test_notes_are_one_line_on_stderr(capsys: pytest.CaptureFixture) -> None:
    terminal.note("a\nb")
    terminal.warn("old")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "a\\nb\nWarning: old\n")


def test_closed_streams_are_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    terminal.write("lost")
    terminal.note("lost")

    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Broken())
    terminal.note("lost")
