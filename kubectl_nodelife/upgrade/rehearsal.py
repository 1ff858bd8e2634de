"""A run played beforehand on a virtual clock, node by node: who is claimed when, and how it ends.

Which nodes are claimed is decided by the controller's own functions (`controllers/upgrade`: the
stage of a pool, the choice among candidates, counts, zone brake, windows); what is assumed here is
only how long a node's phases take. Every piece of work succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kubectl_nodelife.controllers.upgrade.claims import (
    ClaimHold,
    ClaimStage,
    PoolPlace,
    choose_claims,
    stage_of,
)
from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    pool_scope,
)
from kubectl_nodelife.controllers.upgrade.expected import PhaseTimes
from kubectl_nodelife.controllers.upgrade.growth import (
    StepOutcome,
    is_growing,
    next_step,
    step_width,
)
from kubectl_nodelife.controllers.upgrade.marks import TAKEN, NodeState
from kubectl_nodelife.controllers.upgrade.order import UpgradeCandidate, claim_order, pool_order
from kubectl_nodelife.controllers.upgrade.policy import WorkMode
from kubectl_nodelife.controllers.upgrade.skipping import REFILLS_NS
from kubectl_nodelife.upgrade.course import Course, CourseStep, LowPoint, NodeTurn
from kubectl_nodelife.upgrade.drain_driver import DrainDriver
from kubectl_nodelife.upgrade.rehearsed_holds import BY_BUDGET, BY_ROOM, RehearsedHolds
from kubectl_nodelife.upgrade.rehearsed_room import RehearsedRoom
from kubectl_nodelife.upgrade.rehearsed_run import BegunNode, RehearsedRun
from kubectl_nodelife.upgrade.rehearsed_zones import RehearsedZones

CONTROL_PLANE: Final = "control plane"
"""The pool of control-plane nodes: they come last, one at a time, and count in no scope."""
_AT_THE_END: Final = 1 << 62


def rehearse(run: RehearsedRun, drains: DrainDriver, times: PhaseTimes) -> Course:
    """The course of the run."""
    return _Rehearsal(run, drains, times).play()


class _Rehearsal:
    def __init__(self, run: RehearsedRun, drains: DrainDriver, times: PhaseTimes) -> None:
        self._run, self._policy, self._counts = run, run.policy, run.counts
        self._drains, self._times = drains, times
        self._timeline = drains.timeline
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
        self._room = RehearsedRoom(drains, run.policy.low_water, self._in_service, self._course)
        self._holds = RehearsedHolds(run, drains, self._zones, self._room, self._pass_soon)
        self._passed: dict[str, tuple[ClaimHold, int]] = {}
        """Nodes that wait for their own budgets or for room, and when they are looked at again."""
        self._place = PoolPlace("")
        self._soaks = self._filed = self._over = False
        self._passed_until_ns: int | None = None
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
        self._timeline.run(self._drains.settled)
        for name in self._waiting:
            hold, _ = self._passed.get(name, (ClaimHold("", ""), 0))
            self._course.held.setdefault(name, hold)
        ends = [turn.done_ns or turn.claimed_ns for turn in self._course.turns.values()]
        self._course.end_ns = max(ends, default=0)
        self._drains.close(self._course)
        return self._course

    # --- whose turn it is ------------------------------------------------------------------------

    def _pass_soon(self) -> None:
        if not self._filed:
            self._filed = True
            self._timeline.at(self._timeline.now_ns, self._pass)

    def _pass(self) -> None:
        """What the controller would do now."""
        self._filed, now_ns = False, self._timeline.now_ns
        for name in [name for name, (_, again_ns) in self._passed.items() if again_ns <= now_ns]:
            del self._passed[name]
        while not self._over:
            of_pool = [c for c in self._waiting.values() if c.name not in self._passed]
            policy = self._policy
            stage = stage_of(
                self._place, of_pool, self._in_flight, policy.canary_width, policy.zones
            )
            if stage.over and self._come_again():
                return
            if not stage.over:
                if stage.soak and not self._soaks:
                    self._soak()
                if stage.wanted and not self._soaks:
                    self._claim(stage, of_pool)
                return
            if not self._next_pool():
                return

    def _come_again(self) -> bool:
        """Nodes passed over are looked at again, for `drain-timeout` at most."""
        if not self._passed:
            return False
        now_ns = self._timeline.now_ns
        if self._passed_until_ns is None:
            self._passed_until_ns = now_ns + self._policy.drain_timeout_ns
            self._timeline.at(self._passed_until_ns, self._pass_soon)
            for name in [n for n, (_, again_ns) in self._passed.items() if again_ns == _AT_THE_END]:
                del self._passed[name]
            self._pass_soon()
        if now_ns < self._passed_until_ns:
            return True
        for name, (hold, _) in self._passed.items():
            self._course.held[name] = hold
            self._waiting.pop(name, None)
        self._passed.clear()
        return False

    def _next_pool(self) -> bool:
        """Go on with the next pool; whether there is one."""
        self._end_step()
        self._passed_until_ns = None
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
            waiting = {c.zone for c in self._waiting.values() if c.name not in self._passed}
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
            self._pass_over({n: hold for n, hold in held.items() if hold.by == BY_BUDGET})
            if not self._in_flight:
                self._pass_over_roomless(held)
        elif not self._in_flight:
            for candidate in candidates:
                because = self._counts.hold(candidate.name)
                self._course.held[candidate.name] = ClaimHold("slots", because)

    def _pass_over(self, held: Mapping[str, ClaimHold]) -> None:
        """Others go first until it is known whether the budgets of these have refilled."""
        if held:
            again_ns = self._timeline.now_ns + REFILLS_NS
            self._passed |= {name: (hold, again_ns) for name, hold in held.items()}
            self._timeline.at(again_ns, self._pass_soon)
            self._pass_soon()

    def _pass_over_roomless(self, held: Mapping[str, ClaimHold]) -> None:
        """Pods find no room though nobody is out of service: others go first."""
        short = {name: hold for name, hold in held.items() if hold.by == BY_ROOM}
        if short:
            self._passed |= {name: (hold, _AT_THE_END) for name, hold in short.items()}
            self._pass_soon()

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
        self._drains.begin(name, self._drained)

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
            self._drains.begin(node.name, self._drained)
        else:
            length_ns, ended = left[node.state]
            self._timeline.at(max(0, length_ns - node.spent_ns), ended, turn)

    # --- a node's turn ---------------------------------------------------------------------------

    def _drained(self, name: str, drained: bool) -> None:
        turn, now_ns = self._course.turns[name], self._timeline.now_ns
        if not drained:
            turn.restored, turn.done_ns = True, now_ns
            self._back_in_service(name)
            self._leave(name)
            return
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
        self._drains.release(name)
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
        self._room.note()

    def _in_service(self) -> list[str]:
        """The nodes that are available and not out of service by the run."""
        out = self._in_flight
        return [n.name for n in self._run.nodes if n.available and n.name not in out]
