"""What the taint manager will do for a budget whose pods are on a lost node: it deletes them, and
their replacements count. A plan plays no taint manager, so that it is said and not waited for."""

from __future__ import annotations

from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.taints import (
    matching_tolerations,
    min_toleration_seconds,
    no_execute_taints,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.workloads.eviction import TERMINAL_PHASES


def members_of(snapshot: PlanSnapshot, budget: PodDisruptionBudget) -> list[Pod]:
    """The pods that count for the budget, and are not being deleted."""
    return [
        pod
        for pod in snapshot.pods_by_namespace.get(budget.namespace, ())
        if pod.metadata.deletion_timestamp is None
        and pod.status.phase not in TERMINAL_PHASES
        and matches(budget.spec.selector, pod.metadata.labels)
    ]


def coming_eviction(snapshot: PlanSnapshot, budget: PodDisruptionBudget) -> str:
    """The first of the budget's unready pods that is due, in a clause; "" where none is."""
    due = [
        (due_ns, pod)
        for pod in members_of(snapshot, budget)
        if not pod.ready() and (due_ns := _due_ns(snapshot, pod)) is not None
    ]
    if not due:
        return ""
    due_ns, pod = min(due, key=lambda each: each[0])
    left = human_duration(max(0, due_ns - snapshot.now_ns))
    return (
        f"the taint manager deletes {pod.name} on {pod.spec.node_name} in {left}: plan again once"
        " its replacement is Ready"
    )


def _due_ns(snapshot: PlanSnapshot, pod: Pod) -> int | None:
    """When the pod's timer is over, as upstream counts it from the node's oldest such taint."""
    node = snapshot.nodes.get(pod.spec.node_name)
    taints = no_execute_taints(node.spec.taints) if node is not None else ()
    added = [int(taint.time_added) for taint in taints if taint.time_added is not None]
    if not added:
        return None
    tolerated, used = matching_tolerations(taints, pod.spec.tolerations)
    seconds = min_toleration_seconds(used) if tolerated else 0
    return None if seconds is None else min(added) + seconds * SECOND_NS
