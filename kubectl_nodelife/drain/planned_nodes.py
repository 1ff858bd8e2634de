"""The nodes and pods of a plan's snapshot as one run has changed them, for the simulated scheduler.

The scheduler is `workloads.placement`; here it takes the node with the highest score. `NodeIndex`
is what all runs of a plan share and none changes: free resources, and classes of equal pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubectl_nodelife.kube.taints import add_or_update_taints, remove_taints
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE
from kubectl_nodelife.workloads.placement import PlacementSimulator
from kubectl_nodelife.workloads.pod_classes import Demands, PodClasses, RoomOnNodes, stock
from kubectl_nodelife.workloads.scheduling import NodeInfo, static_reason
from kubectl_nodelife.workloads.scoring import HighestScore
from kubectl_nodelife.workloads.topology import anti_affinity_terms

REASON_SILENT: Final = "node(s) had a kubelet that does not report"


class NodeIndex:
    """The nodes of a snapshot, and which of its pods are alike."""

    def __init__(self, snapshot: PlanSnapshot) -> None:
        self.snapshot = snapshot
        self.classes = PodClasses()
        self._infos: dict[str, NodeInfo] = {}
        self._rooms = RoomOnNodes(self.classes)
        self._admitted: dict[Demands, list[str]] = {}

    def info(self, name: str) -> NodeInfo:
        """The node's free resources at the plan's moment. Not to be changed: `NodeInfo.copy` is."""
        info = self._infos.get(name)
        if info is None:
            snapshot = self.snapshot
            pods_on = snapshot.pods_by_node
            rooms = self._rooms.of(name, lambda n: pods_on.get(n, ()), lambda: snapshot.pods)
            info = self._infos[name] = stock(snapshot.nodes[name], rooms)
        return info

    def admitted(self, demands: Demands) -> list[str]:
        """The nodes that admit such pods at the plan's moment, whatever runs there."""
        names = self._admitted.get(demands)
        if names is None:
            pod, silent = demands.wanted.pod, self.snapshot.silent_kubelet
            names = self._admitted[demands] = [
                name
                for name, node in self.snapshot.nodes.items()
                if static_reason(pod, node) is None and silent(name) is None
            ]
        return names


UNSCHEDULABLE_TAINT: Final = Taint(key=TAINT_NODE_UNSCHEDULABLE, effect=NO_SCHEDULE)


def cordoned(node: Node) -> Node:
    """The node as `kubectl cordon` and then the node lifecycle controller leave it."""
    taints = add_or_update_taints(node.spec.taints, (UNSCHEDULABLE_TAINT,))
    spec = msgspec.structs.replace(node.spec, unschedulable=True, taints=taints)
    return msgspec.structs.replace(node, spec=spec)


def uncordoned(node: Node) -> Node:
    """The node without the cordon and its taint."""
    taints = remove_taints(node.spec.taints, (UNSCHEDULABLE_TAINT,))
    spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
    return msgspec.structs.replace(node, spec=spec)


class PlannedNodes:
    """The nodes with their pods while a plan is played; `placement` finds nodes for pods."""

    def __init__(self, node_index: NodeIndex) -> None:
        self._node_index = node_index
        self._snapshot = node_index.snapshot
        profile = self._snapshot.settings.profile
        self.empty_selector_spreads = profile.has("empty_selector_spreads")
        self.nodes: dict[str, Node] = dict(node_index.snapshot.nodes)
        self._changed: set[str] = set()
        self._slow: frozenset[str] = frozenset()
        self._pods: dict[str, Pod | None] = {}
        """Pods that are not as the snapshot has them, by uid; None: gone."""
        self._made: dict[str, dict[str, None]] = {}
        """Uids of the pods that the run has made, by namespace."""
        self._touched: dict[str, dict[str, None]] = {}
        """Uids of the pods that the run has bound to each node that has not the pods it had."""
        self.placement = PlacementSimulator(self, HighestScore(), node_index.classes)

    # --- what changes ----------------------------------------------------------------------------

    def take_pods_again(self, slow: Collection[str]) -> None:
        """The kubelets of these nodes are not silent, though the snapshot says so."""
        self._slow = frozenset(slow)
        self._changed |= self._slow

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """The nodes are as given from now on: cordoned, uncordoned."""
        for node in nodes:
            old, self.nodes[node.name] = self.nodes[node.name], node
            self.node_changed(old, node)
            self.placement.node_changed(old, node)

    def place(self, pod: Pod) -> str | None:
        """Bind the pod to the node that the scheduler would take; None where none fits."""
        name = self.placement.place(pod)
        if name is not None:
            self._set(None, replace(pod, spec=replace(pod.spec, node_name=name)))
        return name

    def left(self, pod: Pod) -> None:
        """The pod's object is gone."""
        old = self._pods.get(pod.uid, pod)
        if old is not None and old.spec.node_name:
            self._set(old, None)

    def end(self) -> None:
        """Nothing is placed or asked any more. Undo the circle with the placement."""
        self.placement.end()
        del self.placement

    def _set(self, old: Pod | None, new: Pod | None) -> None:
        self.pod_changed(old, new)
        self.placement.pod_changed(old, new)

    # --- changes received ------------------------------------------------------------------------

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node is another one than in the snapshot."""
        node = new or old
        assert node is not None
        self._changed.add(node.name)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod is another one than in the snapshot."""
        pod = new or old
        assert pod is not None
        before = old.spec.node_name if old is not None else ""
        after = new.spec.node_name if new is not None else ""
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        if before and not after:
            self._touched.setdefault(before, {}).pop(uid, None)
            self._made.get(namespace, {}).pop(uid, None)
        elif after and not before:
            self._touched.setdefault(after, {})[uid] = None
            self._made.setdefault(namespace, {})[uid] = None
        self._pods[uid] = new

    def object_changed(self, kind: str) -> None:
        """Nothing: a plan changes pods and nodes only."""

    # --- what the scheduler sees -----------------------------------------------------------------

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each namespace."""
        return self._snapshot.namespace_labels

    def admitted(self, demands: Demands) -> tuple[Iterable[str], Collection[str]]:
        """The state of the nodes that the run has not changed."""
        changed = self._changed
        return [n for n in self._node_index.admitted(demands) if n not in changed], changed

    def pod_count(self, name: str) -> int:
        """How many pods take room on the node."""
        return self.placement.info(name).pod_count

    def stock(self, name: str) -> NodeInfo:
        """The node's resources less those of its pods."""
        made = self._touched.get(name)
        if made is None:
            info = self._node_index.info(name).copy()
            info.node = self.nodes[name]
            return info
        there = [self._pods.get(p.uid, p) for p in self._snapshot.pods_by_node.get(name, ())]
        there += [self._pods[uid] for uid in made]
        here = (pod for pod in there if pod is not None)
        return stock(self.nodes[name], self._node_index.classes.rooms_on(here).get(name, {}))

    def placed(self, namespace: str | None) -> Iterator[tuple[Pod, Node]]:
        """The pods of the namespace, or of all, that are on a node and have not ended."""
        pods = self._snapshot.pods
        if namespace is not None:
            pods = self._snapshot.pods_by_namespace.get(namespace, [])
        return self._on_nodes(pods, namespace)

    def placed_anti_affinity(self) -> Iterator[tuple[Pod, Node]]:
        """Those of them that keep others away by a required anti-affinity."""
        for pod, node in self._on_nodes(self._snapshot.anti_affinity_pods, None):
            if anti_affinity_terms(pod):
                yield pod, node

    def _on_nodes(self, pods: Iterable[Pod], namespace: str | None) -> Iterator[tuple[Pod, Node]]:
        """Of these pods those that are still on nodes, and the ones that the run has made."""
        changed = self._pods
        for pod in pods:
            now = changed.get(pod.metadata.uid, pod)
            if now is None or now.status.phase in TERMINAL_PHASES:
                continue
            node = self.nodes.get(now.spec.node_name)
            if node is not None:
                yield now, node
        for where, uids in self._made.items():
            if namespace is None or where == namespace:
                for uid in uids:
                    made = changed[uid]
                    if made is not None:
                        yield made, self.nodes[made.spec.node_name]

    def keeps_off(self, node: Node) -> str | None:
        """No pod is Ready on a node whose kubelet is silent, whether or not a taint says so yet."""
        if node.name in self._slow or self._snapshot.silent_kubelet(node.name) is None:
            return None
        return REASON_SILENT

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """The claim, or None."""
        return self._snapshot.claim(namespace, name)

    def volume(self, name: str) -> PersistentVolume | None:
        """The volume, or None."""
        return self._snapshot.volume(name)

    def storage_class(self, name: str) -> StorageClass | None:
        """The class, or None."""
        return self._snapshot.storage_class(name)

    def free_volumes(self, class_name: str) -> list[PersistentVolume]:
        """The volumes of a class that no claim has."""
        return self._snapshot.free_volumes(class_name)

    def volumes_read(self) -> bool:
        """True if claims and volumes were read at all."""
        return self._snapshot.volumes_read()
