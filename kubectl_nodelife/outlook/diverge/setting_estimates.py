"""Estimates the settings of the running controllers from the times of their writes.

A node is marked at the first monitor pass that begins after the grace period, so that the time from
its last heartbeat to the mark is the grace period, rounded up to whole passes, plus less than one
period. Tokens of a zone come evenly, so that two taints for which nodes were waiting are one
interval apart. An estimate is made only where the assumed value fits nothing that was seen.

kube-api-qps is estimated from an outage. Each controller's client makes so many requests a second
and no more (`engine/pace.py`). While a monitor pass marks the pods of many lost nodes, or many pods
are deleted, the client has no pause: how many requests were made in that time, and how long it
lasted, is its pace. It may have had all its tokens when that began, or none, so that a single run
gives a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.engine.pace import FLAG, Pace
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.outlook.diverge.observations import (
    CERTAIN,
    EVICTION,
    LIFECYCLE,
    LIKELY,
    LOST,
    POSSIBLE,
    TAINTED,
    ExpectedWrite,
    Observations,
    ObservedWrite,
    SettingEstimate,
    WriteRun,
)

GRACE: Final = "node-monitor-grace-period"
PERIOD: Final = "node-monitor-period"
RATE: Final = "node-eviction-rate"
SECONDARY_RATE: Final = "secondary-node-eviction-rate"
A_SECOND: Final = (RATE, SECONDARY_RATE, FLAG)
"""Flags whose values are numbers a second."""

DEFAULT_GRACES_NS: Final = (50 * SECOND_NS, 40 * SECOND_NS)
"""Of today's releases, and of those before v1.32; the longest first."""

_ROUND_STEPS_NS: Final = tuple(
    round(s * SECOND_NS) for s in (60, 30, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.01)
)
_PERIODS_NS: Final = tuple(s * SECOND_NS for s in (60, 30, 20, 15, 12, 10, 6, 5, 4, 3, 2, 1))

_WATCH_NS: Final = 300 * MILLISECOND_NS
"""By how much two things that are seen may be apart from two things that happen."""

_SLOW_NS: Final = 2 * SECOND_NS
"""A pass may take so long until it comes to a node."""

_LATE_NS: Final = 700 * MILLISECOND_NS
"""By so much a single write may be late on a busy server."""

_NARROW_NS: Final = SECOND_NS
"""A value is certain only where others are ruled out that are so far off."""

_SAME_PASS_NS: Final = 1_500 * MILLISECOND_NS
_MOST_PERIODS_APART: Final = 30
_TOKENS_RESOLVED_NS: Final = 500 * MILLISECOND_NS


def guesses(record: Observations) -> tuple[SettingEstimate, ...]:
    """The likely values of the running settings, as far as anything was seen that shows them."""
    of_passes = (guess_grace(record), guess_period(record))
    every = (*of_passes, *guess_rates(record), guess_pace(record))
    return tuple(guess for guess in every if guess is not None)


def guess_grace(record: Observations) -> SettingEstimate | None:
    """node-monitor-grace-period from how long the kubelets of lost nodes had been silent."""
    assumed, period = record.assumed, record.assumed.period_ns
    passes = -(-assumed.grace_ns // period) * period
    losses = _informative_losses(record, passes)
    if not losses:
        return None
    silences = [s.silent_ns or 0 for s in losses]
    fits = [  # under a shorter period than is assumed, too
        s - period - s // 50 - _SLOW_NS <= passes and assumed.grace_ns <= s + _WATCH_NS
        for s in silences
    ]
    middle = round(median(silences))  # any one may be late, because a pass took its time
    low = middle - period - middle // 100 - _WATCH_NS
    high = min(silences) + _WATCH_NS
    if last := high // period * period:  # whole passes: it is so much, or up to a pass less
        low, high = min(-(-low // period) * period, last) - period + MILLISECOND_NS, last
    if any(fits):
        return _grace(record, losses, assumed.grace_ns, (low, high), fits=True)
    early = [s + _WATCH_NS < passes for s in silences]
    if low > high or any(early) != all(early):
        return None
    return _grace(record, losses, _roundest(low, high), (low, high), fits=False)


def _informative_losses(record: Observations, passes_ns: int) -> list[ObservedWrite]:
    """The losses that say something about the grace period.

    One that came late says nothing where the leader changed meanwhile, since its clocks began anew.
    """
    losses = []
    for lost in record.observed:
        if lost.what != LOST or lost.silent_ns is None:
            continue
        began = lost.at_ns - lost.silent_ns
        if not record.in_sight(began, lost.at_ns):
            continue
        is_early = lost.silent_ns + _WATCH_NS < passes_ns
        if is_early or record.lease.error or record.led_throughout(began, lost.at_ns):
            losses.append(lost)
    return losses


def _grace(
    record: Observations,
    losses: Sequence[ObservedWrite],
    likely: int,
    bounds: tuple[int, int],
    *,
    fits: bool,
) -> SettingEstimate | None:
    assumed = record.assumed.grace_ns
    times = _instants(losses)
    is_narrow = abs(bounds[1] - bounds[0]) < _NARROW_NS
    sure = CERTAIN if len(times) >= 3 and is_narrow else LIKELY
    if not fits and likely > assumed:
        if record.lease.error and len(times) < 2:
            return None  # it may just as well have stood still for a while
        sure = POSSIBLE if record.lease.error or len(times) == 1 else sure
    if record.one_moment:
        sure = POSSIBLE  # renewals stand in the Leases by the kubelets' clocks
    silences = [s.silent_ns or 0 for s in losses]
    often, after = _times(len(losses)), _span(min(silences), max(silences))
    return SettingEstimate(
        *(GRACE, assumed, likely, min(bounds), max(bounds)),
        samples=len(losses),
        fits=fits,
        sure=sure,
        seen=f"{often} {after} after the last sign of life",
    )


def _roundest(low_ns: int, high_ns: int) -> int:
    """The value from `low_ns` to `high_ns` that a person would write."""
    for default in DEFAULT_GRACES_NS:
        if low_ns <= default <= high_ns:
            return default
    for step in _ROUND_STEPS_NS:
        highest = high_ns // step * step
        if highest >= low_ns and highest > 0:
            return highest
    return high_ns


def guess_period(record: Observations) -> SettingEstimate | None:
    """node-monitor-period from the distances of the passes that called nodes lost."""
    assumed = record.assumed.period_ns
    times = _instants([s for s in record.observed if s.what == LOST])
    apart = [
        b - a
        for a, b in pairwise(times)
        if b - a < _MOST_PERIODS_APART * assumed and record.led_or_unknown(a, b)
    ]
    tolerance = _WATCH_NS + max(apart, default=0) // 200
    if len(apart) < 3 or tolerance * 4 > assumed:
        return None
    off = [d for d in apart if not _is_multiple(d, assumed, tolerance)]
    if not off:
        return None
    for period in _PERIODS_NS:
        by_chance = (2 * tolerance / period) ** len(apart)
        if by_chance < 0.02 and all(_is_multiple(d, period, tolerance) for d in apart):
            return SettingEstimate(
                *(PERIOD, assumed, period, period - tolerance, period + tolerance),
                samples=len(apart),
                fits=False,
                sure=LIKELY if len(apart) < 5 else CERTAIN,
                seen=f"{len(apart)} distances of passes, {_span(min(apart), max(apart))}",
            )
    return None


def _is_multiple(distance: int, period: int, tolerance: int) -> bool:
    off = distance % period
    return distance > period - tolerance and min(off, period - off) <= tolerance


def guess_rates(record: Observations) -> Iterable[SettingEstimate]:
    """node-eviction-rate and secondary-node-eviction-rate from the distances of NoExecute taints.

    What a zone does under a rate of 0 does not show in its taints: there are none.
    """
    by_flag: dict[str, list[_TokenDistance]] = {}
    for distance in _token_distances(record):
        partial = distance.second.zone_state == "PartialDisruption"
        by_flag.setdefault(SECONDARY_RATE if partial else RATE, []).append(distance)
    for flag, distances in by_flag.items():
        if (guess := _guess_rate(flag, distances)) is not None:
            stood_still = record.lease.error and guess.likely < guess.assumed  # or may have
            yield replace(guess, sure=POSSIBLE) if stood_still else guess


class _TokenDistance(NamedTuple):
    """How far the taints of two nodes of a zone are apart, and their tokens at most: the first
    taint may have been written any time after its own. ns."""

    apart: int
    most: int
    second: ObservedWrite


def _token_distances(record: Observations) -> Iterable[_TokenDistance]:
    """Distances of two taints of one zone where the second node had been waiting for its token."""
    zones: dict[str, list[ObservedWrite]] = {}
    for seen in record.observed:
        is_from_queue = seen.own and seen.explained and seen.waiting_ns is not None
        if seen.what == TAINTED and is_from_queue and seen.detail.endswith(f":{NO_EXECUTE}"):
            zones.setdefault(seen.zone, []).append(seen)
    for taints in zones.values():
        taints.sort(key=lambda s: s.at_ns)
        for first, second in pairwise(taints):
            late = record.assumed.period_ns if second.ready != "Unknown" else 0
            waited = second.at_ns - (second.waiting_ns or 0)
            same = (first.zone_state, first.rate) == (second.zone_state, second.rate)
            led = record.led_or_unknown(first.at_ns, second.at_ns)
            apart = second.at_ns - first.at_ns  # one that waited for a moment came late itself
            if waited > max(late + _WATCH_NS, apart // 4) and same and led:
                yield _TokenDistance(apart, second.at_ns - (first.waiting_ns or 0), second)


def _guess_rate(flag: str, distances: Sequence[_TokenDistance]) -> SettingEstimate | None:
    """From at least two distances that agree; None where they do not."""
    apart = sorted(each.apart for each in distances)
    assumed = distances[-1].second.rate
    if len(apart) < 2 or any(each.second.rate != assumed for each in distances):
        return None
    middle = sum(apart) / len(apart)  # what delays one makes the next come sooner
    slack = middle * 0.2 + _LATE_NS
    if any(abs(d - middle) > slack for d in apart):
        return None
    expected = SECOND_NS / assumed if assumed else float("inf")
    unresolved = middle < _TOKENS_RESOLVED_NS
    middle = max(middle, 1.0)
    near = expected * 0.15 + _WATCH_NS
    fits = any(abs(d - expected) <= near for d in (middle, *apart))
    fits = fits or all(each.apart <= expected <= each.most + near for each in distances)
    fits = fits or (unresolved and expected < 2 * _TOKENS_RESOLVED_NS)
    low = SECOND_NS / (middle * (2 if unresolved else 1.1) + _WATCH_NS / 3)
    high = SECOND_NS / middle * (2 if unresolved else 1.1)
    return SettingEstimate(
        *(flag, assumed, assumed if fits else round_rate(low, high), low, high),
        samples=len(apart),
        fits=fits,
        sure=CERTAIN if len(apart) >= 4 and not unresolved else LIKELY,
        seen=f"nodes of one zone tainted {_span(apart[0], apart[-1])} apart, {_times(len(apart))}",
    )


def _instants(observed: Iterable[ObservedWrite]) -> list[int]:
    """The instants, those of one pass as one."""
    times: list[int] = []
    last = None
    for at in sorted(s.at_ns for s in observed):
        if last is None or at - last > _SAME_PASS_NS:
            times.append(at)
        last = at
    return times


def _span(low_ns: float, high_ns: float) -> str:
    low, high = (f"{ns / SECOND_NS:.1f}" for ns in (low_ns, high_ns))
    return f"{low}s" if low == high else f"{low}s to {high}s"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def value_text(flag: str, value: float) -> str:
    """A flag's value as the flag takes it."""
    if flag in A_SECOND:
        return f"{value:g}"
    return format_duration(round(value))


_PAUSE_NS: Final = 2 * SECOND_NS
"""A client that writes nothing for so long has had a pause."""

_SHORTEST_NS: Final = 3 * SECOND_NS
_FEWEST_WRITES: Final = 30
_SLACK: Final = 0.12
"""By how much the number of Events between the writes may be off."""

_OF_ONE_DELETION: Final = 0.1
"""Events for each pod while many are deleted: one goes between the requests of all of them."""


class _Range(NamedTuple):
    low: float
    high: float


def guess_pace(record: Observations) -> SettingEstimate | None:
    """kube-api-qps; None where no run of writes shows it, or where runs contradict one another."""
    pace = record.assumed.pace
    if pace is None:
        return None
    runs = [*record.runs, *_passes(record, pace), *_deletions(record, pace)]
    runs = [r for r in runs if r.span_ns >= _SHORTEST_NS and r.writes >= _FEWEST_WRITES]
    ranges = [_range(run, pace) for run in runs]
    if not ranges:
        return None
    low, high = max(r.low for r in ranges), min(r.high for r in ranges)
    if low > high:
        return None
    fits = low <= pace.qps <= high
    writes = sum(run.writes for run in runs)
    seconds = sum(run.span_ns for run in runs) / SECOND_NS
    return SettingEstimate(
        *(FLAG, pace.qps, pace.qps if fits else round_rate(low, high), low, high),
        samples=len(runs),
        fits=fits,
        sure=CERTAIN if len(runs) >= 3 else LIKELY,
        seen=f"{writes} writes of one client without a pause took {seconds:.0f}s",
    )


def _range(run: WriteRun, pace: Pace) -> _Range:
    """With a full bucket at its beginning, or none; its ends are known to `unsure_ns`."""
    full_s = pace.burst / pace.qps
    longest_s = (run.span_ns + run.unsure_ns) / SECOND_NS
    shortest_s = max(run.span_ns - run.unsure_ns, SECOND_NS) / SECOND_NS
    low = run.requests / (longest_s + full_s) * (1 - _SLACK)
    return _Range(low, run.requests / shortest_s * (1 + _SLACK))


def round_rate(low: float, high: float) -> float:
    """The number a second from `low` to `high` that a person would write."""
    for power in range(4, -5, -1):
        for digit in (1, 5, 2, 4, 3, 6, 8, 7, 9):
            rate = digit * 10.0**power
            if low <= rate <= high:
                return float(f"{rate:g}")
    return float(f"{(low + high) / 2:.2g}")


def runs_of(instants: Iterable[int], pause_ns: int = _PAUSE_NS) -> Iterator[list[int]]:
    """Instants in order, cut where the client had a pause, longer than `pause_ns`."""
    run: list[int] = []
    for at_ns in sorted(instants):
        if run and at_ns - run[-1] > pause_ns:
            yield run
            run = []
        run.append(at_ns)
    if run:
        yield run


def run_of_pass(pace: Pace, losses: int, marks: int, span_ns: int, unsure_ns: int = 0) -> WriteRun:
    """A pass that found so many nodes lost and marked so many pods in that time."""
    requests = pace.requests_of_pass(losses, marks)
    return WriteRun(losses + marks, requests, span_ns, unsure_ns)


def _confirmed(record: Observations, controller: str, *actions: str) -> list[ExpectedWrite]:
    return [
        write
        for write in record.writes
        if write.controller == controller
        and write.action in actions
        and write.outcome == "confirmed"
        and write.settled_ns is not None
    ]


def _passes(record: Observations, pace: Pace) -> Iterator[WriteRun]:
    """Runs of statuses and marks, those of a pass in which nodes were found lost."""
    losses = _confirmed(record, LIFECYCLE, "SetNodeCondition")
    lost = [w.settled_ns or 0 for w in losses if w.what.startswith("Ready=")]
    marks = [w.settled_ns or 0 for w in _confirmed(record, LIFECYCLE, "MarkPodNotReady")]
    for run in runs_of([*lost, *marks]):
        nodes = sum(run[0] <= at_ns <= run[-1] for at_ns in lost)
        if nodes and _in_sight(record, run):
            yield run_of_pass(pace, nodes, len(run) - nodes, run[-1] - run[0])


def _deletions(record: Observations, pace: Pace) -> Iterator[WriteRun]:
    """Runs of deletions, from when the first one was due: it is read and announced before."""
    deleted = _confirmed(record, EVICTION, "DeletePod")
    if any(write.first for write in deleted):
        return
    begun_ns = -1
    run: list[ExpectedWrite] = []
    for write in sorted(deleted, key=lambda w: w.time_ns):
        if run and write.time_ns > begun_ns:
            yield from _deletion_run(record, run, pace)
            run = []
        run.append(write)
        begun_ns = max(begun_ns, write.settled_ns or 0)
    yield from _deletion_run(record, run, pace)


def _deletion_run(
    record: Observations, run: Sequence[ExpectedWrite], pace: Pace
) -> Iterator[WriteRun]:
    if not run:
        return
    ends = [write.settled_ns or 0 for write in run]
    span = [run[0].time_ns, max(ends)]
    if _in_sight(record, span):
        requests = round(len(run) * (pace.requests_a_deletion + _OF_ONE_DELETION))
        yield WriteRun(len(run), requests, span[1] - span[0])


def _in_sight(record: Observations, run: Sequence[int]) -> bool:
    return record.led_or_unknown(run[0], run[-1])
