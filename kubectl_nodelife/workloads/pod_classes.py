"""Sums up pods that are alike to the scheduler, so that thousands of them are handled as a few.

Two steps: pods of the same `Demands` ask the same of a node by itself (taints, affinity, room), and
of these the ones of the same `PodClass` also the same of what runs elsewhere (spread, rules between
pods). Volumes are left out: claims belong to a single pod.

A `PodSummary` is what depends on names and specs of a cluster's pods alone, kept up while they come
and go. A daemon keeps it for its cache (`engine.cache.PodIndex`), so that a play that begins need
not walk through all pods: which of them keep others away, which have a uid that an earlier play
gave or none, and the room that the pods of each node take. Whoever keeps none walks (`sim`). There
is no upstream to follow; kube-scheduler's cache keeps the same by node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final, Protocol

import msgspec

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.meta import LabelSelector, controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, PodSpec
from kubectl_nodelife.kube.selectors import demanded_pairs, matches
from kubectl_nodelife.workloads.scheduling import NodeInfo, PodRequirements
from kubectl_nodelife.workloads.topology import anti_affinity_terms

_OWN_LABELS = frozenset({"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"})
"""Labels in which the pods of one template differ."""

_SELECTED_BY_NOBODY: Final = _OWN_LABELS | {
    "controller-revision-hash",
    "pod-template-generation",
    "pod-template-hash",
}
"""Labels that budgets and Services do not ask for; where one does, it asks all of the namespace."""

_COUNTED_APART: Final = 32
"""The pods of so many nodes are counted node by node; then those of all other nodes at once."""

_encode = msgspec.msgpack.Encoder().encode
_NO_LABELS: Mapping[str, str] = {}

Key = tuple[str, str]
Rooms = dict[PodRequirements, int]
_Whose = str | Key | dict[str | Key, None]
_NOBODY: Final = object()

MADE_UID_ENDS: Final = "-4000-8000-000000000000"
"""How the uids end that plays give."""

_MOST_TEMPLATES: Final = 4096
"""So many more pod templates may be known than at first before those that are gone are let go; and
of owners by labels as many more than twice those at first."""


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


def has_rules(spec: PodSpec) -> bool:
    """True if the pod asks anything of what runs elsewhere."""
    return bool(spec.topology_spread_constraints) or has_affinity(spec)


def has_affinity(spec: PodSpec) -> bool:
    """True if the pod is drawn to others, or kept off them."""
    affinity = spec.affinity
    return affinity is not None and (
        affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
    )


class _Cluster(Protocol):
    pod_index: Any
    pods: dict[Key, Pod]

    def pods_on(self, node: str) -> list[Pod]: ...
    def pods_of(self, owner_uid: str) -> list[Pod]: ...


class PodLabels:
    """Whose pods have a label: uids of owners, and the keys of pods without one. What has gone
    stays in it, so that who looks must look at the pods. `owner_kinds`: (kind, apiVersion) of each;
    `filed`: how many entries there are.
    """

    def __init__(self) -> None:
        self.owner_kinds: set[tuple[str, str]] = set()
        self.filed = 0
        self._having: dict[str, dict[str, dict[str, _Whose]]] = {}
        self._last: tuple[object, object] = (_NOBODY, None)

    def note(self, pod: Pod) -> None:
        """A pod is there, or has other labels or owners than before."""
        meta = pod.metadata
        labels, references = meta.labels, meta.owner_references
        if labels is self._last[0] and references is self._last[1]:
            return  # as with most, one of an owner's after the other
        owner = controller_of(meta)
        if owner is not None:
            self.owner_kinds.add((owner.kind, owner.api_version))
        uid = owner.uid if owner is not None else ""
        self._last = (labels, references) if uid else (_NOBODY, None)
        whose = uid or pod.key
        by_key = self._having.setdefault(meta.namespace, {})
        pairs = [p for p in (labels or _NO_LABELS).items() if p[0] not in _SELECTED_BY_NOBODY]
        for key, value in pairs or [("", "")]:
            by_value = by_key.setdefault(key, {})
            having = by_value.get(value)
            if having is None:
                by_value[value] = whose
                self.filed += 1
            elif having != whose:
                if not isinstance(having, dict):
                    having = by_value[value] = {having: None}
                self.filed += whose not in having
                having[whose] = None

    def whose(self, namespace: str, selector: LabelSelector) -> Iterable[str | Key]:
        """Those among whose pods are all of the namespace that the selector matches."""
        by_key = self._having.get(namespace, {})
        for key, value in demanded_pairs(selector):
            if key not in _SELECTED_BY_NOBODY:
                return _each(by_key.get(key, {}).get(value, {}))
        entries = chain.from_iterable(by_value.values() for by_value in by_key.values())
        return dict.fromkeys(chain.from_iterable(map(_each, entries)))


def _each(having: _Whose) -> Iterable[str | Key]:
    return having if isinstance(having, dict) else (having,)


class LabelledPods:
    """The pods of a cache, by labels: those of its summary, or all are walked through once."""

    def __init__(self, cluster: _Cluster) -> None:
        self._cluster = cluster

    @cached_property
    def _labels(self) -> PodLabels:
        summary = summary_of(self._cluster)
        if summary is not None:
            return summary.labels
        labels = PodLabels()
        for pod in self._cluster.pods.values():
            labels.note(pod)
        return labels

    def owner_kinds(self) -> Iterable[tuple[str, str]]:
        """(kind, apiVersion) of all controllers of pods, and perhaps of some that were."""
        return self._labels.owner_kinds

    def matching(self, namespace: str, selector: LabelSelector | None) -> list[Pod]:
        """The pods of a namespace that the selector matches: those together that share their
        labels, in the order of their keys.
        """
        if selector is None:
            return []
        found: dict[Key, Pod] = {}
        last, matching = None, False
        for whose in self._labels.whose(namespace, selector):
            for pod in self._pods_of(whose):
                if pod.metadata.namespace != namespace:
                    continue
                labels = pod.metadata.labels
                if labels is None or labels is not last:
                    last, matching = labels, matches(selector, labels)
                if matching:
                    found[pod.key] = pod
        alike: dict[int, list[Pod]] = {}
        for _, pod in sorted(found.items()):
            alike.setdefault(id(pod.metadata.labels), []).append(pod)
        return [*chain.from_iterable(alike.values())]

    def _pods_of(self, whose: str | Key) -> Iterable[Pod]:
        if isinstance(whose, str):
            return self._cluster.pods_of(whose)
        pod = self._cluster.pods.get(whose)
        return (pod,) if pod is not None else ()


def summary_of(cluster: _Cluster) -> PodSummary | None:
    """What is kept of a cache's pods, as they are now; None: nothing, they must be walked."""
    summary = cluster.pod_index
    if not isinstance(summary, PodSummary):
        return None
    for _ in summary.catch_up(cluster.pods_on):
        pass
    return summary


def pods_among(cluster: _Cluster, kept: Callable[[PodSummary], Iterable[Key]]) -> Iterable[Pod]:
    """Those pods of a cache among which those are that someone looks for: what is kept of them
    (`PodSummary.keep_off`, …), or all.
    """
    summary = summary_of(cluster)
    return (
        cluster.pods.values() if summary is None else map(cluster.pods.__getitem__, kept(summary))
    )


class PodSummary:
    """Of all pods of a cache. `keep_off`: those with a required anti-affinity to others; `made`:
    those whose uid an earlier play may have given; `nameless`: those without a uid.

    A node whose pods changed is counted anew when they are asked for (`catch_up`).
    """

    def __init__(self, nodes: Iterable[str], unbound: Iterable[Pod]) -> None:
        """`nodes`: those with pods, all still to be counted; `unbound`: the pods without a node."""
        self.keep_off: dict[Key, None] = {}
        self.made: dict[Key, None] = {}
        self.nameless: dict[Key, None] = {}
        self._rooms: dict[str, Rooms] = {}
        self._stale = set(nodes)
        self._unnoted = set(self._stale)
        self._classes, self._most = PodClasses(), 0
        self.labels, self._most_filed = PodLabels(), 0
        for pod in unbound:
            self._note(pod)

    def copy(self) -> PodSummary:
        """Another one that is kept up by itself."""
        other = PodSummary(self._stale, ())
        other.keep_off, other.made = dict(self.keep_off), dict(self.made)
        other.nameless, other._rooms = dict(self.nameless), dict(self._rooms)
        other._unnoted = set(self._unnoted)
        other._classes, other._most = self._classes, self._most
        other.labels, other._most_filed = self.labels, self._most_filed
        return other

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, went or changed; the cache has it already."""
        if (
            old is not None
            and new is not None
            and old.spec is new.spec
            and old.metadata is new.metadata
            and (old.status.phase in TERMINAL_PHASES) is (new.status.phase in TERMINAL_PHASES)
        ):
            return
        for pod in (old, new):
            if pod is not None and pod.spec.node_name:
                self._stale.add(pod.spec.node_name)
        if old is not None:
            for pods in (self.keep_off, self.made, self.nameless):
                pods.pop(old.key, None)
        if new is not None:
            self._note(new)

    def catch_up(self, pods_on: Callable[[str], Sequence[Pod]]) -> Iterator[None]:
        """Count what changed, node by node; pods may change between two of these steps."""
        stale = self._stale
        if self._most and self._classes.templates() > self._most:
            self._classes, self._most = PodClasses(), 0
            stale |= self._rooms.keys()
        while stale:
            name = stale.pop()
            pods = pods_on(name)
            if name in self._unnoted:  # else each was noted when it came or changed
                self._unnoted.discard(name)
                for pod in pods:
                    self._note(pod)
            rooms = self._classes.rooms_on(pods).get(name)
            if rooms:
                self._rooms[name] = rooms
            else:
                self._rooms.pop(name, None)
            yield
        self._most = self._most or self._classes.templates() + _MOST_TEMPLATES
        self._most_filed = self._most_filed or 2 * self.labels.filed + _MOST_TEMPLATES

    @property
    def is_outgrown(self) -> bool:
        """True if most of the owners by labels may be gone, so that another one is to be made."""
        return self.labels.filed > self._most_filed > 0

    def rooms(self) -> dict[str, Rooms]:
        """The room that pods take of each node, and how many take the same; once caught up."""
        return dict(self._rooms)

    def _note(self, pod: Pod) -> None:
        meta = pod.metadata
        self.labels.note(pod)
        if not meta.uid:
            self.nameless[pod.key] = None
        elif meta.uid.endswith(MADE_UID_ENDS):
            self.made[pod.key] = None
        if pod.spec.affinity is not None and anti_affinity_terms(pod):
            self.keep_off[pod.key] = None


def _room_asked(spec: PodSpec) -> tuple[object, ...]:
    """All that determines how much a pod takes of a node."""
    containers = [(c.resources, c.ports) for c in spec.containers]
    init = [(c.resources, c.ports, c.restart_policy) for c in spec.init_containers]
    return (containers, init, spec.resources, spec.overhead)


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
