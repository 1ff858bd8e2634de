"""The room that a node has for one more pod: resources, the pod limit, host ports.

Follows kube-scheduler framework `NodeInfo` and `HostPortInfo` and plugins/noderesources
(`fitsRequest`); amounts are those of `kube.quantity`. Left out: dynamic resource claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import Amounts, amounts, pod_requests

PODS = "pods"
_ALL_ADDRESSES = "0.0.0.0"

HostPort = tuple[str, str, int]
"""(host IP, protocol, port)"""


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports that the pod's containers take, sidecars with them."""
    spec = pod.spec
    containers = spec.containers
    if len(containers) == 1 and not (containers[0].ports or spec.init_containers):
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
    """A node, and the sum of what its pods take. Pods that are going count until they are gone."""

    __slots__ = ("_free", "allocatable", "node", "pod_count", "ports", "requested")

    def __init__(self, node: Node, pods: Iterable[Pod] = ()) -> None:
        self.node = node
        self.allocatable = amounts(node.status.allocatable)
        self.requested: Amounts = {}
        self.pod_count = 0
        self.ports: dict[HostPort, int] = {}
        self._free: Amounts | None = None
        for pod in pods:
            self.add(pod_requests(pod), host_ports(pod))

    def copy(self) -> NodeInfo:
        """One of its own with the same counts."""
        copy = NodeInfo.__new__(NodeInfo)
        copy.node, copy.allocatable, copy.pod_count = self.node, self.allocatable, self.pod_count
        copy.requested, copy.ports = dict(self.requested), dict(self.ports)
        copy._free = self._free
        return copy

    def add(
        self, requests: Mapping[str, int], ports: Iterable[HostPort] = (), pods: int = 1
    ) -> None:
        """So many pods with these requests and ports each are here."""
        self.pod_count += pods
        self._free = None
        requested = self.requested
        for name, amount in requests.items():
            requested[name] = requested.get(name, 0) + amount * pods
        for port in ports:
            self.ports[port] = self.ports.get(port, 0) + pods

    def remove(self, requests: Mapping[str, int], ports: Iterable[HostPort] = ()) -> None:
        """A pod with these requests and ports has left."""
        self.pod_count -= 1
        self._free = None
        for name, amount in requests.items():
            self.requested[name] -= amount
        for port in ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]

    def shortages(self, requests: Mapping[str, int]) -> list[str]:
        """The resources that the node is short of, in upstream's words. Follows `fitsRequest`."""
        free = self._free
        if free is None:
            free = self._free = self._count_free()
        full = self.pod_count + 1 > self.allocatable.get(PODS, 0)
        short = ["Too many pods"] if full else []
        for name, amount in requests.items():
            if amount > 0 and (name not in free or amount > free[name]):
                short.append(f"Insufficient {name}")
        return short

    def _count_free(self) -> Amounts:
        """The free amount of each resource that the node has."""
        requested = self.requested
        return {name: most - requested.get(name, 0) for name, most in self.allocatable.items()}

    def port_taken(self, wanted: Iterable[HostPort]) -> bool:
        """True if one of the host ports is taken. Follows `HostPortInfo.CheckConflict`."""
        for ip, protocol, port in wanted:
            for taken_ip, taken_protocol, taken_port in self.ports:
                if (protocol, port) != (taken_protocol, taken_port):
                    continue
                if ip in (taken_ip, _ALL_ADDRESSES) or taken_ip == _ALL_ADDRESSES:
                    return True
        return False
