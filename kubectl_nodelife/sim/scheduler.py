"""The simulated scheduler: an unbound pod goes to the node with the fewest pods where it fits.

Which nodes fit is `workloads.placement`'s to say; here is whose turn it is. Pods that fit nowhere
wait in a line for each class of pods that are alike, and are tried again when something changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.sim.acts import told
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.store_cache import StoreCache, is_ready
from kubectl_nodelife.workloads.placement import PlacementSimulator
from kubectl_nodelife.workloads.pod_classes import PodClasses
from kubectl_nodelife.workloads.scoring import FewestPods, Scoring

_VOLUME_KINDS = frozenset({"PersistentVolumeClaim", "PersistentVolume", "StorageClass"})


class _Waiting(NamedTuple):
    """A pod that waits for a node: its turn, and which pod it was."""

    turn: int
    key: Key
    uid: str


class Scheduler:
    """Finds nodes for pods, and keeps those that fit nowhere until something changes."""

    def __init__(
        self, api: Api, kinds_read: frozenset[str] = frozenset(), scoring: Scoring | None = None
    ) -> None:
        """`kinds_read`: kinds of which an object that is not there is known not to exist."""
        self._api = api
        self._kinds_read = kinds_read
        self._scoring = scoring or FewestPods()
        self._waiting: dict[Hashable, dict[Key, _Waiting]] = {}
        self._line_of: dict[Key, Hashable] = {}
        self._next_turn = 0
        self._look_again = False

    def begin(self) -> None:
        """Count what is there, and find nodes for the pods that nobody tried to place yet."""
        classes = PodClasses()
        self._cache = StoreCache(self._api, classes, self._kinds_read)
        self.placement = PlacementSimulator(self._cache, self._scoring, classes, unstated_room=True)
        if sum(self._api.store.pod_counts().values()) < len(self._api.store.pods):
            self._note_unbound()
        self._api.on_pod(self._pod_changed)
        self._api.on_node(self._node_changed)
        self._api.on_object(self._object_changed)

    def _note_unbound(self) -> None:
        for pod in self._api.store.pods.values():
            if pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                continue
            if pod.status.phase in ("", "Pending"):
                tried = pod.status.condition("PodScheduled")
                self._line_up(pod)
                self._look_again |= tried is None or tried.status != "False"

    def bind(self, pod: Pod) -> Pod:
        """The new pod with its node, or as it is, if it fits nowhere now."""
        if pod.spec.node_name:
            return pod
        node = self.placement.place(pod)
        return pod if node is None else _bound(pod, node)

    def place(self, pod: Pod) -> str | None:
        """A node for a pod like this one, wherever it may be now; None where it fits nowhere."""
        return self.placement.place(pod)

    def place_waiting(self) -> None:
        """Try again for the pods that fit nowhere, if something changed since: in the order in
        which they came, and of a class no more after one that fits nowhere still.
        """
        if not self._look_again:
            return
        self._look_again = False
        turns = [(_first(line).turn, i, name) for i, (name, line) in self._numbered_lines()]
        heapq.heapify(turns)
        while turns:
            _, number, name = heapq.heappop(turns)
            line = self._waiting[name]
            first = _first(line)
            pod = self._api.store.pods.get(first.key)
            if pod is not None and pod.uid == first.uid and not pod.spec.node_name:
                node = self.placement.place(pod)
                if node is None:
                    continue
                done = self._api.note(told(pod, "Scheduled", f"the pod fits on {node}"))
                self._api.put("Pod", _bound(pod, node), done)
            self._leave(first.key)
            if line:
                heapq.heappush(turns, (_first(line).turn, number, name))

    def _numbered_lines(self) -> list[tuple[int, tuple[Hashable, dict[Key, _Waiting]]]]:
        return list(enumerate(self._waiting.items()))

    def _line_up(self, pod: Pod) -> None:
        """Let the pod wait behind those that do already; a successor takes its place in line."""
        name = self.placement.line_of(pod)
        before = self._leave(pod.key) if self._line_of.get(pod.key) != name else None
        line = self._waiting.setdefault(name, {})
        before = line.get(pod.key, before)
        turn = self._next_turn if before is None else before.turn
        self._next_turn += 1
        line[pod.key] = _Waiting(turn, pod.key, pod.uid)
        self._line_of[pod.key] = name

    def _leave(self, key: Key) -> _Waiting | None:
        """Take the pod out of its line."""
        name = self._line_of.pop(key, None)
        if name is None:
            return None
        line = self._waiting[name]
        left = line.pop(key, None)
        if not line:
            del self._waiting[name]
        return left

    def _node_changed(self, old: Node | None, new: Node | None, cause: Action | None) -> None:
        if old is not None and new is not None and _seen_by_filters(old) == _seen_by_filters(new):
            return
        self.placement.node_changed(old, new)
        self._look_again = bool(self._waiting)

    def _object_changed(self, kind: str, old: KubeObject | None, new: KubeObject | None) -> None:
        self._cache.object_changed(kind)
        if kind in _VOLUME_KINDS:
            self._look_again = bool(self._waiting)

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        before = old.spec.node_name if old is not None else ""
        after = new.spec.node_name if new is not None else ""
        if new is not None and not after:
            self._unbound_changed(old, new, cause)
        if (new or old).spec.affinity is not None:  # type: ignore[union-attr]
            self._cache.pod_changed(old, new)
        self.placement.pod_changed(old, new)
        if self._waiting and (
            (before and before != after) or (after and self.placement.follows_pods())
        ):
            self._look_again = True

    def _unbound_changed(self, old: Pod | None, new: Pod, cause: Action | None) -> None:
        if old is None:
            self._line_up(new)
            why = "no node meets the pod's demands now"
            self._api.note(told(new, "FailedScheduling", why, cause=cause, warning=True))
        elif old.spec is not new.spec:
            line = self._line_of.get(old.key)
            if line is not None and self.placement.line_of(new) != line:
                self._leave(old.key)
                self._line_up(new)
                self._look_again = True


def _first(line: dict[Key, _Waiting]) -> _Waiting:
    return next(iter(line.values()))


def _bound(pod: Pod, node: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node))


def _seen_by_filters(node: Node) -> tuple[object, ...]:
    spec = node.spec
    labels = node.metadata.labels
    return (is_ready(node), spec.unschedulable, spec.taints, labels, node.status.allocatable)
