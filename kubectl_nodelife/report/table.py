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

from kubectl_nodelife.report.terminal import printable

NONE = "<none>"
UNKNOWN = "<unknown>"

_MIN_WIDTH = 6
_PADDING = 3
_LINE_BREAK = re.compile(r"[\f\n\r]")


class Column(NamedTuple):
    """A column; one that is `wide` is shown only with `-o wide`."""

    header: str
    wide: bool = False


class Table(NamedTuple):
    """Rows under headers. A cell is text, a number or a bool; None and "" show as `<none>`."""

    columns: Sequence[Column]
    rows: Iterable[Sequence[object]]

    def text(self, *, wide: bool = False, headers: bool = True) -> str:
        """The lines of the table, or "" if it has no rows."""
        return "".join(self.lines(Widths(), wide=wide, headers=headers))

    def lines(self, widths: Widths, *, wide: bool = False, headers: bool = True) -> list[str]:
        """The lines. `widths` grow with what is printed, so that later rows stand below it."""
        shown = [i for i, column in enumerate(self.columns) if wide or not column.wide]
        lines = [[cell(row[i]) for i in shown] for row in self.rows]
        if not lines:
            return []
        if headers:
            lines.insert(0, [self.columns[i].header.upper() for i in shown])
        needed = widths.grow(
            max(_MIN_WIDTH, _PADDING + max(map(len, column)))
            for column in list(zip(*lines, strict=True))[:-1]
        )
        return [_line(line, needed) for line in lines]


class Widths:
    """The widths of the columns of tables that follow one another."""

    def __init__(self) -> None:
        self._widths: list[int] = []

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


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = "".join(map(str.ljust, cells, widths))
    return padded + cells[-1] + "\n"
