"""Which of the nodes that fit a pod gets: the one with the fewest pods, or the one with most room.

Both keep the nodes that a kind of pods may go to and answer "the best now"; what fits is
`PlacementSimulator`'s to say. kube-scheduler adds up many scores; each choice here is one of them,
and so a likely node, not a promise.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from kubectl_nodelife.kube.quantity import Amounts
from kubectl_nodelife.workloads.nodeinfo import NodeInfo

SAMPLE: Final = 3
"""Nodes that fit, among which one is chosen, in a cluster of more than `SMALL` nodes."""
SMALL: Final = 60

Test = Callable[[str], bool]
"""Asks something about a node, by its name."""


class Nodes(Protocol):
    """What a choice asks about nodes."""

    def node_count(self) -> int:
        """How many nodes there are."""

    def pod_count(self, name: str) -> int:
        """How many pods the node has."""

    def rank(self, name: str) -> int:
        """The node's place in the order in which nodes were first seen."""

    def info(self, name: str) -> NodeInfo:
        """What the node has left."""


class Candidates(Protocol):
    """The nodes to which pods of one kind may go."""

    def fill(self, names: Iterable[str]) -> None:
        """These are admitted; called once, first."""

    def update(self, name: str, admitted: bool) -> None:
        """The node changed, or lost a pod; `admitted`: whether pods of the kind may go there."""

    def names(self) -> Iterable[str]:
        """All of them; the order tells nothing."""

    def best(self, requests: Amounts, has_room: Test, obeys: Test | None) -> str | None:
        """The best of those that have room and obey the rules; None where none does.

        `has_room` stays false until `update` names the node; `obeys` may change at any time, and is
        None where no rule is to be obeyed.
        """


class Scoring(Protocol):
    """A way to choose. One object serves one simulated scheduler."""

    def candidates(self, nodes: Nodes) -> Candidates:
        """For a kind of pods; empty as yet."""


class FewestPods:
    """The node with the fewest pods, of several the one first seen. For thousands of placements."""

    def candidates(self, nodes: Nodes) -> Candidates:
        """A heap."""
        return _Heap(nodes)


class _Heap:
    """`heap` holds (pods on the node, its rank, its name). `listed` tells with how many pods a node
    stands in it; an entry that says otherwise is a leftover. A node without room leaves the heap.
    """

    __slots__ = ("_admitted", "_heap", "_listed", "_nodes")

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._heap: list[tuple[int, int, str]] = []
        self._listed: dict[str, int] = {}
        self._admitted: dict[str, None] = {}

    def fill(self, names: Iterable[str]) -> None:
        """Take the nodes in."""
        for name in names:
            self.update(name, True)

    def update(self, name: str, admitted: bool) -> None:
        """Take the node in, or out."""
        if not admitted:
            self._listed.pop(name, None)
            self._admitted.pop(name, None)
            return
        self._admitted[name] = None
        count = self._nodes.pod_count(name)
        if self._listed.get(name) != count:
            self._listed[name] = count
            heapq.heappush(self._heap, (count, self._nodes.rank(name), name))

    def names(self) -> Iterable[str]:
        """All of them, those without room included."""
        return self._admitted

    def best(self, requests: Amounts, has_room: Test, obeys: Test | None) -> str | None:
        """The top of the heap, once what is out of date or without room is off it."""
        heap, listed = self._heap, self._listed
        aside: list[tuple[int, int, str]] = []
        found = None
        while heap:
            count, rank, name = heap[0]
            if listed.get(name) != count:
                heapq.heappop(heap)
                continue
            present = self._nodes.pod_count(name)
            if present != count:
                listed[name] = present
                heapq.heapreplace(heap, (present, rank, name))
            elif not has_room(name):
                heapq.heappop(heap)
                del listed[name]
            elif obeys is not None and not obeys(name):
                aside.append(heapq.heappop(heap))
            else:
                found = name
                break
        for entry in aside:
            heapq.heappush(heap, entry)
        return found


class MostFree:
    """The node with the largest free share of cpu and memory (LeastAllocated's score).

    Of all nodes of a small cluster, of the next few that fit in a large one, as kube-scheduler
    does.
    """

    def __init__(self) -> None:
        self.next = 0

    def candidates(self, nodes: Nodes) -> Candidates:
        """A list that is gone round."""
        return _Round(nodes, self)


class _Round:
    __slots__ = ("_admitted", "_names", "_nodes", "_scoring")

    def __init__(self, nodes: Nodes, scoring: MostFree) -> None:
        self._nodes = nodes
        self._scoring = scoring
        self._admitted: dict[str, bool] = {}
        self._names: list[str] | None = None

    def fill(self, names: Iterable[str]) -> None:
        """Take the nodes in."""
        self._admitted = dict.fromkeys(names, True)

    def update(self, name: str, admitted: bool) -> None:
        """Take the node in, or out."""
        if self._admitted.get(name) != admitted:
            self._admitted[name] = admitted
            self._names = None

    def names(self) -> list[str]:
        """All of them, in the order in which they were first named."""
        if self._names is None:
            self._names = [name for name, admitted in self._admitted.items() if admitted]
        return self._names

    def best(self, requests: Amounts, has_room: Test, obeys: Test | None) -> str | None:
        """The one with most left, of those looked at."""
        names = self.names()
        enough = len(names) if self._nodes.node_count() <= SMALL else SAMPLE
        best, best_score, found = None, -1.0, 0
        for name in self._from_next(names):
            if not has_room(name) or (obeys is not None and not obeys(name)):
                continue
            score = free_share(self._nodes.info(name), requests)
            if score > best_score:
                best, best_score = name, score
            found += 1
            if found >= enough:
                break
        return best

    def _from_next(self, names: list[str]) -> Iterator[str]:
        """All of them, starting where the last look ended, as the scheduler goes round."""
        count = len(names)
        start = self._scoring.next
        large = self._nodes.node_count() > SMALL
        for i in range(count):
            if large:
                self._scoring.next = start + i + 1
            yield names[(start + i) % count]


def free_share(info: NodeInfo, requests: Amounts) -> float:
    """What is left of cpu and memory once the pod is there, as a share; LeastAllocated's score."""
    total = 0.0
    for name in ("cpu", "memory"):
        allocatable = info.allocatable.get(name, 0)
        if allocatable:
            used = info.requested.get(name, 0) + requests.get(name, 0)
            total += max(0, allocatable - used) / allocatable
    return total / 2
