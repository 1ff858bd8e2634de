"""Groups pods that are alike to the scheduler, so that thousands of them are handled as a few.

Two steps: pods of the same `Demands` ask the same of a node by itself (taints, affinity, room), and
of these the ones of the same `PodClass` also the same of what runs elsewhere (spread, rules between
pods). Volumes are left out: claims belong to a single pod.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import Final

import msgspec

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, PodSpec
from kubectl_nodelife.workloads.scheduling import NodeInfo, PodRequirements

_OWN_LABELS = frozenset({"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"})
"""Labels in which the pods of one template differ."""

_COUNTED_APART: Final = 32
"""The pods of so many nodes are counted node by node; then those of all other nodes at once."""

_encode = msgspec.msgpack.Encoder().encode
_NO_LABELS: Mapping[str, str] = {}


class PodClass:
    """Pods that ask the same of a node and of what runs elsewhere; `sample` is one of them."""

    __slots__ = ("sample",)

    def __init__(self, sample: Pod) -> None:
        self.sample = sample


class Demands:
    """The demands of pods on a node alone. `wanted` has no rules between pods, and no volumes."""

    __slots__ = ("_classes", "plain", "wanted")

    def __init__(self, pod: Pod) -> None:
        self.wanted = PodRequirements(pod)
        self.plain = PodClass(pod)
        self._classes: dict[bytes, PodClass] = {}

    def class_of(self, pod: Pod, others_keep_off: bool) -> PodClass:
        """The pod's class. `others_keep_off`: some pod has a required anti-affinity to others.

        Its labels and namespace count only where a rule asks what runs elsewhere.
        """
        if not others_keep_off and not has_rules(pod.spec):
            return self.plain
        labels = pod.metadata.labels or _NO_LABELS
        shared_labels = sorted(item for item in labels.items() if item[0] not in _OWN_LABELS)
        constraints = pod.spec.topology_spread_constraints
        key = _encode((pod.namespace, shared_labels, constraints))
        class_ = self._classes.get(key)
        if class_ is None:
            class_ = self._classes[key] = PodClass(pod)
        return class_


class PodClasses:
    """All classes that were found so far."""

    def __init__(self) -> None:
        self._demands: dict[bytes, Demands] = {}
        self._by_containers: dict[int, tuple[PodSpec, Demands]] = {}
        self._rooms: dict[bytes, PodRequirements] = {}
        self._room: dict[int, tuple[PodSpec, PodRequirements]] = {}

    def demands_of(self, pod: Pod) -> Demands:
        """Found by the containers, which pods of one template nearly always share."""
        spec = pod.spec
        last = self._by_containers.get(id(spec.containers))
        if last is not None and _asks_the_same(last[0], spec):
            return last[1]
        asked = (spec.tolerations, spec.node_selector, spec.affinity, bool(spec.scheduling_gates))
        key = _encode((asked, _room_asked(spec)))
        demands = self._demands.get(key)
        if demands is None:
            demands = self._demands[key] = Demands(pod)
        self._by_containers[id(spec.containers)] = (spec, demands)
        return demands

    def room_of(self, pod: Pod) -> PodRequirements:
        """The room that the pod takes of a node; only `requests` and `ports` of it count."""
        spec = pod.spec
        last = self._room.get(id(spec.containers))
        if last is not None and _takes_the_same(last[0], spec):
            return last[1]
        key = _encode(_room_asked(spec))
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = PodRequirements(pod)
        self._room[id(spec.containers)] = (spec, room)
        return room

    def templates(self) -> int:
        """Of how many lists of containers the room is known."""
        return len(self._room)

    def rooms_on(self, pods: Iterable[Pod]) -> dict[str, dict[PodRequirements, int]]:
        """The room that these pods take of each node, and how many take the same; ended ones: none.

        In one pass, since it may be all pods of a large cluster: those of one template mostly
        follow one another.
        """
        rooms: defaultdict[str, dict[PodRequirements, int]]
        rooms = defaultdict(partial(defaultdict, int))
        last, room = PodSpec(), None
        for pod in pods:
            if pod.status.phase in TERMINAL_PHASES:
                continue
            spec = pod.spec
            if room is None or not (
                spec.containers is last.containers
                and spec.init_containers is last.init_containers
                and spec.overhead is last.overhead
                and spec.resources is last.resources
            ):
                last, room = spec, self.room_of(pod)
            rooms[spec.node_name][room] += 1
        return rooms


class RoomOnNodes:
    """The room that pods take of each node: counted node by node, and after many nodes,
    for all others at once.
    """

    def __init__(self, classes: PodClasses) -> None:
        self._classes = classes
        self._counted = 0
        self._ahead: dict[str, dict[PodRequirements, int]] = {}
        """Of nodes that were not requested yet."""

    def fork(self) -> RoomOnNodes:
        """Another one with the same counts, which each of the two keeps up for itself."""
        other = copy(self)
        self._ahead, other._ahead = fork_dict(self._ahead)
        return other

    def of(
        self,
        name: str,
        pods_on: Callable[[str], Iterable[Pod]],
        all_pods: Callable[[], Iterable[Pod]],
    ) -> Mapping[PodRequirements, int]:
        """The room taken of the node. Reads pods only if it must count them: a fork's take long."""
        rooms = self._ahead.pop(name, None)
        if rooms is None:
            rooms = self._classes.rooms_on(pods_on(name)).get(name, {})
            self._counted += 1
            if self._counted == _COUNTED_APART:
                self.count_ahead(all_pods())
        return rooms

    def count_ahead(self, pods: Iterable[Pod]) -> None:
        """Count all pods, as they are now, at once: forks share the counts."""
        self._ahead, self._counted = self._classes.rooms_on(pods), _COUNTED_APART

    def counted_ahead(self, rooms: dict[str, dict[PodRequirements, int]]) -> None:
        """All were counted already (`PodSummary.rooms`)."""
        self._ahead, self._counted = rooms, _COUNTED_APART

    def forget(self, name: str) -> None:
        """The node has other pods than before."""
        self._ahead.pop(name, None)


def stock(node: Node, rooms: Mapping[PodRequirements, int]) -> NodeInfo:
    """The node less the room that its pods take: how many take the same (`PodClasses.rooms_on`)."""
    info = NodeInfo(node)
    for room, count in rooms.items():
        info.add(room.requests, room.ports, count, room.scored)
    return info


def _room_asked(spec: PodSpec) -> tuple[object, ...]:
    """All that determines how much a pod takes of a node."""
    containers = [(c.resources, c.ports) for c in spec.containers]
    init = [(c.resources, c.ports, c.restart_policy) for c in spec.init_containers]
    return (containers, init, spec.resources, spec.overhead)


def has_rules(spec: PodSpec) -> bool:
    """True if the pod asks anything of what runs elsewhere."""
    if spec.topology_spread_constraints:
        return True
    affinity = spec.affinity
    return affinity is not None and (
        affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
    )


def _asks_the_same(one: PodSpec, other: PodSpec) -> bool:
    """True if pods with the same containers have the same demands on a node."""
    return (
        one.tolerations == other.tolerations
        and bool(one.scheduling_gates) == bool(other.scheduling_gates)
        and one.node_selector == other.node_selector
        and one.affinity == other.affinity
        and _takes_the_same(one, other)
    )


def _takes_the_same(one: PodSpec, other: PodSpec) -> bool:
    """True if pods with the same containers take the same room."""
    if (
        one.init_containers is other.init_containers
        and one.overhead is other.overhead
        and one.resources is other.resources
    ):
        return True  # as with pods of one template, nearly always
    return (
        one.init_containers == other.init_containers
        and one.overhead == other.overhead
        and one.resources == other.resources
    )
