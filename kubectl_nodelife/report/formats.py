"""The output formats: a formatter turns a page into text and is chosen by its `-o` name.

A `Page` shows a verb's result as blocks for people, as an API document and as names. go-template,
jsonpath and custom-columns are left out: use `-o json` with jq. JSON and YAML keep the document's
order of keys, so that equal results give equal bytes.

Markdown, for tickets and post-mortems, has tables of GitHub's kind, by tabulate. Names and messages
may hold anything, so whatever Markdown or HTML would read is escaped.

Tables on a terminal follow the tabwriter settings of cli-runtime/pkg/printers/tabwriter.go (cells
padded with three spaces to at least six columns, the last cell not at all) and the cells of
tableprinter.go: cut at the first line break with `...` behind, control characters replaced. They
are made by hand, for importing tabulate takes longer than the rest of `status`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kubectl_nodelife.report.terminal import (
    END,
    ENDLESS,
    ColoredText,
    LeadingFlags,
    Screen,
    broken_into_lines,
    escape_json,
    leading_flags,
    printable,
    printable_text,
    this_screen,
    write,
)

NONE = "<none>"
UNKNOWN = "<unknown>"

_MIN_WIDTH = 6
_PADDING = 3
_LEAST_LAST = 32  # columns that a long last cell needs, so that no other column must give way
_LEAST_CELL = 12  # columns below which breaking a cell into lines would make it unreadable
_LONG_WORD = 40  # a longer word is broken where there is no room for it
_FEWEST = 3  # columns that stay in a row, however narrow the screen is
_LINE_BREAK = re.compile(r"[\f\n\r]")

_MARKUP = re.compile(r"[\\`*_\[\]|~#]")
_HTML = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_FENCE = "```"

_UNFOLDED_COLUMNS = 1 << 30


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
    parsed = []
    for header in headers.split(" | "):
        name, _, gives = header.partition(":")
        parsed.append(Column(name.removesuffix("*"), name.endswith("*"), int(gives or 0)))
    return tuple(parsed)


class Table(NamedTuple):
    """Rows under headers. A cell is text, a number or a bool; None and "" show as `<none>`."""

    columns: Sequence[Column]
    rows: Iterable[Sequence[object]]

    def text(self, *, wide: bool = False, headers: bool = True, screen: Screen = ENDLESS) -> str:
        """The lines of the table, or "" if it has no rows; last those that say what gave way."""
        widths = Widths(headers=headers)
        lines = self.lines(widths, wide=wide, screen=screen)
        if widths.left_out:
            names = ", ".join(header.upper() for header in widths.left_out)
            lines += _notice(f"(no room for {names}: -o wide shows all)", screen)
        if widths.below:
            names = ", ".join(self.columns[i].header.upper() for i in widths.below)
            lines += _notice(f"(no room for {names} beside the rest: below each row)", screen)
        return "".join(lines)

    def lines(self, widths: Widths, *, wide: bool = False, screen: Screen = ENDLESS) -> list[str]:
        """The lines. `widths` grow with what is printed, so that later rows stand below it, once
        below the headers, and what gave way once stays away."""
        shown = [i for i, column in enumerate(self.columns) if wide or not column.wide]
        text_of = _toned if screen.color else cell
        rows = [[text_of(row[i]) for i in shown] for row in self.rows]
        if not rows:
            return []
        titles = [self.columns[i].header.upper() for i in shown]
        longest = [max(map(len, column)) for column in zip(*rows, titles, strict=True)]
        if not widths.headers:
            longest = [max(map(len, column)) for column in zip(*rows, strict=True)]
        least = [*longest[:-1], min(longest[-1], _LEAST_LAST)]
        if screen.width and _needed(longest, range(len(shown)), _LEAST_LAST) > screen.width:
            words = (_longest_word(column) for column in zip(*rows, titles, strict=True))
            bound = (max(_LEAST_CELL, min(word, _LONG_WORD)) for word in words)
            least = [min(pair) for pair in zip(longest, bound, strict=True)]
        stay, below = self._staying(longest, least, shown, screen.width, widths, wide=wide)
        natural = [*widths.grow(longest[place] for place in stay[:-1]), longest[stay[-1]]]
        caps = _caps(natural, [least[place] for place in stay], screen.width)
        if widths.headers:
            rows.insert(0, titles)
        lines = []
        for number, row in enumerate(rows):
            lines.append(_line([row[place] for place in stay], caps, screen))
            if below and (number or not widths.headers):
                lines += _below([(titles[place], row[place]) for place in below], screen)
        widths.headers = False
        return lines

    def cells(self, *, wide: bool) -> tuple[list[str], list[list[str]]]:
        """The headers and the rows as text, for what is not a terminal."""
        shown = [i for i, column in enumerate(self.columns) if wide or not column.wide]
        rows = [[cell(row[i]) for i in shown] for row in self.rows]
        return [self.columns[i].header for i in shown], rows

    def as_json(self) -> dict[str, object]:
        """`columns` and `rows` as JSON values: a cell is its text, or its tone and its text."""
        rows = [
            [
                [value.tone, cell(value)] if isinstance(value, ColoredText) else cell(value)
                for value in row
            ]
            for row in self.rows
        ]
        return {"columns": [list(column) for column in self.columns], "rows": rows}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Table:
        """The table of which `as_json` gave this."""
        rows = [
            [ColoredText(value[1], value[0]) if isinstance(value, list) else value for value in row]
            for row in document["rows"]
        ]
        return cls(tuple(Column(*column) for column in document["columns"]), rows)

    def _staying(
        self,
        longest: list[int],
        least: list[int],
        shown: list[int],
        width: int,
        widths: Widths,
        *,
        wide: bool,
    ) -> tuple[list[int], list[int]]:
        """The places in a row of the columns that have room, and of those that go below the row.

        The last column may be broken into lines, if _LEAST_LAST columns are left for it. With
        `wide` nothing is left out; nor is what must stay, which is broken into lines as well.
        """
        if widths.stay is not None:
            return widths.stay, widths.under
        stay, under, order = list(range(len(shown))), [], self._giving_way(shown)
        while width and not wide and _needed(longest, stay, _LEAST_LAST) > width:
            may_go = [p for p in order if p in stay and self.columns[shown[p]].gives]
            if not may_go:
                break
            stay.remove(may_go[0])
        widths.left_out = [self.columns[shown[p]].header for p in order if p not in stay][::-1]
        while width and len(stay) > _FEWEST and _needed(least, stay, least[stay[-1]]) > width:
            place = next(p for p in order if p in stay)
            stay.remove(place)
            under.append(place)
        widths.stay, widths.under = stay, sorted(under)
        widths.below = [shown[p] for p in widths.under]
        return widths.stay, widths.under

    def _giving_way(self, shown: list[int]) -> list[int]:
        """The places of all columns but the first and the last, those that give way first before:
        wide ones, then by what they give, then from the right."""
        may = range(1, len(shown) - 1)

        def importance(place: int) -> tuple[bool, int, int]:
            column = self.columns[shown[place]]
            return not column.wide, -column.gives, -place

        given = [p for p in range(len(shown)) if self.columns[shown[p]].gives and p not in may]
        return sorted({*may, *given}, key=importance)


class Widths:
    """The widths of the columns of tables that follow one another.

    `stay`: the places of the columns that have room, once that is known, `under`: of those that
    stand below each row; `left_out`: the headers of the others; `below`: columns below each row.
    `headers`: the first of the tables has a header row.
    """

    def __init__(self, *, headers: bool = True) -> None:
        self.headers = headers
        self._widths: list[int] = []
        self.stay: list[int] | None = None
        self.under: list[int] = []
        self.left_out: list[str] = []
        self.below: list[int] = []

    def grow(self, needed: Iterable[int]) -> list[int]:
        """The width that is needed, and at least the last one."""
        new = list(needed)
        before = self._widths + [0] * (len(new) - len(self._widths))
        self._widths = [max(pair) for pair in zip(new, before, strict=True)]
        return self._widths


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


def as_table(answer: Page, headers: bool, screen: Screen, *, wide: bool = False) -> str:
    """The page, with a blank line between blocks. `wide`: with its wide columns."""
    texts: Sequence[str] = [
        broken_into_lines(printable_text(block), screen.width)
        if isinstance(block, str)
        else block.text(wide=wide, headers=headers, screen=screen)
        for block in answer.blocks(wide=wide)
    ]
    return "\n".join(text if text.endswith("\n") else text + "\n" for text in texts if text)


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


def as_parts(answer: Page, headers: bool, screen: Screen, *, wide: bool = False) -> str:
    """The page's blocks as JSON, of which `clusters` makes one page for several clusters.

    `{"source": …, "blocks": [text | {"columns": […], "rows": [[cell | [tone, cell]]]}],
    "trouble": N}`, which is null where the page does not judge.
    """
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


FORMATTERS: dict[str, Formatter] = {
    "table": as_table,
    "wide": partial(as_table, wide=True),
    "json": as_json,
    "yaml": as_yaml,
    "name": as_name,
    "markdown": as_markdown,
}


PARTS: dict[str, Formatter] = {"parts": as_parts, "parts-wide": partial(as_parts, wide=True)}
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


def _needed(longest: Sequence[int], stay: Sequence[int], least_last: int) -> int:
    """The columns of the screen that a row takes, with at least so many for its last cell."""
    fixed = sum(max(_MIN_WIDTH, _PADDING + longest[place]) for place in stay[:-1])
    return fixed + min(longest[stay[-1]], least_last)


def _caps(natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """How wide the text of each cell may be. What has no room is broken into lines: between words
    where each column can have its `least`, anywhere where not. With width 0 nothing is broken."""
    *others, last = natural
    others = [max(_MIN_WIDTH - _PADDING, length) for length in others]
    natural = [*others, last]
    fixed = sum(_PADDING + length for length in others)
    if not width or fixed + last <= width:
        return list(natural)
    if fixed + min(last, _LEAST_LAST) <= width:
        return [*others, width - fixed]
    room = width - _PADDING * len(others)
    least = [max(_MIN_WIDTH - _PADDING, length) for length in least]
    caps = least if sum(least) <= room else [_MIN_WIDTH - _PADDING] * len(natural)
    room_left = room - sum(caps)
    count = len(natural)
    for place in sorted(range(count), key=lambda place: natural[place] - caps[place]):
        more = max(0, min(natural[place] - caps[place], room_left // count))
        caps[place] += more
        room_left -= more
        count -= 1
    return caps


def _longest_word(texts: Iterable[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


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


def _line(cells: Sequence[str], caps: Sequence[int], screen: Screen) -> str:
    """One row, of as many lines as its longest cell needs."""
    if all(len(text) <= cap for text, cap in zip(cells, caps, strict=True)):
        return _single_line(cells, caps, screen)
    broken = [_broken(text, cap) for text, cap in zip(cells, caps, strict=True)]
    height = max(map(len, broken))
    lines = ([parts[n] if n < len(parts) else "" for parts in broken] for n in range(height))
    return "".join(_single_line(line, caps, screen).rstrip(" \n") + "\n" for line in lines)


def _single_line(cells: Sequence[str], caps: Sequence[int], screen: Screen) -> str:
    padded = "".join(
        _colored(text, screen) + " " * (max(_MIN_WIDTH, cap + _PADDING) - len(text))
        for text, cap in zip(cells[:-1], caps, strict=False)
    )
    return f"{padded}{_colored(cells[-1], screen)}\n"


def _broken(text: str, cap: int) -> list[str]:
    """The text in lines of that length: between words, else behind hyphens, else anywhere."""
    if len(text) <= cap:
        return [text]
    import textwrap

    longest = max(map(len, text.split()), default=0)
    parts = textwrap.wrap(text, cap, break_on_hyphens=longest > cap)
    if isinstance(text, ColoredText):
        return [ColoredText(part, text.tone) for part in parts]
    return parts


def _below(cells: Sequence[tuple[str, str]], screen: Screen) -> list[str]:
    """The cells that have no room in the row, with their headers; empty ones are left out."""
    line = "   ".join(f"{title}: {text}" for title, text in cells if text not in (NONE, ""))
    return _notice(line, screen, "    ")


def _notice(text: str, screen: Screen, indent: str = "") -> list[str]:
    import textwrap

    if not text:
        return []
    lines = textwrap.wrap(
        text,
        screen.width or len(text) + len(indent),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return [f"{line}\n" for line in lines]


def _colored(text: str, screen: Screen) -> str:
    return f"{text.tone}{text}{END}" if screen.color and isinstance(text, ColoredText) else text
