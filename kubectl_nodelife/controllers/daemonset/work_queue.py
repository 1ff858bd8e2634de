"""The controller's queue: keys once, later, or after a failure with a growing delay.

Follows client-go `util/workqueue`: keys are deduplicated while they wait; a delayed add keeps the
earlier instant; failures wait for the longer of a delay per key (5 ms, doubling, 1000 s at most)
and a token bucket shared by all keys (10 a second, 100 at once).
"""

from __future__ import annotations

from copy import copy

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.token_bucket import TokenBucket

SECOND_NS = 1_000_000_000
BASE_DELAY_NS = 5_000_000
MAX_DELAY_NS = 1000 * SECOND_NS
BUCKET_QPS = 10
BUCKET_BURST = 100

Key = tuple[str, str]


class RateLimiter:
    """The default controller rate limiter. Follows `DefaultControllerRateLimiter`."""

    def __init__(self) -> None:
        self._failures: dict[Key, int] = {}
        self._bucket = TokenBucket(BUCKET_QPS, BUCKET_BURST)

    def fork(self) -> RateLimiter:
        """Another one with the same failures and tokens."""
        other = RateLimiter()
        other._failures, other._bucket = dict(self._failures), copy(self._bucket)
        return other

    def when(self, key: Key, now: int) -> int:
        """How long (ns) the key must wait; counts as one more failure."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        exponential = min(BASE_DELAY_NS << min(failures, 40), MAX_DELAY_NS)
        return max(exponential, self._bucket.reserve(now) - now)

    def forget(self, key: Key) -> None:
        """The key succeeded."""
        self._failures.pop(key, None)

    def failures(self, key: Key) -> int:
        """How often the key failed in a row."""
        return self._failures.get(key, 0)


class WorkQueue:
    """Keys to sync, each with the action that led to it where that is known.

    `keeps_later`: the later of two delayed adds is kept as well, not forgotten as upstream does.
    There a surge that begins before the last pods are available may stand until some other event.
    """

    def __init__(self) -> None:
        self.limiter = RateLimiter()
        self.ready: dict[Key, Action | None] = {}
        self.delayed: dict[Key, int] = {}
        self.rate_limited: set[Key] = set()
        self.keeps_later = False
        self._later: dict[Key, set[int]] = {}

    def fork(self) -> WorkQueue:
        """Another queue with the same keys."""
        other = WorkQueue()
        other.limiter = self.limiter.fork()
        other.ready, other.delayed = dict(self.ready), dict(self.delayed)
        other.rate_limited = set(self.rate_limited)
        other.keeps_later = self.keeps_later
        other._later = {key: set(instants) for key, instants in self._later.items()}
        return other

    def add(self, key: Key, cause: Action | None = None) -> None:
        """Sync the key soon."""
        if self.ready.get(key) is None:
            self.ready[key] = cause

    def add_after(self, key: Key, at_ns: int) -> None:
        """Sync the key at that instant, or earlier if it was to be anyway."""
        present = self.delayed.get(key)
        if present is None or at_ns < present:
            self.delayed[key] = at_ns
        if self.keeps_later and present is not None and at_ns != present:
            seconds = -(-max(at_ns, present) // SECOND_NS)  # at most one a second is kept
            self._later.setdefault(key, set()).add(seconds * SECOND_NS)

    def add_rate_limited(self, key: Key, now: int) -> None:
        """Sync the key after a delay that grows with its failures."""
        self.rate_limited.add(key)
        self.add_after(key, now + self.limiter.when(key, now))

    def forget(self, key: Key) -> None:
        """The key was synced without an error."""
        self.limiter.forget(key)

    def drop(self, key: Key) -> None:
        """The key need not be synced any more."""
        self.ready.pop(key, None)
        self.delayed.pop(key, None)
        self._later.pop(key, None)
        self.rate_limited.discard(key)

    def next_due(self) -> int | None:
        """When the earliest delayed key is due, or None."""
        return min(self.delayed.values(), default=None)

    def pop(self, now: int) -> list[tuple[Key, Action | None]]:
        """Take out all keys that are ready or due, in the order in which they came."""
        if self.delayed:
            due = sorted((at, key) for key, at in self.delayed.items() if at <= now)
            for _, key in due:
                del self.delayed[key]
                self.rate_limited.discard(key)
                self.ready.setdefault(key, None)
                self._bring_later(key, now)
        taken = list(self.ready.items())
        self.ready.clear()
        return taken

    def _bring_later(self, key: Key, now: int) -> None:
        """The key waits for the earliest of the instants that were kept and are still to come."""
        later = {at for at in self._later.pop(key, ()) if at > now}
        if later:
            self.delayed[key] = min(later)
            self._later[key] = later - {min(later)}
