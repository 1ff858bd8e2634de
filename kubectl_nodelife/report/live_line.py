"""A line at the foot of a terminal that changes, and lines above it that stay."""

from __future__ import annotations

import sys

from kubectl_nodelife.report import terminal

_CLEAR = "\r\x1b[K"


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
