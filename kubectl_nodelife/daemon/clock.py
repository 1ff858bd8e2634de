"""The daemon's clock: the API server's time, taken once, carried on by a clock that cannot be set.

The wall clock of a laptop may be wrong, stepped, or stand still in a suspend; upstream's
controllers compare monotonic instants, and so does the engine. The server's `Date` is still looked
at: when it disagrees by more than two seconds, one of the clocks was set, and all that uses this
clock must begin anew (`drift_ns`). A suspend shows as a difference between the clock that counts
sleep and the one that does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.live.clock import SECOND_NS, steady_ns

DRIFT_NS: Final = 2 * SECOND_NS
_SLEPT_NS: Final = SECOND_NS


class DaemonClock:
    """See the module. `server_ns` says what the server's clock shows, None while unknown."""

    def __init__(
        self,
        server_ns: Callable[[], int | None],
        *,
        wall: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = steady_ns,
        awake: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._server_ns = server_ns
        self._wall = wall
        self._steady = steady
        self._awake = awake
        self._asleep_ns = steady() - awake()
        self._anchor: tuple[int, int] | None = None

    def now_ns(self) -> int:
        """Ns since the epoch, in whole milliseconds; never goes back."""
        if self._anchor is None:
            self.set()
        assert self._anchor is not None
        now, then = self._anchor
        return (now + self._steady() - then) // MILLISECOND_NS * MILLISECOND_NS

    def steady_ns(self) -> int:
        """The clock that is never set and that counts sleep; its zero means nothing."""
        return self._steady()

    def at_ns(self, steady_ns: int) -> int:
        """The value of `now_ns`, as if it had been asked at that instant of the steady clock."""
        return self.now_ns() - max(0, self._steady() - steady_ns) // MILLISECOND_NS * MILLISECOND_NS

    def set(self) -> None:
        """Take the server's time, or this machine's where no server has answered yet."""
        server = self._server_ns()
        self._anchor = (self._wall() if server is None else server, self._steady())

    def drift_ns(self) -> int:
        """How far the server's clock is ahead of this one; 0 while it says nothing."""
        server = self._server_ns()
        return 0 if server is None else server - self.now_ns()

    def skew_ns(self) -> int:
        """How far this machine's wall clock is ahead of this clock."""
        return self._wall() - self.now_ns()

    def slept_ns(self) -> int:
        """For how long the machine was suspended since this was asked last; 0 for not at all."""
        asleep_ns = self._steady() - self._awake()
        slept = asleep_ns - self._asleep_ns
        if slept < _SLEPT_NS:
            return 0
        self._asleep_ns = asleep_ns
        return slept
