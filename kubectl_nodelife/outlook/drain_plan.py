"""`drain-plan`: whether a drain finishes, when, and what stops it, as a document."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.document import document
from kubectl_nodelife.drain.results import (
    BudgetPlan,
    DrainPlan,
    Estimate,
    NodePlan,
    PlannedPlacement,
    PodFault,
    PodPlan,
    WavePlan,
    WorkloadPlan,
)
from kubectl_nodelife.drain.webhooks import EvictionWebhook


def drain_document(plan: DrainPlan, source: dict[str, Any]) -> dict[str, Any]:
    """The contract's DrainPlan. `source` says where the objects are from and of which moment."""
    return document("DrainPlan", source=source, **_plan(plan))


def _plan(plan: DrainPlan) -> dict[str, Any]:
    return {
        "verdict": plan.verdict,
        "flagsNeeded": plan.flags_needed,
        "estimate": _estimate(plan.estimate),
        "withFlags": _with_flags(plan.with_flags),
        "waves": [_wave(wave) for wave in plan.waves],
        "nodes": [_node(node) for node in plan.nodes],
        "notEvaluated": [{"kind": n.kind, "why": n.why} for n in plan.not_evaluated],
        "bound": {
            "wavesLowerBound": plan.bound.waves,
            "secondsLowerBound": round(plan.bound.seconds, 3),
        },
        "cordon": _cordon(plan),
        "together": plan.together,
        "maintenanceSeconds": plan.maintenance,
        "budgets": [_budget(budget) for budget in plan.budgets],
        "workloads": [_workload(workload) for workload in plan.workloads],
        "webhooks": [_webhook(webhook) for webhook in plan.webhooks],
        "assumptions": plan.assumptions,
        "warnings": plan.warnings,
    }


def _webhook(webhook: EvictionWebhook) -> dict[str, Any]:
    return {
        "configuration": webhook.configuration,
        "name": webhook.name,
        "selects": webhook.selects,
        "failurePolicy": webhook.failure_policy,
        "timeoutSeconds": webhook.timeout_seconds,
        "failing": webhook.failing,
        "pods": [f"{pod.namespace}/{pod.name}" for pod in webhook.pods],
    }


def _estimate(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {"lowSeconds": estimate.low, "highSeconds": estimate.high}


def _cordon(plan: DrainPlan) -> dict[str, str] | None:
    cordon = plan.cordon
    return None if cordon is None else {"when": cordon.when, "because": cordon.because}


def _with_flags(plan: DrainPlan | None) -> dict[str, Any] | None:
    return None if plan is None else _plan(plan)


def _wave(wave: WavePlan) -> dict[str, Any]:
    return {
        "index": wave.index,
        "startSeconds": wave.start,
        "endSeconds": wave.end,
        "nodes": wave.nodes,
        "pods": [_pod(pod) for pod in wave.pods],
    }


def _pod(pod: PodPlan) -> dict[str, Any]:
    remedy = pod.remedy
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "node": pod.node,
        "verdict": pod.verdict,
        "gate": pod.gate,
        "reason": pod.reason,
        "startSeconds": pod.start,
        "goneSeconds": pod.gone,
        "endSeconds": pod.end,
        "landing": [_place(place) for place in pod.landing],
        "faults": [_fault(fault) for fault in pod.faults],
        "unblock": None if remedy is None else {"change": remedy.change, "risk": remedy.risk},
        "unblockHint": pod.hint or None,
        "goneForGood": pod.gone_for_good,
        "emptyDirsLost": pod.data_lost,
        "owner": pod.owner or None,
        "budgets": pod.budgets,
        "graceSeconds": pod.grace,
        "tries": pod.tries,
    }


def _place(place: PlannedPlacement) -> dict[str, Any]:
    if place.node:
        return {"node": place.node}
    return {"reason": place.reason, "nodes": place.nodes}


def _fault(fault: PodFault) -> dict[str, Any]:
    return {
        "namespace": fault.namespace,
        "name": fault.name,
        "gate": fault.gate,
        "message": fault.message,
        "flag": fault.flag,
    }


def _node(node: NodePlan) -> dict[str, Any]:
    return {
        "name": node.name,
        "zone": node.zone,
        "verdict": node.verdict,
        "faults": [_fault(fault) for fault in node.faults],
        "kept": [
            {"namespace": pod.namespace, "name": pod.name, "gate": pod.gate} for pod in node.kept
        ],
        "command": node.command,
        "startSeconds": node.start,
        "endSeconds": node.end,
        "pods": node.pods,
        "attachedVolumes": node.attached_volumes,
    }


def _budget(budget: BudgetPlan) -> dict[str, Any]:
    return {
        "namespace": budget.namespace,
        "name": budget.name,
        "rule": budget.rule,
        "expected": budget.expected,
        "desired": budget.desired,
        "healthy": budget.healthy,
        "allowed": budget.allowed,
        "points": [
            {"at": p.at, "healthy": p.healthy, "desired": p.desired, "allowed": p.allowed}
            for p in budget.points
        ],
    }


def _workload(workload: WorkloadPlan) -> dict[str, Any]:
    return {
        "namespace": workload.namespace,
        "kind": workload.kind,
        "name": workload.name,
        "topOwner": workload.top,
        "outage": workload.outage,
        "seconds": workload.seconds,
        "ready": workload.ready,
        "lowestReady": workload.lowest,
        "evicted": workload.evicted,
        "timeToReadySeconds": workload.time_to_ready,
        "timeToReadyFrom": workload.time_to_ready_from,
    }
