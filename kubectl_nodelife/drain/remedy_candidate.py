"""A change that may let a stuck pod go, and the cluster once it is made and pods have landed.

A change takes time, and kubectl comes after it. Until then the nodes of the plan are open: a pod
that waits for a node may land on one of them, and so may a pod that the change itself adds. There
it takes room, and with a budget of its own it can hold up the drain.

Among the changes are a workload that is a few pods larger, as its topmost owner or its autoscaler
is told (what a Deployment owns is set back by it, and an autoscaler has the last word), and one
whose pods spread over the nodes that take them.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.drain.play import new_pod
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, controller_of
from kubectl_nodelife.kube.names import subject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, PodCondition, PodSpec
from kubectl_nodelife.kube.workload import HorizontalPodAutoscaler, PodDisruptionBudget
from kubectl_nodelife.sim.timing import MIDDLE
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


class RemedyCandidate(NamedTuple):
    """A remedy, its risk, and the objects that are then there, or (`without`) no more; `more`: the
    pods among them that its owner makes, before they have a node.
    """

    text: str
    risk: str
    objects: tuple[KubeObject, ...] = ()
    without: tuple[KubeObject, ...] = ()
    more: tuple[Pod, ...] = ()

    def with_pods(self, pods: Iterable[Pod]) -> RemedyCandidate:
        """The same with these pods in place of those of their names, or besides them."""
        those = {pod.key: pod for pod in pods}
        others = (o for o in self.objects if not isinstance(o, Pod) or o.key not in those)
        return self._replace(objects=(*others, *those.values()))

    def with_cordoned(self, nodes: Collection[Node]) -> RemedyCandidate:
        """The same where these nodes, of which the change has none, are cordoned before it."""
        closed = (replace(node, spec=replace(node.spec, unschedulable=True)) for node in nodes)
        cordon = f"kubectl cordon {' '.join(shlex.quote(node.name) for node in nodes)}"
        joint = " && " if self.text.startswith("kubectl ") else ", then "
        unplaced = self.with_pods(self.more)
        return unplaced._replace(
            text=f"{cordon}{joint}{self.text}", objects=(*unplaced.objects, *closed)
        )

    def after_landing_on(
        self, nodes: Collection[Node], snapshot: PlanSnapshot
    ) -> RemedyCandidate | None:
        """The same once the pods that wait for a node, and then those that it adds, are at work on
        these nodes, as many as find room there; None if no pod waits that does.

        Pods that the scheduler has tried in vain are left out.
        """
        waiting = [pod for pod in snapshot.pods if _waits(pod)] if nodes else []
        placed = placed_on(nodes, (*waiting, *self.more), snapshot) if waiting else []
        if not any(pod.spec.node_name for pod in placed[: len(waiting)]):
            return None
        landed = [made_ready(pod) for pod in placed if pod.spec.node_name]
        return self.with_pods(self.more).with_pods(landed)


def placed_on(nodes: Collection[Node], pods: Iterable[Pod], snapshot: PlanSnapshot) -> list[Pod]:
    """The pods, one after the other, each on the first of these nodes that takes it, any of which
    may be chosen; on no node where none does.
    """
    world = snapshot.branch(MIDDLE).world
    placed = []
    for pod in pods:
        fitting = set(world.scheduler.placement.candidates(pod, len(snapshot.nodes)))
        chosen = next((node.name for node in nodes if node.name in fitting), "")
        pod = replace(pod, spec=replace(pod.spec, node_name=chosen))
        if chosen:
            world.api.put("Pod", pod)
        placed.append(pod)
    return placed


def made_ready(pod: Pod) -> Pod:
    """The pod once it is Running and Ready."""
    others = tuple(c for c in pod.status.conditions if c.type != "Ready")
    ready = PodCondition(type="Ready", status="True")
    return replace(pod, status=replace(pod.status, phase="Running", conditions=(*others, ready)))


def _waits(pod: Pod) -> bool:
    """True if it has no node, and the scheduler has not tried it in vain."""
    refused = any(c.type == "PodScheduled" and c.status == "False" for c in pod.status.conditions)
    is_over = pod.metadata.deletion_timestamp or pod.status.phase in TERMINAL_PHASES
    return not pod.spec.node_name and not is_over and not refused


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
            desired = desired_pods(budget.spec, count, count)
        except SyncFailure:
            return 0
        if status.current_healthy + more > desired.desired:
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
    pods = []
    for number in range(1, more + 1):
        fresh = new_pod(pod, number, snapshot.now_ns)
        volumes = tuple(v for v in fresh.spec.volumes if v.persistent_volume_claim is None)
        meta = replace(fresh.metadata, name=f"{pod.name}-more-{number}")
        pods.append(replace(fresh, metadata=meta, spec=replace(fresh.spec, volumes=volumes)))
    return pods


def honoring_taints(pod: Pod, snapshot: PlanSnapshot) -> tuple[str, tuple[Pod, ...]] | None:
    """The change in words, and the pods of its owner after that; None where it changes nothing.

    By default a cordoned or tainted node counts as an empty domain of a constraint, which nothing
    can fill (`nodeTaintsPolicy` Ignore, podtopologyspread/common.go).
    """
    chain = owner_chain(pod, snapshot)
    constraints = pod.spec.topology_spread_constraints
    counted = [c for c in constraints if c.when_unsatisfiable == "DoNotSchedule"]
    if not chain or all(c.node_taints_policy == "Honor" for c in counted):
        return None
    owner, top = controller_of(pod.metadata), chain[-1]
    alike = snapshot.pods_by_namespace.get(pod.namespace, ())
    pods = tuple(
        replace(other, spec=_honoring(other.spec))
        for other in alike
        if controller_of(other.metadata) == owner
    )
    name = subject(top.kind.lower(), top.name)
    return f"nodeTaintsPolicy: Honor in the topologySpreadConstraints of {name}", pods


def _honoring(spec: PodSpec) -> PodSpec:
    constraints = (
        replace(constraint, node_taints_policy="Honor")
        for constraint in spec.topology_spread_constraints
    )
    return replace(spec, topology_spread_constraints=tuple(constraints))
