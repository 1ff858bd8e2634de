"""Waves of our own: which nodes go together, and in which order.

The whole set is cordoned first, so no replacement lands on a node that is still to be drained. A
wave holds at most so many nodes, so many of a zone, no more pods of a budget than it can spare at
once (a node that alone needs more goes without company under that budget), and no more than there
is room for. Nodes whose drain cannot end come last, each for itself. The next wave begins when the
replacements of the one before are Ready and its maintenance is over; with a maintenance, the nodes
take pods again then.

Greedy, in several orders; the shortest result counts (`bounds` tells how short it could be).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from kubectl_nodelife.drain.actors import Actor
from kubectl_nodelife.drain.admission import Admission
from kubectl_nodelife.drain.loads import NodeLoad, cap_of, node_loads
from kubectl_nodelife.drain.options import WaveOptions
from kubectl_nodelife.drain.play import Play, Wave
from kubectl_nodelife.drain.room import Room
from kubectl_nodelife.drain.scope import BudgetKey, Scope
from kubectl_nodelife.drain.timeline import Timeline
from kubectl_nodelife.drain.timing import Timing
from kubectl_nodelife.drain.world import World
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.drain import KubectlDrain
from kubectl_nodelife.sim.kubectl.options import DrainOptions

WAIT_STEP_NS: Final = SECOND_NS


class Remaining:
    """How much of each limit the nodes that are left still need, in waves."""

    def __init__(
        self, loads: Iterable[NodeLoad], caps: dict[BudgetKey, int], waves: WaveOptions
    ) -> None:
        self._caps = caps
        self._waves = waves
        self._budgets: dict[BudgetKey, int] = {}
        self._zones: dict[str, int] = {}
        for load in loads:
            self._zones[load.zone] = self._zones.get(load.zone, 0) + 1
            for key, count in load.budgets.items():
                self._budgets[key] = self._budgets.get(key, 0) + min(count, caps[key])

    def remove(self, load: NodeLoad) -> None:
        """A node found its wave."""
        self._zones[load.zone] -= 1
        for key, count in load.budgets.items():
            self._budgets[key] -= min(count, self._caps[key])

    def needs(self) -> dict[object, float]:
        """The waves that each limit still needs, by budget and by zone."""
        needed: dict[object, float] = {
            key: count / self._caps[key] for key, count in self._budgets.items()
        }
        if self._waves.max_per_zone is not None:
            for zone, count in self._zones.items():
                needed[zone] = count / self._waves.max_per_zone
        return needed


Rank = Callable[[list[float], float], tuple[float, ...]]
"""From the needs of a node's limits, and the largest share of a budget that it takes, to a key by
which nodes are sorted; the smallest goes first."""

RANKS: Final[tuple[Rank, ...]] = (
    lambda needs, share: (-max(needs, default=0), -share, -sum(needs)),
    lambda needs, share: (-sum(needs), -max(needs, default=0)),
    lambda needs, share: (-share, -max(needs, default=0), -sum(needs)),
    lambda needs, share: (-len(needs), -sum(needs)),
)


def cut_waves(
    scope: Scope,
    options: DrainOptions,
    waves: WaveOptions,
    admission: Admission,
    at_least: int,
    stuck: Collection[str] = (),
) -> list[list[str]]:
    """The nodes of each wave.

    `at_least`: no result is shorter, so the search may stop there. `stuck`: nodes that a run has
    shown to hold up their wave.
    """
    loads = node_loads(scope, options, admission)
    good = [load for load in loads if not load.blocked and load.name not in stuck]
    # A node that kubectl refuses ends at once; one that never ends is tried behind those.
    last = [load for load in loads if load.blocked or load.name in stuck]
    blocked = [[load.name] for load in sorted(last, key=lambda load: not load.refused)]
    caps = {key: max(1, cap_of(scope, key)) for load in good for key in load.budgets}
    best: list[list[str]] | None = None
    for rank in RANKS:
        found = _cut(good, caps, waves, Room(scope.terrain, scope.nodes, waves), rank)
        if best is None or len(found) < len(best):
            best = found
        if len(best) + len(blocked) <= at_least:
            break
    return (best or []) + blocked


def _cut(
    loads: list[NodeLoad],
    caps: dict[BudgetKey, int],
    waves: WaveOptions,
    room: Room,
    rank: Rank,
) -> list[list[str]]:
    """Wave after wave, the nodes that are hardest to place first."""
    left = Remaining(loads, caps, waves)
    shares = {load.name: _share(load, caps) for load in loads}
    waiting = list(loads)
    result: list[list[str]] = []
    while waiting:
        needs = left.needs()
        keys = {
            load.name: (*rank(_needs_of(load, needs), shares[load.name]), load.name)
            for load in waiting
        }
        waiting.sort(key=lambda load: keys[load.name])
        wave = _Filling(caps, waves, room)
        taken = [load for load in waiting if wave.take(load)]
        if not taken:  # no room even for one: it has to be tried, and the run will tell
            taken = waiting[:1]
            wave.force(taken[0])
        for load in taken:
            left.remove(load)
        names = {load.name for load in taken}
        waiting = [load for load in waiting if load.name not in names]
        room.next_wave(taken)
        result.append([load.name for load in taken])
    return result


def _share(load: NodeLoad, caps: dict[BudgetKey, int]) -> float:
    return max((count / caps[key] for key, count in load.budgets.items()), default=0.0)


def _needs_of(load: NodeLoad, needs: dict[object, float]) -> list[float]:
    found = [needs[key] for key in load.budgets]
    if load.zone in needs:
        found.append(needs[load.zone])
    return found


class _Filling:
    """One wave while it is filled."""

    def __init__(self, caps: dict[BudgetKey, int], waves: WaveOptions, room: Room) -> None:
        self._caps = caps
        self._waves = waves
        self._room = room
        self._count = 0
        self._zones: dict[str, int] = {}
        self._budgets: dict[BudgetKey, int] = {}

    def take(self, load: NodeLoad) -> bool:
        """Add the node if every limit allows it."""
        limit = self._waves.max_per_zone
        if self._count >= self._waves.max_parallel:
            return False
        if limit is not None and self._zones.get(load.zone, 0) >= limit:
            return False
        for key, count in load.budgets.items():
            used = self._budgets.get(key, 0)
            if used and used + count > self._caps[key]:
                return False
        if not self._room.holds(load):
            return False
        self.force(load)
        return True

    def force(self, load: NodeLoad) -> None:
        """Add the node."""
        self._count += 1
        self._zones[load.zone] = self._zones.get(load.zone, 0) + 1
        for key, count in load.budgets.items():
            self._budgets[key] = self._budgets.get(key, 0) + count
        self._room.take(load)


# --- playing them --------------------------------------------------------------------------------


def play_waves(
    scope: Scope,
    admission: Admission,
    options: DrainOptions,
    waves: WaveOptions,
    cut: list[list[str]],
    timing: Timing,
    cordoned: Iterable[str] = (),
) -> Play:
    """The waves on the virtual clock: a kubectl process for each node of a wave, at once.

    `cordoned`: nodes that are part of the plan besides, where only some waves are played.
    """
    timeline = Timeline()
    world = World(scope, admission, timing, timeline)
    world.cordon(*cordoned)
    conductor = _Conductor(world, options, waves, cut)
    conductor.begin()
    timeline.run(conductor.settled, conductor.answered)
    play = Play(scope, options, world, end_ns=conductor.ended_ns)
    play.runs = {run.name: run for process in conductor.processes for run in process.runs}
    play.waves = conductor.result()
    return play


class _Conductor:
    """Starts wave after wave."""

    def __init__(
        self, world: World, options: DrainOptions, waves: WaveOptions, cut: list[list[str]]
    ) -> None:
        self._world = world
        self._timeline = world.timeline
        self._options = options
        self._waves = waves
        self._cut = cut
        self._running: list[KubectlDrain[Actor]] = []
        self._left = 0
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.processes: list[KubectlDrain[Actor]] = []
        self.ended_ns: int | None = None

    def begin(self) -> None:
        """All nodes are cordoned, then the first wave starts."""
        self._world.cordon(*(name for wave in self._cut for name in wave))
        self._next()

    def _next(self) -> None:
        now_ns = self._timeline.now_ns
        if len(self._starts) == len(self._cut):
            self.ended_ns = self._ends[-1] if self._ends else now_ns
            return
        names = self._cut[len(self._starts)]
        self._starts.append(now_ns)
        self._left = len(names)
        self._running = [
            KubectlDrain(
                self._world,
                self._options,
                (name,),
                self._world.timing.requests,
                on_end=self._one_ended,
            )
            for name in names
        ]
        self.processes += self._running
        for process in self._running:
            process.start(now_ns, cordon=False)

    def _one_ended(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._await_replacements()

    def _await_replacements(self) -> None:
        """The next wave waits for every replacement that will be Ready at all."""
        now_ns = self._timeline.now_ns
        if any(self._will_be_ready(actor) for actor in self._evicted()):
            self._timeline.at(now_ns + WAIT_STEP_NS, self._await_replacements)
            return
        self._ends.append(now_ns)
        self._timeline.at(now_ns + self._waves.maintenance_ns, self._maintained)

    def _evicted(self) -> Iterable[Actor]:
        for process in self._running:
            for run in process.runs:
                for target in run.targets:
                    yield target.actor

    def _will_be_ready(self, actor: Actor) -> bool:
        replacement = actor.replacement
        if replacement is None or replacement.ready or not replacement.node:
            return False
        return self._world.scope.history.time_to_ready(replacement.pod) is not None

    def _maintained(self) -> None:
        if self._waves.maintenance_ns:
            self._world.uncordon(*self._cut[len(self._starts) - 1])
        self._next()

    def settled(self) -> bool:
        """Nothing moves: whether every process of the wave is done for."""
        if self.ended_ns is not None:
            return True
        done = True
        for process in self._running:
            # Each is asked: one with a deadline is brought to its end by the question.
            done = process.settled() and done
        return done

    def answered(self) -> bool:
        """Whether every process of the wave only asks what was answered before."""
        return all(process.answered() for process in self._running)

    def result(self) -> list[Wave]:
        """The waves with their instants."""
        return [
            Wave(
                tuple(names),
                self._starts[i] if i < len(self._starts) else None,
                self._ends[i] if i < len(self._ends) else None,
            )
            for i, names in enumerate(self._cut)
        ]
