"""A `WhatIf` as one self-contained page: what serves when, in bands, what zones and nodes do, and
the records that differ.

No script, no font, nothing fetched. What is here are plain values; templates/what_if.html makes
markup of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from kubectl_nodelife.drain.results import FULL, BudgetPlan, BudgetPoint
from kubectl_nodelife.outlook.what_if.document import (
    Difference,
    NodeFuture,
    WhatIf,
    WorkloadFuture,
    ZoneFuture,
)
from kubectl_nodelife.outlook.what_if.sentences import act_words
from kubectl_nodelife.report.ages import clock
from kubectl_nodelife.report.drain_svg import (
    SMALL,
    Bar,
    BudgetChart,
    Row,
    budget_chart,
    draw_gantt,
    is_level,
    near_bottom,
)
from kubectl_nodelife.report.html import render_page
from kubectl_nodelife.report.table import Table, cell
from kubectl_nodelife.report.what_if import WhatIfPage

_BARS: Final = (
    ("act", "an act lasts"),
    ("zero", "no pod serves"),
    ("fewer", "fewer pods serve"),
    ("range", "back between the fast and the slow play"),
    ("silent", "lost"),
    ("unknown", "Unknown"),
    ("stopped", "zone not Normal"),
)
_MOST_ROWS: Final = 300
_MOST_CHARTS: Final = 60
_MOST_RECORDS: Final = 600


class _Band(NamedTuple):
    """When a workload is back, from the fast play to the slow one, as a place of a chart."""

    x: str
    width: str


class _Figure(NamedTuple):
    """The chart of a workload."""

    name: str
    text: str
    chart: BudgetChart
    band: _Band | None


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
    spans = list(_rows(answer, last))
    moved = [workload for workload in answer.workloads if not is_level(_points(workload))]
    level = [workload for workload in answer.workloads if is_level(_points(workload))]
    return render_page(
        "what_if",
        title=f"What if {' and '.join(map(act_words, answer.acts))}",
        full=answer.verdict.outage == FULL,
        headline=texts[0],
        moment=answer.moment,
        bars=_BARS,
        gantt=draw_gantt(spans[:_MOST_ROWS], 0.0, last) if spans else None,
        more_rows=max(0, len(spans) - _MOST_ROWS),
        charts_of_workloads=[_figure(workload, last) for workload in moved[:_MOST_CHARTS]],
        more_charts=max(0, len(moved) - _MOST_CHARTS),
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
    """Acts, workloads, zones and nodes, each with what it is at when."""
    for act in answer.acts:
        end = last if act.for_seconds is None else act.at_seconds + act.for_seconds
        yield Row(act_words(act), [Bar(act.at_seconds, end, "act")], style="group")
    for workload in answer.workloads:
        name = f"{workload.namespace}/{workload.name}"
        bars = [*_levels(workload, last), *_back_range(workload, last)]
        never = workload.first_seconds is not None and workload.back_seconds is None
        title = f"{workload.kind} {name}: {workload.outage}"
        yield Row(name, bars, title, workload.outage, "never back" if never else "")
    for zone in answer.zones:
        yield Row(f"zone {zone.name}", list(_zone_bars(zone, last)), zone.states[-1].because)
    for node in answer.nodes:
        yield Row(node.name, list(_node_bars(node, last)), node.because, mark=_evicted(node))


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
        yield Bar(*band, "range")


def _back_between(workload: WorkloadFuture, last: float) -> tuple[float, float] | None:
    """From when to when the three plays say that it is back; None where they agree."""
    if workload.first_seconds is None:
        return None
    backs = [workload.low.back_seconds, workload.back_seconds, workload.high.back_seconds]
    found = [last if back is None else min(back, last) for back in backs]
    return (min(found), max(found)) if min(found) < max(found) else None


def _zone_bars(zone: ZoneFuture, last: float) -> Iterator[Bar]:
    for state, end in _spans(zone.states, last):
        if state.state != "Normal":
            yield Bar(state.at, end, "stopped")


def _node_bars(node: NodeFuture, last: float) -> Iterator[Bar]:
    end = last if node.back_seconds is None else node.back_seconds
    instants = [(node.lost_seconds, "silent"), (node.unknown_seconds, "unknown")]
    begun = [(at, style) for at, style in instants if at is not None]
    for (at, style), (until, _) in pairwise([*begun, (end, "")]):
        if at < until:
            yield Bar(at, until, style)


def _evicted(node: NodeFuture) -> str:
    return f"{node.evicted} evicted" if node.evicted else ""


def _points(workload: WorkloadFuture) -> list[BudgetPoint]:
    """Pods that serve and that are ready in the API, as the two lines of a chart."""
    return [BudgetPoint(p.at, p.serving, p.ready, 0) for p in workload.series]


def _level_row(workload: WorkloadFuture) -> list[str]:
    first = workload.series[0] if workload.series else None
    counts = ("", "") if first is None else (str(first.serving), str(first.ready))
    return [f"{workload.namespace}/{workload.name}", *counts]


def _figure(workload: WorkloadFuture, last: float) -> _Figure:
    """Pods that serve (line) and that are ready in the API (dashes)."""
    points = _points(workload)
    name = f"{workload.namespace}/{workload.name}"
    plan = BudgetPlan(workload.namespace, name, "", 0, 0, 0, 0, points)
    drawn = budget_chart(plan, last, near_bottom(points))
    lowest = {workload.low.lowest_serving, workload.lowest_serving, workload.high.lowest_serving}
    few = f"{min(lowest)}" if len(lowest) == 1 else f"{min(lowest)} to {max(lowest)}"
    text = f"{workload.ready_before} ready before, lowest {few}"
    band, between = None, _back_between(workload, last)
    if between is not None:
        scale = (SMALL.width - SMALL.left - SMALL.right) / last
        width = (between[1] - between[0]) * scale
        band = _Band(f"{SMALL.left + between[0] * scale:.1f}", f"{max(width, 1.5):.1f}")
        text += f", back in {clock(between[0])} to {clock(between[1])}"
    return _Figure(name, text, drawn, band)


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
