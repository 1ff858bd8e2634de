"""Plays runs, and measures them: a point's present is made once, each run is a fork of it with its
seed's failures.

A `Plan` (once) and `RunId`s go to another process; plain figures come back, read from a play's
records and its levels of service. `needless` is judged by the true state of machines, which only
the failures of the run show: a node that was marked lost while its machine worked, a pod that was
evicted though its machine had never been off, or was back before the pod's replacement was ready.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife import __version__
from kubectl_nodelife.engine.calls import CONVERSATIONS
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.what_if.answer import figures_of
from kubectl_nodelife.outlook.what_if.play_reading import PlayReading, is_eviction
from kubectl_nodelife.outlook.what_if.question import EachPlay
from kubectl_nodelife.sim.api import CLUSTER
from kubectl_nodelife.sim.events import ScenarioEvent, read_events
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.present import joined_kubelets
from kubectl_nodelife.sim.timeline import Record, without_collector
from kubectl_nodelife.sweep.failures import Model, Silence, Terrain, events_of, merged, stream
from kubectl_nodelife.sweep.points import Base, Point, Terms, question_at

_KEY_LENGTH: Final = 32


Span = tuple[float, float]
"""From and to, in seconds after t=0."""
_MINUTE: Final = 60.0
_FIGURES: Final = 3


class Plan(msgspec.Struct, frozen=True):
    """All that workers need: the study's name, its cluster, its failures and its measures."""

    study: str
    base: Base
    failures: tuple[tuple[str, Model], ...]
    terms: Terms
    measures: tuple[str, ...]
    version: str = __version__

    def key(self, run: RunId) -> str:
        """The key that identifies a run among the runs of all studies."""
        identity = [
            *(self.study, self.base.digest, self.version, repr(self.failures), repr(self.terms)),
            *(list(self.measures), sorted(run.point.items()), run.seed),
        ]
        return sha256(msgspec.json.encode(identity)).hexdigest()[:_KEY_LENGTH]


class RunId(NamedTuple):
    """A run: its place in the study, its point's number and values, and its seed."""

    number: int
    point_number: int
    point: Point
    seed: int


class RunResult(NamedTuple):
    """A run's number in the study, and its measures."""

    number: int
    measures: dict[str, float]


class PointPlays:
    """The plays of one point."""

    def __init__(self, plan: Plan, point: Point) -> None:
        """Raises BadInput."""
        self._plan = plan
        self._question = question_at(plan.base, point, plan.terms)
        self._plays = EachPlay(self._question)
        self._events = read_events(list(plan.base.events), FieldPath("study", "base.events"))
        setting = self._plays.present.setting
        nodes, start_ns = self._question.cluster.nodes, setting.start_ns
        self._labels = {name: node.metadata.labels or {} for name, node in nodes.items()}
        kubelets = joined_kubelets(setting)
        self._first_ns = {name: beats.first_ns - start_ns for name, beats in kubelets.items()}
        self._every_ns = min((beats.every_ns for beats in kubelets.values()), default=0)

    def silences(self, seed: int) -> list[Silence]:
        """The failures under a seed."""
        duration_ns, found = self._plan.terms.duration_ns, list[Silence]()
        for name, model in self._plan.failures:
            chance = stream(self._plan.study, name, seed)
            terrain = Terrain(self._labels, self._first_ns, self._every_ns, duration_ns, chance)
            found += model.silences(terrain)
        return merged(found, duration_ns)

    def measure(self, seed: int) -> dict[str, float]:
        """Play the run of a seed, and measure it. Raises BadInput."""
        silences = self.silences(seed)
        events: list[ScenarioEvent] = [*self._events, *events_of(silences)]
        played = self._plays.play_later(events)
        reading = PlayReading(played, self._question.settings)
        return measured(reading, silences, self._plan.measures)


class _LastPoint:
    """The plays of the last point of this process: building a present takes longer than a run."""

    def __init__(self) -> None:
        self._of: tuple[str, Point] | None = None
        self._plays: PointPlays | None = None

    def at(self, plan: Plan, point: Point) -> PointPlays:
        """The plays of that point."""
        of = (plan.key(RunId(0, 0, point, 0)), point)
        if self._plays is None or of != self._of:
            self._plays = None  # the old ones go first
            self._plays, self._of = PointPlays(plan, point), of
        return self._plays


_last_point: Final = _LastPoint()


def play_runs(plan: Plan, runs: Sequence[RunId]) -> list[RunResult]:
    """Play these, in order. Raises BadInput, and Failed in another version of this program."""
    if plan.version != __version__:
        what = f"this worker has kubectl-nodelife {__version__}, the study needs {plan.version}"
        raise Failed(what, on="sweep", remedy="install the same version on each worker")
    with without_collector():
        return [
            RunResult(run.number, _last_point.at(plan, run.point).measure(run.seed)) for run in runs
        ]


class ReadRun:
    """A play with the effects of its failures, and data for several measures. Instants are seconds
    after t=0; `end` is the play's. `marked`, `off`: nodes -> when they were not Ready, and when
    their machines were off."""

    def __init__(self, reading: PlayReading, silences: Iterable[Silence]) -> None:
        self.reading, self.played = reading, reading.played
        self.figures = figures_of(reading)
        self.end = (self.played.end_ns - self.played.start_ns) / SECOND_NS
        self.off: dict[str, list[Span]] = defaultdict(list)
        for silence in silences:
            if silence.off:
                span = silence.from_ns / SECOND_NS, silence.to_ns / SECOND_NS
                self.off[silence.node].append(span)
        self.marked: dict[str, list[Span]] = defaultdict(list)
        for node, spans in _spans(_readiness(self.played.records), self.end):
            self.marked[node] = spans
        records = self.played.records
        self.evicted = [i for i, record in enumerate(records) if _is_taint_eviction(record)]

    def replaced_at(self) -> dict[int, float]:
        """The index of an eviction -> when a pod that was made for it is ready."""
        records, evictions = self.played.records, set(self.evicted)
        created: dict[str, int] = {}
        ready: dict[int, float] = {}
        for record in records:
            if record.action == "CreatePod":
                led = _leads_back(record, records, evictions)
                if led is not None:
                    created[record.object.uid] = led
            elif record.object.uid in created and _is_ready(record):
                ready.setdefault(created[record.object.uid], record.at)
        return ready


def _leads_back(record: Record, records: Sequence[Record], to: set[int]) -> int | None:
    """The record of `to` that led to this one."""
    cause = record.cause
    while cause is not None and cause not in to:
        cause = records[cause].cause
    return cause


def _is_taint_eviction(record: Record) -> bool:
    taint_eviction = record.controller == "taint-eviction" and record.object.kind == "Pod"
    return taint_eviction and is_eviction(record) and not record.error


def _is_ready(record: Record) -> bool:
    detail = record.detail
    is_condition = record.action == "SetPodCondition" and detail["type"] == "Ready"
    return is_condition and detail["status"] == "True"


def _readiness(records: Iterable[Record]) -> Iterator[tuple[str, float, bool]]:
    """(node, instant, whether it is not Ready from then)."""
    for record in records:
        if record.node_ready is not None:
            yield record.object.name, record.at, record.node_ready != "True"


def _spans(
    changes: Iterable[tuple[str, float, bool]], end: float
) -> Iterator[tuple[str, list[Span]]]:
    """(name, the spans in which it is so), from changes in the order of time."""
    begun: dict[str, float] = {}
    spans: dict[str, list[Span]] = {}
    for name, at, holds in changes:
        if holds:
            begun.setdefault(name, at)
        elif name in begun:
            spans.setdefault(name, []).append((begun.pop(name), at))
    for name, at in begun.items():
        spans.setdefault(name, []).append((at, end))
    yield from spans.items()


def _overlap(spans: Iterable[Span], others: Sequence[Span]) -> float:
    """Seconds that are in both."""
    return sum(
        max(0.0, min(to, end) - max(since, begin)) for since, to in spans for begin, end in others
    )


def _length(spans: Iterable[Span]) -> float:
    return sum(to - since for since, to in spans)


def _minutes(seconds: float) -> float:
    return round(seconds / _MINUTE, _FIGURES)


def _nodes_lost(run: ReadRun) -> float:
    return _minutes(sum(_length(spans) for spans in run.marked.values()))


def _nodes_lost_needlessly(run: ReadRun) -> float:
    worked = (_length(s) - _overlap(s, run.off.get(n, ())) for n, s in run.marked.items())
    return _minutes(sum(worked))


def _evictions(run: ReadRun) -> float:
    return len(run.evicted)


def _needless_evictions(run: ReadRun) -> float:
    ready = run.replaced_at()
    node_of, count = run.played.levels.node_of, 0
    for index in run.evicted:
        record = run.played.records[index]
        spans = run.off.get(node_of(record.object), ())
        last = bisect_right([since for since, _ in spans], record.at) - 1
        back = spans[last][1] if last >= 0 else 0.0
        count += back < ready.get(index, math.inf) and back <= run.end
    return count


def _below_budget(run: ReadRun) -> float:
    return _minutes(sum(course.below_seconds for course in run.reading.budgets.values()))


def _pending(run: ReadRun) -> float:
    changes = _waiting(run.played.records)
    return _minutes(sum(_length(spans) for _, spans in _spans(changes, run.end)))


def _waiting(records: Iterable[Record]) -> Iterator[tuple[str, float, bool]]:
    """(uid of a pod, instant, whether it has no node from then)."""
    for record in records:
        if record.action == "CreatePod":
            yield record.object.uid, record.at, not record.detail["node"]
        elif record.object.kind == "Pod" and record.action == "RecordEvent":
            if record.detail["reason"] in ("Scheduled", "FailedScheduling"):
                yield record.object.uid, record.at, record.detail["reason"] != "Scheduled"
        elif record.ends_pod:
            yield record.object.uid, record.at, False


def _moves(run: ReadRun) -> float:
    levels = run.played.levels
    pods = levels.all_at_start
    return round(sum(levels.made.values()) / pods, 2 * _FIGURES) if pods else 0.0


def _brake(run: ReadRun) -> float:
    rates = (
        (record.object.name, record.at, record.detail["rate"] == 0)
        for record in run.played.records
        if record.action == "SetZoneState"
    )
    return _minutes(sum(_length(spans) for _, spans in _spans(rates, run.end)))


def _peak_writes(run: ReadRun) -> float:
    start_ns = run.played.start_ns
    bins = Counter(
        (at_ns - start_ns) // SECOND_NS
        for at_ns, action in run.played.timeline.entries
        if action.controller != CLUSTER and type(action) in CONVERSATIONS
    )
    return max(bins.values(), default=0)


MEASURES: Final[Mapping[str, Callable[[ReadRun], float]]] = {
    "nodeMinutesLost": _nodes_lost,
    "needlessNodeMinutes": _nodes_lost_needlessly,
    "evictions": _evictions,
    "needlessEvictions": _needless_evictions,
    "unavailablePodMinutes": lambda run: _minutes(run.figures["unavailable_pod_seconds"]),
    "atZeroMinutes": lambda run: _minutes(run.figures["seconds_at_zero"]),
    "workloadsAtZero": lambda run: run.figures["workloads_at_zero"],
    "belowBudgetMinutes": _below_budget,
    "pendingPodMinutes": _pending,
    "blindMinutes": lambda run: _minutes(run.figures["blind_seconds"]),
    "movesPerPod": _moves,
    "brakeMinutes": _brake,
    "peakWritesPerSecond": _peak_writes,
}
"""Each measure -> its figure of a run; lower is better."""


def measured(
    reading: PlayReading, silences: Iterable[Silence], names: Iterable[str]
) -> dict[str, float]:
    """The named measures of a run."""
    run = ReadRun(reading, silences)
    return {name: MEASURES[name](run) for name in names}
