"""The token bucket that client-go limits rates with.

Follows golang.org/x/time/rate and client-go `util/flowcontrol/throttle.go`. Float arithmetic is
done in upstream's order, since a token that is worth less than a nanosecond too little counts as
there.
"""

from __future__ import annotations

import struct
from typing import Protocol


def as_float32(value: float) -> float:
    """The value rounded to 32 bits, as Go's float32."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


class Limiter(Protocol):
    """Decides whether another node may be acted on now."""

    @property
    def qps(self) -> float:
        """The rate that upstream's limiter of this kind reports."""

    def try_accept(self, now_ns: int) -> bool:
        """Take a token if there is one. Never waits."""

    def next_accept(self, now_ns: int) -> int | None:
        """The earliest instant, now or later, at which a token is there; None: never."""

    def spend(self, now_ns: int) -> None:
        """Somebody else's limiter of this kind has just given its token."""


class TokenBucket:
    """A bucket that starts full and refills continuously. `qps` goes through 32 bits."""

    def __init__(self, qps: float, burst: int) -> None:
        self._limit = as_float32(qps)
        self._burst = burst
        self._tokens = float(burst)
        self._last_ns: int | None = None

    @property
    def qps(self) -> float:
        """The rate."""
        return self._limit

    def try_accept(self, now_ns: int) -> bool:
        """Take a token if there is one, as `rate.Limiter.AllowN(now, 1)`."""
        tokens = self._at(now_ns) - 1
        if not self._enough(tokens) or self._burst < 1:
            return False
        self._tokens, self._last_ns = tokens, now_ns
        return True

    def next_accept(self, now_ns: int) -> int | None:
        """The earliest instant from now on at which `try_accept` would succeed; None: never."""
        if self._enough(self._at(now_ns) - 1):
            return now_ns
        if self._limit <= 0:
            return None
        assert self._last_ns is not None
        last_ns = self._last_ns
        at = max(now_ns, last_ns + int((1 - self._tokens) / self._limit * 1e9) - 2)
        while not self._enough(self._at(at) - 1):
            at += max(1, (at - last_ns) >> 50)  # one ns is less than a float shows after 13 days
        return at

    def reserve(self, now_ns: int) -> int:
        """Take a token, one of the future if need be; the instant at which it is there.

        As `rate.Limiter.Reserve`, which `Wait` and the work queues' bucket call.
        """
        tokens = self._tokens = self._at(now_ns) - 1
        self._last_ns = now_ns
        return now_ns if tokens >= 0 else now_ns + int(-tokens / self._limit * 1e9)

    def spend(self, now_ns: int) -> None:
        """A bucket of one token is empty after each: so is this one, as of now."""
        self._tokens, self._last_ns = float(self._burst - 1), now_ns

    def _at(self, now_ns: int) -> float:
        tokens, last_ns = self._tokens, self._last_ns
        if last_ns is None:
            return float(self._burst)
        if now_ns > last_ns:
            tokens += (now_ns - last_ns) / 1e9 * self._limit
        return tokens if tokens < self._burst else float(self._burst)

    def _enough(self, tokens: float) -> bool:
        if tokens >= 0:
            return True
        if self._limit <= 0:
            return False
        return int(-tokens / self._limit * 1e9) <= 0


class Always:
    """Accepts everything; upstream's reports a rate of 1."""

    qps = 1.0

    def try_accept(self, now_ns: int) -> bool:
        """True."""
        return True

    def next_accept(self, now_ns: int) -> int | None:
        """Now."""
        return now_ns

    def spend(self, now_ns: int) -> None:
        """Nothing: there are always more."""


class Never:
    """Accepts nothing; upstream's reports a rate of 1 all the same."""

    qps = 1.0

    def try_accept(self, now_ns: int) -> bool:
        """False."""
        return False

    def next_accept(self, now_ns: int) -> int | None:
        """None."""
        return None

    def spend(self, now_ns: int) -> None:
        """Nothing: there are none."""
