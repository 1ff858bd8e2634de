"""A few pods more of a workload, so that its budget can spare one: how, and the cluster then.

The topmost owner is named, since what a Deployment owns is set back by it, and where an autoscaler
has the last word, the autoscaler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.drain.actors import new_pod
from kubectl_nodelife.drain.node_index import NodeIndex
from kubectl_nodelife.drain.planned_nodes import PlannedNodes
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodStatus
from kubectl_nodelife.kube.workload import (
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
)
from kubectl_nodelife.workloads.budgets import desired_pods
from kubectl_nodelife.workloads.owners import owner_chain
from kubectl_nodelife.workloads.scales import Scaled, SyncFailure, api_group, replicas_of
from kubectl_nodelife.workloads.time_to_ready import TimesToReady

MOST_MORE: Final = 3
"""More pods than that are no cheap change."""

_SCALABLE: Final = {
    ("Deployment", "apps"): "deployment",
    ("StatefulSet", "apps"): "statefulset",
    ("ReplicaSet", "apps"): "replicaset",
    ("ReplicationController", ""): "replicationcontroller",
}


class ScaledUp(NamedTuple):
    """What to do, what it risks, and the objects that are then there."""

    text: str
    risk: str
    objects: tuple[KubeObject, ...]


def scale_up(
    pod: Pod, budget: PodDisruptionBudget, snapshot: PlanSnapshot, times: TimesToReady
) -> Iterator[ScaledUp]:
    """The least number of pods more with which the budget's arithmetic spares one, if it is small.

    Nothing where the owner is not one that can be scaled by hand, or the pods have no room.
    """
    chain = owner_chain(pod, snapshot)
    more = _more(budget)
    if not chain or not more or times.time_to_ready(pod) is None:
        return
    top = chain[-1]
    word = _SCALABLE.get((top.kind, api_group(top.api_version)))
    if word is None:
        return
    pods = _new_pods(pod, more, snapshot)
    owners = [snapshot.find(o.kind, pod.namespace, o.name) for o in chain]
    scaled = [o for o in owners if isinstance(o, Scaled)]
    text = f"scale {top.kind}/{top.name} up by {more}"
    if scaled and scaled[-1].name == top.name:
        wanted = replicas_of(scaled[-1]) + more
        text = f"kubectl scale {word} {top.name} -n {pod.namespace} --replicas={wanted}"
        autoscaler = _autoscaler_of(top, pod.namespace, snapshot)
        if autoscaler is not None:
            if wanted > autoscaler.spec.max_replicas:
                return
            text = (
                f"kubectl patch hpa {autoscaler.name} -n {pod.namespace} --type merge"
                f' -p \'{{"spec":{{"minReplicas":{wanted}}}}}\''
            )
    if pods is not None:
        risk = "it takes room, and lasts until somebody scales down"
        yield ScaledUp(text, risk, (*pods, *(_with_more(o, more) for o in scaled)))


def _more(budget: PodDisruptionBudget) -> int:
    """How many pods more make the budget spare one; 0 where so few do not."""
    status = budget.status
    for more in range(1, MOST_MORE + 1):
        count = status.expected_pods + more
        try:
            found = desired_pods(budget.spec, count, count)
        except SyncFailure:
            return 0
        if status.current_healthy + more > found.desired:
            return more
    return 0


def _autoscaler_of(
    top: OwnerReference, namespace: str, snapshot: PlanSnapshot
) -> HorizontalPodAutoscaler | None:
    for autoscaler in snapshot.all_of(HorizontalPodAutoscaler):
        target = autoscaler.spec.scale_target_ref
        if (autoscaler.namespace, target.kind, target.name) == (namespace, top.kind, top.name):
            return autoscaler
    return None


def _with_more(owner: Scaled, more: int) -> Scaled:
    return replace(owner, spec=replace(owner.spec, replicas=replicas_of(owner) + more))


def _new_pods(pod: Pod, more: int, snapshot: PlanSnapshot) -> list[Pod] | None:
    """The pods on the nodes that the scheduler finds, running; None where they find none.

    A StatefulSet's new pod is held to get a volume of its own wherever it is.
    """
    nodes = PlannedNodes(NodeIndex(snapshot))
    made = []
    for number in range(more):
        fresh = new_pod(pod, number + 1, snapshot.now_ns)
        volumes = tuple(v for v in fresh.spec.volumes if v.persistent_volume_claim is None)
        meta = replace(fresh.metadata, name=f"{pod.name}-more-{number + 1}")
        fresh = replace(fresh, metadata=meta, spec=replace(fresh.spec, volumes=volumes))
        node = nodes.place(fresh)
        if node is None:
            return None
        spec = replace(fresh.spec, node_name=node)
        made.append(replace(fresh, spec=spec, status=_RUNNING))
    return made


_RUNNING: Final = PodStatus(
    phase="Running", conditions=(PodCondition(type="Ready", status="True"),)
)
