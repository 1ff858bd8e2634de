"""Room for replacements, added up over nodes: a necessary condition, quick to ask while packing.

Only sums of cpu, memory and pod slots; whether each pod finds a node of its own is the virtual
scheduler's to tell. Nodes of the plan give no room until their maintenance is over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kubectl_nodelife.drain.loads import NodeLoad
from kubectl_nodelife.drain.options import WaveOptions
from kubectl_nodelife.drain.terrain import Terrain
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import Amounts, amounts, pod_requests
from kubectl_nodelife.sim.kubectl.filters import is_mirror

COUNTED: Final = ("cpu", "memory")
PODS: Final = "pods"


class Room:
    """Free amounts over the nodes that take pods, while waves are filled."""

    def __init__(self, terrain: Terrain, planned: Collection[str], waves: WaveOptions) -> None:
        self._snapshot = terrain.snapshot
        self._returns = waves.maintenance_ns > 0
        self._keep = (waves.low_water_percent or 0.0) / 100
        self._free: Amounts = {}
        self._total: Amounts = {}
        planned = frozenset(planned)
        for name, node in self._snapshot.nodes.items():
            if name not in planned and takes_pods(node):
                info = terrain.info(name)
                self._add(node, {**info.requested, PODS: info.pod_count})

    def _add(self, node: Node, used: Amounts) -> None:
        allocatable = amounts(node.status.allocatable)
        for resource in (*COUNTED, PODS):
            amount = allocatable.get(resource, 0)
            self._total[resource] = self._total.get(resource, 0) + amount
            self._free[resource] = self._free.get(resource, 0) + amount - used.get(resource, 0)

    def holds(self, load: NodeLoad) -> bool:
        """Whether what leaves the node finds room, and the share to keep stays free."""
        for resource in COUNTED:
            wanted = load.moving.get(resource, 0)
            rest = self._free.get(resource, 0) - wanted
            if wanted and rest < self._keep * self._total.get(resource, 0):
                return False
        return not load.pods or self._free.get(PODS, 0) >= load.pods

    def take(self, load: NodeLoad) -> None:
        """The node's pods have moved."""
        for resource in COUNTED:
            self._free[resource] = self._free.get(resource, 0) - load.moving.get(resource, 0)
        self._free[PODS] = self._free.get(PODS, 0) - load.pods

    def next_wave(self, drained: Iterable[NodeLoad]) -> None:
        """The wave's maintenance is over: its nodes take pods again, if they come back at all."""
        if not self._returns:
            return
        for load in drained:
            pods = self._snapshot.pods_by_node.get(load.name, ())
            stays = [pod for pod in pods if _stays(pod)]
            used: Amounts = {PODS: len(stays)}
            for pod in stays:
                for resource, amount in pod_requests(pod).items():
                    used[resource] = used.get(resource, 0) + amount
            self._add(self._snapshot.nodes[load.name], used)


def _stays(pod: Pod) -> bool:
    owner = controller_of(pod.metadata)
    return (owner is not None and owner.kind == "DaemonSet") or is_mirror(pod)


def takes_pods(node: Node) -> bool:
    """Whether an ordinary pod may go there: not cordoned, Ready, and without taints against it."""
    ready = node.ready()
    if node.spec.unschedulable or (ready is not None and ready.status != "True"):
        return False
    return not any(taint.effect in ("NoSchedule", "NoExecute") for taint in node.spec.taints)
