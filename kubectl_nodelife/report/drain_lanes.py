"""The lanes of a drain plan: waves, nodes and pods, and budgets over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kubectl_nodelife.drain.results import (
    KEPT,
    NEVER,
    NOT_READ,
    REFUSED,
    UNKNOWN,
    BudgetPlan,
    BudgetPoint,
    DrainPlan,
    PodPlan,
    WavePlan,
)
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.report.lanes import Bar, LaneChart, Line, Row, draw_lanes

MOST_POD_ROWS: Final = 250
"""With more pods than that a chart has one bar for each node."""
MOST_ROWS: Final = 2000
"""A row of a node whose name has 253 characters takes 600 bytes of the page."""


def horizon(plan: DrainPlan) -> float:
    """The last instant worth showing, in seconds."""
    times = [t for pod in plan.pods() for t in (pod.start, pod.gone, pod.end) if t is not None]
    times += [t for wave in plan.waves for t in (wave.start, wave.end) if t is not None]
    times += [node.end for node in plan.nodes if node.end is not None]
    times += [wave.end + plan.maintenance for wave in plan.waves if wave.end is not None]
    return max([1.0, *times])


def plan_chart(plan: DrainPlan) -> LaneChart:
    """The chart of nodes and their pods; for waves of our own, of waves and nodes."""
    last = horizon(plan)
    by_pod = not plan.own_waves and len(plan.pods()) <= MOST_POD_ROWS
    rows: list[Row] = []
    for wave in plan.waves:
        if plan.own_waves:
            span = _span(wave.start, wave.end, last, "wave")
            size = counted(len(wave.nodes), "node")
            rows.append(Row(f"wave {wave.index + 1}", span, size, "group", note=size))
        rows += _wave_rows(plan, wave, by_pod, last)
    return draw_lanes(rows[:MOST_ROWS], 0.0, last)


def wave_charts(plan: DrainPlan) -> list[tuple[int, LaneChart]]:
    """(index, chart) of each wave of our own, on its own axis: a maintenance lies between them."""
    if not plan.own_waves or len(plan.pods()) > 4 * MOST_POD_ROWS:
        return []
    charts = []
    for wave in plan.waves:
        if wave.start is not None:
            last = wave.end if wave.end is not None else horizon(plan)
            rows = list(_wave_rows(plan, wave, True, last))
            charts.append((wave.index, draw_lanes(rows, wave.start, max(last, wave.start + 1))))
    return charts


def _wave_rows(plan: DrainPlan, wave: WavePlan, by_pod: bool, last: float) -> Iterable[Row]:
    nodes = {node.name: node for node in plan.nodes}
    for name in wave.nodes:
        node = nodes[name]
        pods = [pod for pod in wave.pods if pod.node == name and pod.verdict != KEPT]
        span = [*_span(node.start, node.end, last, "node"), *_maintenance(plan, wave, last)]
        yield Row(name, span, name, "group", _mark(pods), counted(len(pods), "pod"))
        if by_pod:
            for pod in pods:
                yield _pod_row(pod, node.start or 0.0, last)


def _span(begin: float | None, end: float | None, last: float, style: str) -> list[Bar]:
    return [] if begin is None else [Bar(begin, last if end is None else end, style)]


def _maintenance(plan: DrainPlan, wave: WavePlan, last: float) -> list[Bar]:
    """The time in which the nodes of the wave are out of service, as far as the chart reaches."""
    if not plan.maintenance or wave.end is None or wave.end >= last:
        return []
    return [Bar(wave.end, min(last, wave.end + plan.maintenance), "maintenance")]


def _mark(pods: list[PodPlan]) -> str:
    for verdict in (REFUSED, NEVER):
        count = sum(1 for pod in pods if pod.verdict == verdict)
        if count:
            return f"{count} {verdict}"
    return ""


def _pod_row(pod: PodPlan, begin: float, last: float) -> Row:
    """Waiting for the eviction, going, and until the replacement is Ready."""
    bars = []
    start = pod.start
    if start is None:
        if pod.verdict != REFUSED:
            bars.append(Bar(begin, last, "stuck"))
    else:
        if start - begin > 1:
            bars.append(Bar(begin, start, "waiting"))
        gone = pod.gone if pod.gone is not None else last
        bars.append(Bar(start, gone, "going" if pod.gone is not None else "stuck"))
        if pod.end is not None and pod.end > gone:
            bars.append(Bar(gone, pod.end, "starting"))
    mark = ""
    if pod.verdict not in ("ready", "slow") and (pod.verdict, pod.gate) != (UNKNOWN, "none"):
        mark = pod.verdict if pod.gate == "none" else f"{pod.verdict}: {pod.gate}"
    title = pod.reason.removesuffix(NOT_READ)
    return Row(f"{pod.namespace}/{pod.name}", bars, title, f"pod {pod.verdict}", mark)


def is_level(points: Sequence[BudgetPoint]) -> bool:
    """True if neither line of the budget's chart ever moves: a row says it as well."""
    return len({(point.healthy, point.desired) for point in points}) <= 1


def budget_lines(points: Sequence[BudgetPoint]) -> list[Line]:
    """Healthy pods, and how many the budget asks for."""
    return [
        Line("healthy", [(point.at, point.healthy) for point in points]),
        Line("desired", [(point.at, point.desired) for point in points]),
    ]


def budget_text(budget: BudgetPlan) -> str:
    """Its rule, and how it stands at the start."""
    return (
        f"{budget.rule}: {budget.healthy} healthy of {budget.expected},"
        f" {budget.desired} needed, {budget.allowed} may go"
    )


def budget_row(budget: BudgetPlan) -> Row:
    """The lane of a budget."""
    name = f"{budget.namespace}/{budget.name}"
    return Row(name, words=budget_text(budget), lines=budget_lines(budget.points))
