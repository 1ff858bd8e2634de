"""Computes when each write of our copy is due in the cluster, and which are overdue.

The running controller's passes begin at other instants than ours: it may decide one period earlier
or later, plus 1 % of what it waited for, plus the delay of the watch. A write that was caused by
another is due as long after that one as our copy has it, so that one delay is reported once. In a
zone that waits for tokens the order of nodes is unknown: the first taint seen answers for the first
that was due. Writes are not judged over a time in which the cluster was not watched or another
leader took over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.outlook.diverge.observations import (
    EVICTION,
    JUDGED,
    POD_GC,
    ExpectedWrite,
    Observations,
)

OPEN, CAME, NEVER = "open", "came", "never"

LATENCY_NS: Final = 3 * SECOND_NS
"""A write, its way through the watch, and the gathering of news here."""

GC_NS: Final = 60 * SECOND_NS
"""pod-gc looks every 20 s, and lets a node be gone for 40 s first."""

_OLD_TAINT_NS: Final = 300 * SECOND_NS
"""For a taint whose addition was not watched the controller may have begun the clock much later."""

_MAY_NEVER_COME: Final = frozenset({"SetNodeCondition", "AddTaint", "RemoveTaint", "DeletePod"})
"""Writes of which is said that they were due and never came: a node recovered before, or a pod was
gone. A mark or a DisruptionTarget comes with one of these."""

_SEEN: Final = 0.65
"""The share of a client's requests that are writes to pods: a third reads a pod before it is
patched and deleted, or sends Events.
"""

_DEFAULT_QPS: Final = 20.0
_MOST_TOKEN_NS: Final = 120 * SECOND_NS


class OverdueWrite(msgspec.Struct, frozen=True, gc=False):
    """A write that is overdue. `state`: it is still open, came late, or never came and no longer
    will. `lag_ns`: how long after it was due. `follow`: how many open writes depend on it.
    """

    write: ExpectedWrite
    state: str
    due_ns: int
    lag_ns: int
    follow: int = 0


class SettingDelays(msgspec.Struct, frozen=True, gc=False):
    """By how much the running settings, as estimated, make writes due later than ours do.

    `grace_ns`: by how much its grace period is longer. `token_ns`: between two tokens, `qps`: the
    requests a second of a client; None where it is as assumed.
    """

    grace_ns: int = 0
    token_ns: int | None = None
    qps: float | None = None


class DueWrites(msgspec.Struct, frozen=True):
    """Which writes are overdue, and how many came in time or are open at all."""

    lags: tuple[OverdueWrite, ...]
    in_time: int
    open: int


def due_writes(record: Observations, now_ns: int, pace: SettingDelays | None = None) -> DueWrites:
    """Judge all writes of the record."""
    pace = pace or SettingDelays()
    writes = _merged(record)
    by_id = {write.id: write for write in writes}
    delays: dict[int, int | None] = {}
    lags: list[OverdueWrite] = []
    follow: dict[int, int] = {}
    queued: dict[str, list[tuple[int, ExpectedWrite]]] = {}
    in_time, is_open = record.on_time, 0
    for write in writes:
        is_open += write.outcome == "would"
        delay = _delay(write, by_id, delays)
        if delay is None:
            root = _open_root(write, by_id)
            follow[root] = follow.get(root, 0) + (write.outcome == "would")
            continue
        due_ns = write.time_ns + delay + (0 if write.first else pace.grace_ns)
        if write.action == "AddTaint" and write.what.endswith(NO_EXECUTE):
            queued.setdefault(write.zone, []).append((due_ns, write))
            continue
        lag = _lag(record, write, due_ns, now_ns, by_id)
        if lag is None:
            in_time += write.outcome == "confirmed"
        elif lag.lag_ns > allowance_ns(record, write, by_id):
            lags.append(lag)
        else:
            in_time += lag.state == CAME
    for zone in queued.values():
        late, came = _tokens(record, zone, by_id, now_ns, pace)
        lags += late
        in_time += came
    backlog = _Backlog(record, writes, pace.qps)
    due = tuple(
        replace(lag, follow=follow.get(lag.write.id, 0))
        for lag in lags
        if not backlog.explains(lag, allowance_ns(record, lag.write, by_id), now_ns)
    )
    return DueWrites(due, in_time, is_open)


def allowance_ns(
    record: Observations, write: ExpectedWrite, by_id: Mapping[int, ExpectedWrite]
) -> int:
    """How long after it was due a write may come and is no surprise."""
    period = record.assumed.period_ns
    first = write
    while first.cause is not None and first.cause in by_id:
        first = by_id[first.cause]
    waited = record.assumed.grace_ns + max(0, write.time_ns - first.time_ns)
    more_ns = GC_NS if write.controller == POD_GC else 0
    if write.controller == EVICTION and first is write:
        more_ns = _OLD_TAINT_NS
    return period + (period + waited) // 100 + LATENCY_NS + more_ns


def _merged(record: Observations) -> list[ExpectedWrite]:
    """The writes that are judged, each API call once, in order. A DisruptionTarget goes with the
    deletion of its pod that was decided with it: one that has not come is not told twice."""
    calls: dict[tuple[object, ...], ExpectedWrite] = {}
    for write in record.writes:
        if write.controller in JUDGED and write.controller in record.evaluated:
            what = write.what if write.action in ("AddTaint", "RemoveTaint") else ""
            where = (write.kind, write.namespace, write.name)
            calls.setdefault((write.time_ns, write.controller, write.action, *where, what), write)
    return [
        replace(write, cause=deletion.id)
        if action == "SetPodCondition"
        and (deletion := calls.get((at_ns, by, "DeletePod", *about))) is not None
        else write
        for (at_ns, by, action, *about), write in calls.items()
    ]


def _delay(
    write: ExpectedWrite, by_id: Mapping[int, ExpectedWrite], delays: dict[int, int | None]
) -> int | None:
    """By how much what led to the write came after our copy had it; None where it has not come."""
    path = []
    cause = by_id.get(write.cause) if write.cause is not None else None
    while cause is not None and cause.id not in delays:
        path.append(cause)
        cause = by_id.get(cause.cause) if cause.cause is not None else None
    delay = delays[cause.id] if cause is not None else 0
    for above in reversed(path):
        if delay is None or above.outcome == "would":
            delay = None
        elif above.outcome == "confirmed" and above.settled_ns is not None and not above.first:
            delay = max(delay, above.settled_ns - above.time_ns)
        delays[above.id] = delay
    return delay


def _open_root(write: ExpectedWrite, by_id: Mapping[int, ExpectedWrite]) -> int:
    """The id of the first open write above this one."""
    root, cause = write.id, write.cause
    while cause is not None and cause in by_id:
        if by_id[cause].outcome == "would":
            root = cause
        cause = by_id[cause].cause
    return root


def _lag(
    record: Observations,
    write: ExpectedWrite,
    due_ns: int,
    now_ns: int,
    by_id: Mapping[int, ExpectedWrite],
) -> OverdueWrite | None:
    """How late the write is; None where that cannot be known, or is no question. Of writes that
    never came the first of a chain answers for the others."""
    if write.outcome == "would":
        due_ns = _fresh_start(record, due_ns, now_ns)
        return OverdueWrite(write, OPEN, due_ns, now_ns - due_ns) if now_ns > due_ns else None
    settled = write.settled_ns
    if write.first or settled is None or not record.watched(due_ns, max(due_ns, settled)):
        return None
    anew_ns = record.assumed.grace_ns + record.assumed.period_ns
    if any(at <= settled and write.time_ns < at + anew_ns for at, _ in record.leaders):
        return None  # a new leader had begun its clocks when this was due by the old one's
    if write.outcome == "confirmed":
        return OverdueWrite(write, CAME, due_ns, settled - due_ns)
    cause = by_id.get(write.cause) if write.cause is not None else None
    if write.outcome != "superseded" or write.action not in _MAY_NEVER_COME:
        return None
    if cause is not None and cause.outcome == "superseded":
        return None
    return OverdueWrite(write, NEVER, due_ns, settled - due_ns)


def _fresh_start(record: Observations, due_ns: int, now_ns: int) -> int:
    """When an open write is due, seen from the last break in what was watched, or new leader."""
    anew_ns = record.assumed.grace_ns + record.assumed.period_ns
    of_leaders = (at_ns + anew_ns for at_ns, _ in record.leaders)
    return max(due_ns, record.watched_since_ns(now_ns), *of_leaders)


def _tokens(
    record: Observations,
    zone: Sequence[tuple[int, ExpectedWrite]],
    by_id: Mapping[int, ExpectedWrite],
    now_ns: int,
    pace: SettingDelays,
) -> tuple[list[OverdueWrite], int]:
    """(NoExecute taints of one zone that are overdue, how many came in time).

    Each that came answers for the earliest that was due, while its node waited too, and has no
    answer yet.
    """
    dues = sorted(due for due, _ in zone)
    came = sorted((w.settled_ns or w.time_ns, w.id, w) for _, w in zone if _is_done(w))
    waiting = [w for _, w in sorted(zone, key=lambda e: e[0]) if not _is_done(w)]
    lags, in_time = [], 0
    for at_ns, _, write in came:
        waited_ns = _waited_since(record, write, by_id)
        due_ns = dues.pop(min(bisect_left(dues, waited_ns), len(dues) - 1))
        allowed = allowance_ns(record, write, {}) + _token_ns(write, pace)
        lag = _lag(record, write, due_ns, now_ns, by_id)
        if lag is not None and at_ns - due_ns > allowed and pace.token_ns is None:
            lags.append(OverdueWrite(write, CAME, due_ns, at_ns - due_ns))
        else:
            in_time += 1
    last_ns = came[-1][0] if came else 0
    for due_ns, write in zip(dues, waiting, strict=True):
        if pace.token_ns is not None:
            due_ns = max(due_ns, last_ns + _token_ns(write, pace))
        lag = _lag(record, write, due_ns, now_ns, by_id)
        allowed = allowance_ns(record, write, {}) + _token_ns(write, pace)
        if lag is not None and lag.lag_ns > allowed:
            lags.append(lag)
    return lags, in_time


def _is_done(write: ExpectedWrite) -> bool:
    return write.outcome not in ("would", "superseded")


def _waited_since(
    record: Observations, write: ExpectedWrite, by_id: Mapping[int, ExpectedWrite]
) -> int:
    """Since when the write's node may have waited for a token; 0 where that is not known."""
    cause = by_id.get(write.cause) if write.cause is not None else None
    return cause.time_ns - record.assumed.period_ns - LATENCY_NS if cause is not None else 0


def _token_ns(write: ExpectedWrite, pace: SettingDelays) -> int:
    """How long a zone waits for its next token: by so much the buckets may be out of step."""
    token = SECOND_NS / write.rate if write.rate else _MOST_TOKEN_NS
    return round(min(pace.token_ns or token, _MOST_TOKEN_NS))


class _Backlog:
    """How long a controller may take for many pods: it sends so many writes a second, no more.

    `qps`: requests a second of its client, None where that is as assumed. Where it has no limit the
    default counts, which is the longest that it can be.
    """

    def __init__(
        self, record: Observations, writes: Iterable[ExpectedWrite], qps: float | None
    ) -> None:
        pace = record.assumed.pace
        self._writes_a_second = _SEEN * (qps or (pace.qps if pace is not None else _DEFAULT_QPS))
        self._recent_ns = record.assumed.period_ns + LATENCY_NS
        self._times: dict[str, list[int]] = {}
        self._last: dict[str, int] = {}
        for write in writes:
            if write.kind == "Pod":
                self._times.setdefault(write.controller, []).append(write.time_ns)
            if write.outcome == "confirmed":
                last = max(self._last.get(write.controller, 0), write.settled_ns or 0)
                self._last[write.controller] = last
        for times in self._times.values():
            times.sort()

    def explains(self, lag: OverdueWrite, allowed_ns: int, now_ns: int) -> bool:
        """True if the controller is, or was, still at it."""
        if lag.write.kind != "Pod":
            return False
        controller = lag.write.controller
        if lag.state == OPEN and self._last.get(controller, 0) < now_ns - self._recent_ns:
            return False
        times = self._times[controller]
        end = lag.due_ns + lag.lag_ns
        before = bisect_right(times, end) - bisect_left(times, lag.due_ns - _MOST_TOKEN_NS)
        return lag.lag_ns <= allowed_ns + round(before * SECOND_NS / self._writes_a_second)


def earliest(lags: Iterable[OverdueWrite]) -> int | None:
    """When the first of them was due."""
    return min((lag.due_ns for lag in lags), default=None)


def still_open(lags: Iterable[OverdueWrite]) -> Iterator[OverdueWrite]:
    """Those that have not come."""
    return (lag for lag in lags if lag.state == OPEN)
