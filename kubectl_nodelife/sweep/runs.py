"""Plays runs, and measures them: a point's present is made once, each run is a fork of it with its
seed's failures.

A `Plan` (once) and `RunId`s go to another process; plain figures come back, of what became of nodes
and pods in a play (`sim/reading.py`) and of its levels of service. `needless` is judged by the true
state of machines, which only the failures of the run show: a node that was marked lost while its
machine worked, a pod that was evicted though its machine had never been off, or was back before the
pod's replacement was ready.
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
from kubectl_nodelife.outlook.what_if.play_reading import PlayReading
from kubectl_nodelife.outlook.what_if.question import EachPlay
from kubectl_nodelife.sim.api import CLUSTER
from kubectl_nodelife.sim.events import ScenarioEvent, read_events
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.present import joined_kubelets
from kubectl_nodelife.sim.reading import PodCourse
from kubectl_nodelife.sim.timeline import without_collector
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


_last_point: Final[dict[str, PointPlays]] = {}
"""The plays of the last point of this process: building a present takes longer than a run."""


def _plays_at(plan: Plan, point: Point) -> PointPlays:
    key = plan.key(RunId(0, 0, point, 0))
    if key not in _last_point:
        _last_point.clear()  # the old ones go first
        _last_point[key] = PointPlays(plan, point)
    return _last_point[key]


def play_runs(plan: Plan, runs: Sequence[RunId]) -> list[RunResult]:
    """Play these, in order. Raises BadInput, and Failed in another version of this program."""
    if plan.version != __version__:
        what = f"this worker has kubectl-nodelife {__version__}, the study needs {plan.version}"
        raise Failed(what, on="sweep", remedy="install the same version on each worker")
    with without_collector():
        return [RunResult(run.number, _plays_at(plan, run.point).measure(run.seed)) for run in runs]


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
        for loss in self.played.courses.losses:
            back_at = self.end if loss.back_at is None else loss.back_at
            self.marked[loss.name].append((loss.lost_at, back_at))
        self.evicted = [
            (done, pod)
            for pod in self.played.courses.pods
            for done in pod.evictions
            if done.action.controller == "taint-eviction"
        ]

    def replaced_at(self) -> dict[int, float]:
        """The number of an eviction -> when a pod that was made for it is ready."""
        evictions = {done.action.id for done, _ in self.evicted}
        ready: dict[int, float] = {}
        for pod in self.played.courses.pods:
            if pod.created is not None and pod.ready_at is not None:
                led = (cause.id for cause in pod.created.action.causes() if cause.id in evictions)
                if (eviction := next(led, None)) is not None:
                    ready[eviction] = min(pod.ready_at, ready.get(eviction, math.inf))
        return ready


def _spans(changes: Iterable[tuple[str, float, bool]], end: float) -> Iterator[Span]:
    """The spans in which it is so of any name, from each name's changes in the order of time."""
    begun: dict[str, float] = {}
    for name, at, holds in changes:
        if holds:
            begun.setdefault(name, at)
        elif name in begun:
            yield begun.pop(name), at
    yield from ((at, end) for at in begun.values())


def _overlap(spans: Iterable[Span], others: Sequence[Span]) -> float:
    """Seconds that are in both."""
    return sum(
        max(0.0, min(to, end) - max(since, begin)) for since, to in spans for begin, end in others
    )


def _length(spans: Iterable[Span]) -> float:
    return sum(to - since for since, to in spans)


def _minutes(seconds: float) -> float:
    return round(seconds / _MINUTE, _FIGURES)


def _nodes_lost_needlessly(run: ReadRun) -> float:
    worked = (_length(s) - _overlap(s, run.off.get(n, ())) for n, s in run.marked.items())
    return _minutes(sum(worked))


def _needless_evictions(run: ReadRun) -> float:
    ready = run.replaced_at()
    count = 0
    for done, pod in run.evicted:
        spans = run.off.get(pod.node, ())
        last = bisect_right([since for since, _ in spans], done.at) - 1
        back = spans[last][1] if last >= 0 else 0.0
        count += back < ready.get(done.action.id, math.inf) and back <= run.end
    return count


def _pending(run: ReadRun) -> float:
    pods = enumerate(run.played.courses.pods)
    changes = ((str(number), *change) for number, pod in pods for change in _waiting(pod))
    return _minutes(_length(_spans(changes, run.end)))


def _waiting(pod: PodCourse) -> Iterator[tuple[float, bool]]:
    """(instant, whether the pod has no node from then)"""
    if pod.created is not None:
        yield pod.created.at, not pod.created.action.node
    yield from ((d.at, True) for d in pod.events if d.action.reason == "FailedScheduling")
    if pod.bound is not None:
        yield pod.bound.at, False
    if pod.ended_at is not None:
        yield pod.ended_at, False


def _moves(run: ReadRun) -> float:
    pods = run.played.levels.all_at_start
    created = sum(pod.created is not None for pod in run.played.courses.pods)
    return round(created / pods, 2 * _FIGURES) if pods else 0.0


def _brake(run: ReadRun) -> float:
    rates = (
        (zone, done.at, done.action.rate == 0)
        for zone, states in run.played.courses.zones.items()
        for done in states
    )
    return _minutes(_length(_spans(rates, run.end)))


def _peak_writes(run: ReadRun) -> float:
    start_ns = run.played.start_ns
    bins = Counter(
        (at_ns - start_ns) // SECOND_NS
        for at_ns, action in run.played.timeline.entries
        if action.controller != CLUSTER and type(action) in CONVERSATIONS
    )
    return max(bins.values(), default=0)


MEASURES: Final[Mapping[str, Callable[[ReadRun], float]]] = {
    "nodeMinutesLost": lambda run: _minutes(sum(map(_length, run.marked.values()))),
    "needlessNodeMinutes": _nodes_lost_needlessly,
    "evictions": lambda run: len(run.evicted),
    "needlessEvictions": _needless_evictions,
    "unavailablePodMinutes": lambda run: _minutes(run.figures["unavailable_pod_seconds"]),
    "atZeroMinutes": lambda run: _minutes(run.figures["seconds_at_zero"]),
    "workloadsAtZero": lambda run: run.figures["workloads_at_zero"],
    "belowBudgetMinutes": lambda run: _minutes(
        sum(course.below_seconds for course in run.reading.budgets.values())
    ),
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
