"""Self-contained pages from Jinja2 templates, and their charts, which are lanes of time as the live
page has them: a name, a track with what is so from when to when, and words.

Nothing is fetched and no script runs, by a policy that allows the page's one style by its digest: a
page can be mailed, archived and printed. All markup is in the templates, which escape whatever they
are given and cut what is very long: a policy's message may have a million characters. Jinja2 is
imported only where a page is made.

What is here are plain values: places on a track are percents of its width, so that a chart is as
wide as the screen or paper, and texts stand beside the tracks, where they wrap and are never cut.
templates/lanes.html makes HTML and SVG of them. The lanes of nodes in trouble are those of
`outlook/fates.py`. Below the charts stand the blocks that a terminal shows (`parts_of`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from kubectl_nodelife.drain.results import BudgetPoint
from kubectl_nodelife.kube.times import clock
from kubectl_nodelife.outlook.fates import BACK, Coming, Lane
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.terminal import BAD, WARN, ColoredText, in_text

LONGEST: Final = 600
"""Characters of one text."""


MOST_TABLE_ROWS: Final = 2000


class PageTable(NamedTuple):
    """A table; `more`: how many rows are left out."""

    title: str
    headers: list[str]
    rows: list[list[str]]
    more: int


class BlockParts(NamedTuple):
    """The blocks of a page: tables, the lines of text above the first of them, and those below."""

    tables: list[PageTable]
    above: list[str]
    below: list[str]


def parts_of(
    blocks: Iterable[Block], titles: Mapping[str, str] | None = None, *, wide: bool = True
) -> BlockParts:
    """What a page of HTML shows of a page for the terminal. Of a table that is too long the rows
    come first that say that something is wrong. `titles`: of tables, by what a row is about;
    others are called by that word."""
    tables, above, below = list[PageTable](), list[str](), list[str]()
    for block in blocks:
        if isinstance(block, str):
            lines = (line.strip() for line in block.split("\n") if line)
            (below if tables else above).extend(lines)
            continue
        every = list(block.rows)
        if len(every) > MOST_TABLE_ROWS:
            every.sort(key=_how_wrong, reverse=True)
        headers, rows = block._replace(rows=every[:MOST_TABLE_ROWS]).cells(wide=wide)
        about = headers[headers[0] == "namespace"]
        if rows:
            title = (titles or {}).get(about, f"{about.capitalize()}s")
            tables.append(PageTable(title, headers, rows, len(every) - len(rows)))
    return BlockParts(tables, above, below)


def _how_wrong(row: Sequence[object]) -> int:
    tones = {cell.tone for cell in row if isinstance(cell, ColoredText)}
    return 2 if BAD in tones else int(WARN in tones)


class Tick(NamedTuple):
    """A mark of a picture's axis: its place, its text, and the class of that."""

    x: str
    label: str
    style: str = "tick"


def render_page(template: str, **values: Any) -> str:
    """The page `template`.html with these plain values; there is no way to pass it markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def bounded(value: Any) -> Any:
        if not isinstance(value, str) or isinstance(value, Markup):  # of a macro of ours
            return value
        led = in_text(value)
        return led if len(value) <= LONGEST else f"{led[:LONGEST]}…"

    environment = Environment(
        loader=PackageLoader("kubectl_nodelife.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=bounded,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["sha256_base64"] = _sha256_base64
    return environment.get_template(f"{template}.html").render(values)


def _sha256_base64(text: str) -> str:
    """The digest by which a Content-Security-Policy names the one style that it allows."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


MOST_POINTS: Final = 500
"""Of a line: a track is some 500 pixels wide."""
LONGEST_TITLE: Final = 300
_LEAST: Final = 0.3
"""Of a bar's width, in percent: a pixel or two."""
_MOST_TICKS: Final = 6
_LABELLED: Final = 86.0
"""Percent: a mark of the scale to the right of it has its text on its left."""
_STEPS: Final = (
    *(1, 2, 5, 10, 15, 20, 30, 60, 90, 120, 180, 300, 600, 900, 1800),
    *(3600, 7200, 14400, 21600, 43200, 86400),
)
_WHOLE: Final = (0, 100)
"""The place of a bar behind lines."""
_TALL: Final = 100
_WIDE: Final = 1000
_EDGE: Final = 6
"""What a line keeps from its plot's edges, so that its stroke is whole."""

RANGE: Final = "range"
STYLES: Final = {"Unknown": "unknown", "tainted": "taint"}
"""The class of what comes, by its word, as on the live page; all else is that pods leave."""
LEAVE: Final = "leave"
PAST: Final = "past"
NORMAL: Final = ("", "Initial", "Normal")
"""States of a zone in which nothing stops or slows its taints."""
STATES_OF_NODES: Final = (
    (PAST, "silent or lost"),
    ("unknown", "Unknown"),
    ("taint", "tainted"),
    (LEAVE, "pods leave"),
    (RANGE, "by chance within"),
)
"""What the colours of nodes' lanes mean."""


class Bar(NamedTuple):
    """A stretch of time in a row, in seconds, and its CSS class. `place`: of the track's height,
    from where and how much, in percent."""

    begin: float
    end: float
    style: str
    title: str = ""
    place: tuple[int, int] = (12, 76)


class Stroke(NamedTuple):
    """Something that happened at an instant: its CSS class, and the number of its row elsewhere."""

    at: float
    style: str
    number: int
    title: str


class Line(NamedTuple):
    """A number over time, as steps, and its CSS class."""

    style: str
    points: Sequence[tuple[float, int]]


class Row(NamedTuple):
    """A lane. `note`: beside its name; `words`: behind the track; `title`: under the pointer."""

    label: str
    bars: Sequence[Bar] = ()
    title: str = ""
    style: str = ""
    words: str = ""
    note: str = ""
    strokes: Sequence[Stroke] = ()
    lines: Sequence[Line] = ()


class DrawnBar(NamedTuple):
    """A bar's place, in percent of the track."""

    style: str
    x: str
    width: str
    y: int
    height: int
    title: str


class DrawnRow(NamedTuple):
    """A lane, and its parts as they are drawn.

    `strokes`: each with its place, in percent of the track; `lines`: their classes, and their
    points `x,y` in a plot that is 1000 wide and 100 high; `low`, `high`: the numbers at the bottom
    and the top of that.
    """

    of: Row
    title: str
    bars: list[DrawnBar]
    strokes: list[tuple[str, Stroke]]
    lines: list[tuple[str, list[str]]]
    low: int
    high: int


class LaneChart(NamedTuple):
    """Lanes with one scale of time above them."""

    ticks: list[Tick]
    rows: list[DrawnRow]


def draw_lanes(
    rows: Iterable[Row],
    first: float,
    last: float,
    tick_text: Callable[[float], str] | None = None,
    marks: Sequence[float] | None = None,
) -> LaneChart:
    """The chart of these rows between two instants, in seconds. `tick_text`: of an instant on the
    scale; by default as a duration. `marks`: what stands on the scale, where it is not time that
    is drawn; by default round instants."""
    percent = _scale(first, last)
    shown = [_drawn(_clipped(row, last), percent, last) for row in rows]
    at = ticks(first, last) if marks is None else marks
    return LaneChart(_ticks(at, percent, tick_text or short), shown)


def _scale(first: float, last: float) -> Callable[[float], float]:
    return lambda at: 100 * (min(max(at, first), last) - first) / (last - first)


def _ticks(
    marks: Iterable[float], percent: Callable[[float], float], text: Callable[[float], str]
) -> list[Tick]:
    ticks = []
    for at in marks:
        x = percent(at)
        ticks.append(Tick(f"{x:.2f}", text(at), "tick" if x <= _LABELLED else "tick end"))
    return ticks


def ticks(first: float, last: float) -> list[float]:
    """The round instants between two, six or so at most, however far these are apart."""
    step = next((step for step in _STEPS if (last - first) / step <= _MOST_TICKS), _STEPS[-1])
    while (last - first) / step > _MOST_TICKS:
        step *= 10
    begin = -int(-first // step)
    return [float(i * step) for i in range(begin, int(last // step) + 1)]


def short(seconds: float) -> str:
    """A round time on a scale: `0`, `30s`, `1m30s`, `2h`, `3d`."""
    whole = round(seconds)
    if not whole:
        return "0"
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, whole = divmod(whole, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts)


def _clipped(row: Row, last: float) -> Row:
    """A bar that is longer than the chart ends with it, and words say until when it goes on."""
    longest = max((bar.end for bar in row.bars), default=last)
    if longest <= last:
        return row
    bars = [bar._replace(end=min(bar.end, last)) for bar in row.bars if bar.begin < last]
    return row._replace(bars=bars, words=f"{row.words} → {clock(longest)}".strip())


def _drawn(row: Row, percent: Callable[[float], float], last: float) -> DrawnRow:
    bars = []
    for bar in row.bars:
        x = min(percent(bar.begin), 100 - _LEAST)
        width = max(_LEAST, percent(bar.end) - x)
        place = (f"{x:.2f}", f"{width:.2f}", *(_WHOLE if row.lines else bar.place))
        bars.append(DrawnBar(bar.style, *place, bar.title[:LONGEST_TITLE]))
    strokes = [(f"{percent(stroke.at):.2f}", stroke) for stroke in row.strokes]
    low, high = _between(row.lines)
    lines = [(line.style, _stepped(line, percent, last, low, high)) for line in row.lines]
    title = (row.title or row.label)[:LONGEST_TITLE]
    return DrawnRow(row, title, bars, strokes, lines, low, high)


def _between(lines: Sequence[Line]) -> tuple[int, int]:
    counts = [count for line in lines for _, count in line.points]
    low = near_bottom(counts)
    return low, max([low + 1, *counts])


def near_bottom(counts: Sequence[int]) -> int:
    """The number at the bottom of a chart that shows how these change.

    It is 0 unless the change would take less than a third of the height, as that from 15 to 14.
    """
    low, high = min(counts, default=0), max(counts, default=0)
    bottom = low - max(1, (high - low) // 2)
    return bottom if bottom > 0 and 3 * (high - low) < high else 0


def _stepped(
    line: Line, percent: Callable[[float], float], last: float, low: int, high: int
) -> list[str]:
    """The line to the end of the chart; of very many points each so many."""
    every = -(-len(line.points) // MOST_POINTS) or 1
    shown = [*line.points[::every], *line.points[-1:]]
    points: list[str] = []
    for (at, count), (until, _) in pairwise([*shown, (last, 0)]):
        y = _TALL - _EDGE - (_TALL - 2 * _EDGE) * (count - low) / (high - low)
        points += [f"{percent(x) * _WIDE / 100:.1f},{y:.1f}" for x in (at, until)]
    return points


def rows_of(
    lanes: Iterable[Lane], last: float, instant_text: Callable[[float], str] = clock
) -> Iterator[Row]:
    """Lanes of a course that is played or over: since when what came is so, pale where that is a
    range."""
    for lane in lanes:
        bars = list(_steps(lane, last))
        words = " → ".join([*(_when(each, instant_text) for each in lane.coming), lane.stays])
        yield Row(lane.name, bars, "", "", words.removesuffix(" → "), lane.state)


def is_level(points: Sequence[BudgetPoint]) -> bool:
    """True if neither line of the budget's chart ever moves: a row says it as well."""
    return len({(point.healthy, point.desired) for point in points}) <= 1


def budget_lines(points: Sequence[BudgetPoint]) -> list[Line]:
    """Healthy pods, and how many the budget asks for."""
    return [
        Line("healthy", [(point.at, point.healthy) for point in points]),
        Line("desired", [(point.at, point.desired) for point in points]),
    ]


def zone_row(
    name: str,
    states: Sequence[tuple[float, str]],
    last: float,
    instant_text: Callable[[float], str] = clock,
) -> Row:
    """A zone's lane, of its states, each since an instant: bars where it is not Normal."""
    ends = [*(at for at, _ in states[1:]), last]
    bars = [
        Bar(at, end, "stopped", state)
        for (at, state), end in zip(states, ends, strict=True)
        if state not in NORMAL
    ]
    words = " → ".join(
        f"{state} {instant_text(at)}" for at, state in states if at or state not in NORMAL
    )
    return Row(f"zone {name}", bars, words=words, note=states[-1][1] if states else "")


def _steps(lane: Lane, last: float) -> Iterator[Bar]:
    begun = [] if lane.since_s is None else [Coming("", lane.since_s, lane.since_s)]
    for each, following in pairwise([*begun, *lane.coming, Coming("", last, last)]):
        if each.says != BACK:
            style = STYLES.get(each.says, LEAVE) if each.says else PAST
            so_long = each.high_s if style == LEAVE else following.low_s
            if style == LEAVE and following.low_s > each.high_s:
                yield Bar(each.high_s, following.low_s, PAST)
            yield Bar(each.low_s, max(each.low_s, so_long), style, each.says)
        if each.high_s > each.low_s and (each.says == BACK or style != LEAVE):
            yield Bar(each.low_s, each.high_s, RANGE)


def _when(each: Coming, instant_text: Callable[[float], str]) -> str:
    between = dict.fromkeys(instant_text(at) for at in (each.low_s, each.high_s))
    return f"{each.says} {'–'.join(between)}"
