"""The API server's clock, learned from the `Date` of its answers, and the daemon's, which goes by
it.

A laptop's clock may be wrong by minutes, and every age of a heartbeat would be wrong with it.
`Date` has whole seconds, so an answer only bounds the offset; the bounds of several answers
together narrow it down, and within them this machine's wall clock is believed. In between, time
goes by a local clock that cannot be set and that counts sleep: the wall clock may be stepped.

Behind one address there may be several API servers whose clocks differ. Each is learned by itself,
and one of them is gone by, until it answers no more or a clock shows up that was never seen: that
is a clock which was set. So each of them changes the time once, and not with each answer.

The daemon's clock is the API server's time, taken once and carried on by a clock that cannot be
set. The wall clock of a laptop may be wrong, stepped, or stand still in a suspend; upstream's
controllers compare monotonic instants, and so does the engine. The server's `Date` is still looked
at: when it disagrees by more than two seconds, one of the clocks was set, and all that uses this
clock must begin anew (`drift_ns`). A suspend shows as a difference between the clock that counts
sleep and the one that does not.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

from kubectl_nodelife.kube.times import MILLISECOND_NS

SECOND_NS = 1_000_000_000

DRIFT_NS: Final = 2 * SECOND_NS
"""A clock that differs by more was set."""

SKEW_WARNED_NS = 2 * SECOND_NS
"""A difference between our clock and the server's that is shown to the user."""

_KEPT = 16
_MOST_CLOCKS = 8
_SAME_CLOCK_NS = SECOND_NS  # by which answers may disagree and still be of one clock
_MOST_MISSED = 4 * _KEPT
_LEAST_S, _MOST_S = 1_400_000_000, 7_258_118_400  # 2014, before Kubernetes; 2200

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)  # Linux; on macOS CLOCK_MONOTONIC counts sleep


def clock_warning(skew_ns: int) -> str:
    """The warning for a machine whose clock is wrong."""
    where = "ahead of" if skew_ns > 0 else "behind"
    seconds = abs(skew_ns) / SECOND_NS
    return f"this machine's clock is {seconds:.0f}s {where} the API server's; ages use the server's"


def steady_ns() -> int:
    """A clock that cannot be set and that goes on during a suspend."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC if _BOOTTIME is None else _BOOTTIME)


class _Clock:
    """Bounds of (one server's clock - our steady clock), from its newest answers."""

    def __init__(self) -> None:
        self.bounds: deque[tuple[int, int]] = deque(maxlen=_KEPT)
        self.offset_ns = 0
        self.missed = 0

    def agrees(self, low: int, high: int) -> bool:
        """True if an answer with these bounds may be of this clock."""
        return low - _SAME_CLOCK_NS <= self.offset_ns <= high + _SAME_CLOCK_NS

    def take(self, low: int, high: int, wall: int) -> None:
        """One more answer of this clock. `wall`: (our wall clock - our steady clock)."""
        self.bounds.append((low, high))
        self.offset_ns = self._best(wall)
        self.missed = 0

    def _best(self, wall: int) -> int:
        """The wall clock's offset where all bounds allow it, else the middle of what they allow.

        Where they disagree the clock moved, and the newest count.
        """
        low, high = self.bounds[-1]
        for number in range(len(self.bounds) - 2, -1, -1):
            lower, upper = self.bounds[number]
            if max(low, lower) > min(high, upper):
                for _ in range(number + 1):
                    self.bounds.popleft()
                break
            low, high = max(low, lower), min(high, upper)
        return wall if low <= wall <= high else (low + high) // 2


@lru_cache(maxsize=64)
def _read_date(date: str) -> int | None:
    """Seconds since the epoch; None for what is no date, or cannot be. Hundreds of answers in a
    burst say the same second.
    """
    try:
        seconds = int(parsedate_to_datetime(date).timestamp())
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if _LEAST_S <= seconds <= _MOST_S else None


class ServerClock:
    """The API server's time, as its answers say it."""

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = steady_ns
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._clocks: list[_Clock] = []
        self._current: _Clock | None = None
        self._set_ns: int | None = None

    @property
    def known(self) -> bool:
        """True if any answer had a usable date."""
        return self._current is not None

    @property
    def spread_ns(self) -> int:
        """By how much the clocks of the servers behind the address differ."""
        offsets = [clock.offset_ns for clock in self._clocks]
        return max(offsets) - min(offsets) if offsets else 0

    @property
    def dates_count_from_ns(self) -> int:
        """Since when, by the server's time as it is now, dates are of the clock that is gone by: it
        was set then, or another server's took its place. 0: it never was.
        """
        if self._set_ns is None or self._current is None:
            return 0
        return self._set_ns + self._current.offset_ns

    def observe(self, date: str | None, sent_ns: int, received_ns: int) -> None:
        """An answer said `Date`; the request went out and the answer came at these steady ns.

        A date that cannot be, such as one in the year 9999, says nothing.
        """
        seconds = _read_date(date or "")
        if seconds is None:
            return
        low, high = seconds * SECOND_NS - received_ns, (seconds + 1) * SECOND_NS - sent_ns
        clock = next((c for c in self._clocks if c.agrees(low, high)), None)
        is_new = clock is None
        if clock is None:
            clock = _Clock()
            self._clocks = [*self._clocks, clock][-_MOST_CLOCKS:]
        clock.take(low, high, self._wall() - self._steady())
        if is_new:
            self._go_by(clock, received_ns)
        self._forget(clock, received_ns)

    def _go_by(self, clock: _Clock, at_ns: int) -> None:
        before, self._current = self._current, clock
        if before is not None and abs(clock.offset_ns - before.offset_ns) > DRIFT_NS:
            self._set_ns = at_ns

    def _forget(self, newest: _Clock, at_ns: int) -> None:
        """Go by another clock where the one gone by answers no more."""
        for clock in self._clocks:
            clock.missed += clock is not newest
        self._clocks = [c for c in self._clocks if c.missed < _MOST_MISSED]
        current = self._current
        if current is None or current not in self._clocks or current.missed >= _KEPT:
            if current in self._clocks:
                self._clocks.remove(current)
            self._go_by(newest, at_ns)

    def now_ns(self, monotonic_ns: int) -> int | None:
        """The server's time at this monotonic instant, in ns since the epoch; None: not known."""
        return None if self._current is None else monotonic_ns + self._current.offset_ns

    def skew_ns(self, monotonic_ns: int, wall_ns: int) -> int:
        """How far our wall clock is ahead of the server's (negative: behind); 0 while unknown."""
        server = self.now_ns(monotonic_ns)
        return 0 if server is None else wall_ns - server


def spread_warnings(clock: ServerClock) -> list[str]:
    """A warning where API servers behind one address disagree about the time."""
    if clock.spread_ns <= SKEW_WARNED_NS:
        return []
    seconds = clock.spread_ns / SECOND_NS
    return [f"the clocks of the API servers differ by {seconds:.0f}s; ages may be wrong by as much"]


class MonotonicClock:
    """Nanoseconds that begin as an instant since the epoch and go on by a clock that nobody can
    set: for all that must have been within the last N seconds, or may be at most N times a minute.

    It differs from the API server's clock as soon as that one is set.
    """

    def __init__(self, begin_ns: Callable[[], int], steady: Callable[[], int] = steady_ns) -> None:
        """`begin_ns`: asked once, at the first use."""
        self._begin_ns = begin_ns
        self._steady = steady
        self._offset_ns: int | None = None

    def now_ns(self) -> int:
        """The present."""
        if self._offset_ns is None:
            self._offset_ns = self._begin_ns() - self._steady()
        return self._steady() + self._offset_ns


_SLEPT_NS: Final = SECOND_NS


class DaemonClock:
    """The daemon's clock, which goes by that of the API server.

    `server_ns` says what the server's clock shows, None while unknown;
    `dates_count_from_ns`: as that of a `ServerClock`.
    """

    def __init__(
        self,
        server_ns: Callable[[], int | None],
        *,
        dates_count_from_ns: Callable[[], int] = lambda: 0,
        wall: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = steady_ns,
        awake: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._server_ns = server_ns
        self.dates_count_from_ns = dates_count_from_ns
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
