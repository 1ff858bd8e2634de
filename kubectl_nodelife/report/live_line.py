"""Output that changes in its place on a terminal: a line at its foot, a whole text, or on stderr a
bar of progress for what takes longer than a moment.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.terminal import sink

_CLEAR = "\r\x1b[K"
_FEWEST_ROWS = 4


_FIRST_AFTER_S = 0.5
_EVERY_S = 0.1
_LEFT_AFTER_S = 1.0


class LiveLine:
    """The line is on stderr, and only where that is a terminal."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._lives = self._stream is not None and self._stream.isatty()
        self._text = ""

    def show(self, text: str) -> None:
        """The text of the line from now on; "" for no line."""
        text = terminal.printable(text)
        if text != self._text:
            self._put(f"{_CLEAR}{text}")
        self._text = text

    def write(self, text: str) -> None:
        """A line on stdout that stays."""
        self._put(_CLEAR if self._text else "")
        terminal.write(f"{text}\n")
        terminal.flush()
        self._put(self._text)

    def say(self, text: str) -> None:
        """A line on stderr that stays, where that is a terminal."""
        if self._lives and text:
            self.note(text)

    def note(self, text: str) -> None:
        """A line on stderr that stays."""
        self._put(_CLEAR if self._text else "")
        terminal.note(text)
        self._put(self._text)

    def warn(self, text: str) -> None:
        """A warning on stderr that stays, worded as kubectl's."""
        self.note(f"Warning: {text}")

    def _put(self, text: str) -> None:
        if self._lives and text:
            self._stream.write(text)
            self._stream.flush()


class LiveScreen:
    """A text on stdout, a terminal, that is drawn anew in its place.

    `newest_last`: of more lines than the terminal has, those up to the first table's header and the
    last ones are shown.
    """

    def __init__(self, *, newest_last: bool = False) -> None:
        self._newest_last = newest_last
        self._drawn = 0

    def begin_anew(self) -> None:
        """The next text stands below what is there: something else was printed."""
        self._drawn = 0

    def show(self, text: str) -> None:
        """Put the text in the place of the last one."""
        lines = self._fitting(terminal.cleaned(text).splitlines())
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        sys.stdout.write(up + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        sys.stdout.flush()
        self._drawn = len(lines)

    def _fitting(self, lines: list[str]) -> list[str]:
        try:
            rows = os.get_terminal_size(sys.stdout.fileno()).lines - 1
        except (OSError, ValueError):
            return lines
        left_out = len(lines) - rows
        if left_out <= 0 or rows < _FEWEST_ROWS:
            return lines
        if self._newest_last:
            head = lines.index("") + 2 if "" in lines[:rows] else 1  # the answer, and the header
            if head + 2 < rows:
                before = f"({left_out + 1} lines before)"
                return [*lines[:head], before, *lines[head + left_out + 1 :]]
        return [*lines[: rows - 1], f"({left_out + 1} more lines)"]


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function that receives how much is done; `total` where that is known."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or sink.get() is not None:
        yield lambda done: None
        return
    began = time.monotonic()
    last = began + _FIRST_AFTER_S - _EVERY_S
    shown = False

    def step(done: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if now - last < _EVERY_S:
            return
        last, shown = now, True
        stream.write(f"{_CLEAR}{_bar(what, done, total, now - began)}")
        stream.flush()

    try:
        yield step
    finally:
        if shown:
            stream.write(_CLEAR)
            stream.flush()


def _bar(what: str, done: int, total: int | None, seconds: float) -> str:
    from kubectl_nodelife.kube.times import human_seconds  # heavy for `status -w`, which has none

    if not total:
        return f"{what}: {done:,} ({human_seconds(seconds)})"
    share = min(1.0, done / total)
    filled = "#" * round(share * 30)
    remaining = ""
    if done and seconds >= _LEFT_AFTER_S:
        remaining = f", {human_seconds(seconds / share - seconds)} left"
    return f"{what}: [{filled:<30}] {share:4.0%} ({human_seconds(seconds)}{remaining})"
