"""A workload a few pods larger, as a remedy, as its topmost owner or its autoscaler is told.

What a Deployment owns is set back by it, and an autoscaler has the last word.
"""

from __future__ import annotations

import shlex
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.drain.actors import new_pod
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference
from kubectl_nodelife.kube.names import subject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import HorizontalPodAutoscaler, PodDisruptionBudget
from kubectl_nodelife.workloads.budgets import desired_pods
from kubectl_nodelife.workloads.owners import (
    Scaled,
    SyncFailure,
    api_group,
    owner_chain,
    replicas_of,
)

MOST_MORE: Final = 3
"""More pods than that are no cheap change."""

_SCALABLE: Final = {
    ("Deployment", "apps"): "deployment",
    ("StatefulSet", "apps"): "statefulset",
    ("ReplicaSet", "apps"): "replicaset",
    ("ReplicationController", ""): "replicationcontroller",
}


class ScaledUp(NamedTuple):
    """The command, and the objects that are then there."""

    command: str
    objects: tuple[KubeObject, ...]


def scaled_up(pod: Pod, more: int, snapshot: PlanSnapshot) -> ScaledUp | None:
    """The workload of the pod with so many pods more; None where it is not one that can be scaled
    by hand, or not so far.
    """
    chain = owner_chain(pod, snapshot)
    if not chain or not more:
        return None
    top = chain[-1]
    word = _SCALABLE.get((top.kind, api_group(top.api_version)))
    if word is None:
        return None
    owners = [snapshot.find(o.kind, pod.namespace, o.name) for o in chain]
    scaled = [o for o in owners if isinstance(o, Scaled)]
    command = f"scale {top.kind}/{top.name} up by {more}"
    if scaled and scaled[-1].name == top.name:
        wanted, inside = replicas_of(scaled[-1]) + more, f"-n {shlex.quote(pod.namespace)}"
        command = f"kubectl scale {subject(word, top.name)} {inside} --replicas={wanted}"
        autoscaler = _autoscaler_of(top, pod.namespace, snapshot)
        if autoscaler is not None:
            if wanted > autoscaler.spec.max_replicas:
                return None
            rule = f'{{"spec":{{"minReplicas":{wanted}}}}}'
            named = f"{subject('hpa', autoscaler.name)} {inside}"
            command = f"kubectl patch {named} --type merge -p '{rule}'"
    pods = _new_pods(pod, more, snapshot)
    return ScaledUp(command, (*pods, *(_with_more(o, more) for o in scaled)))


def more_for(budget: PodDisruptionBudget) -> int:
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


def _new_pods(pod: Pod, more: int, snapshot: PlanSnapshot) -> list[Pod]:
    """The pods that the owner makes, which the scheduler of the play places and a kubelet starts.

    A StatefulSet's new pod is held to get a volume of its own wherever it is.
    """
    made = []
    for number in range(1, more + 1):
        fresh = new_pod(pod, number, snapshot.now_ns)
        volumes = tuple(v for v in fresh.spec.volumes if v.persistent_volume_claim is None)
        meta = replace(fresh.metadata, name=f"{pod.name}-more-{number}")
        made.append(replace(fresh, metadata=meta, spec=replace(fresh.spec, volumes=volumes)))
    return made
