"""An upgrade's plan as one self-contained page: a Gantt of nodes by zone, availability over time.

No script, no font, nothing fetched. What is here are plain values; templates/upgrade.html makes
markup of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubectl_nodelife.drain.results import BudgetPlan, BudgetPoint
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report.ages import clock
from kubectl_nodelife.report.drain_svg import (
    Bar,
    BudgetChart,
    Row,
    budget_chart,
    draw_gantt,
    gantt_frame,
)
from kubectl_nodelife.report.html import render_page
from kubectl_nodelife.report.upgrade_plan import (
    finding_lines,
    headline,
    headlines,
    lowest_lines,
    notes,
    undone_lines,
)
from kubectl_nodelife.sim.upgrade_course import NodeTurn
from kubectl_nodelife.upgrade.forecast import PlannedNode, UpgradePlan

_MOST_NODES: Final = 2000
_PHASES: Final = (
    ("draining", "Draining"),
    ("working", "Working"),
    ("settling", "Settling"),
    ("proving", "Proving"),
    ("soaking", "Soaking (in service)"),
)


def page(plan: UpgradePlan, source: dict[str, Any]) -> str:
    """The page."""
    moment = source.get("moment") or {}
    last = max(1.0, plan.course.end_ns / SECOND_NS)
    rows = list(_rows(plan))[:_MOST_NODES]
    return render_page(
        "upgrade",
        title=f"Upgrade plan of {counted(len(plan.nodes), 'node')}",
        headline=headline(plan),
        would=headlines(plan)[1:],
        refused=bool(plan.refusals),
        consequences=list(lowest_lines(plan)),
        moment=moment and {"time": moment.get("time", ""), "origin": moment.get("origin", "")},
        findings=[*finding_lines(plan), *undone_lines(plan)],
        phases=_PHASES,
        available=_availability(plan, last, rows) if plan.course.turns else None,
        gantt=draw_gantt(rows, 0.0, last),
        steps=[
            (
                str(index),
                step.pool,
                ", ".join(step.zones),
                str(len(step.names)),
                clock(step.start_ns / SECOND_NS),
                clock(None if step.end_ns is None else step.end_ns / SECOND_NS),
                clock(step.soak_ns / SECOND_NS),
            )
            for index, step in enumerate(plan.course.steps)
        ],
        nodes=[_cells(node) for node in plan.nodes[:_MOST_NODES]],
        more_nodes=max(0, len(plan.nodes) - _MOST_NODES),
        notes=notes(plan),
    )


def _availability(plan: UpgradePlan, last: float, rows: list[Row]) -> BudgetChart:
    """Available nodes of the run's pools as a line, with the floor that they never go below.

    It has the times of the chart of the nodes, and stands above it.
    """
    used = {step.pool for step in plan.course.steps}
    pools = [b for b in plan.budgets if b.scope.kind == "pool" and b.scope.pool in used]
    floor = sum(max(b.floor, b.base - b.most_unavailable) for b in pools)
    points = [
        BudgetPoint(at_ns / SECOND_NS, count, floor, max(0, count - floor))
        for at_ns, count in plan.course.available
    ]
    total = sum(b.base for b in pools)
    bottom = max(0, floor - max(1, (total - floor) // 4))
    shown = BudgetPlan("", "available nodes", "", total, floor, total, 0, points)
    chart = budget_chart(shown, last, bottom, gantt_frame(rows))
    return chart._replace(ticks=[])  # the chart below has them


def _rows(plan: UpgradePlan) -> Iterator[Row]:
    """The nodes by pool and zone, in the order of their claims."""
    places: dict[tuple[str, str], list[PlannedNode]] = {}
    for node in plan.nodes:
        places.setdefault((node.pool, node.zone), []).append(node)
    for (pool, zone), nodes in sorted(places.items()):
        where = "/".join(part for part in (pool, zone) if part) or "no zone"
        done = sum(1 for node in nodes if node.turn is not None)
        yield Row(where, [], f"{where}: {done} of {counted(len(nodes), 'node')}", "group")
        nodes.sort(key=lambda n: (n.turn is None, n.turn.claimed_ns if n.turn else 0, n.name))
        for node in nodes:
            bars = list(_bars(node.turn)) if node.turn is not None else []
            mark = "" if node.decision == "claim" else f"{node.decision}: {node.reason[:60]}"
            yield Row(node.name, bars, node.reason or node.verdict.sentence, node.decision, mark)


def _bars(turn: NodeTurn) -> Iterator[Bar]:
    instants = (
        turn.claimed_ns,
        turn.drained_ns,
        turn.worked_ns,
        turn.settled_ns,
        turn.released_ns,
        turn.done_ns,
    )
    for (style, _), begin, end in zip(_PHASES, instants, instants[1:], strict=False):
        if begin is not None and end is not None and end > begin:
            yield Bar(begin / SECOND_NS, end / SECOND_NS, style)


def _cells(node: PlannedNode) -> tuple[str, ...]:
    turn = node.turn
    claimed = None if turn is None else turn.claimed_ns / SECOND_NS
    released = None if turn is None or turn.released_ns is None else turn.released_ns / SECOND_NS
    return (
        node.name,
        node.pool,
        node.zone,
        node.decision,
        node.verdict.verdict,
        str(len(node.verdict.moving)),
        clock(claimed),
        clock(released),
        node.reason or node.verdict.sentence,
    )
