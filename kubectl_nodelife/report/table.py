"""Tables as kubectl prints them.

Follows the tabwriter settings of cli-runtime/pkg/printers/tabwriter.go (cells padded with three
spaces to at least six columns, the last cell not at all) and the cells of tableprinter.go: cut at
the first line break with `...` behind, control characters replaced. By hand instead of with
`tabulate` (see `markdown`), whose import alone would cost more than the rest of `status`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kubectl_nodelife.report.screen import END, ENDLESS, ColoredText, Screen
from kubectl_nodelife.report.terminal import printable

NONE = "<none>"
UNKNOWN = "<unknown>"

_MIN_WIDTH = 6
_PADDING = 3
_LEAST_LAST = 32  # columns that a long last cell needs, so that no other column must give way
_LEAST_ROOM = 16  # columns below which breaking it into lines would make it unreadable
_LINE_BREAK = re.compile(r"[\f\n\r]")


class Column(NamedTuple):
    """A column; one that is `wide` is shown only with `-o wide`.

    `gives`: where the terminal is too narrow, the column with the highest number gives way first;
    one with 0 stays.
    """

    header: str
    wide: bool = False
    gives: int = 0


def columns(headers: str) -> tuple[Column, ...]:
    """The columns of `name | zone* | age:2`: a `*` makes it wide, `:2` is what it gives."""
    made = []
    for header in headers.split(" | "):
        name, _, gives = header.partition(":")
        made.append(Column(name.removesuffix("*"), name.endswith("*"), int(gives or 0)))
    return tuple(made)


class Table(NamedTuple):
    """Rows under headers. A cell is text, a number or a bool; None and "" show as `<none>`."""

    columns: Sequence[Column]
    rows: Iterable[Sequence[object]]

    def text(self, *, wide: bool = False, headers: bool = True, screen: Screen = ENDLESS) -> str:
        """The lines of the table, or "" if it has no rows; last the one that says what gave way."""
        widths = Widths()
        lines = self.lines(widths, wide=wide, headers=headers, screen=screen)
        if widths.left_out:
            names = ", ".join(header.upper() for header in widths.left_out)
            lines.append(f"(no room for {names}: -o wide shows all)\n")
        return "".join(lines)

    def lines(
        self,
        widths: Widths,
        *,
        wide: bool = False,
        headers: bool = True,
        screen: Screen = ENDLESS,
    ) -> list[str]:
        """The lines. `widths` grow with what is printed, so that later rows stand below it, and
        what gave way once stays away."""
        shown = [i for i, column in enumerate(self.columns) if wide or not column.wide]
        text_of = _toned if screen.color else cell
        rows = [[text_of(row[i]) for i in shown] for row in self.rows]
        if not rows:
            return []
        if headers:
            rows.insert(0, [self.columns[i].header.upper() for i in shown])
        width = 0 if wide else screen.width
        stay = self._staying(rows, shown, width, widths)
        rows = [[row[place] for place in stay] for row in rows]
        needed = widths.grow(
            max(_MIN_WIDTH, _PADDING + max(map(len, column)))
            for column in list(zip(*rows, strict=True))[:-1]
        )
        room = width - sum(needed) if width else 0
        return [_line(row, needed, room, screen) for row in rows]

    def _staying(
        self, rows: list[list[str]], shown: list[int], width: int, widths: Widths
    ) -> list[int]:
        """The places in a row of the columns that have room. The last one may be broken into
        lines, if _LEAST_LAST columns are left for it."""
        if widths.shown is not None:
            return widths.shown
        longest = [max(map(len, column)) for column in zip(*rows, strict=True)]
        stay = list(range(len(shown)))
        while width:
            fixed = sum(max(_MIN_WIDTH, _PADDING + longest[place]) for place in stay[:-1])
            if width - fixed >= min(longest[stay[-1]], _LEAST_LAST):
                break
            may_go = [place for place in stay if self.columns[shown[place]].gives]
            if not may_go:
                break
            stay.remove(max(may_go, key=lambda place: (self.columns[shown[place]].gives, place)))
        widths.shown = stay
        left_out = [place for place in range(len(shown)) if place not in stay]
        widths.left_out = [self.columns[shown[place]].header for place in left_out]
        return stay


class Widths:
    """The widths of the columns of tables that follow one another.

    `shown`: the places of the columns that have room, once that is known; `left_out`: the headers
    of the others.
    """

    def __init__(self) -> None:
        self._widths: list[int] = []
        self.shown: list[int] | None = None
        self.left_out: list[str] = []

    def grow(self, needed: Iterable[int]) -> list[int]:
        """What is needed, and at least what was."""
        new = list(needed)
        before = self._widths + [0] * (len(new) - len(self._widths))
        self._widths = [max(pair) for pair in zip(new, before, strict=True)]
        return self._widths


def cell(value: object) -> str:
    """The text of one cell."""
    if type(value) is str and value and value.isprintable():
        return value  # nearly all of them: neither a line break nor anything to replace
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    cut = _LINE_BREAK.search(text)
    return printable(text) if cut is None else printable(text[: cut.start()]) + "..."


def _toned(value: object) -> str:
    """The text of one cell, with its tone if it has one."""
    text = cell(value)
    return ColoredText(text, value.tone) if isinstance(value, ColoredText) else text


def _line(cells: Sequence[str], widths: Sequence[int], room: int, screen: Screen) -> str:
    """One row. `room`: columns left for the last cell, which is broken between words; 0: any."""
    if screen.color:
        padded = "".join(
            _colored(text, screen) + " " * (width - len(text))
            for text, width in zip(cells, widths, strict=False)
        )
    else:
        padded = "".join(map(str.ljust, cells, widths))
    last = cells[-1]
    if not _LEAST_ROOM <= room < len(last):
        return f"{padded}{_colored(last, screen)}\n"
    import textwrap

    parts = textwrap.wrap(last, room, break_long_words=False, break_on_hyphens=False)
    if isinstance(last, ColoredText):
        parts = [_colored(ColoredText(part, last.tone), screen) for part in parts]
    return padded + f"\n{' ' * sum(widths)}".join(parts) + "\n"


def _colored(text: str, screen: Screen) -> str:
    return f"{text.tone}{text}{END}" if screen.color and isinstance(text, ColoredText) else text
