"""The scheduler's filters for one pod: on which nodes it fits, and why not on the others.

Follows kube-scheduler's default filter plugins in their order: NodeUnschedulable, TaintToleration,
NodeAffinity, NodePorts, NodeResourcesFit, the volume plugins, PodTopologySpread, InterPodAffinity.
The first plugin that refuses a node says why. Scores are left out: which of the nodes that fit is
taken is the caller's choice.

`NodeInfo` is the room that a node has for one more pod: resources, the pod limit, host ports. It
follows kube-scheduler framework `NodeInfo` and `HostPortInfo` and plugins/noderesources
(`fitsRequest`); amounts are those of `kube.quantity`. Left out: dynamic resource claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import ASSUMED_REQUESTS, Amounts, amounts, pod_requests
from kubectl_nodelife.kube.selectors import matches_required_node_affinity
from kubectl_nodelife.kube.taints import find_matching_untolerated_taint, first_tolerating
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE
from kubectl_nodelife.workloads.topology import InterPodAffinity, TopologySpread
from kubectl_nodelife.workloads.volumes import NO_NEEDS, VolumeNeeds, Volumes, volume_reason

PODS = "pods"
_ALL_ADDRESSES = "0.0.0.0"

HostPort = tuple[str, str, int]
"""(host IP, protocol, port)"""

CpuAndMemory = tuple[int, int]
"""In thousandths and bytes."""


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports that the pod's containers take, sidecars with them."""
    spec = pod.spec
    containers = spec.containers
    match containers:
        case [only] if not (only.ports or spec.init_containers):
            return ()  # as of most pods
    ports = []
    if spec.init_containers:
        containers += tuple(c for c in spec.init_containers if c.restart_policy == "Always")
    for container in containers:
        for port in container.ports:
            if port.host_port > 0:
                address, protocol = port.host_ip or _ALL_ADDRESSES, port.protocol or "TCP"
                ports.append((address, protocol, port.host_port))
    return tuple(ports)


class NodeInfo:
    """A node, and the sum of what its pods take: of none at first (`pod_classes.stock` counts).

    Terminating pods count until they are gone.

    `free`: what is left of each resource that the node has. `scored`: NonZeroRequested.
    """

    __slots__ = (
        "_most_pods", "allocatable", "free", "node", "pod_count", "ports", "requested", "scored",
    )  # fmt: skip

    def __init__(self, node: Node) -> None:
        self.node = node
        self.allocatable = amounts(node.status.allocatable)
        self._most_pods = self.allocatable.get(PODS, 0)
        self.requested: Amounts = {}
        self.free = dict(self.allocatable)
        self.scored = (0, 0)
        self.pod_count = 0
        self.ports: dict[HostPort, int] = {}

    def copy(self) -> NodeInfo:
        """One of its own with the same counts."""
        copy = NodeInfo.__new__(NodeInfo)
        copy.node, copy.allocatable, copy._most_pods = self.node, self.allocatable, self._most_pods
        copy.requested, copy.free = dict(self.requested), dict(self.free)
        copy.ports, copy.pod_count, copy.scored = dict(self.ports), self.pod_count, self.scored
        return copy

    def add(
        self,
        requests: Mapping[str, int],
        ports: Iterable[HostPort] = (),
        pods: int = 1,
        scored: CpuAndMemory = (0, 0),
    ) -> None:
        """Add so many pods with these requests and ports each; `scored`: `PodRequirements`."""
        self.pod_count += pods
        cpu, memory = self.scored
        self.scored = (cpu + pods * scored[0], memory + pods * scored[1])
        requested, free = self.requested, self.free
        for name, amount in requests.items():
            taken = amount * pods
            requested[name] = requested.get(name, 0) + taken
            if name in free:
                free[name] -= taken
        for port in ports:
            self.ports[port] = self.ports.get(port, 0) + pods

    def remove(
        self,
        requests: Mapping[str, int],
        ports: Iterable[HostPort] = (),
        scored: CpuAndMemory = (0, 0),
    ) -> None:
        """Remove a pod with these requests and ports."""
        self.pod_count -= 1
        self.scored = (self.scored[0] - scored[0], self.scored[1] - scored[1])
        free = self.free
        for name, amount in requests.items():
            self.requested[name] -= amount
            if name in free:
                free[name] += amount
        for port in ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]

    def shortages(self, requests: Mapping[str, int]) -> list[str]:
        """The resources that the node is short of, in upstream's words. Follows `fitsRequest`."""
        free = self.free
        short = [] if self.pod_count < self._most_pods else ["Too many pods"]
        for name, amount in requests.items():
            if amount > 0 and (name not in free or amount > free[name]):
                short.append(f"Insufficient {name}")
        return short

    def port_taken(self, wanted: Iterable[HostPort]) -> bool:
        """True if one of the host ports is taken. Follows `HostPortInfo.CheckConflict`."""
        for ip, protocol, port in wanted:
            for taken_ip, taken_protocol, taken_port in self.ports:
                if (protocol, port) != (taken_protocol, taken_port):
                    continue
                if ip in (taken_ip, _ALL_ADDRESSES) or taken_ip == _ALL_ADDRESSES:
                    return True
        return False


REASON_UNSCHEDULABLE = "node(s) were unschedulable"
REASON_TAINT = "node(s) had untolerated taint(s)"
REASON_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
REASON_PORTS = "node(s) didn't have free ports for the requested pod ports"

_UNSCHEDULABLE = Taint(key=TAINT_NODE_UNSCHEDULABLE, effect=NO_SCHEDULE)
_DO_NOT_SCHEDULE = frozenset({NO_SCHEDULE, NO_EXECUTE})


class PodRequirements:
    """The demands of one pod, or of every pod of one template, on a node.

    `spread` and `interpod` are None where the pod has nothing to do with them; they hold counts
    that the caller keeps up as pods come and go. `needs` differ between a StatefulSet's pods.
    `scored`: requests, with something for containers that name none; only scores look at it.
    """

    __slots__ = ("interpod", "needs", "pod", "ports", "requests", "scored", "spread", "volumes")

    def __init__(
        self,
        pod: Pod,
        spread: TopologySpread | None = None,
        interpod: InterPodAffinity | None = None,
        needs: VolumeNeeds = NO_NEEDS,
        volumes: Volumes | None = None,
    ) -> None:
        self.pod = pod
        self.requests = pod_requests(pod)
        scored = pod_requests(pod, ASSUMED_REQUESTS)
        self.scored: CpuAndMemory = (scored.get("cpu", 0), scored.get("memory", 0))
        self.ports = host_ports(pod)
        self.spread = spread
        self.interpod = interpod
        self.needs = needs
        self.volumes = volumes


def static_reason(pod: Pod, node: Node) -> str | None:
    """Why the pod may never go to the node as it is, whatever runs there; None if it may.

    The cordon, taints, node selector and node affinity.
    """
    if node.spec.unschedulable and first_tolerating(pod.spec.tolerations, _UNSCHEDULABLE) is None:
        return REASON_UNSCHEDULABLE
    taints = node.spec.taints
    if taints and (
        find_matching_untolerated_taint(taints, pod.spec.tolerations, _DO_NOT_SCHEDULE) is not None
    ):
        return REASON_TAINT
    if not matches_required_node_affinity(pod.spec, node):
        return REASON_AFFINITY
    return None


def room_reasons(wanted: PodRequirements, info: NodeInfo) -> list[str]:
    """Why there is no room on the node now, given what runs there and elsewhere; empty if there is.

    Everything but `static_reason`.
    """
    short = resource_reasons(wanted, info)
    if short:
        return short
    reason = rule_reason(wanted, info.node)
    return [] if reason is None else [reason]


def resource_reasons(wanted: PodRequirements, info: NodeInfo) -> list[str]:
    """The shortages of the node itself: host ports, or resources; empty for none."""
    if wanted.ports and info.port_taken(wanted.ports):
        return [REASON_PORTS]
    return info.shortages(wanted.requests)


def rule_reason(wanted: PodRequirements, node: Node) -> str | None:
    """Why volumes, the spread, or other pods keep the pod off the node now, or None."""
    if wanted.needs is not NO_NEEDS and wanted.volumes is not None:
        reason = volume_reason(wanted.needs, node, wanted.volumes)
        if reason is not None:
            return reason
    if wanted.spread is not None:
        reason = wanted.spread.reason(node)
        if reason is not None:
            return reason
    return wanted.interpod.reason(node) if wanted.interpod is not None else None


def fits(wanted: PodRequirements, info: NodeInfo) -> list[str]:
    """Why the pod does not fit the node, in upstream's words; empty if it does.

    `needs.nowhere` is about all nodes at once; the caller checks it first.
    """
    reason = static_reason(wanted.pod, info.node)
    return [reason] if reason is not None else room_reasons(wanted, info)
