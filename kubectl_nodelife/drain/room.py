"""The room that the waves of a plan find: all nodes but the planned ones, until these come back."""

from __future__ import annotations

from collections.abc import Collection

from kubectl_nodelife.drain.node_index import NodeIndex
from kubectl_nodelife.drain.options import WaveOptions
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import Amounts, pod_requests
from kubectl_nodelife.sim.kubectl.filters import is_mirror
from kubectl_nodelife.workloads.capacity import PODS, CapacityLeft, takes_pods


class PlanCapacity(CapacityLeft):
    """Nodes of the plan give no room until their maintenance is over, if they come back at all."""

    def __init__(self, node_index: NodeIndex, planned: Collection[str], waves: WaveOptions) -> None:
        super().__init__((waves.low_water_percent or 0.0) / 100)
        self._snapshot = node_index.snapshot
        self._returns = waves.maintenance_ns > 0
        planned = frozenset(planned)
        for name, node in self._snapshot.nodes.items():
            if name not in planned and takes_pods(node):
                info = node_index.info(name)
                self.add(node, {**info.requested, PODS: info.pod_count})

    def next_wave(self, drained: list[str]) -> None:
        """The wave's maintenance is over: its nodes take pods again."""
        for name in drained if self._returns else ():
            stays = [pod for pod in self._snapshot.pods_by_node.get(name, ()) if _stays(pod)]
            used: Amounts = {PODS: len(stays)}
            for pod in stays:
                for resource, amount in pod_requests(pod).items():
                    used[resource] = used.get(resource, 0) + amount
            self.add(self._snapshot.nodes[name], used)


def _stays(pod: Pod) -> bool:
    owner = controller_of(pod.metadata)
    return (owner is not None and owner.kind == "DaemonSet") or is_mirror(pod)
