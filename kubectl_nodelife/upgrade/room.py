"""Finds room elsewhere for what leaves a node, pod by pod, and sees that enough stays free.

The scheduler is the virtual one (`workloads/placement.py`) over the nodes that stay. What still
leaves the nodes that are out of service already is placed first, so that two nodes are never
promised the same room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kubectl_nodelife.controllers.upgrade.counts import why_unavailable
from kubectl_nodelife.controllers.upgrade.ports import PodKey
from kubectl_nodelife.drain.actors import new_pod
from kubectl_nodelife.drain.node_index import NodeIndex
from kubectl_nodelife.drain.planned_nodes import PlannedNodes, cordoned, uncordoned
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import pod_requests
from kubectl_nodelife.workloads.capacity import COUNTED
from kubectl_nodelife.workloads.owners import NEVER, replacement_of


class RoomElsewhere:
    """The room of one snapshot, with pods. `low_water`: percent of cpu and memory to keep free."""

    def __init__(self, snapshot: PlanSnapshot, low_water: float) -> None:
        self._snapshot = snapshot
        self._low_water = low_water
        self._nodes = PlannedNodes(NodeIndex(snapshot))
        self._made = 0
        self._gone: dict[str, tuple[PodKey, ...]] = {}
        self._moved: dict[str, list[Pod]] = {}
        """Pods that have left nodes out of service, by the node on which they stand now."""
        self._pods = {pod.key: pod for pod in snapshot.pods}
        self._staying = {name for name, node in snapshot.nodes.items() if not why_unavailable(node)}
        infos = [self._nodes.placement.info(name) for name in self._staying]
        self._total = {r: sum(i.allocatable.get(r, 0) for i in infos) for r in COUNTED}
        """What the nodes that stay have of cpu and memory."""
        self._used = {r: sum(i.requested.get(r, 0) for i in infos) for r in COUNTED}

    def shortage(
        self,
        node: str,
        moving: Collection[PodKey],
        leaving: Mapping[str, Collection[PodKey]],
    ) -> str:
        """Why what leaves the node finds no room, or too little stays free; "" where it fits."""
        for name, keys in leaving.items():
            self._take_away(name, tuple(keys))
        if node not in self._nodes.nodes or node in self._gone:
            return ""
        before = self._nodes.nodes[node]
        self._nodes.set_nodes([cordoned(before)])
        placed: list[Pod] = []
        try:
            for pod in [*self._replacements(moving), *self._again(self._moved.get(node, ()))]:
                if self._place(pod, placed) is None:
                    return f"pod {pod.namespace}/{pod.name} finds no node: {self._why(pod)}"
            return self._low(node)
        finally:
            for pod in placed:
                self._nodes.left(pod)
                self._count(pod, -1)
            self._nodes.set_nodes([before if before.spec.unschedulable else uncordoned(before)])

    def _take_away(self, name: str, keys: tuple[PodKey, ...]) -> None:
        """The node is out of service, and what leaves it stands elsewhere from now on."""
        if self._gone.get(name) == keys:
            return
        first = name not in self._gone
        self._gone[name] = keys
        if name in self._staying:
            self._staying.remove(name)
            for resource, (total, used) in self._of_node(name).items():
                self._total[resource] -= total
                self._used[resource] -= used
        node = self._nodes.nodes.get(name)
        if first and node is not None:
            self._nodes.set_nodes([cordoned(node)])
            again = self._again(self._moved.pop(name, ()))
            for pod in [*self._replacements(keys), *again]:
                where = self._place(pod, [])
                if where is not None:
                    self._moved.setdefault(where, []).append(pod)

    def _replacements(self, keys: Iterable[PodKey]) -> Iterable[Pod]:
        """The pods that owners make for those that leave."""
        for key in keys:
            pod = self._pods.get(key)
            if pod is None or replacement_of(pod, self._snapshot).when == NEVER:
                continue
            yield self._new(pod)

    def _again(self, pods: Iterable[Pod]) -> list[Pod]:
        """Pods like these, for a node that these stand on and that goes too."""
        return [self._new(pod) for pod in pods]

    def _new(self, pod: Pod) -> Pod:
        self._made += 1
        return new_pod(pod, self._made, self._snapshot.now_ns)

    def _place(self, pod: Pod, placed: list[Pod]) -> str | None:
        name = self._nodes.place(pod)
        if name is not None:
            placed.append(pod)
            self._count(pod, 1)
        return name

    def _count(self, pod: Pod, sign: int) -> None:
        """The pod has come to a node that stays, or has left it."""
        for resource, amount in pod_requests(pod).items():
            if resource in self._used:
                self._used[resource] += sign * amount

    def _of_node(self, name: str) -> dict[str, tuple[int, int]]:
        """What the node has of cpu and memory, and how much of it is requested."""
        info = self._nodes.placement.info(name)
        return {r: (info.allocatable.get(r, 0), info.requested.get(r, 0)) for r in COUNTED}

    def _why(self, pod: Pod) -> str:
        return str(self._nodes.placement.no_room(pod))

    def _low(self, node: str) -> str:
        """Which resource has less free than the low-water mark without the node; else empty."""
        of_node = self._of_node(node) if node in self._staying else {}
        for resource, total in self._total.items():
            own, requested = of_node.get(resource, (0, 0))
            total, used = total - own, self._used[resource] - requested
            free = total - used
            if free * 100 < self._low_water * total:
                share = 100 * free / total if total else 0.0
                return (
                    f"{share:.0f} % of {resource} would stay free,"
                    f" --low-water asks for {self._low_water:g} %"
                )
        return ""
