"""Models of failures: from a seed, which nodes are silent when, and whether their machines are off.

Each draws from streams of its own, one for each (seed, model, node), so that another model, another
node or another setting changes no other draw: points of a study are compared on the same failures.

The models, and where they come from: single machines and repairs (Schroeder and Gibson, DSN 2006);
groups that fail together, as racks and power domains do (Ford et al., "Availability in Globally
Distributed Storage Systems", OSDI 2010); short silences; renewals that come late, which a kubelet
makes an interval after the last one has *succeeded*
(component-helpers/apimachinery/lease/controller.go runs its sync by a sliding JitterUntil); a link;
power that is switched off group by group; a recorded trace.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.sim.events import LoseEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sweep.laws import Law

_PLACE: Final = FieldPath("study", "failures")
_NODE: Final = attrgetter("node")
_BEGIN: Final = attrgetter("from_ns")


class Silence(NamedTuple):
    """A node's kubelet is not heard of, from an instant after t=0 to another, ns. `off`: its
    machine is off; else only its connection is cut."""

    node: str
    from_ns: int
    to_ns: int
    off: bool


class Terrain(NamedTuple):
    """What failures hit: nodes by name with their labels, when each renews first after t=0 (ns),
    how often they renew, and how long a run is. `stands` draws for a node (or a group)."""

    labels: Mapping[str, Mapping[str, str]]
    first_renewal_ns: Mapping[str, int]
    renews_every_ns: int
    duration_ns: int
    chance: Callable[[str], random.Random]

    def groups(self, label: str) -> dict[str, list[str]]:
        """Nodes by the value of a label, in the order of values; those without it are in none."""
        found: dict[str, list[str]] = {}
        for name, labels in sorted(self.labels.items()):
            if label in labels:
                found.setdefault(labels[label], []).append(name)
        return dict(sorted(found.items()))


class Independent(msgspec.Struct, frozen=True, tag="independent"):
    """Each machine fails by itself: times between failures, times until it is back."""

    mtbf: Law
    mttr: Law

    def silences(self, terrain: Terrain) -> Iterator[Silence]:
        """What it does in a run."""
        for name in sorted(terrain.labels):
            for begins, ends in _renewals(self.mtbf, self.mttr, terrain, terrain.chance(name)):
                yield Silence(name, begins, ends, True)


class Group(msgspec.Struct, frozen=True, tag="group"):
    """Machines of a group fail at once: of each, with that probability."""

    label: str
    mtbf: Law
    mttr: Law
    share: float = 1.0

    def silences(self, terrain: Terrain) -> Iterator[Silence]:
        """What it does in a run."""
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
        """What it does in a run. `share`: of the nodes, those that flap at all."""
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
        """What it does in a run."""
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
        """What it does in a run."""
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
        """What it does in a run."""
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
    """What happened to recorded machines happens to nodes: of the same name, or chosen by seed."""

    outages: tuple[MachineOutage, ...]
    by_name: bool = False
    offset_ns: int = 0

    def silences(self, terrain: Terrain) -> Iterator[Silence]:
        """What it does in a run."""
        machines = sorted({outage.machine for outage in self.outages})
        nodes = sorted(terrain.labels)
        if self.by_name:
            stands_for = {name: name for name in nodes}
        else:
            terrain.chance("").shuffle(nodes)
            stands_for = dict(zip(machines, nodes, strict=False))
        for outage in self.outages:
            name = stands_for.get(outage.machine)
            begins = outage.from_ns - self.offset_ns
            ends = outage.to_ns - self.offset_ns
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


def merged(silences: Iterable[Silence], duration_ns: int) -> list[Silence]:
    """Those of each node, without overlaps: what touches is one, and off if some of it is."""
    found: list[Silence] = []
    for new in sorted(silences, key=lambda s: (s.node, s.from_ns, s.to_ns)):
        if new.from_ns >= duration_ns:
            continue
        last = found[-1] if found else None
        if last is not None and last.node == new.node and new.from_ns <= last.to_ns:
            ends_ns, off = max(last.to_ns, new.to_ns), last.off or new.off
            found[-1] = last._replace(to_ns=ends_ns, off=off)
        else:
            found.append(new)
    return found


def events_of(silences: Iterable[Silence]) -> list[ScenarioEvent]:
    """What happens in a world, in the order of time and then of nodes."""
    in_order = sorted(sorted(silences, key=_NODE), key=_BEGIN)
    return [
        ScenarioEvent(
            s.from_ns,
            LoseEvent(Targets(nodes=(s.node,)), link=not s.off, for_ns=s.to_ns - s.from_ns),
            _PLACE,
        )
        for s in in_order
    ]
