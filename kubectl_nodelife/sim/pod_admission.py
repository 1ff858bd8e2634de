"""Kubelets that reject pods which were bound to them: no room, ports, labels, or a NoExecute taint.

Follows `predicateAdmitHandler.Admit` and `generalFilter` of pkg/kubelet/lifecycle/predicate.go: the
pod is Failed with the first reason, and never starts. Pods come so that no scheduler filtered: with
a nodeName of their own, or where the node changed between the two. A critical pod is not rejected
for want of room (`HandleAdmissionFailure` of pkg/kubelet/preemption); the pods that its kubelet
would evict for it stay here. Left out: static pods, operating systems, and pods that ran when their
kubelet began anew.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, SetPodPhase, of_pod
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, is_mirror_pod
from kubectl_nodelife.kube.quantity import pod_requests
from kubectl_nodelife.kube.selectors import matches_required_node_affinity
from kubectl_nodelife.kube.taints import find_matching_untolerated_taint
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.sim.api import CLUSTER
from kubectl_nodelife.sim.world import World
from kubectl_nodelife.workloads.placement import priority
from kubectl_nodelife.workloads.pod_classes import stock
from kubectl_nodelife.workloads.scheduling import PODS, REASON_PORTS, NodeInfo, host_ports

_PENDING: Final = ("", "Pending")
_TOO_MANY: Final = "Too many pods"

CRITICAL: Final = 2_000_000_000
"""SystemCriticalPriority: the kubelet evicts others for a pod of that priority."""


class PodAdmission:
    """Rejects pods as their kubelets do, as soon as those see them."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.join(self)
        world.kubelets.attend(self._kubelet_starts, on_run=self._never_runs, first=True)
        world.api.on_pod(self._pod_changed)

    def fork(self, world: World) -> PodAdmission:
        """The same for a fork of the world."""
        other = copy(self)
        other._world = world
        return other

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        if new is None or not new.spec.node_name or (old is not None and old.spec.node_name):
            return
        if new.status.phase in _PENDING and self._world.kubelets.alive(new.spec.node_name):
            self._admit(new, cause)

    def _kubelet_starts(self, node: str) -> None:
        """It sees them one after another, the oldest first (`HandlePodAdditions`)."""
        unseen = [p for p in self._world.api.store.pods_on(node) if p.status.phase in _PENDING]
        unseen.sort(key=lambda pod: pod.metadata.creation_timestamp or 0)
        while unseen:
            self._admit(unseen.pop(0), None, frozenset(pod.uid for pod in unseen))

    def _never_runs(self, pod: Pod) -> bool:
        """True for a pod that was rejected."""
        return pod.status.phase == "Failed"

    def _admit(self, pod: Pod, cause: Action | None, unseen: frozenset[str] = frozenset()) -> None:
        node = self._world.api.store.nodes.get(pod.spec.node_name)
        if node is None or is_mirror_pod(pod):
            return
        reason = self._rejects(pod, node, unseen)
        if reason is None:
            return
        api, message = self._world.api, f"Pod was rejected: {reason[1]}"
        failed = SetPodPhase(
            controller=CLUSTER,
            because=f"the kubelet of {node.name} rejects it ({reason[0]}): {reason[1]}",
            cause=cause,
            **of_pod(pod),
            phase="Failed",
        )
        status = replace(pod.status, phase="Failed", reason=reason[0], message=message)
        self._world.kubelets.write(replace(pod, status=status), api.note(failed))

    def _rejects(self, pod: Pod, node: Node, unseen: frozenset[str]) -> tuple[str, str] | None:
        """(reason, message) of the rejection; None where the pod is let in. `unseen`: uids of pods
        that the kubelet has not come to yet.
        """
        info = None if self._fits_beside_all(pod, node) else self._seen(pod, node, unseen)
        for lack in () if info is None or priority(pod) >= CRITICAL else _lacks(pod, info):
            name = lack.removeprefix("Insufficient ") if lack != _TOO_MANY else PODS
            return f"OutOf{name}", f"Node didn't have enough resource: {name}"
        if not matches_required_node_affinity(pod.spec, node):
            why = "node(s) didn't match Pod's node affinity/selector"
            return "NodeAffinity", f"Predicate NodeAffinity failed: {why}"
        if info is not None and info.port_taken(host_ports(pod)):
            return "NodePorts", f"Predicate NodePorts failed: {REASON_PORTS}"
        taints, tolerations = node.spec.taints, pod.spec.tolerations
        if find_matching_untolerated_taint(taints, tolerations, (NO_EXECUTE,)) is not None:
            why = "node(s) had taints that the pod didn't tolerate"
            return "TaintToleration", f"Predicate TaintToleration failed: {why}"
        return None

    def _seen(self, pod: Pod, node: Node, unseen: frozenset[str]) -> NodeInfo:
        """The node with the other pods that its kubelet has come to."""
        others = [
            other
            for other in self._world.api.store.pods_on(node.name)
            if other.uid != pod.uid and other.uid not in unseen
        ]
        classes = self._world.scheduler.classes
        return stock(node, classes.rooms_on(others).get(node.name, {}))

    def _fits_beside_all(self, pod: Pod, node: Node) -> bool:
        """True if the pod has room beside all that the scheduler counts on the node, as nearly each
        one that it placed has. That may be the pod itself, too, but no pod is missing.
        """
        info = self._world.scheduler.placement.counted(node.name)
        return (
            info is not None
            and info.pod_count + 1 >= self._world.api.store.count_on(node.name)
            and info.node.status.allocatable == node.status.allocatable
            and not host_ports(pod)
            and not _lacks(pod, info)
        )


def _lacks(pod: Pod, info: NodeInfo) -> list[str]:
    """What the node is short of; resources that it does not know are another's matter."""
    if not info.allocatable:
        return []
    asked = {name: n for name, n in pod_requests(pod).items() if name in info.allocatable}
    return info.shortages(asked)
