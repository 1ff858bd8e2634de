"""A replay as one self-contained page: a lane for each node or zone that had trouble, one for all
others, and below it every line.

No script, no font, nothing fetched: the file can be mailed, archived and printed. A lane's bars are
the node's states, and a stroke is something that happened: it leads to its line, and a line to the
one that led to it. What is here are plain values; templates/replay.html makes markup of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.fates import several_nodes
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
from kubectl_nodelife.report.html import LONGEST, render_page
from kubectl_nodelife.report.lanes import Bar, LaneChart, Row, Stroke, draw_lanes
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
_BAR: Final = 24
"""The height of a state's bar in its lane, in percent."""

_KINDS: Final = {
    NOT_READY: "not-ready",
    TAINTED: "tainted",
    CORDONED: "cordoned",
    MAINTENANCE: "maintenance",
    ZONE: "stopped",
}

_ACTORS: Final = (
    ("controller", "a controller"),
    ("kubelet", "a kubelet"),
    ("user", "a user of kubectl"),
    ("us", "kubectl nodelife, in dry run: not done"),
    ("other", "others, or not known"),
)


class Chart(NamedTuple):
    """The picture; `more`: how many nodes it leaves out."""

    lanes: LaneChart
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
    begin_ns = min(line.time_ns for line in replay.lines)
    last_ns = max(line.time_ns for line in replay.lines)
    end_ns = max(last_ns, replay.until_ns, begin_ns + SECOND_NS)
    spans = dict[str, list[StateSpan]]()
    for span in replay.spans:
        name = f"zone {span.name}" if span.state == ZONE else span.name
        spans.setdefault(name, []).append(span)
    drawn, left = list[Row](), _MOST_MARKS
    by_name = _chart_rows(folded, rows, spans.keys())
    for name, happened in list(by_name.items())[:_MOST_CHART_ROWS]:
        on_top = sorted(happened[:left], key=lambda one: one[1].actor.kind == USER)
        strokes = [_stroke(one, line) for one, line in on_top]
        own = spans.get(name, ())
        bars = [_bar(span, end_ns) for span in own]
        drawn.append(Row(name, bars, words=_words(own), strokes=strokes))
        left -= len(strokes)
    first, last = (at_ns / SECOND_NS for at_ns in (begin_ns, end_ns))
    return Chart(draw_lanes(drawn, first, last, _time_of_day), len(by_name) - len(drawn))


def _time_of_day(seconds: float) -> str:
    text = clock(round(seconds * SECOND_NS))[11:19]
    return text.removesuffix(":00") if round(seconds) % 60 == 0 else text


def _bar(span: StateSpan, end_ns: int) -> Bar:
    """A state, at a height of its own within its lane."""
    until_ns = end_ns if span.end_ns is None else span.end_ns
    place = (12, 76) if span.state == ZONE else (2 + STATES.index(span.state) * _BAR, _BAR)
    ends = " (over; until when is not known)" if span.is_over else ""
    ends = ends if span.end_ns is None else f" to {clock(span.end_ns)}"
    what = f" {span.what}" if span.what else ""
    title = f"{span.state}{what} since {clock(span.begin_ns)}{ends}"[:_LONGEST_TITLE]
    begin, end = (at_ns / SECOND_NS for at_ns in (span.begin_ns, until_ns))
    return Bar(begin, end, _KINDS[span.state], title, place)


def _words(spans: Iterable[StateSpan]) -> str:
    """`NotReady since 15:04:18; tainted unreachable:NoExecute 15:04:18–15:09:20`"""
    found: dict[tuple[str, str], list[str]] = {}
    for span in spans:
        begin = clock(span.begin_ns)[11:19]
        between = f"since {begin}"
        if span.end_ns is not None:
            between = f"{begin}–{clock(span.end_ns)[11:19]}"
        found.setdefault((span.state, between), []).append(span.what.rpartition("/")[2])
    return "; ".join(
        " ".join(filter(None, (state, ", ".join(filter(None, what)), between)))
        for (state, between), what in found.items()
    )


def _stroke(one: FoldedLines, line: ReplayLine) -> Stroke:
    title = f"{clock(line.time_ns)} {who(line)}: {what(one)}"[:_LONGEST_TITLE]
    return Stroke(line.time_ns / SECOND_NS, line.actor.kind, one.number, title)


def _chart_rows(
    folded: Iterable[FoldedLines], rows: int, in_trouble: Collection[str]
) -> dict[str, list[tuple[FoldedLines, ReplayLine]]]:
    """Node -> what happened to it and to pods on it, the first line of those that are one.

    Zones and the rest have a lane too; nodes that had no state but Ready are one. What has no row
    has no stroke.
    """
    by_name: dict[str, list[tuple[FoldedLines, ReplayLine]]] = {}
    well: dict[str, None] = {}
    for one in folded:
        for line in one.lines:
            name = line.about_node or (f"zone {line.name}" if line.kind == "Zone" else "cluster")
            if line.about_node and name not in in_trouble:
                well[name] = None
                name = ""
            entries = by_name.setdefault(name, [])
            if one.number <= rows and (not entries or entries[-1][0] is not one):
                entries.append((one, line))
    others = several_nodes(well, "") if well else ""
    ordered = sorted(by_name.items(), key=lambda item: (item[0] in ("", "cluster"), item[0]))
    return {name or others: entries for name, entries in ordered}


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
