"""`upgrade plan` as a document: nodes, steps, budgets, lowest point, estimate, findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from kubectl_nodelife.controllers.upgrade.counts import ScopeBudget
from kubectl_nodelife.controllers.upgrade.marks import ANNOTATION, NodeState
from kubectl_nodelife.controllers.upgrade.policy import policy_mapping
from kubectl_nodelife.document import document
from kubectl_nodelife.engine.actions import Action, EvictPod, NodeMarkPatch, RecordEvent
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.times import in_seconds
from kubectl_nodelife.outlook.upgrade_status import lowest_document
from kubectl_nodelife.sim.upgrade_course import INSTANTS, PlayedRun, PlayedStep
from kubectl_nodelife.upgrade.findings import CLAIM, HOLD, SKIP, PlannedNode, UpgradePlan

Json = dict[str, Any]


def upgrade_plan_document(plan: UpgradePlan, source: Json) -> Json:
    """The document. `source` says where the objects are from and of which moment.

    Seconds count from `estimate.coldSeconds` after the start: no leader claims sooner.
    """
    estimate = plan.estimate
    course, writes = plan.course, writes_by_node(plan)
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
            "expectedSeconds": round(estimate.expected, 1),
        },
        lowest=lowest_of(course),
        evictions=course.evictions,
        movesOfAPod={"mean": round(course.moves[0], 2), "max": course.moves[1]},
        budgets=[_budget(budget) for budget in plan.budgets],
        steps=[_step(index, step) for index, step in enumerate(course.steps)],
        nodes=[_node(node, writes.get(node.name, [])) for node in plan.nodes],
        available=[[in_seconds(at_ns), count] for at_ns, count in course.available],
        findings=[finding._asdict() for finding in plan.findings],
        pending=course.waiting,
        assumptions=plan.assumptions,
        notEvaluated=plan.not_evaluated,
        rights=plan.rights,
    )


def counts_of(plan: UpgradePlan) -> dict[str, int]:
    """How many nodes are selected, and what becomes of them."""
    counts = Counter(node.decision for node in plan.nodes)
    return {"selected": len(plan.nodes), **{each: counts[each] for each in (CLAIM, SKIP, HOLD)}}


def lowest_of(course: PlayedRun) -> Json:
    """The fewest available nodes of each scope, and the least free share of cpu and memory."""
    lows = {
        scope: {"available": low.available, "at": in_seconds(low.at_ns)}
        for scope, low in course.lowest.items()
    }
    free_share = {name: round(share, 4) for name, share in course.free_share.items()}
    return {**lowest_document(lows), "freeShare": free_share}


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


def _step(index: int, step: PlayedStep) -> Json:
    return {
        "index": index,
        "pool": step.pool,
        "width": step.width or None,
        "zones": step.zones,
        "nodes": step.names,
        "startSeconds": in_seconds(step.start_ns),
        "endSeconds": in_seconds(step.end_ns),
        "soakSeconds": in_seconds(step.soak_ns),
    }


def _node(node: PlannedNode, writes: list[Json]) -> Json:
    turn, verdict = node.turn, node.verdict
    remedies = [{"change": remedy.change, "risk": remedy.risk} for remedy in node.remedies]
    return {
        "name": node.name,
        "pool": node.pool,
        "zone": node.zone,
        "decision": node.decision,
        "reason": node.reason,
        "byChance": node.by_chance,
        "drain": {
            "verdict": verdict.verdict,
            "sentence": verdict.sentence,
            "lowSeconds": round(verdict.low_seconds, 1),
            "highSeconds": round(verdict.high_seconds, 1),
            "pods": len(verdict.moving),
            "flagsNeeded": node.flags_needed,
            "unblock": remedies[0] if remedies else None,
            "unblockAll": remedies,
        },
        "step": turn.step if turn is not None else None,
        "times": turn and {what: in_seconds(turn.at.get(what)) for what in INSTANTS.values()},
        "writes": writes if node.decision == CLAIM else [],
    }


def writes_by_node(plan: UpgradePlan) -> dict[str, list[Json]]:
    """Each write to a node and what is made for it, as the played run decided them, Events apart:
    verb, resource, name, and what it sets. Evictions are those of the pods that the node has now;
    RUN stands for the run's name. What work of one's own writes is not among them.
    """
    moving = {node.name: node.verdict.moving for node in plan.nodes}
    writes: dict[str, list[Json]] = defaultdict(list)
    for _, action in plan.course.decided:
        name = getattr(action, "node", "")
        if not name or not action.writes or isinstance(action, (EvictPod, RecordEvent)):
            continue
        writes[name].append(_write(action))
        if isinstance(action, NodeMarkPatch) and action.to == NodeState.DRAINING:
            evicts = {"verb": "create", "resource": "pods/eviction"}
            writes[name] += [
                {**evicts, "name": "/".join(pod), "sets": []} for pod in moving.pop(name, ())
            ]
    return writes


def _write(action: Action) -> Json:
    kind, (namespace, name) = action.target
    resource = kind_named(kind).plural
    if isinstance(action, NodeMarkPatch):
        return {"verb": "patch", "resource": resource, "name": name, "sets": _sets(action)}
    verb = "delete" if action.deletes else "create"
    return {"verb": verb, "resource": resource, "name": f"{namespace}/{name}", "sets": []}


def _sets(patch: NodeMarkPatch) -> list[str]:
    """What the PATCH sets and takes away. Values of our taints are the run's name."""
    sets = []
    if patch.unschedulable is not None:
        sets.append(f"spec.unschedulable={str(patch.unschedulable).lower()}")
    sets += [f"taint {taint.key}=RUN:{taint.effect}" for taint in patch.add_taints]
    sets += [f"no taint {taint.key}" for taint in patch.remove_taints]
    for key, value in (*patch.annotations.items(), *patch.labels.items()):
        if value is None:
            sets.append(f"no {key}")
        else:
            sets.append(f"{key}: state {patch.to}" if key == ANNOTATION else f"{key}={value}")
    return sets
