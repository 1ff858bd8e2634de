"""Chooses among the nodes that fit a pod: a quick choice for thousands, and one by scores.

Both keep the nodes that a kind of pods may go to and return the best one now; what fits is
decided by `PlacementSimulator`. kube-scheduler adds up the scores of its plugins by their weights
(`node_scores`); the quick choice takes them in the order of their weights instead. Either is a
likely node, not a certain one.

The inputs of the scores about a pod and a node (`preference_of`, and the owner's other pods)
follow the plugins TaintToleration (PreferNoSchedule), NodeAffinity (preferred terms) and
PodTopologySpread (its default constraints, which count the pods of one owner). Left out: soft
constraints that a pod writes itself, and preferred affinity between pods.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from math import log
from typing import Any, Final, NamedTuple, Protocol

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.selectors import matches_node_selector_term
from kubectl_nodelife.kube.taints import first_tolerating
from kubectl_nodelife.kube.wellknown import PREFER_NO_SCHEDULE
from kubectl_nodelife.workloads.placement_rules import SchedulerCache
from kubectl_nodelife.workloads.scheduling import NodeInfo

SAMPLE: Final = 3
"""Nodes that fit, among which one is chosen, in a cluster of more than `SMALL` nodes."""
SMALL: Final = 60

_TAINTS: Final = 3 * 100
_AFFINITY: Final = 2 * 100
_SPREAD: Final = 2 * 100
_FIT: Final = 1 * 100
_BALANCE: Final = 1 * 100
"""Weights of kube-scheduler's default profile (from 1.23 on), times the highest score of a plugin:
TaintToleration, NodeAffinity, PodTopologySpread, NodeResourcesFit, NodeResourcesBalancedAllocation.
"""

_HOST_MAX_SKEW: Final = 3
_ZONE_MAX_SKEW: Final = 5

Siblings = Mapping[str, int]
"""Node -> how many pods of one owner it has."""

Test = Callable[[str], bool]
"""A test of a node, by its name."""

_NO_SIBLINGS: Final[Siblings] = {}


class Nodes(Protocol):
    """The data about nodes that a choice reads."""

    def node_count(self) -> int:
        """How many nodes there are."""

    def pod_count(self, name: str) -> int:
        """How many pods the node has."""

    def rank(self, name: str) -> int:
        """The node's place in the order in which nodes were first seen."""

    def in_order(self, names: Iterable[str]) -> list[str]:
        """The nodes in that order."""

    def infos(self, names: Iterable[str]) -> list[NodeInfo]:
        """The free room of each of the nodes."""

    def zones(self, names: Iterable[str]) -> list[str]:
        """The zone of each of the nodes, "" for none."""


class Preference(NamedTuple):
    """The preference of pods of one kind: least first.

    `taints`: of effect PreferNoSchedule that they do not tolerate (TaintToleration); `affinity`:
    minus the weights of preferred node affinity terms that the node matches (NodeAffinity).
    """

    taints: int = 0
    affinity: int = 0


Prefers = Callable[[str], Preference]
"""Node -> the preference of a kind of pods for it."""


class Candidates(Protocol):
    """The nodes to which pods of one kind may go."""

    def prepare(self) -> None:
        """Make what forks can share."""

    def fork(self, nodes: Nodes, prefers: Prefers, scoring: Any) -> Candidates:
        """The same, for a fork of the simulated scheduler."""

    def update(self, name: str, admitted: bool) -> None:
        """The node changed, or lost a pod; `admitted`: whether pods of the kind may go there."""

    def names(self) -> Iterable[str]:
        """All of them, in no particular order."""

    def best(
        self, requests: Mapping[str, int], has_room: Test, obeys: Test | None, siblings: Siblings
    ) -> list[str]:
        """The best of those that have room and obey the rules, all that are equal; empty where none
        does.

        `has_room` stays false until `update` names the node; `obeys` may change at any time, and is
        None where no rule is to be obeyed. `siblings`: how many pods of its owner each node has.
        """


class Scoring(Protocol):
    """A way to choose. One object serves one simulated scheduler."""

    def candidates(self, nodes: Nodes, prefers: Prefers) -> Candidates:
        """For a kind of pods; empty as yet."""


class FewestPods:
    """The node that is preferred most, of several the one with the fewest pods, of several the one
    first seen. For thousands of placements.

    Preferences go first as they weigh most: an untolerated PreferNoSchedule taint costs up to 300
    points, affinity up to 200, room 100 each by two plugins.
    """

    def candidates(self, nodes: Nodes, prefers: Prefers) -> Candidates:
        """A heap."""
        return _Heap(nodes, prefers)


class _Heap:
    """`heap` holds (preference, pods on the node, its rank, its name). `listed` says with which
    preference and how many pods a node stands in it; an entry that says otherwise is a leftover. A
    node without room leaves the heap.
    """

    __slots__ = ("_admitted", "_heap", "_is_shared", "_listed", "_nodes", "_prefers")

    def __init__(self, nodes: Nodes, prefers: Prefers) -> None:
        self._nodes = nodes
        self._prefers = prefers
        self._heap: list[tuple[Preference, int, int, str]] = []
        self._listed: dict[str, tuple[Preference, int]] = {}
        self._admitted: dict[str, None] = {}
        self._is_shared = False

    def prepare(self) -> None:
        """Nothing: the heap is kept as it is."""

    def fork(self, nodes: Nodes, prefers: Prefers, scoring: Any) -> _Heap:
        """Both copy the heap when they first change it."""
        self._is_shared = True
        other = copy(self)
        other._nodes, other._prefers = nodes, prefers
        self._listed, other._listed = fork_dict(self._listed)
        self._admitted, other._admitted = fork_dict(self._admitted)
        return other

    def _own_heap(self) -> list[tuple[Preference, int, int, str]]:
        if self._is_shared:
            self._heap, self._is_shared = list(self._heap), False
        return self._heap

    def update(self, name: str, admitted: bool) -> None:
        """Take the node in, or out."""
        if not admitted:
            self._listed.pop(name, None)
            self._admitted.pop(name, None)
            return
        self._admitted[name] = None
        listed = (self._prefers(name), self._nodes.pod_count(name))
        if self._listed.get(name) != listed:
            self._listed[name] = listed
            heapq.heappush(self._own_heap(), (*listed, self._nodes.rank(name), name))

    def names(self) -> Iterable[str]:
        """All of them, those without room included."""
        return self._admitted

    def best(
        self, requests: Mapping[str, int], has_room: Test, obeys: Test | None, siblings: Siblings
    ) -> list[str]:
        """The top of the heap, once what is out of date or without room is off it."""
        heap, listed = self._own_heap(), self._listed
        aside: list[tuple[Preference, int, int, str]] = []
        found: list[str] = []
        while heap:
            preference, count, rank, name = heap[0]
            if listed.get(name) != (preference, count):
                heapq.heappop(heap)
                continue
            present = self._nodes.pod_count(name)
            if present != count:
                listed[name] = (preference, present)
                heapq.heapreplace(heap, (preference, present, rank, name))
            elif not has_room(name):
                heapq.heappop(heap)
                del listed[name]
            elif obeys is not None and not obeys(name):
                aside.append(heapq.heappop(heap))
            else:
                found.append(name)
                break
        for entry in aside:
            heapq.heappush(heap, entry)
        return found


class HighestScore:
    """The node with the highest sum of weighted scores (`node_scores`).

    Of all nodes of a small cluster, of the next few that fit in a large one, as kube-scheduler
    does. The few are of those that are preferred most: kube-scheduler looks at a hundred at least,
    and finds some of these among them.
    """

    def __init__(self) -> None:
        self.next = 0

    def candidates(self, nodes: Nodes, prefers: Prefers) -> Candidates:
        """A list that is searched round-robin."""
        return _Round(nodes, prefers, self)


class _Round:
    __slots__ = (
        "_admitted", "_liked", "_names", "_nodes", "_preferred", "_prefers", "_scoring",
        "_taken_out",
    )  # fmt: skip

    def __init__(self, nodes: Nodes, prefers: Prefers, scoring: HighestScore) -> None:
        self._nodes = nodes
        self._prefers = prefers
        self._scoring = scoring
        self._admitted: dict[str, bool] = {}
        self._names: list[str] | None = None
        self._preferred: list[list[str]] | None = None
        """The same by preference, the most preferred first."""
        self._liked: dict[str, Preference] = {}
        self._taken_out: frozenset[str] = frozenset()
        """Names that are in both lists still."""

    def prepare(self) -> None:
        """Make the lists, if they are used, so that forks share them."""
        if self._nodes.node_count() > SMALL:
            self._by_preference()

    def fork(self, nodes: Nodes, prefers: Prefers, scoring: HighestScore) -> _Round:
        """The lists of names are never changed, so that both share them."""
        other = copy(self)
        other._nodes, other._prefers, other._scoring = nodes, prefers, scoring
        self._admitted, other._admitted = fork_dict(self._admitted)
        self._liked, other._liked = fork_dict(self._liked)
        return other

    def update(self, name: str, admitted: bool) -> None:
        """Take the node in, or out; it may be preferred more or less than before."""
        if self._admitted.get(name) != admitted:
            self._admitted[name] = admitted
            if admitted or self._names is None:
                self._names = self._preferred = None
            else:
                self._taken_out |= {name}
        if not admitted:
            self._liked.pop(name, None)  # the node may be gone, and come back as another one
        elif name in self._liked and self._liked[name] != (preference := self._prefers(name)):
            self._liked[name] = preference
            self._preferred = None

    def names(self) -> list[str]:
        """All of them, in the order in which the cluster's nodes were first seen."""
        self._leave_out()
        if self._names is None:
            admitted = (name for name, admitted in self._admitted.items() if admitted)
            self._names = self._nodes.in_order(admitted)
        return self._names

    def best(
        self, requests: Mapping[str, int], has_room: Test, obeys: Test | None, siblings: Siblings
    ) -> list[str]:
        """Those with the highest score, of those looked at."""
        found: list[str] = []
        if self._nodes.node_count() <= SMALL:
            found = [n for n in self.names() if has_room(n) and (obeys is None or obeys(n))]
        else:
            for names in self._by_preference():
                found = self._next_few(names, has_room, obeys)
                if found:
                    break
        if len(found) < 2:
            return found
        scores = node_scores(self._nodes, self._preferences(found), found, requests, siblings)
        most = max(scores)
        return [name for name, score in zip(found, scores, strict=True) if score == most]

    def _next_few(self, names: list[str], has_room: Test, obeys: Test | None) -> list[str]:
        """A few that fit, from where the last look ended on, as the scheduler goes round."""
        found: list[str] = []
        count, start = len(names), self._scoring.next
        for i in range(count):
            self._scoring.next = start + i + 1
            name = names[(start + i) % count]
            if has_room(name) and (obeys is None or obeys(name)):
                found.append(name)
                if len(found) == SAMPLE:
                    break
        return found

    def _preferences(self, names: Sequence[str]) -> list[Preference]:
        """The pods' preference for each of the nodes; `update` keeps it current."""
        liked, prefers = self._liked, self._prefers
        for name in names:
            if name not in liked:
                liked[name] = prefers(name)
        return [liked[name] for name in names]

    def _leave_out(self) -> None:
        """Take out of the lists what was taken out since."""
        gone, self._taken_out = self._taken_out, frozenset()
        if gone and self._names is not None:
            self._names = [name for name in self._names if name not in gone]
        if gone and self._preferred is not None:
            lists = ([name for name in names if name not in gone] for names in self._preferred)
            self._preferred = [names for names in lists if names]

    def _by_preference(self) -> list[list[str]]:
        self._leave_out()
        if self._preferred is None:
            groups: defaultdict[Preference, list[str]] = defaultdict(list)
            names = self.names()
            for name, preference in zip(names, self._preferences(names), strict=True):
                groups[preference].append(name)
            self._preferred = [groups[preference] for preference in sorted(groups)]
        return self._preferred


def node_scores(
    nodes: Nodes,
    preferences: list[Preference],
    names: list[str],
    requests: Mapping[str, int],
    siblings: Siblings,
) -> list[float]:
    """The score of each node: the sum over the default plugins that matter here, as
    pkg/scheduler/framework/plugins score and normalize.
    """
    most_taints = max([p.taints for p in preferences])
    most_affinity = max([-p.affinity for p in preferences])
    crowds = _crowds(nodes, names, siblings)
    asked = (("cpu", requests.get("cpu", 0)), ("memory", requests.get("memory", 0)))
    scores = []
    for info, preference, crowd in zip(nodes.infos(names), preferences, crowds, strict=True):
        allocatable, free = info.allocatable, info.free
        used_cpu, used_memory = [
            (most - free[name] + requested) / most
            if name in allocatable and (most := allocatable[name]) and free[name] > requested
            else 1.0
            for name, requested in asked
        ]
        taints = 1 - preference.taints / most_taints if most_taints else 1
        affinity = -preference.affinity / most_affinity if most_affinity else 0
        scores.append(
            _TAINTS * taints
            + _AFFINITY * affinity
            + _SPREAD * crowd
            + _FIT * (1 - (used_cpu + used_memory) / 2)
            + _BALANCE * (1 - abs(used_cpu - used_memory) / 2)
        )
    return scores


def _crowds(nodes: Nodes, names: list[str], siblings: Siblings) -> list[float]:
    """1 for the node and zone with the fewest pods of the owner, less where there are more.

    Follows the default constraints of PodTopologySpread: by host, and by zone where there is one.
    """
    if not siblings:
        return [1.0] * len(names)
    by_zone: Counter[str] = Counter()
    for zone, count in zip(nodes.zones(siblings), siblings.values(), strict=True):
        by_zone[zone] += count
    zone_of = nodes.zones(names)
    zones = set(zone_of)
    zone_weight, host_weight = log(len(zones) + 2), log(len(names) + 2)
    per_zone = {
        zone: by_zone[zone] * zone_weight + _ZONE_MAX_SKEW - 1 if zone else 0 for zone in zones
    }
    raw = [
        siblings.get(name, 0) * host_weight + _HOST_MAX_SKEW - 1 + per_zone[zone]
        for name, zone in zip(names, zone_of, strict=True)
    ]
    most, least = max(raw), min(raw)
    return [(most + least - value) / most for value in raw]


_NONE: Final = Preference()


def preference_of(pod: Pod, node: Node) -> Preference:
    """The pod's preference for the node. Follows `countIntolerableTaintsPreferNoSchedule` and
    NodeAffinity's `Score`."""
    affinity = pod.spec.affinity
    if affinity is None and not node.spec.taints:
        return _NONE  # as for most pods
    taints = sum(
        taint.effect == PREFER_NO_SCHEDULE and first_tolerating(pod.spec.tolerations, taint) is None
        for taint in node.spec.taints
    )
    of_nodes = affinity.node_affinity if affinity is not None else None
    terms = of_nodes.preferred_during_scheduling_ignored_during_execution if of_nodes else ()
    weight = sum(t.weight for t in terms if matches_node_selector_term(t.preference, node))
    return Preference(taints, -weight) if taints or weight else _NONE


class OwnersPods:
    """How many pods of each owner are on each node; counted when first asked for.

    In a cluster of more than `SMALL` nodes a few nodes are compared, and this is not used.
    """

    def __init__(self) -> None:
        self._on: dict[str, Counter[str]] | None = None

    def fork(self) -> OwnersPods:
        """Others with the same counts."""
        other = OwnersPods()
        if self._on is not None:
            self._on, other._on = fork_dict(self._on, copy)
        return other

    def siblings(self, pod: Pod, cache: SchedulerCache, node_count: int) -> Siblings:
        """Node -> pods of the pod's owner there."""
        owner = controller_of(pod.metadata) if node_count <= SMALL else None
        if owner is None:
            return _NO_SIBLINGS
        if self._on is None:
            self._on = {}
            for placed, node in cache.placed(None):
                if placed.status.phase not in TERMINAL_PHASES:
                    self._count(placed, node.name, 1)
        return self._on.get(owner.uid, _NO_SIBLINGS)

    def moved(self, pod: Pod | None, before: str, after: str) -> None:
        """The pod takes room on another node, or on none."""
        if pod is not None and self._on is not None:
            if before:
                self._count(pod, before, -1)
            if after:
                self._count(pod, after, 1)

    def _count(self, pod: Pod, node: str, by: int) -> None:
        owner = controller_of(pod.metadata)
        if owner is not None and self._on is not None:
            self._on.setdefault(owner.uid, Counter())[node] += by
