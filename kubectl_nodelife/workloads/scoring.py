"""Chooses among the nodes that fit a pod: a quick choice for thousands, and one by scores.

Both keep the nodes that a kind of pods may go to and return the best one now; what fits is
decided by `PlacementSimulator`. kube-scheduler adds up the scores of its plugins by their weights
(`node_scores`); the quick choice takes them in the order of their weights instead, and is a likely
node, not a certain one. Of nodes with the same score kube-scheduler takes one by chance.

The inputs of the scores about a pod and a node (`preference_of`) follow the plugins TaintToleration
(PreferNoSchedule) and NodeAffinity (preferred terms); `SoftRules` holds those about other pods.
Left out: ImageLocality, since a node's list of images is not kept.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, Final, NamedTuple, Protocol

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import Amounts
from kubectl_nodelife.kube.selectors import matches_node_selector_term
from kubectl_nodelife.kube.taints import first_tolerating
from kubectl_nodelife.kube.wellknown import PREFER_NO_SCHEDULE
from kubectl_nodelife.workloads.scheduling import CpuAndMemory, NodeInfo, PodRequirements

SAMPLE: Final = 3
"""Nodes that fit, among which one is chosen, in a cluster of more than `SMALL` nodes."""
SMALL: Final = 60

_BEST: Final = 100
"""MaxNodeScore."""

_TAINTS: Final = 3
_AFFINITY: Final = 2
"""Weights of kube-scheduler's default profile (from 1.23 on): TaintToleration, NodeAffinity. Those
of NodeResourcesFit and NodeResourcesBalancedAllocation are 1.
"""

Test = Callable[[str], bool]
"""A test of a node, by its name."""

SoftScores = Callable[[Sequence[str]], list[int]]
"""What rules between pods add to the score of each of some nodes."""


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

    def update_alike(self, names: Sequence[str], admitted: bool) -> None:
        """`update` of nodes to which pods of the kind may go alike, and which they prefer alike."""

    def names(self) -> Iterable[str]:
        """All of them, in no particular order."""

    def best(
        self, wanted: PodRequirements, has_room: Test, obeys: Test | None, soft: SoftScores
    ) -> list[str]:
        """The best of those that have room and obey the rules, all that are equal; empty where none
        does.

        `has_room` stays false until `update` names the node; `obeys` may change at any time, and is
        None where no rule is to be obeyed. `soft` is asked in small clusters alone.
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

    def update_alike(self, names: Sequence[str], admitted: bool) -> None:
        """Each by itself: they may have more or fewer pods."""
        for name in names:
            self.update(name, admitted)

    def names(self) -> Iterable[str]:
        """All of them, those without room included."""
        return self._admitted

    def best(
        self, wanted: PodRequirements, has_room: Test, obeys: Test | None, soft: SoftScores
    ) -> list[str]:
        """The top of the heap, once what is out of date or without room is off it."""
        heap, listed = self._own_heap(), self._listed
        aside: list[tuple[Preference, int, int, str]] = []
        names: list[str] = []
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
                names.append(name)
                break
        for entry in aside:
            heapq.heappush(heap, entry)
        return names


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
        "_admitted", "_liked", "_names", "_nodes", "_preferred", "_prefers", "_rooms", "_scoring",
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
        self._rooms: dict[str, tuple[CpuAndMemory, Amounts, int]] = {}
        """Of what each node's score for its room was made, and the score; forks share it."""
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

    def update_alike(self, names: Sequence[str], admitted: bool) -> None:
        """All of them at once; none of them is known yet."""
        self._admitted.update(dict.fromkeys(names, admitted))
        self._names = self._preferred = None
        if admitted:
            self._liked.update(dict.fromkeys(names, self._prefers(names[0])))

    def names(self) -> list[str]:
        """All of them, in the order in which the cluster's nodes were first seen."""
        self._leave_out()
        if self._names is None:
            admitted = (name for name, admitted in self._admitted.items() if admitted)
            self._names = self._nodes.in_order(admitted)
        return self._names

    def best(
        self, wanted: PodRequirements, has_room: Test, obeys: Test | None, soft: SoftScores
    ) -> list[str]:
        """Those with the highest score, of those looked at."""
        nodes: list[str] = []
        if self._nodes.node_count() <= SMALL:
            nodes = [n for n in self.names() if has_room(n) and (obeys is None or obeys(n))]
        else:
            for names in self._by_preference():
                nodes = self._next_few(names, has_room, obeys)
                if nodes:
                    break
        if len(nodes) < 2:
            return nodes
        more = soft(nodes) if self._nodes.node_count() <= SMALL else [0] * len(nodes)
        scores = node_scores(self._preferences(nodes), self._room_scores(nodes, wanted), more)
        most = max(scores)
        return [name for name, score in zip(nodes, scores, strict=True) if score == most]

    def _next_few(self, names: list[str], has_room: Test, obeys: Test | None) -> list[str]:
        """A few that fit, from where the last look ended on, as the scheduler goes round."""
        nodes: list[str] = []
        count, start = len(names), self._scoring.next
        for i in range(count):
            self._scoring.next = start + i + 1
            name = names[(start + i) % count]
            if has_room(name) and (obeys is None or obeys(name)):
                nodes.append(name)
                if len(nodes) == SAMPLE:
                    break
        return nodes

    def _room_scores(self, names: Sequence[str], wanted: PodRequirements) -> list[int]:
        """`room_score` of each of the nodes, counted anew where pods came or went."""
        rooms, scores = self._rooms, []
        for name, info in zip(names, self._nodes.infos(names), strict=True):
            room = rooms.get(name)
            if room is None or room[0] is not info.scored or room[1] is not info.allocatable:
                room = rooms[name] = (info.scored, info.allocatable, room_score(wanted, info))
            scores.append(room[2])
        return scores

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
    preferences: Sequence[Preference], room: Sequence[int], soft: Sequence[int]
) -> list[int]:
    """The score of each node: the sum over the plugins of kube-scheduler's default profile, as
    pkg/scheduler/framework/plugins score and normalize in v1.37. `room`: `room_score` of each;
    `soft`: the part of `SoftRules`.
    """
    most_taints = max([p.taints for p in preferences])
    most_affinity = max([-p.affinity for p in preferences])
    scores = []
    for preference, base, more in zip(preferences, room, soft, strict=True):
        taints = _BEST * preference.taints // most_taints if most_taints else 0
        affinity = _BEST * -preference.affinity // most_affinity if most_affinity else 0
        scores.append(_TAINTS * (_BEST - taints) + _AFFINITY * affinity + base + more)
    return scores


def room_score(wanted: PodRequirements, info: NodeInfo) -> int:
    """What the node's room adds to its score.

    Follows `leastResourceScorer` of NodeResourcesFit and `balancedResourceScorer` of
    NodeResourcesBalancedAllocation: by how much the pod makes the node's use of cpu and memory more
    alike; nothing for a pod that requests neither.
    """
    parts, before, after = [], [], []
    for i, name in enumerate(("cpu", "memory")):
        most = info.allocatable.get(name, 0)
        if not most:
            continue
        scored = info.scored[i] + wanted.scored[i]
        parts.append((most - scored) * _BEST // most if scored <= most else 0)
        taken = info.requested.get(name, 0)
        before.append(min(taken / most, 1.0))
        after.append(min((taken + wanted.requests.get(name, 0)) / most, 1.0))
    least_allocated = sum(parts) // len(parts) if parts else 0
    if not (wanted.requests.get("cpu") or wanted.requests.get("memory")):
        return least_allocated
    balanced = _BEST // 2 + (_BEST // 2 + _balance(after) - _balance(before)) // 2
    return least_allocated + balanced


def _balance(shares: Sequence[float]) -> int:
    """Follows `balancedResourceScore`."""
    apart = abs((shares[0] - shares[1]) / 2) if len(shares) == 2 else 0.0
    return int((1 - apart) * _BEST)


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
