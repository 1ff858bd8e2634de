"""A virtual clock: calls on a heap, in the order of their instants, ties in the order of filing.

Two sorts of calls are told apart. *Active* ones change something or may: a pod becomes Ready, a
budget is synced, a request arrives for the first time. *Idle* ones only ask again: a retry every
5 s, a look every second. Once only idle calls are left and each has been answered since the last
change, nothing will ever change, and the run ends. That is how "never" is found without waiting.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Call = Callable[..., None]


class Timeline:
    """The heap and the clock. Instants are nanoseconds since the moment of the plan."""

    __slots__ = ("_active", "_filed", "_heap", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: list[tuple[int, int, bool, Call, tuple[Any, ...]]] = []
        self._filed = 0
        self._active = 0

    def at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File an active call; one that lies in the past is made now."""
        self._filed += 1
        self._active += 1
        instant_ns = max(instant_ns, self.now_ns)
        heapq.heappush(self._heap, (instant_ns, self._filed, True, call, arguments))

    def ask_again_at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File an idle call."""
        self._filed += 1
        instant_ns = max(instant_ns, self.now_ns)
        heapq.heappush(self._heap, (instant_ns, self._filed, False, call, arguments))

    def quiet(self) -> bool:
        """Whether only idle calls are left."""
        return self._active == 0

    def run(self, settled: Callable[[], bool]) -> None:
        """Make the calls until none is left, or only idle ones are and `settled` says so."""
        heap = self._heap
        while heap:
            if not self._active and settled():
                return
            instant_ns, _, active, call, arguments = heapq.heappop(heap)
            self.now_ns = instant_ns
            if active:
                self._active -= 1
            call(*arguments)
