"""A drain plan as one self-contained page: blockers on top, lanes of waves, nodes and pods, budgets
over time.

No script, no font, nothing fetched: the file can be mailed, archived and printed. What is here are
plain values; templates/drain.html makes markup of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kubectl_nodelife.drain.results import (
    KEPT,
    NEVER,
    NOT_READ,
    REFUSED,
    UNKNOWN,
    BudgetPlan,
    BudgetPoint,
    DrainPlan,
    NodePlan,
    PodPlan,
    WavePlan,
)
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import clock
from kubectl_nodelife.report.drain import (
    blockers,
    consequences,
    headline,
    landing_text,
    limits,
    outage_length,
    workload_name,
)
from kubectl_nodelife.report.html import Bar, LaneChart, Line, Row, draw_lanes, render_page

_MOST_ROWS = 600
"""Rows of the table of pods; the others are counted."""
_MOST_NODES = 2000
_MOST_BUDGETS = 40
_MOST_BLOCKERS = 100
_MOST_NOTES = 200
_BARS = (
    ("waiting", "waits for its turn or its budget"),
    ("going", "is terminating"),
    ("starting", "replacement starts"),
    ("stuck", "does not go"),
)
_MAINTENANCE = ("maintenance", "maintenance")

Cells = tuple[str, ...]


class Blockers(NamedTuple):
    """The reasons that stop a drain, alike ones as one; `more`: how many are left out."""

    shown: list[dict[str, Any]]
    more: int


def page(plan: DrainPlan, source: dict[str, Any]) -> str:
    """The page."""
    shown = plan.with_flags or plan
    with_flags = None
    if shown is not plan:
        flags = " ".join(plan.flags_needed)
        blockers = _blockers(shown)
        with_flags = {"flags": flags, "headline": headline(shown), "blockers": blockers}
    moment = source.get("moment") or {}
    budgets = _budgets(shown)
    pods, more_pods = _pods(shown)
    return render_page(
        "drain",
        title=_title(plan),
        verdict=plan.verdict,
        headline=headline(plan),
        consequences=list(consequences(plan)),
        moment=moment and {"time": moment.get("time", ""), "origin": moment.get("origin", "")},
        blockers=_blockers(plan),
        with_flags=with_flags,
        bars=(*_BARS, _MAINTENANCE) if shown.maintenance else _BARS,
        when=plan_chart(shown),
        waves=[(index + 1, chart) for index, chart in wave_charts(shown)],
        budgets=budgets,
        nodes=[_node_cells(node) for node in shown.nodes[:_MOST_NODES]],
        more_nodes=max(0, len(shown.nodes) - _MOST_NODES),
        workloads=_workloads(shown),
        pods=pods,
        more_pods=more_pods,
        webhooks=[hook.sentence() for hook in shown.webhooks[:_MOST_NOTES]],
        notes=_notes(shown),
    )


def _title(plan: DrainPlan) -> str:
    return f"Drain plan of {first_names([node.name for node in plan.nodes], 3)}"


def _blockers(plan: DrainPlan) -> Blockers:
    by_reason: dict[tuple[str, str], list[PodPlan]] = {}
    for pod in blockers(plan):
        if pod.gate != "none" or pod.verdict == NEVER:
            by_reason.setdefault((pod.gate, pod.reason), []).append(pod)
    shown = []
    for (gate, reason), pods in list(by_reason.items())[:_MOST_BLOCKERS]:
        names = first_names([f"{pod.namespace}/{pod.name}" for pod in pods], 5)
        blocker = {"gate": gate, "names": names, "reason": reason}
        shown.append({**blocker, "remedy": pods[0].remedy, "hint": pods[0].hint})
    return Blockers(shown, len(by_reason) - len(shown))


class Budgets(NamedTuple):
    """Lanes of those that move; those that hold something and never move, a row each."""

    chart: LaneChart | None
    more_lanes: int
    level: list[list[str]]
    more_level: int


def _budgets(plan: DrainPlan) -> Budgets:
    """Budgets that moved or hold something."""
    held = [b for b in plan.budgets if len(b.points) > 1 or b.allowed == 0]
    held.sort(key=lambda budget: min(p.allowed for p in budget.points) if budget.points else 0)
    moved = [budget for budget in held if not is_level(budget.points)]
    level = [
        [f"{budget.namespace}/{budget.name}", budget_text(budget)]
        for budget in held
        if is_level(budget.points)
    ]
    rows = [budget_row(budget) for budget in moved[:_MOST_BUDGETS]]
    chart = draw_lanes(rows, 0.0, horizon(plan)) if rows else None
    more = len(moved) - len(rows)
    return Budgets(chart, more, level[:_MOST_NODES], len(level[_MOST_NODES:]))


def _node_cells(node: NodePlan) -> Cells:
    return (
        node.name,
        node.zone,
        node.verdict,
        str(node.pods),
        str(len(node.kept)),
        clock(node.start),
        clock(node.end),
        node.command,
    )


def _workloads(plan: DrainPlan) -> list[Cells]:
    hit = [w for w in plan.workloads if w.outage != "none"]
    return [
        (
            f"{w.namespace}/{workload_name(w)}",
            w.outage,
            outage_length(w),
            str(w.ready),
            str(w.lowest),
            str(w.evicted),
            clock(w.time_to_ready),
            w.time_to_ready_from,
        )
        for w in hit[:_MOST_ROWS]
    ]


def _pods(plan: DrainPlan) -> tuple[list[Cells], int]:
    """The worst first, and how many more there are."""
    order = {REFUSED: 0, NEVER: 1, "unknown": 2, "slow": 3, "ready": 4}
    pods = sorted(plan.pods(), key=lambda pod: order.get(pod.verdict, 5))
    rows: list[Cells] = [
        (
            f"{pod.namespace}/{pod.name}",
            pod.node,
            pod.verdict,
            pod.gate,
            clock(pod.start),
            clock(pod.gone),
            clock(pod.end),
            landing_text(pod.landing),
            pod.reason.removesuffix(NOT_READ),
        )
        for pod in pods[:_MOST_ROWS]
    ]
    return rows, len(pods) - len(rows)


def _notes(plan: DrainPlan) -> list[str]:
    notes = (*plan.assumptions, *plan.warnings)
    more = [f"and {len(notes) - _MOST_NOTES} more"] if len(notes) > _MOST_NOTES else []
    return [*limits(plan), *notes[:_MOST_NOTES], *more]


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
