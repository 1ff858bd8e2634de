"""A virtual clock: calls on a heap, in the order of their instants, ties in the order of filing.

Two sorts of calls are told apart. *Active* ones change something or may: a pod becomes Ready, a
budget is synced, a request arrives for the first time. *Idle* ones only ask again: a retry every
5 s, a look every second. Once only idle calls are left and each has been answered since the last
change, nothing will ever change, and the run ends. That is how "never" is found without waiting.
Where only something far away will change anything (a grace period may be 292 years), the questions
in between are skipped by whole minutes, which keeps their grid of seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

from kubectl_nodelife.kube.times import MINUTE_NS

PATIENCE_NS: Final = 10 * MINUTE_NS
"""For so long after the last change every question is asked."""

_IDLE, _ACTIVE, _ALARM = range(3)

Call = Callable[..., None]


class PlanTimeline:
    """The heap and the clock. Instants are nanoseconds since the moment of the plan."""

    __slots__ = ("_active", "_filed", "_heap", "_moved_ns", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: list[tuple[int, int, int, Call, tuple[Any, ...]]] = []
        self._moved_ns = 0
        self._filed = 0
        self._active = 0

    def at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File an active call; one that lies in the past is made now."""
        self._active += 1
        self._file(instant_ns, _ACTIVE, call, arguments)

    def ask_again_at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File an idle call, one that may be put off while nothing changes."""
        self._file(instant_ns, _IDLE, call, arguments)

    def alarm_at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File an idle call that is made at that very instant, such as a deadline."""
        self._file(instant_ns, _ALARM, call, arguments)

    def _file(self, instant_ns: int, sort: int, call: Call, arguments: tuple[Any, ...]) -> None:
        self._filed += 1
        instant_ns = max(instant_ns, self.now_ns)
        heapq.heappush(self._heap, (instant_ns, self._filed, sort, call, arguments))

    def quiet(self) -> bool:
        """Whether only idle calls are left."""
        return self._active == 0

    def run(self, settled: Callable[[], bool], answered: Callable[[], bool] = bool) -> None:
        """Make the calls until none is left, or only idle ones are and `settled` says so.

        `answered`: whether each idle call that is left would get the answer that it had before.
        """
        heap = self._heap
        while heap:
            if not self._active and settled():
                return
            if heap[0][0] - self._moved_ns >= PATIENCE_NS and heap[0][2] == _IDLE and answered():
                self._skip_idle()
            instant_ns, _, sort, call, arguments = heapq.heappop(heap)
            self.now_ns = instant_ns
            if sort != _IDLE:
                self._active -= sort == _ACTIVE
                self._moved_ns = instant_ns
            call(*arguments)

    def _skip_idle(self) -> None:
        """Put each idle call off by whole minutes, as near as may be to the next other call."""
        heap = self._heap
        self._moved_ns = heap[0][0]
        next_ns = min((call[0] for call in heap if call[2] != _IDLE), default=0)
        for index, (at_ns, filed, sort, call, arguments) in enumerate(heap):
            if sort == _IDLE and at_ns < next_ns:
                later_ns = (next_ns - at_ns) // MINUTE_NS * MINUTE_NS
                heap[index] = (at_ns + later_ns, filed, sort, call, arguments)
        heapq.heapify(heap)
