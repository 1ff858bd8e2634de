"""The room that the waves of a plan find on nodes that are not cordoned when they begin."""

from __future__ import annotations

from collections.abc import Collection

from kubectl_nodelife.drain.node_index import NodeIndex
from kubectl_nodelife.drain.options import CORDON_BY_WAVE, WaveOptions
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import Amounts, pod_requests
from kubectl_nodelife.sim.kubectl.filters import is_mirror
from kubectl_nodelife.workloads.capacity import PODS, CapacityLeft, takes_pods


class PlanCapacity(CapacityLeft):
    """Nodes of the plan give no room from their cordon to the end of their maintenance."""

    def __init__(self, node_index: NodeIndex, planned: Collection[str], waves: WaveOptions) -> None:
        super().__init__((waves.low_water_percent or 0.0) / 100)
        self._snapshot = node_index.snapshot
        self._returns = waves.maintenance_ns > 0
        planned = frozenset(planned)
        by_wave = waves.cordon == CORDON_BY_WAVE
        for name, node in self._snapshot.nodes.items():
            if (by_wave or name not in planned) and takes_pods(node):
                info = node_index.info(name)
                used = {**info.requested, PODS: info.pod_count}
                self.add(node, used, until_drained=name in planned)

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
