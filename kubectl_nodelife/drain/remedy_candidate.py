"""A change that may let a stuck pod go, and the cluster once it is made and pods have landed.

A change takes time, and kubectl comes after it. Until then the nodes of the plan are open: a pod
that waits for a node may land on one of them, and so may a pod that the change itself adds. There
it takes room, and with a budget of its own it can hold up the drain.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, PodCondition
from kubectl_nodelife.sim.timing import MIDDLE


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
