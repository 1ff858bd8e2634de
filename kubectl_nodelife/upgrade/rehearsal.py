"""How long a run takes of which nothing is known but its nodes: played node by node on a clock.

What is left of a run under way is counted so (`remaining.py`), and how much shorter or longer than
expected a planned one may be (`forecast.py`). What the run does to whom is not: that is played
with pods (`forecast.py`). Who is claimed when is decided by the controller's own functions
(`controllers/upgrade`: the stage of a pool, the choice among candidates, counts, zone brake,
windows); how long a drain takes is told, all work succeeds, and there is always room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.claims import (
    SLOTS,
    ClaimHold,
    ClaimStage,
    PoolPlace,
    StepOutcome,
    UpgradeCandidate,
    choose_claims,
    claim_order,
    is_growing,
    next_step,
    pool_order,
    stage_of,
    step_width,
)
from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    CORDONED,
    CountedNode,
    NodeCounts,
    ZoneCounts,
    pool_scope,
    zone_hold,
)
from kubectl_nodelife.controllers.upgrade.expected import PhaseTimes, high_estimate_ns
from kubectl_nodelife.controllers.upgrade.marks import TAKEN, NodeState
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.controllers.upgrade.windows import Window, fits, longest_ns, opens_ns
from kubectl_nodelife.drain.clock import PlanClock
from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.sim.upgrade_course import Course, CourseStep, LowPoint, NodeTurn

CONTROL_PLANE: Final = "control plane"
"""The pool of control-plane nodes: they come last, one at a time, and count in no scope."""


class BegunNode(NamedTuple):
    """A node in flight: its state, and for how long it has been in it, ns."""

    name: str
    pool: str
    zone: str
    state: NodeState
    spent_ns: int


@dataclass(slots=True)
class RehearsedRun:
    """The run to play. `nodes`: all nodes that count; `zone_of`: the zone key of each that counts
    for the lifecycle controller; `not_ready`: those that are not Ready. `now_ns`: the moment of the
    first claim. Of a run under way, `begun`: the nodes in flight, which are counted as available in
    `counts`; `place`: where the run is in the pool that comes first.
    """

    policy: UpgradePolicy
    candidates: Sequence[UpgradeCandidate]
    nodes: Sequence[CountedNode]
    counts: NodeCounts
    zone_of: Mapping[str, str] = field(default_factory=dict)
    not_ready: frozenset[str] = frozenset()
    zone_threshold: float = 0.55
    windows: Sequence[Window] = ()
    now_ns: int = 0
    begun: Sequence[BegunNode] = ()
    place: PoolPlace | None = None


def rehearse(run: RehearsedRun, drains_ns: Mapping[str, int], times: PhaseTimes) -> Course:
    """The course of the run. `drains_ns`: how long the drain of each node takes; 0 of others."""
    return _Rehearsal(run, drains_ns, times).play()


class _Rehearsal:
    def __init__(self, run: RehearsedRun, drains_ns: Mapping[str, int], times: PhaseTimes) -> None:
        self._run, self._policy, self._counts = run, run.policy, run.counts
        self._drains_ns, self._times = drains_ns, times
        self._timeline = PlanClock()
        self._course = Course()
        self._by_name = {node.name: node for node in run.nodes}
        by_pool: dict[str, list[UpgradeCandidate]] = {}
        for candidate in run.candidates:
            by_pool.setdefault(candidate.pool, []).append(candidate)
        for node in run.begun:
            by_pool.setdefault(node.pool, [])
        last = [pool for pool in by_pool if pool == CONTROL_PLANE]
        others = [pool for pool in by_pool if pool != CONTROL_PLANE]
        pools = [*pool_order(others, self._policy.pools), *last]
        if run.place is not None:
            pools.sort(key=lambda pool: pool != run.place.pool)  # type: ignore[union-attr]
        self._pools = [(p, claim_order(by_pool[p], self._policy.canary_nodes)) for p in pools]
        self._waiting: dict[str, UpgradeCandidate] = {}
        self._in_flight: dict[str, str] = {}
        self._zones = RehearsedZones(
            run.zone_of, run.not_ready, run.zone_threshold, allow_dark=run.policy.allow_dark_zone
        )
        self._holds = RehearsedHolds(run, self._timeline, self._zones, self._pass_soon)
        self._place = PoolPlace("")
        self._soaks = self._filed = self._over = False
        self._shown = {pool for pool, _ in self._pools}

    def play(self) -> Course:
        """From the first claim to the last node's end."""
        for node in self._run.begun:
            self._go_on(node)
        self._note_counts()
        self._next_pool()
        if self._run.place is not None and self._run.place.pool == self._place.pool:
            self._place = self._run.place
        self._pass_soon()
        self._timeline.run(lambda: True)
        for name in self._waiting:
            self._course.held.setdefault(name, ClaimHold("", ""))
        ends = [turn.done_ns or turn.claimed_ns for turn in self._course.turns.values()]
        self._course.end_ns = max(ends, default=0)
        return self._course

    # --- whose turn it is ------------------------------------------------------------------------

    def _pass_soon(self) -> None:
        if not self._filed:
            self._filed = True
            self._timeline.at(self._timeline.now_ns, self._pass)

    def _pass(self) -> None:
        """What the controller would do now."""
        self._filed = False
        while not self._over:
            of_pool = list(self._waiting.values())
            policy = self._policy
            stage = stage_of(
                self._place, of_pool, self._in_flight, policy.canary_width, policy.zones
            )
            if not stage.over:
                if stage.soak and not self._soaks:
                    self._soak()
                if stage.wanted and not self._soaks:
                    self._claim(stage, of_pool)
                return
            if not self._next_pool():
                return

    def _next_pool(self) -> bool:
        """Go on with the next pool; whether there is one."""
        self._end_step()
        if not self._pools:
            self._over = True
            return False
        pool, candidates = self._pools.pop(0)
        self._waiting = {candidate.name: candidate for candidate in candidates}
        self._place = PoolPlace(pool)
        return True

    def _soak(self) -> None:
        """Nobody is in flight: wait, then the next step or zone begins."""
        self._soaks = True
        self._end_step(self._policy.soak_ns)
        self._timeline.at(self._timeline.now_ns + self._policy.soak_ns, self._soaked)

    def _soaked(self) -> None:
        self._soaks = False
        place, policy = self._place, self._policy
        if place.step is None:
            waiting = {c.zone for c in self._waiting.values()}
            self._place = place._replace(zones=place.zones | set(sorted(waiting)[:1]))
        else:
            turns = [self._course.turns.get(name) for name in place.named]
            done = sum(1 for turn in turns if turn is None or not turn.restored)
            step = next_step(place.step, StepOutcome(done, failed=0))
            most = self._counts.budget(pool_scope(place.pool)).most_unavailable
            grows = is_growing(step, policy.canary_width, most, policy.max_parallel)
            self._place = PoolPlace(place.pool, step if grows else None)
        self._pass_soon()

    def _end_step(self, soak_ns: int = 0) -> None:
        if self._course.steps and self._course.steps[-1].end_ns is None:
            self._course.steps[-1].end_ns = self._timeline.now_ns
            self._course.steps[-1].soak_ns = soak_ns

    # --- claims ----------------------------------------------------------------------------------

    def _claim(self, stage: ClaimStage, of_pool: Sequence[UpgradeCandidate]) -> None:
        wanted = min(stage.wanted, self._slots())
        first = self._policy.canary_nodes if self._place.step == 0 else ()
        candidates = [c for c in of_pool if c.zone in stage.zones or c.name in first]
        if wanted:
            claimed, held = choose_claims(
                candidates,
                self._counts,
                self._holds.of,
                wanted,
                len(self._in_flight),
                self._policy.max_parallel,
            )
            for name in claimed:
                self._begin(self._waiting.pop(name))
            self._course.held |= held
            if claimed:
                self._note_counts()
        elif not self._in_flight:
            for candidate in candidates:
                because = self._counts.hold(candidate.name)
                self._course.held[candidate.name] = ClaimHold("slots", because)

    def _slots(self) -> int:
        """The pool's and the cluster's; a node that is unavailable already needs none."""
        if self._place.pool == CONTROL_PLANE:
            return 0 if self._in_flight else 1
        if any(not self._by_name[name].available for name in self._waiting):
            return len(self._waiting)
        scopes = (CLUSTER, pool_scope(self._place.pool))
        return min(self._counts.budget(scope).slots for scope in scopes)

    def _begin(self, candidate: UpgradeCandidate) -> None:
        now_ns, name, place = self._timeline.now_ns, candidate.name, self._place
        self._course.held.pop(name, None)
        steps = self._course.steps
        if not steps or steps[-1].end_ns is not None:
            width = 0 if place.step is None else step_width(place.step, self._policy.canary_width)
            steps.append(CourseStep(place.pool, width, now_ns))
        steps[-1].names.append(name)
        if candidate.zone not in steps[-1].zones:
            steps[-1].zones.append(candidate.zone)
        zones = place.zones | {candidate.zone} if place.step is None else place.zones
        self._place = place._replace(named=place.named | {name}, zones=zones)
        turn = NodeTurn(name, candidate.pool, candidate.zone, len(steps) - 1, now_ns)
        self._course.turns[name] = turn
        self._in_flight[name] = candidate.zone
        self._drain(name)

    def _go_on(self, node: BegunNode) -> None:
        """Take over a node in flight, with what is left of its state."""
        turn = NodeTurn(node.name, node.pool, node.zone, 0, 0)
        self._course.turns[node.name] = turn
        self._in_flight[node.name] = node.zone
        times = self._times
        left: dict[NodeState, tuple[int, Callable[[NodeTurn], None]]] = {
            NodeState.WORKING: (times.work_ns, self._worked),
            NodeState.SETTLING: (times.settle_ns, self._settled),
            NodeState.PROVING: (times.prove_ns, self._released),
            NodeState.SOAKING: (self._policy.node_soak_ns, self._done),
        }
        if node.state in TAKEN:
            self._counts.claim(node.name)
        if node.state not in (NodeState.PROVING, NodeState.SOAKING):
            self._zones.take(node.name)
        if node.state is NodeState.DRAINING:
            self._drain(node.name)
        else:
            length_ns, ended = left[node.state]
            self._timeline.at(max(0, length_ns - node.spent_ns), ended, turn)

    # --- a node's turn ---------------------------------------------------------------------------

    def _drain(self, name: str) -> None:
        at_ns = self._timeline.now_ns + self._drains_ns.get(name, 0)
        self._timeline.at(at_ns, self._drained, name)

    def _drained(self, name: str) -> None:
        turn, now_ns = self._course.turns[name], self._timeline.now_ns
        turn.drained_ns = now_ns
        if self._policy.work.mode is WorkMode.REPLACE:
            self._zones.leave(name)
        self._timeline.at(now_ns + self._times.work_ns, self._worked, turn)
        self._pass_soon()

    def _worked(self, turn: NodeTurn) -> None:
        turn.worked_ns = self._timeline.now_ns
        self._zones.come_back(turn.name)
        self._timeline.at(turn.worked_ns + self._times.settle_ns, self._settled, turn)

    def _settled(self, turn: NodeTurn) -> None:
        turn.settled_ns = self._timeline.now_ns
        self._zones.give_back(turn.name)
        self._timeline.at(turn.settled_ns + self._times.prove_ns, self._released, turn)
        self._pass_soon()  # its zone is one node better off

    def _released(self, turn: NodeTurn) -> None:
        turn.released_ns = self._timeline.now_ns
        self._back_in_service(turn.name)
        self._timeline.at(turn.released_ns + self._policy.node_soak_ns, self._done, turn)
        self._pass_soon()

    def _done(self, turn: NodeTurn) -> None:
        turn.done_ns = self._timeline.now_ns
        self._leave(turn.name)

    def _back_in_service(self, name: str) -> None:
        self._zones.give_back(name)
        self._counts.put(self._by_name[name])
        self._note_counts()

    def _leave(self, name: str) -> None:
        del self._in_flight[name]
        self._pass_soon()

    # --- how low it gets -------------------------------------------------------------------------

    def _note_counts(self) -> None:
        now_ns, course = self._timeline.now_ns, self._course
        total = sum(self._counts.budget(pool_scope(pool)).available for pool in self._shown)
        if course.available and course.available[-1][0] == now_ns:
            course.available.pop()
        course.available.append((now_ns, total))
        for scope in self._counts.scopes():
            available = self._counts.budget(scope).available
            low = course.lowest.get(scope)
            if low is None or available < low.available:
                course.lowest[scope] = LowPoint(available, now_ns)


class RehearsedZones:
    """How many nodes of each zone are out by the run, and how many by themselves.

    `zone_of`: the zone of each node that counts; `not_ready`: those that are not Ready at the
    start, and stay so.
    """

    def __init__(
        self,
        zone_of: Mapping[str, str],
        not_ready: Collection[str],
        threshold: float,
        *,
        allow_dark: bool,
    ) -> None:
        self._zone_of = zone_of
        self._not_ready = frozenset(not_ready)
        self._threshold = threshold
        self._allow_dark = allow_dark
        self._sizes = Counter(zone_of.values())
        self._sick = Counter(zone_of[name] for name in self._not_ready if name in zone_of)
        self._out: set[str] = set()
        self._gone: set[str] = set()
        self._ours: Counter[str] = Counter()

    def hold(self, name: str) -> str:
        """Why one node more of its zone must not go; "" where it may."""
        zone = self._zone_of.get(name)
        if zone is None:
            return ""
        sick = self._sick[zone] - (name in self._not_ready)
        counts = ZoneCounts(self._sizes[zone], sick, self._ours[zone])
        return zone_hold(counts, self._threshold, allow_dark=self._allow_dark)

    def take(self, name: str) -> None:
        """The node is out of service, and counts as ours."""
        if name in self._zone_of and name not in self._out:
            self._out.add(name)
            self._ours[self._zone_of[name]] += 1
            self._sick[self._zone_of[name]] -= name in self._not_ready

    def leave(self, name: str) -> None:
        """The node's object goes: its zone is smaller until `come_back`."""
        if name in self._out:
            self.give_back(name)
            self._sizes[self._zone_of[name]] -= 1
            self._gone.add(name)

    def come_back(self, name: str) -> None:
        """Its newcomer is there, and not yet well."""
        if name in self._gone:
            self._gone.remove(name)
            self._sizes[self._zone_of[name]] += 1
            self.take(name)

    def give_back(self, name: str) -> None:
        """The node is well."""
        if name in self._out:
            self._out.remove(name)
            self._ours[self._zone_of[name]] -= 1


class RehearsedHolds:
    """In the order of `controllers/upgrade/claiming.py`. `look_again`: is called when the next
    window opens that a candidate waits for.
    """

    def __init__(
        self,
        run: RehearsedRun,
        clock: PlanClock,
        zones: RehearsedZones,
        look_again: Callable[[], None],
    ) -> None:
        self._run, self._clock, self._zones = run, clock, zones
        self._nodes = {node.name: node for node in run.nodes}
        self._look_again = look_again
        self._longest_window_ns = longest_ns(run.windows, run.now_ns)

    def of(self, candidate: UpgradeCandidate) -> ClaimHold | None:
        """The reason that holds the candidate; without one, those behind it are judged next."""
        name = candidate.name
        if self._nodes[name].unavailable == CORDONED and not self._has_slot(name):
            return ClaimHold(SLOTS, "cordoned nodes do not go first where no slot is free")
        because = self._zones.hold(name)
        if because:
            return ClaimHold("zone", because)
        because = self._by_window(candidate)
        if because:
            return ClaimHold("window", because)
        self._zones.take(name)
        return None

    def _has_slot(self, name: str) -> bool:
        """True if every scope of the node has one."""
        return all(self._run.counts.budget(scope).slots for scope in self._nodes[name].scopes)

    def _by_window(self, candidate: UpgradeCandidate) -> str:
        """Why no window is open for long enough; "" where one is. The next one is waited for."""
        run = self._run
        high_ns = high_estimate_ns(run.policy, candidate.drain_seconds)
        now_ns = run.now_ns + self._clock.now_ns
        if fits(run.windows, now_ns, high_ns):
            return ""
        opens = opens_ns(run.windows, now_ns)
        if opens is not None and high_ns <= self._longest_window_ns:
            self._clock.at(opens - run.now_ns, self._look_again)
        return f"no window is open for the {format_duration(high_ns)} that it may take"
