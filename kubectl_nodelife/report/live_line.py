"""What changes in its place on a terminal: a line at its foot, or a whole text."""

from __future__ import annotations

import os
import sys

from kubectl_nodelife.report import terminal

_CLEAR = "\r\x1b[K"
_FEWEST_ROWS = 4


class LiveLine:
    """The line is on stderr, and only where that is a terminal."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._lives = self._stream is not None and self._stream.isatty()
        self._text = ""

    def show(self, text: str) -> None:
        """What the line says from now; "" for no line."""
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
