"""Plays runs: a point's present is made once, each run is a fork of it with its seed's failures.

What goes to another process is a `Plan` (once) and `RunId`s; what comes back are plain figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife import __version__
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.outlook.what_if.play_reading import PlayReading
from kubectl_nodelife.outlook.what_if.question import EachPlay
from kubectl_nodelife.sim.collector import without_collector
from kubectl_nodelife.sim.events import ScenarioEvent, read_events
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.joined import joined_kubelets
from kubectl_nodelife.sweep.base import Base
from kubectl_nodelife.sweep.failures import Model, Silence, Terrain, events_of, merged, stream
from kubectl_nodelife.sweep.measures import measured
from kubectl_nodelife.sweep.points import Terms, question_at
from kubectl_nodelife.sweep.space import Point

_KEY_LENGTH: Final = 32


class Plan(msgspec.Struct, frozen=True):
    """All that workers need: the study's name, its cluster, its failures and its measures."""

    study: str
    base: Base
    failures: tuple[tuple[str, Model], ...]
    terms: Terms
    measures: tuple[str, ...]
    version: str = __version__

    def key(self, run: RunId) -> str:
        """What tells a run apart from all others of any study."""
        told = [
            *(self.study, self.base.digest, self.version, repr(self.failures), repr(self.terms)),
            *(list(self.measures), sorted(run.point.items()), run.seed),
        ]
        return sha256(msgspec.json.encode(told)).hexdigest()[:_KEY_LENGTH]


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
        self._first_ns = {name: heard.first_ns - start_ns for name, heard in kubelets.items()}
        self._every_ns = min((heard.every_ns for heard in kubelets.values()), default=0)

    def silences(self, seed: int) -> list[Silence]:
        """What fails under a seed."""
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
        """Those of that point."""
        of = (plan.key(RunId(0, 0, point, 0)), point)
        if self._plays is None or of != self._of:
            self._plays = None  # the old ones go first
            self._plays, self._of = PointPlays(plan, point), of
        return self._plays


_last_point: Final = _LastPoint()


def play_runs(plan: Plan, runs: Sequence[RunId]) -> list[RunResult]:
    """Play these, in their order. Raises BadInput, and Failed in another version of ours."""
    if plan.version != __version__:
        what = f"this worker has kubectl-nodelife {__version__}, the study needs {plan.version}"
        raise Failed(what, on="sweep", remedy="install the same version on each worker")
    with without_collector():
        return [
            RunResult(run.number, _last_point.at(plan, run.point).measure(run.seed)) for run in runs
        ]
