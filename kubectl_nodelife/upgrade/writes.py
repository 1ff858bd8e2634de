"""The writes that a run makes to one node's objects, in their order, as a plan shows them."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    LABEL_STATE,
    TAINT_OUTDATED,
    TAINT_UNPROVEN,
    absent_shield,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.upgrade.plan_values import PlannedNode

Json = dict[str, Any]


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
