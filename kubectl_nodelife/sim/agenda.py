"""What will happen when: a heap of instants, and for each the things due then, in order.

Ties are broken by rank (the scenario's events, then kubelets; controllers come last, by the loop),
and then by the order in which things were put down. All that share an instant and a rank share one
heap entry, since thirty pods of a node tend to become ready in the same nanosecond.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

SCRIPT = 0
KUBELET = 1
OWNER = 2

Happening = Callable[[int], None]
"""Is called with its instant."""


class Agenda:
    """Happenings with their instants, in ns since the epoch."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._due: dict[tuple[int, int], list[Happening]] = {}

    def add(self, at_ns: int, rank: int, happening: Happening) -> None:
        """Put something down; there is no taking back, so a happening checks whether it still
        applies.
        """
        slot = (at_ns, rank)
        due = self._due.get(slot)
        if due is None:
            self._due[slot] = [happening]
            heapq.heappush(self._heap, slot)
        else:
            due.append(happening)

    def next_at(self) -> int | None:
        """The earliest instant at which something happens, or None."""
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        """Forget all that was to happen."""
        self._heap.clear()
        self._due.clear()

    def run(self, now_ns: int) -> None:
        """Let everything happen that is due at or before now, what comes due meanwhile included.

        What owners do in answer to it has to wait for the next run: they too only know what they
        were told before.
        """
        ran = False
        while self._heap and self._heap[0][0] <= now_ns:
            if ran and self._heap[0][1] == OWNER:
                return
            slot = heapq.heappop(self._heap)
            ran = True
            for happening in self._due.pop(slot):
                happening(slot[0])
