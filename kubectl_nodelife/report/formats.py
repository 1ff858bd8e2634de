"""The output formats: a formatter turns a page into text and is chosen by its `-o` name.

A `Page` shows a verb's result as blocks for people, as an API document and as names. go-template,
jsonpath and custom-columns are left out: use `-o json` with jq. JSON and YAML keep the document's
order of keys, so that equal results give equal bytes.

Markdown, for tickets and post-mortems, has tables of GitHub's kind, by tabulate. Names and messages
may hold anything, so whatever Markdown or HTML would read is escaped. Tables on a terminal are made
in `table` instead, for importing tabulate takes longer than `status` may.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kubectl_nodelife.report.command_lines import LeadingFlags
from kubectl_nodelife.report.table import Table
from kubectl_nodelife.report.terminal import (
    ColoredText,
    Screen,
    broken_into_lines,
    escape_json,
    leading_flags,
    printable,
    printable_text,
    this_screen,
    write,
)

_MARKUP = re.compile(r"[\\`*_\[\]|~#]")
_HTML = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_FENCE = "```"

_UNFOLDED_COLUMNS = 1 << 30

Block = Table | str


class Page(NamedTuple):
    """The findings of a verb, before they have a form.

    `blocks(wide=...)`: the page for people: tables and paragraphs, top to bottom; a table without
    rows and a paragraph without text are left out, whatever the format. `document()`: the
    answer as plain JSON values or msgspec structs, with `apiVersion` and `kind`. `names()`:
    `kind/name` of each object in the answer. `trouble()`: of how many something is wrong; None: the
    page does not judge.
    """

    blocks: Callable[..., Iterable[Block]]
    document: Callable[[], object]
    names: Callable[[], Iterable[str]]
    trouble: Callable[[], int] | None = None


Formatter = Callable[[Page, bool, Screen], str]


def as_table(answer: Page, headers: bool, screen: Screen) -> str:
    """The page, with a blank line between blocks."""
    return _page(answer.blocks(wide=False), headers, screen, wide=False)


def as_wide(answer: Page, headers: bool, screen: Screen) -> str:
    """The page with its wide columns."""
    return _page(answer.blocks(wide=True), headers, screen, wide=True)


def as_markdown(answer: Page, headers: bool, screen: Screen) -> str:
    """The page as Markdown, with the columns of `table`."""

    return markdown(answer.blocks(wide=False), headers)


def as_json(answer: Page, headers: bool, screen: Screen) -> str:
    """The document as JSON, indented by two."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(answer.document()), indent=2).decode()
    return escape_json(text) + "\n"


def as_yaml(answer: Page, headers: bool, screen: Screen) -> str:
    """The document as YAML, long lines not folded."""
    import msgspec
    import yaml

    # libyaml's emitter is some ten times faster, but not in every build of PyYAML.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    plain = msgspec.to_builtins(answer.document())

    def dump(*, allow_unicode: bool) -> str:
        return str(
            yaml.dump(
                plain,
                Dumper=dumper,
                sort_keys=False,
                allow_unicode=allow_unicode,
                width=_UNFOLDED_COLUMNS,
            )
        )

    text = dump(allow_unicode=True)
    # What must be escaped must be quoted too, which only the emitter can do.
    return text if escape_json(text) == text else dump(allow_unicode=False)


def as_name(answer: Page, headers: bool, screen: Screen) -> str:
    """One `kind/name` a line."""
    return "".join(f"{printable(name)}\n" for name in answer.names())


def as_parts(answer: Page, headers: bool, screen: Screen) -> str:
    """The page's blocks as JSON, of which `clusters` makes one page for several clusters."""
    return _parts(answer, wide=False)


def as_wide_parts(answer: Page, headers: bool, screen: Screen) -> str:
    """As `as_parts`, with what only `-o wide` shows."""
    return _parts(answer, wide=True)


FORMATTERS: dict[str, Formatter] = {
    "table": as_table,
    "wide": as_wide,
    "json": as_json,
    "yaml": as_yaml,
    "name": as_name,
    "markdown": as_markdown,
}


PARTS = {"parts": as_parts, "parts-wide": as_wide_parts}
"""Formats between two processes of this program, which no `-o` takes."""


def render(answer: Page, output: str, *, headers: bool = True, screen: Screen | None = None) -> str:
    """The text of `answer` in the format `output`, a key of FORMATTERS or PARTS.

    `screen`: the one that it will be shown on, where that is not this process's.
    """
    formatter = FORMATTERS.get(output) or PARTS[output]
    flags = leading_flags()
    page = answer if flags is None else _led(answer, flags)
    return formatter(page, headers, this_screen() if screen is None else screen)


def _led(page: Page, flags: LeadingFlags) -> Page:
    """The page, its commands with the flags that lead to its cluster."""

    def blocks(*, wide: bool) -> Iterable[Block]:
        for block in page.blocks(wide=wide):
            if isinstance(block, str):
                yield flags.in_text(block)
            else:
                yield Table(block.columns, [[cell_of(c) for c in row] for row in block.rows])

    def document() -> object:
        import msgspec

        return flags.in_values(msgspec.to_builtins(page.document()))

    def cell_of(value: object) -> object:
        if isinstance(value, ColoredText):
            return ColoredText(flags.in_text(value), value.tone)
        return flags.in_text(value) if isinstance(value, str) else value

    return page._replace(blocks=blocks, document=document)


class Output(NamedTuple):
    """How an answer is shown. `format` is a key of FORMATTERS or PARTS; `headers`: tables have a
    header row.

    `screen`: the one that it will be shown on, where that is not this process's.
    """

    format: str
    headers: bool = True
    screen: Screen | None = None

    def render(self, answer: Page) -> str:
        """The text of the answer."""
        return render(answer, self.format, headers=self.headers, screen=self.screen)

    def show(self, answer: Page) -> None:
        """Write the answer to stdout."""
        write(self.render(answer))

    def query(self) -> dict[str, object]:
        """As a part of a question, whose answer comes as text."""
        return {"output": self.format, "headers": self.headers}


def _page(blocks: Iterable[Block], headers: bool, screen: Screen, *, wide: bool) -> str:
    texts: Sequence[str] = [
        _paragraph(block, screen)
        if isinstance(block, str)
        else block.text(wide=wide, headers=headers, screen=screen)
        for block in blocks
    ]
    return "\n".join(text if text.endswith("\n") else text + "\n" for text in texts if text)


def _parts(answer: Page, *, wide: bool) -> str:
    """`{"source": …, "blocks": [text | {"columns": […], "rows": [[cell | [tone, cell]]]}],
    "trouble": N}`, which is null where the page does not judge."""
    import msgspec

    blocks = [
        printable_text(block) if isinstance(block, str) else block.as_json()
        for block in answer.blocks(wide=wide)
        if block
    ]
    document = msgspec.to_builtins(answer.document())
    source = document.get("source") if isinstance(document, dict) else None
    trouble = None if answer.trouble is None else answer.trouble()
    parts = {"source": source, "blocks": blocks, "trouble": trouble}
    return msgspec.json.encode(parts).decode()


def _paragraph(text: str, screen: Screen) -> str:
    """Cleaned, and as wide as the screen, but not wider than reads well."""
    return broken_into_lines(printable_text(text), screen.width)


def markdown(blocks: Iterable[Table | str], headers: bool) -> str:
    """The blocks of a page, one after another: tables, paragraphs, and text as it was laid out."""
    texts = [_table(b, headers) if isinstance(b, Table) else _text(b) for b in blocks]
    return "\n".join(text for text in texts if text)


def _table(table: Table, headers: bool) -> str:
    from tabulate import tabulate

    names, rows = table.cells(wide=False)
    if not rows:
        return ""
    escaped = [[_escaped(text) for text in row] for row in rows]
    names = [_escaped(name) if headers else "" for name in names]
    return tabulate(escaped, names, tablefmt="pipe", disable_numparse=True) + "\n"


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
