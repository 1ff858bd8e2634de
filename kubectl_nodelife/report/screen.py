"""How wide the terminal is that text is made for, and whether it shows colours.

Colours follow kubectl: on a terminal, not where NO_COLOR is set, and `--color` decides. The width
is the terminal's, or what COLUMNS says there; what goes into a file or a pipe is not cut, unless
NODELIFE_WIDTH says how wide it may be.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar

TYPE_CHECKING = False  # as typing's, without importing typing: this is on the quick path
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final, TextIO

AUTO, ALWAYS, NEVER = "auto", "always", "never"

LEAST_WIDTH: Final = 40

GOOD, WARN, BAD = "\ufdd0", "\ufdd1", "\ufdd2"
END: Final = "\ufdd3"
"""Where a colour begins and ends in text: code points that no text may hold. `terminal` puts
colours in their place, and shows them as escapes where they came with the text itself."""

SEQUENCES: Final = {
    ord(GOOD): "\x1b[32m",
    ord(WARN): "\x1b[33m",
    ord(BAD): "\x1b[31m",
    ord(END): "\x1b[0m",
}


class Screen:
    """`width` in columns, 0: as wide as the text; `color`: whether colours are shown."""

    __slots__ = ("color", "width")

    def __init__(self, width: int = 0, color: bool = False) -> None:
        self.width = max(width, LEAST_WIDTH) if width else 0
        self.color = color


ENDLESS: Final = Screen()
"""No limit to the width, and no colours: a file, a pipe."""


class Sink:
    """What takes a task's output where it is one of several whose outputs become one.

    `write` is given texts for stdout, `note` lines for stderr.
    """

    __slots__ = ("note", "warned", "write")

    def __init__(self, write: Callable[[str], object], note: Callable[[str], object]) -> None:
        self.write = write
        self.note = note
        self.warned: set[str] = set()


sink: ContextVar[Sink | None] = ContextVar("sink", default=None)
"""Of this task and what it starts; None: stdout and stderr themselves."""


class ColoredText(str):
    """Text of a cell with its meaning, one of GOOD, WARN and BAD."""

    __slots__ = ("tone",)
    tone: str

    def __new__(cls, text: str, tone: str) -> ColoredText:
        """The text with its tone."""
        made = super().__new__(cls, text)
        made.tone = tone
        return made


_choice = AUTO


def choose_color(choice: str) -> None:
    """The value of `--color`, for this process."""
    global _choice
    _choice = choice


def this_screen() -> Screen:
    """The screen that stdout leads to."""
    if sink.get() is not None:
        return ENDLESS
    return Screen(columns_of(sys.stdout), _shows_color(is_terminal()))


def is_terminal() -> bool:
    """True if stdout leads to a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def columns_of(stream: TextIO | None) -> int:
    """How wide the terminal is that it leads to, 0 where that is none and no width is set."""
    wanted = os.environ.get("NODELIFE_WIDTH", "")
    if wanted.isdecimal():
        return int(wanted)
    if stream is None or not stream.isatty():
        return 0
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal():
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def _shows_color(on_terminal: bool) -> bool:
    if _choice != AUTO:
        return _choice == ALWAYS
    return on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
