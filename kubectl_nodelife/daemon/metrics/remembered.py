"""The metrics' memory from one look at the cluster to the next."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Set
from typing import Final

from kubectl_nodelife.kube.times import MINUTE_NS

FLAPPING_NS: Final = 15 * MINUTE_NS
FLAPPING_TIMES: Final = 3


class RisingCounts:
    """Counts that begin anew where a controller does, added up so that they never fall."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self._last: dict[str, int] = {}

    def take(self, now: Mapping[str, int]) -> None:
        """The counts as they are now."""
        for key, count in now.items():
            last = self._last.get(key, 0)
            self.total[key] += count - last if count >= last else count
        self._last = dict(now)


class FlappingNodes:
    """Nodes that are lost again and again."""

    def __init__(self) -> None:
        self._lost: Set[str] = frozenset()
        self._times: dict[str, deque[int]] = {}

    def take(self, lost: Set[str], now_ns: int) -> None:
        """The nodes that are lost now."""
        for name in lost - self._lost:
            self._times.setdefault(name, deque(maxlen=FLAPPING_TIMES)).append(now_ns)
        self._lost = frozenset(lost)
        old_ns = now_ns - FLAPPING_NS
        self._times = {name: times for name, times in self._times.items() if times[-1] > old_ns}

    def count(self, now_ns: int) -> int:
        """How many were lost so often within that time."""
        return sum(
            len(times) == FLAPPING_TIMES and times[0] > now_ns - FLAPPING_NS
            for times in self._times.values()
        )
