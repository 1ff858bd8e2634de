"""The room that a node has for one more pod: resources, the pod limit, host ports.

Follows kube-scheduler framework `NodeInfo` and `HostPortInfo` and plugins/noderesources
(`fitsRequest`); amounts are those of `kube.quantity`. Left out: dynamic resource claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import Amounts, amounts

PODS = "pods"
_ALL_ADDRESSES = "0.0.0.0"

HostPort = tuple[str, str, int]
"""(host IP, protocol, port)"""


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports that the pod's containers take, sidecars with them."""
    spec = pod.spec
    containers = spec.containers
    match containers:
        case [only] if not (only.ports or spec.init_containers):
            return ()  # as of most pods
    found = []
    if spec.init_containers:
        containers += tuple(c for c in spec.init_containers if c.restart_policy == "Always")
    for container in containers:
        for port in container.ports:
            if port.host_port > 0:
                address, protocol = port.host_ip or _ALL_ADDRESSES, port.protocol or "TCP"
                found.append((address, protocol, port.host_port))
    return tuple(found)


class NodeInfo:
    """A node, and the sum of what its pods take: of none at first (`pod_classes.stock` counts).

    Pods that are going count until they are gone.

    `free`: what is left of each resource that the node has.
    """

    __slots__ = ("_most_pods", "allocatable", "free", "node", "pod_count", "ports", "requested")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.allocatable = amounts(node.status.allocatable)
        self._most_pods = self.allocatable.get(PODS, 0)
        self.requested: Amounts = {}
        self.free = dict(self.allocatable)
        self.pod_count = 0
        self.ports: dict[HostPort, int] = {}

    def copy(self) -> NodeInfo:
        """One of its own with the same counts."""
        copy = NodeInfo.__new__(NodeInfo)
        copy.node, copy.allocatable, copy._most_pods = self.node, self.allocatable, self._most_pods
        copy.requested, copy.free = dict(self.requested), dict(self.free)
        copy.ports, copy.pod_count = dict(self.ports), self.pod_count
        return copy

    def add(
        self, requests: Mapping[str, int], ports: Iterable[HostPort] = (), pods: int = 1
    ) -> None:
        """So many pods with these requests and ports each are here."""
        self.pod_count += pods
        requested, free = self.requested, self.free
        for name, amount in requests.items():
            taken = amount * pods
            requested[name] = requested.get(name, 0) + taken
            if name in free:
                free[name] -= taken
        for port in ports:
            self.ports[port] = self.ports.get(port, 0) + pods

    def remove(self, requests: Mapping[str, int], ports: Iterable[HostPort] = ()) -> None:
        """A pod with these requests and ports has left."""
        self.pod_count -= 1
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
