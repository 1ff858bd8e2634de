"""Counts the changes of the journal for the metrics, as they come and as they end, and the times of
answers.

Each change counts once as `would`, when it is predicted, and once for each outcome that it comes
to. What an earlier process predicted counts by its end alone. Pure but for what it remembers. The
answers that are timed are those made in child processes, of `what-if`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from itertools import accumulate
from typing import Any, Final

from kubectl_nodelife.daemon.changes import ENFORCE, HELD, WOULD, ChangeRecord
from kubectl_nodelife.daemon.metrics.families import DELETION_BUCKETS, ERROR_BUCKETS
from kubectl_nodelife.daemon.server import Query, Stream
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.diverge.observations import EVICTION, JUDGED, POD_GC, WRITES

_MOST_OPEN: Final = 200_000
LATE, EARLY = "late", "early"


class Histogram:
    """Counts by bucket, and the sum."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def copy(self) -> Histogram:
        """As it is now."""
        other = Histogram(self.bounds)
        other.counts, other.sum = list(self.counts), self.sum
        return other

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, how many values are not above it), the last without a bound."""
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return [(name, float(n)) for name, n in zip(names, accumulate(self.counts), strict=True)]


class ChangeCounts:
    """Counts the journal's changes for the metrics.

    `changes`: by controller, action and outcome. `errors`: by action and sign.

    `last_act_ns`: by controller, when a write of the cluster's own was seen last.
    """

    def __init__(self, began_ns: int) -> None:
        """A prediction from before `began_ns` is of an earlier process."""
        self._began_ns = began_ns
        self._open: dict[int, str] = {}
        self.changes: Counter[tuple[str, str, str]] = Counter()
        self.errors = {  # all at once: to Prometheus the first value of a series is no increase
            (action, sign): Histogram(ERROR_BUCKETS)
            for action in sorted(WRITES)
            for sign in (LATE, EARLY)
        }
        self.last_act_ns: dict[str, int] = {}
        self.deletion_s = Histogram(DELETION_BUCKETS)
        self.deletions = self.force_deletions = self.force_deletion_errors = 0

    @property
    def held(self) -> int:
        """How many writes a guard holds back now."""
        return sum(outcome == HELD for outcome in self._open.values())

    def take(self, changes: Iterable[ChangeRecord]) -> None:
        """Changes that are new, or that have another outcome."""
        for change in changes:
            known = self._open.get(change.id)
            if known is None and change.time_ns >= self._began_ns:
                self._count(change, WOULD)
                self._predicted(change)
                known = WOULD
            if change.outcome not in (known, WOULD):
                self._count(change, change.outcome)
            if change.settled_ns is None:
                self._open[change.id] = change.outcome
                if len(self._open) > _MOST_OPEN:
                    del self._open[next(iter(self._open))]
            else:
                self._open.pop(change.id, None)
                self._ended(change, change.settled_ns)

    def _count(self, change: ChangeRecord, outcome: str) -> None:
        self.changes[change.controller, change.action, outcome] += 1

    def _predicted(self, change: ChangeRecord) -> None:
        if change.action == "DeletePod":
            self.deletions += change.controller == EVICTION
            self.force_deletions += change.controller == POD_GC

    def _ended(self, change: ChangeRecord, settled_ns: int) -> None:
        if change.action == "DeletePod" and change.controller == POD_GC:
            self.force_deletion_errors += change.outcome == "failed"
        done = change.outcome in ("confirmed", "applied")
        if done and change.action == "DeletePod" and change.controller == EVICTION:
            self.deletion_s.observe(max(0, settled_ns - change.time_ns) / SECOND_NS)
        if change.outcome != "confirmed" or change.mode == ENFORCE:
            return
        last_ns = self.last_act_ns.get(change.controller, 0)
        self.last_act_ns[change.controller] = max(last_ns, settled_ns)
        if change.controller in JUDGED and change.action in WRITES:
            error_s = _error_ns(change, settled_ns) / SECOND_NS
            sign = EARLY if error_s < 0 else LATE
            self.errors[change.action, sign].observe(abs(error_s))


def _error_ns(change: ChangeRecord, settled_ns: int) -> int:
    """How far the write was outside of the time that was predicted; negative: before it."""
    low_ns, high_ns = change.time_ns, change.time_ns
    if change.earliest_ns is not None and change.latest_ns is not None:
        low_ns, high_ns = change.earliest_ns, change.latest_ns
    return min(0, settled_ns - low_ns) or max(0, settled_ns - high_ns)


def timed(stream: Stream, times: Histogram) -> Stream:
    """The same, of which is kept how long it took, also where it ends in an error."""

    async def with_time(query: Query) -> AsyncGenerator[dict[str, Any]]:
        began = time.monotonic()
        try:
            async with aclosing(stream(query)) as told:
                async for document in told:
                    yield document
        finally:
            times.observe(time.monotonic() - began)

    return with_time
