"""A drain plan as one self-contained page: blockers on top, a Gantt chart, budgets over time.

No script, no font, nothing fetched: the file can be mailed, archived and printed. What is here are
plain values; templates/drain.html makes markup of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kubectl_nodelife.drain.results import (
    CORDON_FIRST,
    NEVER,
    NOT_READ,
    REFUSED,
    DrainPlan,
    NodePlan,
    PodPlan,
)
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.report.ages import clock
from kubectl_nodelife.report.drain import (
    blockers,
    consequences,
    headline,
    landing_text,
    not_read,
    outage_length,
    workload_name,
)
from kubectl_nodelife.report.drain_lanes import (
    budget_row,
    budget_text,
    horizon,
    is_level,
    plan_chart,
    wave_charts,
)
from kubectl_nodelife.report.html import render_page
from kubectl_nodelife.report.lanes import LaneChart, draw_lanes

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

Row = tuple[str, ...]


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
        found = _blockers(shown)
        with_flags = {"flags": flags, "headline": headline(shown), "blockers": found}
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


def _node_cells(node: NodePlan) -> Row:
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


def _workloads(plan: DrainPlan) -> list[Row]:
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


def _pods(plan: DrainPlan) -> tuple[list[Row], int]:
    """The worst first, and how many more there are."""
    order = {REFUSED: 0, NEVER: 1, "unknown": 2, "slow": 3, "ready": 4}
    pods = sorted(plan.pods(), key=lambda pod: order.get(pod.verdict, 5))
    rows: list[Row] = [
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
    bound, waves = plan.bound, len(plan.waves)
    first = (
        f"{waves} wave{'s' if waves != 1 else ''}; no plan needs fewer than {bound.waves},"
        f" nor less than {clock(bound.seconds)}"
    )
    cordon = []
    if plan.cordon is not None:
        when = "all nodes first" if plan.cordon.when == CORDON_FIRST else "wave by wave"
        cordon = [f"cordoned {when}: {plan.cordon.because}"]
    missing = list(not_read(plan))
    notes = (*plan.assumptions, *plan.warnings)
    more = [f"and {len(notes) - _MOST_NOTES} more"] if len(notes) > _MOST_NOTES else []
    return [first, *cordon, *missing, *notes[:_MOST_NOTES], *more]
