"""`upgrade plan` as a document: nodes, steps, budgets, lowest point, estimate, findings."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.controllers.upgrade.counts import NodeScope, ScopeBudget
from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    LABEL_STATE,
    TAINT_OUTDATED,
    TAINT_UNPROVEN,
    absent_shield,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode, policy_mapping
from kubectl_nodelife.document import document
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.upgrade_course import Course, CourseStep, LowPoint
from kubectl_nodelife.upgrade.plan_values import PlannedNode, UpgradePlan

Json = dict[str, Any]


def upgrade_plan_document(plan: UpgradePlan, source: Json) -> Json:
    """The document. `source` says where the objects are from and of which moment.

    Seconds count from the first claim, which comes `estimate.coldSeconds` after the start.
    """
    estimate = plan.estimate
    course = plan.course
    return document(
        "UpgradePlan",
        source=source,
        policy=policy_mapping(plan.policy),
        refusals=plan.refusals,
        counts=counts_of(plan),
        estimate=estimate
        and {
            "lowSeconds": round(estimate.low, 1),
            "highSeconds": round(estimate.high, 1),
            "coldSeconds": estimate.cold,
            "expectedSeconds": round(plan.expected_seconds, 1),
        },
        lowest=lowest_of(course),
        evictions=course.evictions,
        movesOfAPod={"mean": round(course.moves[0], 2), "max": course.moves[1]},
        budgets=[_budget(budget) for budget in plan.budgets],
        steps=[_step(index, step) for index, step in enumerate(course.steps)],
        nodes=[_node(node, plan) for node in plan.nodes],
        available=[[seconds(at_ns), count] for at_ns, count in course.available],
        findings=[finding._asdict() for finding in plan.findings],
        pending=course.waiting,
        assumptions=plan.assumptions,
        notEvaluated=plan.not_evaluated,
        rights=plan.rights,
    )


def counts_of(plan: UpgradePlan) -> dict[str, int]:
    """How many nodes are selected, and what becomes of them."""
    found = {"selected": len(plan.nodes), "claim": 0, "skip": 0, "hold": 0}
    for node in plan.nodes:
        found[node.decision] += 1
    return found


def lowest_of(course: Course) -> Json:
    """The fewest available nodes of each scope, and the least free share of cpu and memory."""
    by_pool = {s.pool: low for s, low in course.lowest.items() if s.kind == "pool"}
    by_zone = {_zone(s): low for s, low in course.lowest.items() if s.kind == "zone"}
    every = [low for s, low in course.lowest.items() if s.kind == "cluster"]
    return {
        "all": every[0].available if every else None,
        "at": seconds(every[0].at_ns) if every else None,
        "byPool": {pool: _low(low) for pool, low in by_pool.items()},
        "byZone": {zone: _low(low) for zone, low in by_zone.items()},
        "freeShare": {name: round(share, 4) for name, share in course.free_share.items()},
    }


def seconds(at_ns: int | None) -> float | None:
    """Nanoseconds to seconds, to the millisecond."""
    return None if at_ns is None else round(at_ns / SECOND_NS, 3)


def _zone(scope: NodeScope) -> str:
    return f"{scope.pool}/{scope.zone}"


def _low(low: LowPoint) -> Json:
    return {"available": low.available, "at": seconds(low.at_ns)}


def _budget(budget: ScopeBudget) -> Json:
    return {
        "scope": budget.scope.kind,
        "pool": budget.scope.pool,
        "zone": budget.scope.zone,
        "nodes": budget.base,
        "available": budget.available,
        "unavailable": budget.unavailable,
        "leastAvailable": budget.floor,
        "mostUnavailable": budget.most_unavailable,
        "slots": budget.slots,
    }


def _step(index: int, step: CourseStep) -> Json:
    return {
        "index": index,
        "pool": step.pool,
        "width": step.width or None,
        "zones": step.zones,
        "nodes": step.names,
        "startSeconds": seconds(step.start_ns),
        "endSeconds": seconds(step.end_ns),
        "soakSeconds": seconds(step.soak_ns),
    }


def _node(node: PlannedNode, plan: UpgradePlan) -> Json:
    turn, verdict, remedy = node.turn, node.verdict, node.remedy
    return {
        "name": node.name,
        "pool": node.pool,
        "zone": node.zone,
        "decision": node.decision,
        "reason": node.reason,
        "drain": {
            "verdict": verdict.verdict,
            "sentence": verdict.sentence,
            "lowSeconds": round(verdict.low_seconds, 1),
            "highSeconds": round(verdict.high_seconds, 1),
            "pods": len(verdict.moving),
            "flagsNeeded": node.flags_needed,
            "unblock": remedy and {"change": remedy.change, "risk": remedy.risk},
        },
        "step": turn.step if turn is not None else None,
        "times": turn
        and {
            "claimed": seconds(turn.claimed_ns),
            "drained": seconds(turn.drained_ns),
            "worked": seconds(turn.worked_ns),
            "settled": seconds(turn.settled_ns),
            "released": seconds(turn.released_ns),
            "done": seconds(turn.done_ns),
        },
        "writes": node_writes(node, plan.policy) if node.decision == "claim" else [],
    }


def node_writes(planned: PlannedNode, policy: UpgradePolicy) -> list[Json]:
    """Each write: verb, resource, name, and what it sets. Work of one's own is not among them."""
    node, name = planned.node, planned.name
    annotations, labels = absent_shield(node) if policy.shield else ({}, {})
    shield = [*annotations, *labels]
    ours = not node.spec.unschedulable
    writes = []
    if policy.mark_outdated:
        writes.append(_patch(name, f"taint {TAINT_OUTDATED}=RUN:PreferNoSchedule"))
    cordon = ["spec.unschedulable=true"] if ours else []
    claim = [*cordon, *_state("Draining"), *(f"{key}=true" for key in shield)]
    writes.append(_patch(name, *claim))
    for namespace, pod in planned.verdict.moving:
        evicted = {"verb": "create", "resource": "pods/eviction", "name": f"{namespace}/{pod}"}
        writes.append({**evicted, "sets": []})
    writes.append(_patch(name, *_state("Working")))
    if policy.work.mode is WorkMode.JOB:
        writes.append({"verb": "create", "resource": "jobs", "name": f"for {name}", "sets": []})
    writes.append(_patch(name, *_state("Settling")))
    swap = ["spec.unschedulable=false"] if ours else []
    swap += [f"taint {TAINT_UNPROVEN}=RUN:NoSchedule", *_state("Proving")]
    writes.append(_patch(name, *swap, *([f"no taint {TAINT_OUTDATED}"] * policy.mark_outdated)))
    canary = {"resource": "pods", "name": f"{policy.namespace}/nodelife-canary-…", "sets": []}
    writes += [{"verb": "create", **canary}, {"verb": "delete", **canary}]
    off = [f"no {key}" for key in shield]
    writes.append(_patch(name, f"no taint {TAINT_UNPROVEN}", *off, *_state("Soaking")))
    writes.append(_patch(name, *_state("Done")))
    writes.append(_patch(name, f"no {ANNOTATION}", f"no {LABEL_STATE}"))
    return writes


def _state(state: str) -> list[str]:
    return [f"{ANNOTATION}: state {state}", f"{LABEL_STATE}={state}"]


def _patch(name: str, *sets: str) -> Json:
    return {"verb": "patch", "resource": "nodes", "name": name, "sets": list(sets)}
