"""Rate limits and due times: the token bucket of client-go, the rate-limited timed queue of a zone,
and timers by key.

The queue follows nodelifecycle `scheduler/rate_limited_queue.go`, the bucket golang.org/x/time/rate
and client-go `util/flowcontrol/throttle.go`. Float arithmetic is done in upstream's order, since a
token that is worth less than a nanosecond too little counts as there.

`Timers` has due times in a heap, one per key, with lazy deletion. Setting a key anew or dropping it
leaves its old entry in the heap, to be skipped when it comes up; scanning for the minimum instead
was some 70 times slower with 2,000 nodes.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from copy import copy

import msgspec

from kubectl_nodelife.copy_on_write import fork_dict


def as_float32(value: float) -> float:
    """The value rounded to 32 bits, as Go's float32."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


class TokenBucket:
    """A bucket that starts full and refills continuously. `qps`: its rate, as 32 bits hold it."""

    def __init__(self, qps: float, burst: int) -> None:
        self.qps = self._limit = as_float32(qps)
        self._burst = burst
        self._tokens = float(burst)
        self._last_ns: int | None = None

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
    accepts = True

    def try_accept(self, now_ns: int) -> bool:
        """Whatever the time is."""
        return self.accepts

    def next_accept(self, now_ns: int) -> int | None:
        """Now or never."""
        return now_ns if self.accepts else None

    def spend(self, now_ns: int) -> None:
        """Nothing: there are always more, or none."""


class Never(Always):
    """Accepts nothing; upstream's reports a rate of 1 all the same."""

    accepts = False


Limiter = TokenBucket | Always
"""Decides whether another node may be acted on now."""


class TimedValue(msgspec.Struct):
    """A value in the queue: when it may be processed (ns), and its uid.

    For a standing entry that is in line the queue knows better (`process_at`).
    """

    value: str
    uid: str
    process_at_ns: int
    sequence: int = 0
    standing: bool = False


Act = Callable[[TimedValue, int], tuple[bool, int]]


class RateLimitedTimedQueue:
    """A zone's queue: a heap by due time, a set of all values added and not removed, a limiter.

    A *standing* entry is one that its owner would remove and add anew at each of its passes, as the
    monitor does with a node that still lacks its taint. All of them share the instant of the last
    pass (`renew`) and stand in line in the order of their names, so a pass over thousands costs
    nothing. One that was added, or failed, since then is *apart*, with an instant of its own, until
    the next pass. What changed since the last pass does not stand any more: it keeps its instant,
    and with it its place before all others, unless its owner removes and adds it.
    """

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter
        self._heap: list[tuple[int, str, int]] = []
        self._entries: dict[str, TimedValue] = {}
        self._set: dict[str, None] = {}
        self._line: list[str] = []
        self._apart: dict[str, None] = {}
        self._renewed_ns = -(1 << 63)
        self._sequence = 0

    def fork(self) -> RateLimitedTimedQueue:
        """Another queue with the same in it, and a limiter with the same tokens."""
        other = copy(self)
        other.limiter = copy(self.limiter)
        other._heap, other._line = list(self._heap), list(self._line)
        other._apart = dict(self._apart)
        self._entries, other._entries = fork_dict(self._entries, copy)
        self._set, other._set = fork_dict(self._set)
        return other

    def __contains__(self, value: str) -> bool:
        return value in self._set

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries)  # in a fork it takes long to count them

    def is_waiting(self, value: str) -> bool:
        """True if the value is in the heap, not only remembered."""
        return value in self._entries

    def waiting(self) -> list[str]:
        """The values in the heap in the order in which they will be taken."""
        entries = sorted(self._entries.values(), key=self._order)
        return [e.value for e in entries]

    def entry(self, value: str) -> TimedValue | None:
        """The value's entry in the heap, or None; ask `process_at` for its time."""
        return self._entries.get(value)

    def remembered(self) -> list[str]:
        """All values ever added and not removed."""
        return list(self._set)

    def add(self, value: str, uid: str, now_ns: int, *, standing: bool = False) -> bool:
        """Add unless remembered; due now. Follows `Add`. Returns whether it was added."""
        if value in self._set:
            return False
        self._set[value] = None
        self._push(TimedValue(value, uid, now_ns, standing=standing))
        return True

    def remove(self, value: str) -> bool:
        """Forget the value and drop it from the heap. Follows `Remove`. True: it was remembered."""
        if value not in self._set:
            return False
        del self._set[value]
        self._take_out(value)
        return True

    def remove_from_queue(self, value: str) -> bool:
        """Drop the value from the heap, but remember it. Follows `RemoveFromQueue`."""
        return value in self._set and self._take_out(value)

    def put_back(self, entry: TimedValue, process_at_ns: int) -> None:
        """Return an entry whose action turned out to have failed, unless it was removed by now."""
        if entry.value in self._set and entry.value not in self._entries:
            entry.process_at_ns = process_at_ns
            self._push(entry)

    def clear(self) -> None:
        """Empty heap and set. Follows `Clear`."""
        self._heap.clear()
        self._entries.clear()
        self._set.clear()
        self._line.clear()
        self._apart.clear()

    def renew(self, now_ns: int, apart_from: Iterable[str] = ()) -> None:
        """A pass removes and adds all standing entries, apart from these: its owner looks at them
        one by one, in this order.
        """
        for value in apart_from if self._entries else ():
            entry = self._entries.get(value)
            if entry is not None and entry.standing:
                self._keep_its_instant(entry)
        self._renewed_ns = now_ns
        for value in self._apart:
            heapq.heappush(self._line, value)
        self._apart.clear()

    def head(self) -> TimedValue | None:
        """The entry that is due first, not removed. Follows `Head`."""
        plain, in_line = self._heap_head(), self._line_head()
        if plain is None or in_line is None:
            return plain or in_line
        return min(plain, in_line, key=self._order)

    def try_(
        self, act: Act, now: Callable[[], int], until: Callable[[], bool] = lambda: False
    ) -> bool:
        """Work through what is due as far as the limiter allows. Follows `Try`.

        `act(entry, now_ns)` says (done, retry delay in ns). A refused or early try has still taken
        its token where one was there. True: `until` was true after an entry, and this is to be
        called again.
        """
        entry = self.head()
        while entry is not None:
            now_ns = now()
            if not self.limiter.try_accept(now_ns):
                return False
            if now_ns < self.process_at(entry):
                return False
            done, retry_ns = act(entry, now_ns)
            if done:
                self.remove_from_queue(entry.value)
            else:
                self._replace(entry, now_ns + retry_ns + 1)
            if until():
                return True
            entry = self.head()
        return False

    def swap_limiter(self, qps: float, now_ns: int) -> None:
        """Change the rate. Follows `SwapLimiter`, with its quirk: *never* reports a rate of 1."""
        old = self.limiter
        if old.qps == as_float32(qps):
            return
        if qps <= 0:
            self.limiter = Never()
            return
        new = TokenBucket(qps, 1)
        if not old.try_accept(now_ns):
            new.try_accept(now_ns)
        self.limiter = new

    def process_at(self, entry: TimedValue) -> int:
        """When the entry is due, in ns."""
        return self._renewed_ns if self._is_in_line(entry) else entry.process_at_ns

    def _keep_its_instant(self, entry: TimedValue) -> None:
        process_at_ns = self.process_at(entry)
        self._apart.pop(entry.value, None)
        entry.standing, entry.process_at_ns = False, process_at_ns
        self._push(entry)

    def _is_in_line(self, entry: TimedValue) -> bool:
        return entry.standing and entry.value not in self._apart

    def _push(self, entry: TimedValue) -> None:
        self._sequence += 1
        entry.sequence = self._sequence
        self._entries[entry.value] = entry
        if entry.standing and entry.process_at_ns == self._renewed_ns:
            heapq.heappush(self._line, entry.value)
            return
        heapq.heappush(self._heap, (entry.process_at_ns, entry.value, entry.sequence))
        if entry.standing:
            self._apart[entry.value] = None

    def _take_out(self, value: str) -> bool:
        self._apart.pop(value, None)
        return self._entries.pop(value, None) is not None

    def _replace(self, entry: TimedValue, process_at_ns: int) -> None:
        if self._entries.get(entry.value) is entry:
            entry.process_at_ns = process_at_ns
            self._push(entry)

    def _heap_head(self) -> TimedValue | None:
        while self._heap:
            _, value, sequence = self._heap[0]
            entry = self._entries.get(value)
            if entry is not None and entry.sequence == sequence and not self._is_in_line(entry):
                return entry
            heapq.heappop(self._heap)
        return None

    def _line_head(self) -> TimedValue | None:
        while self._line:
            entry = self._entries.get(self._line[0])
            if entry is not None and self._is_in_line(entry):
                return entry
            heapq.heappop(self._line)
        return None

    def _order(self, entry: TimedValue) -> tuple[int, str]:
        """At one instant by name, as a pass looks at nodes."""
        return self.process_at(entry), entry.value


class Timers:
    """Keys with an instant each. Equal instants come out in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Hashable]] = []
        self._live: dict[Hashable, tuple[int, int]] = {}
        self._sequence = 0

    def fork(self) -> Timers:
        """Others with the same instants, copied: each tick asks for the first one."""
        other = copy(self)
        other._heap, other._live = list(self._heap), dict(self._live)
        return other

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Hashable]:
        """The keys, in no particular order."""
        return iter(self._live)

    def set(self, key: Hashable, at_ns: int) -> None:
        """Set the key's instant, in place of an earlier one; the same instant changes nothing."""
        present = self._live.get(key)
        if present is not None and present[0] == at_ns:
            return
        self._sequence += 1
        self._live[key] = (at_ns, self._sequence)
        heapq.heappush(self._heap, (at_ns, self._sequence, key))

    def drop(self, key: Hashable) -> None:
        """Forget the key; nothing happens if it is not set."""
        self._live.pop(key, None)

    def get(self, key: Hashable) -> int | None:
        """The key's instant, or None."""
        entry = self._live.get(key)
        return entry[0] if entry else None

    def next_due(self) -> int | None:
        """The earliest instant, or None."""
        first = self.first()
        return first[0] if first is not None else None

    def first(self) -> tuple[int, Hashable] | None:
        """The earliest instant and its key, or None."""
        heap = self._heap
        while heap:
            at_ns, sequence, key = heap[0]
            if self._live.get(key) == (at_ns, sequence):
                return at_ns, key
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ns: int) -> Iterator[Hashable]:
        """Take out and yield the keys whose instant is at or before now, earliest first."""
        while (due := self.next_due()) is not None and due <= now_ns:
            _, _, key = heapq.heappop(self._heap)
            del self._live[key]
            yield key
