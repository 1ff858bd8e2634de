"""Answers as Markdown, for tickets and post-mortems: tables of GitHub's kind, by tabulate.

Names and messages may hold anything, so whatever Markdown or HTML would read is escaped. Tables on
a terminal are made in `table` instead, for importing tabulate takes longer than `status` may.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kubectl_nodelife.report.table import Table, cell

_MARKUP = re.compile(r"[\\`*_\[\]|~#]")
_HTML = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_FENCE = "```"


def markdown(blocks: Iterable[Table | str], headers: bool) -> str:
    """The blocks of a page, one after another: tables, paragraphs, and text as it was laid out."""
    texts = [_table(b, headers) if isinstance(b, Table) else _text(b) for b in blocks]
    return "\n".join(text for text in texts if text)


def _table(table: Table, headers: bool) -> str:
    from tabulate import tabulate

    shown = [i for i, column in enumerate(table.columns) if not column.wide]
    rows = [[_escaped(cell(row[i])) for i in shown] for row in table.rows]
    if not rows:
        return ""
    names = [_escaped(table.columns[i].header) if headers else "" for i in shown]
    return tabulate(rows, names, tablefmt="pipe", disable_numparse=True) + "\n"


def _text(text: str) -> str:
    """One line is a paragraph; several keep their layout in a block of code."""
    lines = text.strip("\n").splitlines()
    if len(lines) < 2:
        return "".join(f"{_escaped(line)}\n" for line in lines)
    fence = _FENCE
    while fence in text:
        fence += "`"
    return "\n".join([fence, *lines, fence]) + "\n"


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", text.translate(_HTML))
