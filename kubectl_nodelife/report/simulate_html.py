"""The course that `simulate` played as one self-contained page: lanes of zones, drains, nodes that
were lost, an upgrade and workloads that lost pods, then the blocks that the terminal shows.

No script, no font, nothing fetched. What is here are plain values; templates/simulate.html makes
markup of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.fates import BACK, PODS_LEAVE, Fate, FateStep, folded
from kubectl_nodelife.report.html import (
    STATES_OF_NODES,
    Bar,
    Row,
    draw_lanes,
    render_page,
    rows_of,
    zone_row,
)
from kubectl_nodelife.report.narration import instant_text, narration
from kubectl_nodelife.report.table import cell
from kubectl_nodelife.report.upgrade_lanes import PLAYED, played_rows
from kubectl_nodelife.sim.api import CLUSTER
from kubectl_nodelife.sim.run import NodeLoss, RunSummary, WorkloadLoss
from kubectl_nodelife.sim.timeline import Record

_BARS: Final = (
    ("stopped", "zone not Normal"),
    ("going", "is drained"),
    *STATES_OF_NODES,
)
_MOST_LANES: Final = 300
_MOST_ROWS: Final = 2000

_HEADINGS: Final = {
    "at": "What happened",
    "node": "Nodes that were lost",
    "workload": "Workloads that lost pods",
}
"""Of the tables, by their first column."""
_ENDS: Final = {
    "Drained": "drained",
    "DrainFailed": "drain failed",
    "DrainRefused": "drain refused",
}

_Shown = tuple[str, list[str], list[list[str]]]


def page(summary: RunSummary) -> str:
    """The page."""
    tables, story, ending, more_rows = _blocks(summary)
    last = max(1.0, summary.duration_ns / SECOND_NS)
    lanes, hurt = list(_rows(summary, last)), [_workload_row(each) for each in summary.workloads]
    only = f", {summary.only}" if summary.only else ""
    return render_page(
        "simulate",
        title=f"Simulation of {summary.name}{only}" if summary.name else f"Simulation{only}",
        bars=_key(lanes[:_MOST_LANES]),
        when=draw_lanes(lanes[:_MOST_LANES], 0.0, last) if lanes else None,
        more_lanes=max(0, len(lanes) - _MOST_LANES),
        hurt=draw_lanes(hurt[:_MOST_LANES], 0.0, last) if hurt else None,
        more_hurt=max(0, len(hurt) - _MOST_LANES),
        tables_of_answer=tables,
        more_rows=more_rows,
        profile=summary.settings.profile.name,
        story=story,
        ending=ending,
    )


def _key(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """What those colours mean that are there."""
    drawn = {bar.style for row in rows for bar in row.bars}
    return [(style, word) for style, word in (*_BARS, *PLAYED) if style in drawn]


def _blocks(summary: RunSummary) -> tuple[list[_Shown], list[str], list[str], int]:
    """The tables, the lines above and below them, and how many rows of tables are left out."""
    tables, above, below, more = list[_Shown](), list[str](), list[str](), 0
    for block in narration(summary, wide=False):
        if isinstance(block, str):
            (below if tables else above).extend(line.strip() for line in block.split("\n"))
            continue
        places = [place for place, column in enumerate(block.columns) if not column.wide]
        headers = [block.columns[place].header for place in places]
        rows = [[cell(row[place]) for place in places] for row in block.rows]
        tables.append((_HEADINGS[headers[0]], headers, rows[:_MOST_ROWS]))
        more += max(0, len(rows) - _MOST_ROWS)
    return tables, above, below, more


def _rows(summary: RunSummary, last: float) -> Iterator[Row]:
    """Zones that left Normal, drains, an upgrade, then nodes that were lost, those of one fate as
    one."""
    states: dict[str, list[tuple[float, str]]] = {}
    for record in summary.records:
        if record.action == "SetZoneState":
            states.setdefault(record.object.name, []).append((record.at, record.detail["to"]))
    for zone, its in states.items():
        row = zone_row(zone, its, last, _whole)
        if row.bars:
            yield row
    yield from _drains(summary.records, last)
    yield from played_rows(summary.records, last, _whole)
    yield from rows_of(folded(map(_fate, summary.nodes)), last, _whole)


def _whole(seconds: float) -> str:
    """To the second; the table below has the milliseconds."""
    return instant_text(round(seconds))


def _fate(loss: NodeLoss) -> Fate:
    """A kubelet that says itself that its node is not ready does not fall silent."""
    instants = (
        (loss.ready, loss.lost_at, loss.lost_at, 0),
        ("tainted", loss.tainted_at, loss.tainted_at, 0),
        (PODS_LEAVE, loss.first_deleted_at, loss.last_deleted_at, loss.deleted),
        (BACK, loss.back_at, loss.back_at, 0),
    )
    words = {"False": "NotReady"}
    steps = tuple(
        FateStep(words.get(says, says), low_s, high_s, pods)
        for says, low_s, high_s, pods in instants
        if low_s is not None and high_s is not None
    )
    steps = tuple(sorted(steps, key=lambda step: (step.says == BACK, step.low_s)))
    stays = "not back" if loss.back_at is None else ""
    return Fate(loss.name, loss.zone, "", loss.silent_at, steps, stays)


def _drains(records: Iterable[Record], last: float) -> Iterator[Row]:
    """From the start of each drain to its end, if it comes."""
    begun: dict[str, float] = {}
    for record in records:
        if record.controller == CLUSTER and record.action == "RecordEvent":
            reason, name = record.detail["reason"], record.object.name
            if reason == "DrainStarted":
                begun.setdefault(name, record.at)
            elif reason in _ENDS and name in begun:
                words = f"{_ENDS[reason]} {_whole(record.at)}"
                yield Row(name, [Bar(begun.pop(name), record.at, "going")], words=words)
    for name, at in begun.items():
        yield Row(name, [Bar(at, last, "going")], words="drained to the end")


def _workload_row(loss: WorkloadLoss) -> Row:
    """A workload that lost pods: how many are deleted, and how many new ones are made."""
    begin, end = loss.first_deleted_at, loss.last_deleted_at
    bars = [] if begin is None or end is None else [Bar(begin, end, "leave")]
    when = "" if begin is None or end is None else f" {_between(begin, end)}"
    words = f"{loss.deleted} deleted{when} → {loss.replaced} new ones"
    name = f"{loss.namespace}/{loss.name}"
    return Row(name, bars, note=f"{loss.kind}, {loss.pods} pods", words=words)


def _between(begin: float, end: float) -> str:
    return "–".join(dict.fromkeys((_whole(begin), _whole(end))))
