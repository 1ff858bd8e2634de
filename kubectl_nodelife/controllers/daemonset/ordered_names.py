"""Names of which the first ones in order are wanted again and again."""

from __future__ import annotations

import heapq
from collections.abc import Set


class OrderedNames(set[str]):
    """A set that tells its first names without looking at all of them.

    From the first question on a heap stands beside the set. Names that have left the set are
    dropped from the heap when they come up. Change it by `add` and `discard` only.
    """

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[str] | None = None

    def copy(self) -> OrderedNames:
        """Another set of the same names."""
        other = OrderedNames()
        other.update(self)
        other._heap = None if self._heap is None else list(self._heap)
        return other

    def add(self, name: str) -> None:
        """Take a name in."""
        if self._heap is not None and name not in self:
            heapq.heappush(self._heap, name)
        super().add(name)

    def first(self, count: int, without: Set[str] = frozenset()) -> list[str]:
        """The first names in order that are not among `without`, at most `count`."""
        if self._heap is None:
            self._heap = sorted(self)
        found: list[str] = []
        passed: list[str] = []
        while self._heap and len(found) < count:
            name = heapq.heappop(self._heap)
            if name not in self or (passed and passed[-1] == name):
                continue  # it left, or came back and stands here twice
            passed.append(name)
            if name not in without:
                found.append(name)
        for name in passed:
            heapq.heappush(self._heap, name)
        return found
