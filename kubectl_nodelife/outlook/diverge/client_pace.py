"""Estimates kube-api-qps of the running controllers from how fast they write in an outage.

Each controller's client makes so many requests a second and no more (`engine/pace.py`). While a
monitor pass marks the pods of many lost nodes, or many pods are deleted, the client has no pause:
how many requests were made in that time, and how long it lasted, is its pace. It may have had all
its tokens when that began, or none, so that a single run gives a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kubectl_nodelife.engine.pace import FLAG, Pace
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.diverge.observations import (
    CERTAIN,
    EVICTION,
    LIFECYCLE,
    LIKELY,
    ExpectedWrite,
    Observations,
    SettingEstimate,
    WriteRun,
)

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
        flag=FLAG,
        assumed=pace.qps,
        likely=pace.qps if fits else round_rate(low, high),
        low=low,
        high=high,
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


def runs_of(instants: Iterable[int]) -> Iterator[list[int]]:
    """Instants in order, cut where the client had a pause."""
    run: list[int] = []
    for at_ns in sorted(instants):
        if run and at_ns - run[-1] > _PAUSE_NS:
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
