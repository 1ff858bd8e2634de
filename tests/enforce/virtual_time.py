"""An asyncio event loop whose clock jumps, with a world beside it that lives by the same time.

Nothing ever sleeps: where the loop would wait, time goes on to the next timer or to the next thing
that happens in the world. The world also lives while the loop is suspended or stopped.
"""

import asyncio
import heapq
import math
import selectors
from collections.abc import Callable
from typing import Any

EPOCH_NS = 1_767_225_600_000_000_000
"""2026-01-01T00:00:00Z: when the world begins."""

_LONGEST_NS = 3_600_000_000_000


class World:
    """What happens outside the process, in order. Ns; `awake_ns` stands still in a suspend.

    `wall_ahead_ns`: how far the machine's wall clock is off. `frozen_ns`: how long the machine was
    halted together with its clocks, as a virtual one may be. `steady_ahead_ns`: how far the clocks
    that nobody sets have jumped, as on a machine that is moved or whose time source is changed.
    `server_ahead_ns`: how far the clock was set that the API server's answers show.
    `server_set_ns`: when that was, by the clock as it was then set; 0: never.
    """

    def __init__(self) -> None:
        self.now_ns = EPOCH_NS
        self.slept_ns = self.frozen_ns = self.wall_ahead_ns = self.steady_ahead_ns = 0
        self.server_ahead_ns = self.server_set_ns = 0
        self.next_due: Callable[[], int | None] = lambda: None
        """When something is due that is not in the agenda, and what lets it happen:"""
        self.live: Callable[[], None] = lambda: None
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def steady_ns(self) -> int:
        """A clock that counts suspend."""
        return self.now_ns - EPOCH_NS + 1 - self.frozen_ns + self.steady_ahead_ns

    @property
    def wall_ns(self) -> int:
        """The machine's wall clock, which people and time servers set."""
        return self.now_ns - self.frozen_ns + self.wall_ahead_ns

    @property
    def awake_ns(self) -> int:
        """A clock that does not."""
        return self.steady_ns - self.slept_ns

    def at(self, at_ns: int, happens: Callable[[], None]) -> None:
        """Let something happen then."""
        self._count += 1
        heapq.heappush(self._agenda, (max(at_ns, self.now_ns), self._count, happens))

    def advance(self, to_ns: int) -> bool:
        """Go on to that instant, or to the first thing that happens before; whether one did."""
        own_ns = self.next_due()
        next_ns = self._agenda[0][0] if self._agenda else None
        if own_ns is not None and (next_ns is None or own_ns < next_ns):
            next_ns = own_ns
        if next_ns is None or next_ns > to_ns:
            self.now_ns = to_ns
            return False
        self.now_ns = max(self.now_ns, next_ns)
        while self._agenda and self._agenda[0][0] <= self.now_ns:
            heapq.heappop(self._agenda)[2]()
        if own_ns is not None and own_ns <= self.now_ns:
            self.live()
        return True

    def freeze(self, duration_ns: int) -> None:
        """The machine is halted, and no clock of its own counts that. The world lives on."""
        end_ns, before_ns = self.now_ns + duration_ns, self.now_ns
        while self.advance(end_ns):
            self.frozen_ns += self.now_ns - before_ns
            before_ns = self.now_ns
        self.frozen_ns += self.now_ns - before_ns

    def stand_still(self, duration_ns: int, *, suspended: bool) -> None:
        """The process gets no time: stopped, or suspended with its machine. The world lives on."""
        end_ns = self.now_ns + duration_ns
        before_ns = self.now_ns
        while self.advance(end_ns):
            if suspended:
                self.slept_ns += self.now_ns - before_ns
                before_ns = self.now_ns
        if suspended:
            self.slept_ns += self.now_ns - before_ns


class _JumpingSelector(selectors.DefaultSelector):
    """Waits by going on in time. No descriptor is ever ready: there is no network."""

    world: World

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            wait_ns = _LONGEST_NS
        else:
            wait_ns = math.ceil(timeout * 1e3) * 1_000_000  # epoll, too, waits for whole ms
        if wait_ns > 0:
            self.world.advance(self.world.now_ns + wait_ns)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self, world: World) -> None:
        selector = _JumpingSelector()
        selector.world = world
        super().__init__(selector)
        self.world = world
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Seconds by the clock that does not count suspend, as the real loop's."""
        return self.world.awake_ns / 1e9
