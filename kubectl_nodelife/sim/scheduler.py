"""A simple scheduler: an unbound pod goes to the node with the fewest pods among those where it
fits.

The filters are the scheduler's own (`workloads/scheduling.py`); of its scores only "least loaded"
is left, and ties go to the node first seen. A pod that names one node in its affinity, as the
DaemonSet controller's do, is bound there without further questions. Pods that ask the same of a
node are one class and share one heap of the nodes that may do, kept lazily: an entry is brought up
to date when it comes up, a node without room leaves the heap, and a node that changed or lost a pod
is looked at again when the heap is next used. Left out: rules between pods, volumes, preemption.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodSpec
from kubectl_nodelife.sim.acts import told
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.workloads.nodeinfo import NodeInfo
from kubectl_nodelife.workloads.scheduling import Wanted, room_reasons, static_reason


class _Candidates:
    """The nodes to which a class of pods may go, fewest pods first.

    `heap` holds (pods on the node, its number, its name). `listed` tells with how many pods a node
    stands in it; an entry that says otherwise is a leftover. `changed`: nodes to look at anew.
    """

    __slots__ = ("changed", "heap", "listed")

    def __init__(self, nodes: Iterable[str]) -> None:
        self.heap: list[tuple[int, int, str]] = []
        self.listed: dict[str, int] = {}
        self.changed = set(nodes)


class _PodClass:
    """Pods that ask the same of a node; `candidates` is None until one of them needs a node."""

    __slots__ = ("candidates", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.candidates: _Candidates | None = None


class _Waiting(NamedTuple):
    """A pod that waits for a node: its turn, and which pod it was."""

    turn: int
    key: Key
    uid: str


class Scheduler:
    """Finds nodes for pods, and keeps those that fit nowhere until something changes."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._next_number = 0
        self._infos: dict[str, NodeInfo] = {}
        self._classes: dict[bytes, _PodClass] = {}
        self._by_containers: dict[int, tuple[PodSpec, _PodClass]] = {}
        self._candidates: list[_Candidates] = []
        self._waiting: dict[_PodClass, dict[Key, _Waiting]] = {}
        self._next_turn = 0
        self._look_again = False

    def begin(self) -> None:
        """Count what is there, and find nodes for the pods that nobody tried to place yet."""
        self._pods = self._api.store.pod_counts()
        if sum(self._pods.values()) < len(self._api.store.pods):
            self._note_unbound()
        for name in self._api.store.nodes:
            self._number(name)
        self._api.on_pod(self._pod_changed)
        self._api.on_node(self._node_changed)

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
        node = self.place(pod)
        return pod if node is None else _bound(pod, node)

    def place_waiting(self) -> None:
        """Try again for the pods that fit nowhere, if something changed since: in the order in
        which they came, and of a class no more after one that fits nowhere still.
        """
        if not self._look_again:
            return
        self._look_again = False
        turns = [(_first(line).turn, class_) for class_, line in self._waiting.items()]
        heapq.heapify(turns)
        while turns:
            _, class_ = heapq.heappop(turns)
            line = self._waiting[class_]
            first = _first(line)
            pod = self._api.store.pods.get(first.key)
            if pod is not None and pod.uid == first.uid and not pod.spec.node_name:
                node = self.place(pod)
                if node is None:
                    continue
                done = self._api.note(told(pod, "Scheduled", f"the pod fits on {node}"))
                self._api.put("Pod", _bound(pod, node), done)
            del line[first.key]
            if line:
                heapq.heappush(turns, (_first(line).turn, class_))
            else:
                del self._waiting[class_]

    def _line_up(self, pod: Pod) -> None:
        """Let the pod wait behind those that do already; a successor takes its place in line."""
        line = self._waiting.setdefault(self._class_of(pod), {})
        before = line.get(pod.key)
        turn = self._next_turn if before is None else before.turn
        self._next_turn += 1
        line[pod.key] = _Waiting(turn, pod.key, pod.uid)

    def place(self, pod: Pod) -> str | None:
        """A node for a pod like this one, wherever it may be now; None where it fits nowhere."""
        if pod.spec.scheduling_gates:
            return None
        pinned = _pinned_node(pod.spec)
        if pinned is not None:
            return pinned if pinned in self._api.store.nodes else None
        class_ = self._class_of(pod)
        candidates = self._candidates_of(class_)
        heap, listed = candidates.heap, candidates.listed
        while heap:
            count, number, name = heap[0]
            if listed.get(name) != count:
                heapq.heappop(heap)
                continue
            present = self._pods.get(name, 0)
            if present != count:
                listed[name] = present
                heapq.heapreplace(heap, (present, number, name))
                continue
            if not self._full(class_.wanted, name):
                return name
            heapq.heappop(heap)
            del listed[name]
        return None

    def _full(self, wanted: Wanted, name: str) -> bool:
        """Whether the node has no room; a node that tells no capacity always has."""
        node = self._api.store.nodes[name]
        if not node.status.allocatable:
            return False
        info = self._infos.get(name)
        if info is None:
            info = self._infos[name] = self._take_stock(node)
        return bool(room_reasons(wanted, info))

    def _take_stock(self, node: Node) -> NodeInfo:
        """What the pods on a node take of it. Most are of one of a few classes, so these are
        counted.
        """
        times: dict[_PodClass, int] = {}
        for pod in self._api.store.pods_on(node.name):
            class_ = self._class_of(pod)
            times[class_] = times.get(class_, 0) + 1
        info = NodeInfo(node)
        for class_, count in times.items():
            info.add(class_.wanted.requests, class_.wanted.ports, count)
        return info

    def _class_of(self, pod: Pod) -> _PodClass:
        """The pod's class. Pods of one template nearly always hold the very same containers, so
        these lead to it.
        """
        spec = pod.spec
        known = self._by_containers.get(id(spec.containers))
        if known is not None and _asks_the_same(known[0], spec):
            return known[1]
        containers = [(c.resources, c.ports) for c in spec.containers]
        init = [(c.resources, c.ports, c.restart_policy) for c in spec.init_containers]
        gated = bool(spec.scheduling_gates)
        demands = (spec.tolerations, spec.node_selector, spec.affinity, gated)
        key = msgspec.json.encode((demands, containers, init, spec.resources, spec.overhead))
        class_ = self._classes.get(key)
        if class_ is None:
            class_ = self._classes[key] = _PodClass(Wanted(pod))
        self._by_containers[id(spec.containers)] = (spec, class_)
        return class_

    def _candidates_of(self, class_: _PodClass) -> _Candidates:
        """The class's candidates, after a look at the nodes that changed since the last time."""
        found = class_.candidates
        if found is None:
            found = class_.candidates = _Candidates(self._api.store.nodes)
            self._candidates.append(found)
        for name in found.changed:
            node = self._api.store.nodes.get(name)
            if node is None or not _ready(node) or static_reason(class_.wanted.pod, node):
                found.listed.pop(name, None)
                continue
            count = self._pods.get(name, 0)
            if found.listed.get(name) != count:
                found.listed[name] = count
                heapq.heappush(found.heap, (count, self._numbers[name], name))
        found.changed.clear()
        return found

    def _node_changed(self, old: Node | None, new: Node | None, cause: Action | None) -> None:
        node = new or old
        assert node is not None
        name = node.name
        if old is None:
            self._number(name)
        elif new is not None and _seen_by_filters(old) == _seen_by_filters(new):
            return
        self._infos.pop(name, None)
        self._look_again = bool(self._waiting)
        for candidates in self._candidates:
            candidates.changed.add(name)

    def _number(self, name: str) -> None:
        self._numbers[name] = self._next_number
        self._next_number += 1

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        before = old.spec.node_name if old is not None else ""
        after = new.spec.node_name if new is not None else ""
        if new is not None and not after:
            self._unbound_changed(old, new, cause)
        if before == after:
            return
        if new is not None and after:
            self._pods[after] = self._pods.get(after, 0) + 1
            if after in self._infos:
                wanted = self._class_of(new).wanted
                self._infos[after].add(wanted.requests, wanted.ports)
        if old is not None and before:
            self._pods[before] -= 1
            if before in self._infos:
                wanted = self._class_of(old).wanted
                self._infos[before].remove(wanted.requests, wanted.ports)
            self._look_again = bool(self._waiting)
            for candidates in self._candidates:
                candidates.changed.add(before)

    def _unbound_changed(self, old: Pod | None, new: Pod, cause: Action | None) -> None:
        if old is None:
            self._line_up(new)
            why = "no node meets the pod's demands now"
            self._api.note(told(new, "FailedScheduling", why, cause=cause, warning=True))
        elif old.spec is not new.spec:
            class_ = self._class_of(old)
            line = self._waiting.get(class_, {})
            if old.key in line and self._class_of(new) is not class_:
                del line[old.key]
                if not line:
                    del self._waiting[class_]
                self._line_up(new)
                self._look_again = True


def _first(line: dict[Key, _Waiting]) -> _Waiting:
    return next(iter(line.values()))


def _bound(pod: Pod, node: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node))


def _pinned_node(spec: PodSpec) -> str | None:
    """The one node that the pod's affinity names, as the DaemonSet controller writes it."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None or len(required.node_selector_terms) != 1:
        return None
    fields = required.node_selector_terms[0].match_fields
    if len(fields) != 1 or fields[0].operator != "In" or len(fields[0].values) != 1:
        return None
    return fields[0].values[0] if fields[0].key == "metadata.name" else None


def _asks_the_same(one: PodSpec, other: PodSpec) -> bool:
    """Whether pods with the very same containers are of one class."""
    return (
        one.tolerations == other.tolerations
        and bool(one.scheduling_gates) == bool(other.scheduling_gates)
        and one.init_containers == other.init_containers
        and one.node_selector == other.node_selector
        and one.affinity == other.affinity
        and one.overhead == other.overhead
        and one.resources == other.resources
    )


def _ready(node: Node) -> bool:
    """Ready, or silent about it: a taint keeps pods off a lost node, where taints mirror
    conditions.
    """
    ready = node.ready()
    return ready is None or ready.status == "True"


def _seen_by_filters(node: Node) -> tuple[object, ...]:
    spec = node.spec
    labels = node.metadata.labels
    return (_ready(node), spec.unschedulable, spec.taints, labels, node.status.allocatable)
