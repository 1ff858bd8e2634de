"""A replay as one self-contained page: a lane for each node, and below it every line.

No script, no font, nothing fetched: the file can be mailed, archived and printed. A lane's bars are
the node's states, and a stroke is something that happened: it leads to its line, and a line to the
one that led to it. What is here are plain values; templates/replay.html makes markup of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.replay.replay_line import USER, ReplayLine
from kubectl_nodelife.outlook.replay.timeline import (
    CORDONED,
    MAINTENANCE,
    NOT_READY,
    STATES,
    TAINTED,
    ZONE,
    StateSpan,
)
from kubectl_nodelife.report.html import LONGEST, Tick, render_page
from kubectl_nodelife.report.replay import (
    FoldedLines,
    ReplayPage,
    clock,
    fold,
    objects,
    what,
    who,
    why,
)

_MOST_CHART_ROWS: Final = 60
_MOST_MARKS: Final = 4000
"""Of all lanes."""
_MOST_ROWS: Final = 5000
_MOST_TEXT: Final = 1_500_000
"""Characters of all rows: names may have 253 each."""
_MOST_NOTES: Final = 200
_LONGEST_TITLE: Final = 200
_WIDTH, _LEFT, _ROW, _TOP = 1120, 170, 22, 26
_TICKS: Final = 6
_BAR: Final = 4
"""The height of a state's bar in its lane."""

_KINDS: Final = {
    NOT_READY: "not-ready",
    TAINTED: "tainted",
    CORDONED: "cordoned",
    MAINTENANCE: "maintenance",
    ZONE: "braked",
}

_ACTORS: Final = (
    ("controller", "a controller"),
    ("kubelet", "a kubelet"),
    ("user", "a user of kubectl"),
    ("us", "kubectl nodelife, in dry run: not done"),
    ("other", "others, or not known"),
)


class Mark(NamedTuple):
    """A stroke in a lane: where, by whom, and the number of its row in the table."""

    x: str
    kind: str
    number: int
    title: str


class StateBar(NamedTuple):
    """A state in a lane: from where, how wide, at which height. `kind`: a class of the style."""

    x: str
    width: str
    y: int
    kind: str
    title: str


class ChartRow(NamedTuple):
    """A row of the picture."""

    label: str
    y: int
    bars: list[StateBar]
    marks: list[Mark]


class Chart(NamedTuple):
    """The picture; `more`: how many nodes it leaves out."""

    width: int
    height: int
    left: int
    top: int
    ticks: list[Tick]
    lanes: list[ChartRow]
    more: int


def page(replay: ReplayPage, subject: str) -> str:
    """The page."""
    folded = fold(replay.lines)
    rows = _rows(folded)
    notes, more = replay.warnings[:_MOST_NOTES], len(replay.warnings) - _MOST_NOTES
    return render_page(
        "replay",
        title=f"Replay of {subject}" if subject else "Replay",
        between=f"{clock(replay.since_ns)} to {clock(replay.until_ns)}",
        server=str(replay.source.get("server", "")),
        count=len(replay.lines),
        actors=_ACTORS,
        states=[(kind, state) for state, kind in _KINDS.items()],
        chart=_chart(replay, folded, len(rows)) if folded else None,
        rows=rows,
        more_rows=len(folded) - len(rows),
        warnings=[*notes, f"and {more} more"] if more > 0 else notes,
    )


def _chart(replay: ReplayPage, folded: Sequence[FoldedLines], rows: int) -> Chart:
    """From the first line to the end of the replay: a state that goes on reaches it."""
    lines = replay.lines
    begin_ns = min(line.time_ns for line in lines)
    last_ns = max(line.time_ns for line in lines)
    end_ns = max(last_ns, replay.until_ns, begin_ns + SECOND_NS)
    by_name, drawn, left = _chart_rows(folded, rows), [], _MOST_MARKS
    bars = _bars(replay.spans, begin_ns, end_ns)
    for row, (name, happened) in enumerate(list(by_name.items())[:_MOST_CHART_ROWS]):
        on_top = sorted(happened[:left], key=lambda one: one[1].actor.kind == USER)
        marks = [_mark(one, line, begin_ns, end_ns) for one, line in on_top]
        y = _TOP + _ROW * row + _ROW // 2
        own = [bar._replace(y=y + bar.y) for bar in bars.get(name, ())]
        drawn.append(ChartRow(name[:26], y, own, marks))
        left -= len(marks)
    ticks = []
    for tick in range(_TICKS + 1):
        at_ns = begin_ns + (end_ns - begin_ns) * tick // _TICKS
        ticks.append(Tick(_x(at_ns, begin_ns, end_ns), clock(at_ns)[11:19]))
    height = _TOP + _ROW * len(drawn) + 8
    return Chart(_WIDTH, height, _LEFT, _TOP, ticks, drawn, len(by_name) - len(drawn))


def _bars(spans: Sequence[StateSpan], begin_ns: int, end_ns: int) -> dict[str, list[StateBar]]:
    """Lane -> its bars, each state at a height of its own within the lane."""
    found: dict[str, list[StateBar]] = {}
    for span in spans:
        until_ns = end_ns if span.end_ns is None else span.end_ns
        x, right = (float(_x(at_ns, begin_ns, end_ns)) for at_ns in (span.begin_ns, until_ns))
        zone = span.state == ZONE
        height = 0 if zone else STATES.index(span.state) * _BAR - 2 * _BAR
        ends = " (over; until when is not known)" if span.is_over else ""
        ends = ends if span.end_ns is None else f" to {clock(span.end_ns)}"
        what = f" {span.what}" if span.what else ""
        title = f"{span.state}{what} since {clock(span.begin_ns)}{ends}"[:_LONGEST_TITLE]
        bar = StateBar(f"{x:.1f}", f"{max(2.0, right - x):.1f}", height, _KINDS[span.state], title)
        found.setdefault(f"zone {span.name}" if zone else span.name, []).append(bar)
    return found


def _mark(one: FoldedLines, line: ReplayLine, begin_ns: int, end_ns: int) -> Mark:
    title = f"{clock(line.time_ns)} {who(line)}: {what(one)}"[:_LONGEST_TITLE]
    return Mark(_x(line.time_ns, begin_ns, end_ns), line.actor.kind, one.number, title)


def _chart_rows(
    folded: Iterable[FoldedLines], rows: int
) -> dict[str, list[tuple[FoldedLines, ReplayLine]]]:
    """Node -> what happened to it and to pods on it, the first line of those that are one.

    Zones and the rest have a lane too. What has no row has no mark.
    """
    by_name: dict[str, list[tuple[FoldedLines, ReplayLine]]] = {}
    for one in folded:
        for line in one.lines:
            name = line.about_node or (f"zone {line.name}" if line.kind == "Zone" else "cluster")
            entries = by_name.setdefault(name, [])
            if one.number <= rows and (not entries or entries[-1][0] is not one):
                entries.append((one, line))
    return dict(sorted(by_name.items(), key=lambda item: (item[0] == "cluster", item[0])))


def _x(at_ns: int, begin_ns: int, end_ns: int) -> str:
    x = _LEFT + 8 + (_WIDTH - _LEFT - 16) * (at_ns - begin_ns) / (end_ns - begin_ns)
    return f"{x:.1f}"


def _rows(folded: Sequence[FoldedLines]) -> list[dict[str, Any]]:
    """The rows of the table, as many as a page holds."""
    rows: list[dict[str, Any]] = []
    left = _MOST_TEXT
    for one in folded[:_MOST_ROWS]:
        row = _row(one)
        left -= sum(min(len(text), LONGEST) for text in row.values() if isinstance(text, str))
        if left < 0:
            break
        rows.append(row)
    return rows


def _row(one: FoldedLines) -> dict[str, Any]:
    first = one.lines[0]
    return {
        "number": one.number,
        "time": clock(first.time_ns)[11:19],
        "kind": first.actor.kind,
        "who": who(first),
        "what": what(one),
        "objects": objects(one),
        "after": one.after,
        "inferred": first.inferred,
        "why": why(one),
        "seen": "+".join(first.seen),
    }
