"""Models of failures: from a seed, which kubelets do not report when, and if machines are off.

Each draws from streams of its own, one for each (seed, model, node), so that another model, another
node or another setting changes no other draw: points of a study are compared on the same failures.

The models, and where they come from: single machines and repairs (Schroeder and Gibson, "A
large-scale study of failures in high-performance computing systems", DSN 2006); groups that fail
together, as racks and power domains do (Ford et al., "Availability in Globally Distributed Storage
Systems", OSDI 2010); short silences; renewals that come late, which a kubelet makes an interval
after the last one has *succeeded* (component-helpers/apimachinery/lease/controller.go runs its sync
by a sliding JitterUntil); a link; power that is switched off group by group; a recorded trace.

How long something lasts, and how long after one another things happen, follows a law, written as a
duration (always that long) or as a mapping with a mean or a median, as studies of failures give
them: exponential or Weibull for the time between failures, lognormal for repairs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.sim.events import LoseEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath, duration_ns, mapping

FIXED: Final = "fixed"
_DEFAULT_SIGMA: Final = 1.0
_MOST: Final = 100.0
_FIELDS: Final = {
    "exponential": {"mean"},
    "weibull": {"mean", "shape"},
    "lognormal": {"median", "sigma"},
    "uniform": {"from", "to"},
}


_PLACE: Final = FieldPath("study", "failures")
_NODE: Final = attrgetter("node")
_BEGIN: Final = attrgetter("from_ns")


class Law(msgspec.Struct, frozen=True):
    """`kind` FIXED: always `scale_ns`. `exponential`, `weibull`: that mean; `lognormal`: that
    median; `uniform`: from `scale_ns` to `to_ns`. `shape`: of Weibull, or the sigma of lognormal.
    """

    kind: str
    scale_ns: int
    shape: float = 1.0
    to_ns: int = 0

    def draw(self, chance: random.Random) -> int:
        """One duration, ns, whole milliseconds and at least one."""
        match self.kind:
            case "exponential":
                ns = chance.expovariate(1 / self.scale_ns)
            case "weibull":
                scale = self.scale_ns / math.gamma(1 + 1 / self.shape)
                ns = chance.weibullvariate(scale, self.shape)
            case "lognormal":
                ns = chance.lognormvariate(math.log(self.scale_ns), self.shape)
            case "uniform":
                ns = chance.uniform(self.scale_ns, self.to_ns)
            case _:
                ns = self.scale_ns
        return max(1, round(ns / MILLISECOND_NS)) * MILLISECOND_NS


def read_law(value: Any, at: FieldPath) -> Law:
    """`10m`, or `{exponential: {mean: 1h}}` and the like. Raises BadInput."""
    if not isinstance(value, dict):
        return Law(FIXED, duration_ns(value, at, least_ns=MILLISECOND_NS))
    given = mapping(value, at, tuple(_FIELDS))
    if len(given) != 1:
        raise at.fault("names no law or several", f"give one of {', '.join(_FIELDS)}")
    ((kind, fields),) = given.items()
    place = at.key(kind)
    fields = mapping(fields, place, tuple(sorted(_FIELDS[kind])))
    first = {"lognormal": "median", "uniform": "from"}.get(kind, "mean")
    for needed in {first, *({"to"} if kind == "uniform" else ())}:
        if needed not in fields:
            raise place.fault(f"lacks the field {needed}", "give a duration, such as 10m")
    scale_ns = duration_ns(fields[first], place.key(first), least_ns=MILLISECOND_NS)
    if kind == "uniform":
        to_ns = duration_ns(fields["to"], place.key("to"), least_ns=scale_ns)
        return Law(kind, scale_ns, to_ns=to_ns)
    word = "sigma" if kind == "lognormal" else "shape"
    return Law(kind, scale_ns, positive(fields.get(word, _DEFAULT_SIGMA), place.key(word)))


def positive(value: Any, at: FieldPath, most: float = _MOST) -> float:
    """A number above 0. Raises BadInput."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= most
    if not good:
        raise at.fault(f"{value!r} is no number above 0 and at most {most:g}")
    return float(value)


class Silence(NamedTuple):
    """A node's kubelet does not report, from an instant after t=0 to another, ns. `off`: its
    machine is off; else only its connection is cut."""

    node: str
    from_ns: int
    to_ns: int
    off: bool


class Terrain(NamedTuple):
    """The targets of failures: nodes by name with labels, when each renews first (ns, from t=0),
    how often they renew, and how long a run is. `chance` draws for a node (or a group)."""

    labels: Mapping[str, Mapping[str, str]]
    first_renewal_ns: Mapping[str, int]
    renews_every_ns: int
    duration_ns: int
    chance: Callable[[str], random.Random]

    def groups(self, label: str) -> dict[str, list[str]]:
        """Nodes by the value of a label, in the order of values; those without it are in none."""
        groups: dict[str, list[str]] = {}
        for name, labels in sorted(self.labels.items()):
            if label in labels:
                groups.setdefault(labels[label], []).append(name)
        return dict(sorted(groups.items()))


class Independent(msgspec.Struct, frozen=True, tag="independent"):
    """Each machine fails by itself: times between failures, times until it is back."""

    mtbf: Law
    mttr: Law

    def silences(self, terrain: Terrain) -> Iterator[Silence]:
        """The silences of nodes in a run."""
        for name in sorted(terrain.labels):
            for begins, ends in _renewals(self.mtbf, self.mttr, terrain, terrain.chance(name)):
                yield Silence(name, begins, ends, True)


class Group(msgspec.Struct, frozen=True, tag="group"):
    """Machines of a group fail at once: each machine with probability `share`."""

    label: str
    mtbf: Law
    mttr: Law
    share: float = 1.0

    def silences(self, terrain: Terrain) -> Iterator[Silence]:
        """The silences of nodes in a run."""
        for value, nodes in terrain.groups(self.label).items():
            chance = terrain.chance(value)
            for begins, ends in _renewals(self.mtbf, self.mttr, terrain, chance):
                for name in nodes:
                    if chance.random() < self.share:
                        yield Silence(name, begins, ends, True)


class Flap(msgspec.Struct, frozen=True, tag="flap"):
    """A node's connection fails for a moment, over and over: its machine works."""

    every: Law
    silence: Law
    share: float = 1.0

    def silences(self, terrain: Terrain) -> Iterator[Silence]:
        """The silences of nodes in a run. `share`: of the nodes, those that flap at all."""
        for name in sorted(terrain.labels):
            chance = terrain.chance(name)
            if chance.random() >= self.share:
                continue
            for begins, ends in _renewals(self.every, self.silence, terrain, chance):
                yield Silence(name, begins, ends, False)


class LateHeartbeats(msgspec.Struct, frozen=True, tag="lateHeartbeats"):
    """Some renewals reach the API server late; the next one comes an interval after that."""

    delay: Law
    share: float

    def silences(self, terrain: Terrain) -> Iterator[Silence]:
        """The silences of nodes in a run."""
        every_ns = terrain.renews_every_ns
        for name, due_ns in sorted(terrain.first_renewal_ns.items()):
            chance = terrain.chance(name)
            while due_ns < terrain.duration_ns:
                late_ns = self.delay.draw(chance) if chance.random() < self.share else 0
                if late_ns and due_ns > MILLISECOND_NS:
                    yield Silence(name, due_ns - MILLISECOND_NS, due_ns + late_ns, False)
                due_ns += late_ns + every_ns


class Link(msgspec.Struct, frozen=True, tag="link"):
    """The connection of all nodes, or of a group of a label, is cut at once."""

    every: Law
    lasts: Law
    label: str = ""

    def silences(self, terrain: Terrain) -> Iterator[Silence]:
        """The silences of nodes in a run."""
        groups = terrain.groups(self.label) if self.label else {"": sorted(terrain.labels)}
        for value, nodes in groups.items():
            for begins, ends in _renewals(self.every, self.lasts, terrain, terrain.chance(value)):
                yield from (Silence(name, begins, ends, False) for name in nodes)


class RollingPower(msgspec.Struct, frozen=True, tag="rollingPower"):
    """Groups of a label are switched off one after the other, each so long after the one before."""

    label: str
    begins: Law
    gap: Law
    lasts: Law

    def silences(self, terrain: Terrain) -> Iterator[Silence]:
        """The silences of nodes in a run."""
        chance = terrain.chance("")
        at_ns = self.begins.draw(chance)
        for nodes in terrain.groups(self.label).values():
            lasts_ns = self.lasts.draw(chance)
            yield from (Silence(name, at_ns, at_ns + lasts_ns, True) for name in nodes)
            at_ns += self.gap.draw(chance)


class MachineOutage(NamedTuple):
    """One line of a trace: a machine that is down, from an instant to another, ns."""

    machine: str
    from_ns: int
    to_ns: int


class Trace(msgspec.Struct, frozen=True, tag="trace"):
    """Failures of recorded machines, given to nodes of the same name, or chosen by seed."""

    outages: tuple[MachineOutage, ...]
    by_name: bool = False
    offset_ns: int = 0

    def silences(self, terrain: Terrain) -> Iterator[Silence]:
        """The silences of nodes in a run."""
        machines = nodes = sorted(terrain.labels)
        if not self.by_name:
            machines = sorted({outage.machine for outage in self.outages})
            terrain.chance("").shuffle(nodes)
        stands_for = dict(zip(machines, nodes, strict=False))
        for outage in self.outages:
            name = stands_for.get(outage.machine)
            begins, ends = outage.from_ns - self.offset_ns, outage.to_ns - self.offset_ns
            if name is not None and ends > 0:
                yield Silence(name, max(MILLISECOND_NS, begins), ends, True)


Model = Independent | Group | Flap | LateHeartbeats | Link | RollingPower | Trace


def stream(study: str, model: str, seed: int) -> Callable[[str], random.Random]:
    """The streams of a model under a seed, one for each node or group that is named."""

    def chance(name: str) -> random.Random:
        key = f"{study}|{model}|{name}|{seed}".encode()
        return random.Random(int.from_bytes(sha256(key).digest()))

    return chance


def _renewals(
    between: Law, lasts: Law, terrain: Terrain, chance: random.Random
) -> Iterator[tuple[int, int]]:
    """Up and down in turns, from t=0: (begin, end) of each time that it is down."""
    at_ns = between.draw(chance)
    while at_ns < terrain.duration_ns:
        ends_ns = at_ns + lasts.draw(chance)
        yield at_ns, ends_ns
        at_ns = ends_ns + between.draw(chance)


MOST_SILENCES: Final = 500_000
"""In a run: a node that flaps each millisecond of a day would have 86 million."""


def merged(silences: Iterable[Silence], duration_ns: int) -> list[Silence]:
    """The silences of each node, merged where they overlap or touch; off if any of them is.

    Raises BadInput for more of them than can be played.
    """
    spans: list[Silence] = []
    drawn = list(islice(silences, MOST_SILENCES + 1))
    if len(drawn) > MOST_SILENCES:
        what = f"nodes would fail more than {MOST_SILENCES:,} times in a run"
        remedy = "let them fail less often, or shorten duration"
        raise BadInput(what, on="failures", remedy=remedy)
    in_run = (silence for silence in drawn if silence.from_ns < duration_ns)
    for new in sorted(in_run, key=lambda s: (s.node, s.from_ns, s.to_ns)):
        last = spans[-1] if spans else None
        if last is not None and last.node == new.node and new.from_ns <= last.to_ns:
            ends_ns, off = max(last.to_ns, new.to_ns), last.off or new.off
            spans[-1] = last._replace(to_ns=ends_ns, off=off)
        else:
            spans.append(new)
    return spans


def events_of(silences: Iterable[Silence]) -> list[ScenarioEvent]:
    """The events of a world, in the order of time and then of nodes."""
    in_order = sorted(sorted(silences, key=_NODE), key=_BEGIN)
    return [
        ScenarioEvent(
            s.from_ns,
            LoseEvent(Targets(nodes=(s.node,)), link=not s.off, for_ns=s.to_ns - s.from_ns),
            _PLACE,
        )
        for s in in_order
    ]
