"""A `WhatIf` as one self-contained page: what serves when, in bands, what zones and nodes do, and
the records that differ.

No script, no font, nothing fetched. What is here are plain values; templates/what_if.html makes
markup of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kubectl_nodelife.drain.results import FULL, BudgetPoint
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.fates import BACK, PODS_LEAVE, Fate, FateStep, folded
from kubectl_nodelife.outlook.what_if.document import (
    Difference,
    NodeFuture,
    WhatIf,
    WorkloadFuture,
)
from kubectl_nodelife.outlook.what_if.sentences import act_words
from kubectl_nodelife.report.ages import clock, human_duration
from kubectl_nodelife.report.drain_lanes import budget_lines, is_level
from kubectl_nodelife.report.html import render_page
from kubectl_nodelife.report.lanes import (
    RANGE,
    STATES_OF_NODES,
    Bar,
    LaneChart,
    Row,
    draw_lanes,
    rows_of,
    zone_row,
)
from kubectl_nodelife.report.table import Table, cell
from kubectl_nodelife.report.what_if import WhatIfPage

_BARS: Final = (
    ("act", "an act lasts"),
    ("stopped", "zone not Normal"),
    *STATES_OF_NODES,
)
_LEVELS: Final = (
    ("zero", "no pod serves"),
    ("fewer", "fewer pods serve"),
    (RANGE, "back between the fast and the slow play"),
)
_UNKNOWN: Final = ("unknown_seconds", "unknownSeconds")
_TAINTED: Final = ("tainted_seconds", "taintedSeconds")
_FIRST: Final = ("first_deletion_seconds", "firstDeletionSeconds")
_LAST: Final = ("last_deletion_seconds", "lastDeletionSeconds")
_BACK: Final = ("back_seconds", "backSeconds")
_INSTANTS: Final = (
    ("Unknown", _UNKNOWN, _UNKNOWN),
    ("tainted", _TAINTED, _TAINTED),
    (PODS_LEAVE, _FIRST, _LAST),
    (BACK, _BACK, _BACK),
)
"""What comes to a node: its word, from which field to which, each with the name of its range."""
_MOST_ROWS: Final = 300
_MOST_CHARTS: Final = 60
_MOST_RECORDS: Final = 600


def page(answer: WhatIf) -> str:
    """The page."""
    tables, texts = list[tuple[str, list[str], list[list[str]]]](), list[str]()
    for block in WhatIfPage(answer).blocks(wide=True):
        if isinstance(block, Table):
            headers = [column.header for column in block.columns]
            rows = [[cell(value) for value in row] for row in block.rows]
            what = headers[headers[0] == "namespace"]
            tables += [(f"{what.capitalize()}s", headers, rows)] if rows else []
        else:
            texts += block.split("\n")
    last = _last(answer)
    lanes = list(_rows(answer, last))
    moved = [workload for workload in answer.workloads if not is_level(_points(workload))]
    level = [workload for workload in answer.workloads if is_level(_points(workload))]
    return render_page(
        "what_if",
        title=f"What if {' and '.join(map(act_words, answer.acts))}",
        full=answer.verdict.outage == FULL,
        headline=texts[0],
        moment=answer.moment,
        bars=_BARS,
        when=draw_lanes(lanes[:_MOST_ROWS], 0.0, last) if lanes else None,
        more_rows=max(0, len(lanes) - _MOST_ROWS),
        levels=_LEVELS,
        who_serves=_who_serves(moved[:_MOST_CHARTS], last) if moved else None,
        more_workloads=max(0, len(moved) - _MOST_CHARTS),
        level_workloads=[_level_row(workload) for workload in level[:_MOST_ROWS]],
        more_level=max(0, len(level) - _MOST_ROWS),
        tables_of_answer=tables,
        records=[_record(each) for each in answer.differences[:_MOST_RECORDS]],
        more_records=len(answer.differences[_MOST_RECORDS:]) + answer.truncated,
        notes=[*texts[1:], *answer.warnings],
    )


def _last(answer: WhatIf) -> float:
    """The last instant worth showing: nothing happens after it, or it was looked no further."""
    horizon = answer.horizon
    until = horizon.ended_seconds if horizon.ended == "quiet" else horizon.until_seconds
    ends = [act.at_seconds + (act.for_seconds or 0.0) for act in answer.acts]
    return max(1.0, until, *(min(end, horizon.until_seconds) for end in ends))


def _rows(answer: WhatIf, last: float) -> Iterator[Row]:
    """Acts, zones and nodes, each with what it is at when."""
    for act in answer.acts:
        end = last if act.for_seconds is None else act.at_seconds + act.for_seconds
        yield Row(act_words(act), [Bar(act.at_seconds, end, "act")], style="group")
    for zone in answer.zones:
        states = [(state.at, state.state) for state in zone.states]
        yield zone_row(zone.name, states, last, _in_words)
    yield from rows_of(folded(_fate(node) for node in answer.nodes), last, _in_words)


def _in_words(seconds: float) -> str:
    """As in the tables: whole seconds that have passed."""
    return human_duration(round(seconds * SECOND_NS))


def _fate(node: NodeFuture) -> Fate:
    steps = []
    for says, (first, first_range), (last, last_range) in _INSTANTS:
        low_s, high_s = getattr(node, first), getattr(node, last)
        if low_s is None or high_s is None:
            continue
        earliest, latest = node.ranges.get(first_range), node.ranges.get(last_range)
        low_s = low_s if earliest is None else earliest.earliest_seconds
        if latest is not None and latest.latest_seconds is not None:
            high_s = latest.latest_seconds
        steps.append(FateStep(says, low_s, high_s, node.evicted if says == PODS_LEAVE else 0))
    stays = "not back" if steps and node.back_seconds is None else ""
    state = "lost" if node.lost_seconds is not None else ""
    return Fate(node.name, node.zone, state, node.lost_seconds, tuple(steps), stays)


def _who_serves(workloads: Sequence[WorkloadFuture], last: float) -> LaneChart:
    return draw_lanes([_workload_row(workload, last) for workload in workloads], 0.0, last)


def _workload_row(workload: WorkloadFuture, last: float) -> Row:
    """Pods that serve (line) and that are ready in the API (dashes), over how bad that is."""
    lowest = {workload.low.lowest_serving, workload.lowest_serving, workload.high.lowest_serving}
    few = f"{min(lowest)}" if len(lowest) == 1 else f"{min(lowest)} to {max(lowest)}"
    text = f"{workload.ready_before} ready before, lowest {few}"
    between = _back_between(workload, last)
    if between is not None:
        text += f", back in {_in_words(between[0])} to {_in_words(between[1])}"
    elif workload.first_seconds is not None and workload.back_seconds is None:
        text += ", not back"
    elif workload.back_seconds is not None:
        text += f", back in {_in_words(workload.back_seconds)}"
    return Row(
        f"{workload.namespace}/{workload.name}",
        [*_levels(workload, last), *_back_range(workload, last)],
        f"{workload.kind}: {workload.outage}",
        workload.outage,
        text,
        lines=budget_lines(_points(workload)),
    )


def _levels(workload: WorkloadFuture, last: float) -> list[Bar]:
    """When fewer pods serve than before, and when none does."""
    before = workload.series[0].serving if workload.series else 0
    bars: list[Bar] = []
    for point, end in _spans(workload.series, last):
        style = "" if point.serving >= before else "fewer" if point.serving else "zero"
        if bars and bars[-1].style == style:
            bars[-1] = bars[-1]._replace(end=end)
        else:
            bars.append(Bar(point.at, end, style))
    return [bar for bar in bars if bar.style]


def _spans(series: Sequence[Any], last: float) -> Iterable[tuple[Any, float]]:
    """Each point with the instant of the next one."""
    ends = [point.at for point in series[1:]]
    return zip(series, [*ends, last], strict=True) if series else ()


def _back_range(workload: WorkloadFuture, last: float) -> Iterator[Bar]:
    band = _back_between(workload, last)
    if band is not None:
        yield Bar(*band, RANGE)


def _back_between(workload: WorkloadFuture, last: float) -> tuple[float, float] | None:
    """From when to when the three plays say that it is back; None where they agree."""
    if workload.first_seconds is None:
        return None
    backs = [workload.low.back_seconds, workload.back_seconds, workload.high.back_seconds]
    found = [last if back is None else min(back, last) for back in backs]
    return (min(found), max(found)) if min(found) < max(found) else None


def _points(workload: WorkloadFuture) -> list[BudgetPoint]:
    """Pods that serve and that are ready in the API, as the two lines of a chart."""
    return [BudgetPoint(p.at, p.serving, p.ready, 0) for p in workload.series]


def _level_row(workload: WorkloadFuture) -> list[str]:
    first = workload.series[0] if workload.series else None
    counts = ("", "") if first is None else (str(first.serving), str(first.ready))
    return [f"{workload.namespace}/{workload.name}", *counts]


def _record(difference: Difference) -> tuple[str, ...]:
    obj = difference.object
    name = f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name
    return (
        clock(difference.at),
        difference.play,
        difference.controller,
        difference.action,
        f"{obj.kind.lower()}/{name}",
        difference.reason,
    )
