"""The simulated API's objects as the scheduler sees them: nodes, what their pods leave, volumes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.workloads.eviction import TERMINAL_PHASES
from kubectl_nodelife.workloads.interpod import anti_affinity_terms
from kubectl_nodelife.workloads.nodeinfo import NodeInfo
from kubectl_nodelife.workloads.pod_classes import Demands, PodClasses
from kubectl_nodelife.workloads.scheduling import PodRequirements

_COUNTED_APART = 32
"""Nodes of which the pods are counted one by one; then those of all others are at once."""

REASON_NOT_READY = "node(s) were not ready"


class StoreCache:
    """The API's objects, as the simulated scheduler wants to see them."""

    def __init__(self, api: Api, classes: PodClasses, kinds_read: frozenset[str]) -> None:
        """`kinds_read`: kinds of which an object that is not there is known not to exist."""
        self._store = api.store
        self._classes = classes
        self._kinds_read = kinds_read
        self._counted = 0
        self._rooms: dict[str, dict[PodRequirements, int]] = {}
        """The room taken on nodes that nobody asked about yet, once that was counted for all."""
        self._free: dict[str, list[PersistentVolume]] | None = None
        self._keep_off: dict[Key, None] = dict.fromkeys(
            key
            for key, pod in self._store.pods.items()
            if pod.spec.affinity is not None and anti_affinity_terms(pod)
        )

    def fork(self, api: Api) -> StoreCache:
        """That of the world's fork."""
        other = copy(self)
        other._store = api.store
        self._rooms, other._rooms = fork_dict(self._rooms)
        self._keep_off, other._keep_off = fork_dict(self._keep_off)
        return other

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Note which pods keep others away, and whose node is to be counted anew."""
        if old is not None and new is not None and old.spec is new.spec:
            return
        if self._rooms:
            for pod in (old, new):
                if pod is not None:
                    self._rooms.pop(pod.spec.node_name, None)
        if new is not None and anti_affinity_terms(new):
            self._keep_off[new.key] = None
        elif old is not None and old.spec.affinity is not None:
            self._keep_off.pop(old.key, None)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Nothing is kept of nodes."""

    def object_changed(self, kind: str) -> None:
        """A volume may be free, or no longer."""
        if kind == "PersistentVolume":
            self._free = None

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._store.nodes

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each namespace."""
        return {n.name: n.metadata.labels or {} for n in self._store.all("Namespace")}

    def admitted(self, demands: Demands) -> tuple[Iterable[str], Collection[str]]:
        """Nothing is known yet."""
        return (), self._store.nodes

    def pod_count(self, name: str) -> int:
        """How many pods are bound to the node."""
        return self._store.count_on(name)

    def stock(self, name: str) -> NodeInfo:
        """The room that the node's pods leave on it. Most of them ask the same, so they are
        counted.
        """
        rooms = self._rooms.pop(name, None)
        if rooms is None:
            rooms = self._classes.rooms_on(self._store.pods_on(name)).get(name, {})
            self._counted += 1
            if self._counted == _COUNTED_APART:
                self._rooms = self._classes.rooms_on(self._store.pods.values())
        info = NodeInfo(self._store.nodes[name])
        for room, count in rooms.items():
            info.add(room.requests, room.ports, count)
        return info

    def placed(self, namespace: str | None) -> Iterator[tuple[Pod, Node]]:
        """The pods of the namespace, or of all, that are on a node and have not ended."""
        nodes = self._store.nodes
        for pod in self._store.pods.values():
            node = nodes.get(pod.spec.node_name)
            if node is None or pod.status.phase in TERMINAL_PHASES:
                continue
            if namespace is None or pod.metadata.namespace == namespace:
                yield pod, node

    def placed_anti_affinity(self) -> Iterator[tuple[Pod, Node]]:
        """Those of them that keep others away by a required anti-affinity."""
        for key in self._keep_off:
            pod = self._store.pods[key]
            node = self._store.nodes.get(pod.spec.node_name)
            if node is not None and pod.status.phase not in TERMINAL_PHASES:
                yield pod, node

    def keeps_off(self, node: Node) -> str | None:
        """A node that is not Ready gets no pods, whether or not a taint says so yet."""
        return None if is_ready_or_silent(node) else REASON_NOT_READY

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """The claim, or None."""
        found = self._store.get("PersistentVolumeClaim", (namespace, name))
        return found if isinstance(found, PersistentVolumeClaim) else None

    def volume(self, name: str) -> PersistentVolume | None:
        """The volume, or None."""
        found = self._store.get("PersistentVolume", ("", name))
        return found if isinstance(found, PersistentVolume) else None

    def storage_class(self, name: str) -> StorageClass | None:
        """The class, or None."""
        found = self._store.get("StorageClass", ("", name))
        return found if isinstance(found, StorageClass) else None

    def free_volumes(self, class_name: str) -> list[PersistentVolume]:
        """The volumes of a class that no claim has."""
        if self._free is None:
            self._free = {}
            for found in self._store.all("PersistentVolume"):
                if isinstance(found, PersistentVolume) and found.spec.claim_ref is None:
                    self._free.setdefault(found.spec.storage_class_name, []).append(found)
        return self._free.get(class_name, [])

    def volumes_read(self) -> bool:
        """True if claims and volumes were read at all."""
        return {"PersistentVolumeClaim", "PersistentVolume"} <= self._kinds_read


def is_ready_or_silent(node: Node) -> bool:
    """True if it is Ready, or says nothing of it: a taint keeps pods off a lost node, where taints
    mirror conditions.
    """
    ready = node.ready()
    return ready is None or ready.status == "True"
