"""The API server's clock, learned from the `Date` of its answers.

A laptop's clock may be wrong by minutes, and every age of a heartbeat would be wrong with it.
`Date` has whole seconds, so an answer only bounds the offset; the bounds of several answers
together narrow it down. In between, time goes by a local clock that nobody sets and that counts
sleep: the wall clock may be stepped.
"""

from __future__ import annotations

import time
from collections import deque
from email.utils import parsedate_to_datetime

SECOND_NS = 1_000_000_000

SKEW_TOLD_NS = 2 * SECOND_NS
"""A difference between our clock and the server's that is told to the user."""

_KEPT = 16

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)  # Linux; on macOS CLOCK_MONOTONIC counts sleep


def steady_ns() -> int:
    """A clock that nobody sets and that goes on during a suspend."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC if _BOOTTIME is None else _BOOTTIME)


class ServerClock:
    """Bounds of (server's clock - our monotonic clock), from the newest answers."""

    def __init__(self) -> None:
        self._bounds: deque[tuple[int, int]] = deque(maxlen=_KEPT)
        self._offset_ns: int | None = None

    @property
    def known(self) -> bool:
        """Whether any answer had a usable date."""
        return self._offset_ns is not None

    def observe(self, date: str | None, sent_ns: int, received_ns: int) -> None:
        """An answer said `Date`; the request went out and the answer came at these monotonic ns."""
        try:
            stamp = parsedate_to_datetime(date or "")
        except (ValueError, TypeError):
            return
        second_ns = int(stamp.timestamp()) * SECOND_NS
        bounds = (second_ns - received_ns, second_ns + SECOND_NS - sent_ns)
        self._bounds.append(bounds)
        self._offset_ns = self._middle()

    def _middle(self) -> int:
        """The middle of what all bounds allow; where they disagree a clock moved, and the newest
        count.
        """
        low, high = self._bounds[-1]
        for number in range(len(self._bounds) - 2, -1, -1):
            lower, upper = self._bounds[number]
            if max(low, lower) > min(high, upper):
                for _ in range(number + 1):
                    self._bounds.popleft()
                break
            low, high = max(low, lower), min(high, upper)
        return (low + high) // 2

    def now_ns(self, monotonic_ns: int) -> int | None:
        """The server's time at this monotonic instant, in ns since the epoch; None: not known."""
        return None if self._offset_ns is None else monotonic_ns + self._offset_ns

    def skew_ns(self, monotonic_ns: int, wall_ns: int) -> int:
        """How far our wall clock is ahead of the server's (negative: behind); 0 while unknown."""
        server = self.now_ns(monotonic_ns)
        return 0 if server is None else wall_ns - server
