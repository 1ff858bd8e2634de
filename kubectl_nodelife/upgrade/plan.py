"""The plan of an upgrade: which nodes are done, in which order, when, and how low the cluster gets.

There is no second set of rules: the run itself is played, by the upgrade controller on a copy of
the cluster, and the course is read off the records. Assumed is only what cannot be known: how long
the work takes and pods need to stop, that all work succeeds, and that nothing else fails meanwhile.
How much less or more time it may take is what the leader in the play foretells before its first
claim, as `upgrade status` shows it of a run under way.

Of several nodes with the best score kube-scheduler takes one by chance. A run is played with the
first of them each time; where that may decide, also with the last. A node that one of them alone
does may not be done, and the run takes as long as the quicker of them at least, and as the slower
one at most. Where pods leave by themselves that keep a node from being drained, the run is also
played with pods that stop at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.nodelifecycle.zones import is_excluded
from kubectl_nodelife.controllers.upgrade import claims
from kubectl_nodelife.controllers.upgrade.counts import NodeCounts, limits_of, zone_hold
from kubectl_nodelife.controllers.upgrade.fleet import NodeReading, read_node
from kubectl_nodelife.controllers.upgrade.marks import ANNOTATION, readable_mark
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode, longest_ns
from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.results import NEVER, REFUSED, Remedy
from kubectl_nodelife.drain.snapshot import PlanSnapshot, Scope
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import HOUR_NS, SECOND_NS, format_duration
from kubectl_nodelife.sim import events
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.sim.run import Progress, run
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Given, Scenario, assemble
from kubectl_nodelife.sim.upgrade_course import PlayedRun
from kubectl_nodelife.upgrade.answers import decider_for, drain_options
from kubectl_nodelife.upgrade.drain_answers import DrainFacts, drain_answer, node_drain
from kubectl_nodelife.upgrade.findings import (
    CLAIM,
    HOLD,
    REFUSED_BY,
    SKIP,
    TOO_FEW,
    UNDRAINABLE,
    UNHEALTHY,
    PlannedNode,
    PreflightFinding,
    UpgradeEstimate,
    UpgradePlan,
    find,
)

MOST_EXPLAINED: Final = 20
"""So many undrainable nodes are looked into for what unblocks them."""
GATE_PASSES: Final = "--gate: a plan does not run it, and takes it to pass"


def make_upgrade_plan(
    snapshot: PlanSnapshot,
    policy: UpgradePolicy,
    settings: Settings,
    progress: Progress = lambda done: None,
) -> UpgradePlan:
    """The plan for the cluster as it is. Raises BadInput for a policy that cannot be meant.
    `progress`: is called with the number of nodes that are done in the play so far.
    """
    return _Planning(snapshot, policy, settings, progress).plan()


class _Planning:
    def __init__(
        self, snapshot: PlanSnapshot, policy: UpgradePolicy, settings: Settings, progress: Progress
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._measured = claims.measured(filter(None, map(readable_mark, snapshot.nodes.values())))
        if self._measured.work_ns is not None:
            policy = replace(policy, expect_work_ns=self._measured.work_ns)
        self._policy = policy
        self._options = drain_options(policy)
        self._readings = {
            name: read_node(node, policy, counts=not is_excluded(node, settings))
            for name, node in sorted(snapshot.nodes.items())
        }
        readings = list(self._readings.values())
        self._selected = [reading.node for reading in readings if reading.is_selected]
        self._snapshot = _with_budget_statuses(snapshot, [node.name for node in self._selected])
        self._facts = DrainFacts.of(self._snapshot, self._options)
        self._control_planes = sum(reading.is_control_plane for reading in readings)
        now = (reading.counted_now(is_fresh=self._is_fresh(reading.node)) for reading in readings)
        self._at_start = NodeCounts.of(now, limits_of(policy))

    def plan(self) -> UpgradePlan:
        """Decide on each node, play the run, and look for what is to be said."""
        nodes = [self._decide(node) for node in self._selected]
        refusals = self._refusals(nodes)
        findings = self._window_findings()
        refusals += [finding.text for finding in findings]
        courses = self._play(nodes) if nodes and not refusals else [PlayedRun()]
        course = max(courses, key=_done)
        for node in nodes:
            _take_turn(node, course, refusals)
        _add_doubts(nodes, courses, _BY_CHANCE)
        if course.turns and self._leaves_by_itself(nodes):
            at_once = self._play_once(pod_stop_ns=0)
            _add_doubts([n for n in nodes if not n.by_chance], [course, at_once], _BY_STOPS)
        self._explain(nodes)
        further = find(self._snapshot, self._settings, self._policy, nodes)
        refusals += [finding.text for finding in further if finding.severity == REFUSED_BY]
        findings += further
        return UpgradePlan(
            policy=self._policy,
            nodes=nodes,
            course=course,
            estimate=self._estimate(courses) if course.turns else None,
            budgets=[self._at_start.budget(scope) for scope in self._at_start.scopes()],
            refusals=refusals,
            findings=findings,
            assumptions=self._assumptions() if course.turns else [],
            not_evaluated=[GATE_PASSES] if self._policy.gate else [],
        )

    # --- nodes -----------------------------------------------------------------------------------

    def _is_fresh(self, node: Node) -> bool:
        return self._snapshot.silent_kubelet(node.name) is None

    def _decide(self, node: Node) -> PlannedNode:
        reading, policy = self._readings[node.name], self._policy
        pods = self._snapshot.cache.pods_on(node.name)
        verdict = drain_answer(node_drain(node.name, pods, self._facts), self._facts)
        is_fresh, is_control_plane = self._is_fresh(node), reading.is_control_plane
        causes = (
            ("", _state_in_a_run(reading)),
            ("", claims.why_left_alone(node, policy)),
            (UNHEALTHY, claims.why_unhealthy(node, policy, lease_is_fresh=is_fresh)),
            (TOO_FEW, claims.why_too_few(self._control_planes) if is_control_plane else ""),
            (UNDRAINABLE, claims.why_undrainable(verdict, policy)),
        )
        left_out, reason = next((cause for cause in causes if cause[1]), ("", ""))
        decision = SKIP if reason else CLAIM
        return PlannedNode(
            node, reading.turn, reading.zone, decision, reason, verdict, left_out=left_out
        )

    def _refusals(self, nodes: Sequence[PlannedNode]) -> list[str]:
        """Why the run would not be started at all."""
        claimed = [node for node in nodes if node.decision == CLAIM]
        if not claimed:
            return []
        pools, counts = {node.pool for node in claimed}, self._at_start
        refusals = [
            counts.budget(scope).refusal()
            for scope in counts.scopes()
            if scope.pool in pools or scope.kind == "cluster"
        ]
        return [refusal for refusal in (*refusals, *self._dark_zones(claimed)) if refusal]

    def _dark_zones(self, claimed: Sequence[PlannedNode]) -> Iterator[str]:
        """Zones of which no node can go, however well the others are."""
        threshold = self._settings.unhealthy_zone_threshold
        sizes = Counter(reading.zone for reading in self._readings.values() if reading.counts)
        for zone in sorted({node.zone for node in claimed} & sizes.keys()):
            why = zone_hold(sizes[zone], 0, 0, threshold, allow_dark=self._policy.allow_dark_zone)
            if why:
                yield f"zone {zone or '(none)'}: {why}"

    def _explain(self, nodes: Sequence[PlannedNode]) -> None:
        """The planner's own sentence for nodes that cannot be drained, and what unblocks them."""
        stuck = [node for node in nodes if node.verdict.verdict in (NEVER, REFUSED)]
        for node in stuck[:MOST_EXPLAINED]:
            planned = make_plan(self._snapshot, [node.name], self._options)
            node.flags_needed = planned.flags_needed
            remedies = [pod.remedy for pod in planned.pods() if pod.remedy is not None]
            if not remedies and planned.flags_needed:
                flags = " ".join(planned.flags_needed)
                remedies = [Remedy(flags, "what the flag says, for every pod on every node")]
            node.remedies = list({remedy.change: remedy for remedy in remedies}.values())

    # --- the run ---------------------------------------------------------------------------------

    def _play(self, nodes: Sequence[PlannedNode]) -> list[PlayedRun]:
        """The course as expected; and that of other luck, where that may decide."""
        course = self._play_once(self._progress)
        claimed = sum(node.decision == CLAIM for node in nodes)
        if not _chance_may_decide(course, claimed, len(self._snapshot.nodes)):
            return [course]
        return [course, self._play_once(other_luck=True)]

    def _play_once(self, progress: Progress = lambda done: None, **otherwise: Any) -> PlayedRun:
        policy = self._policy
        mode = events.REPLACE if policy.work.mode is WorkMode.REPLACE else events.REBOOT
        what = events.UpgradeEvent(
            policy, events.WorkAssumptions(mode, claims.expected_work_ns(policy))
        )
        return play_run(self._snapshot, what, self._settings, progress, **otherwise)

    def _leaves_by_itself(self, nodes: Sequence[PlannedNode]) -> bool:
        """True if pods leave a node by themselves that cannot be drained now: in which order nodes
        go depends on whether these are gone by the first claim.
        """
        pods_on = self._snapshot.cache.pods_on
        return any(
            not node.node.is_ready
            or any(pod.metadata.deletion_timestamp for pod in pods_on(node.name))
            for node in nodes
            if node.left_out == UNDRAINABLE
        )

    def _estimate(self, courses: Sequence[PlayedRun]) -> UpgradeEstimate:
        """How long it takes at least and at most, in the courses that do the most nodes: as their
        leader foretold it, and by as much later, or sooner, as they came to their end. It counted
        nodes that are never claimed, too: the least is that of the share that is.
        """
        # A leader watches for one grace period before it claims.
        cold = self._settings.node_monitor_grace_period_ns / SECOND_NS
        best, lows, highs = max(courses, key=_done), [], []
        for course in courses:
            if _done(course) < _done(best):
                continue
            end, left = course.end_ns / SECOND_NS, course.foretold
            low, expected, high = (left.low, left.expected, left.high) if left else (end, end, end)
            share = min(1.0, len(course.turns) / left.nodes) if left else 1.0
            lows.append(cold + max(0.0, low * share + min(0.0, end - expected)))
            highs.append(cold + max(claims.SLACK * end, high + claims.SLACK * (end - expected)))
        return UpgradeEstimate(min(lows), cold + best.end_ns / SECOND_NS, max(highs), cold)

    # --- words -----------------------------------------------------------------------------------

    def _assumptions(self) -> list[str]:
        work, alone = claims.assumptions(self._policy, self._measured.nodes)
        renewals = (self._snapshot.renewal_ns(node.name) for node in self._selected)
        longest_ns = max((ns for ns in renewals if ns), default=None)
        _, middle, _ = claims.phase_times(self._policy, longest_ns)
        settle, prove = format_duration(middle.settle_ns), format_duration(middle.prove_ns)
        cold = format_duration(self._settings.node_monitor_grace_period_ns)
        return [
            work,
            f"a node is Ready again and checked in {settle}, and proven in {prove}",
            alone,
            "pods take their whole grace period to stop (the low end: none of it)",
            f"times count from {cold} after the start: no leader claims sooner",
        ]

    def _window_findings(self) -> list[PreflightFinding]:
        high_ns = claims.high_estimate_ns(self._policy, drain_seconds=0.0)
        longest = longest_ns(self._policy.window, self._snapshot.now_ns)
        text = (
            f"a node may take {format_duration(high_ns)} and its drain, the longest window is"
            f" {format_duration(longest)}: none is ever claimed"
        )
        is_short = self._policy.window and high_ns > longest
        return [PreflightFinding("windows", REFUSED_BY, text)] if is_short else []


def _take_turn(node: PlannedNode, course: PlayedRun, refusals: Sequence[str]) -> None:
    """Set the run's outcome for the node, beside what is against it beforehand."""
    turn = node.turn = course.turns.get(node.name)
    if turn is not None:
        node.decision, node.reason = SKIP if turn.restored else CLAIM, turn.restored
        if turn.failed and not turn.restored:
            node.reason = f"it would fail: {turn.failed}"
    elif node.decision == CLAIM:
        held = course.held.get(node.name)
        because = held.because if held is not None else "; ".join(refusals)
        node.decision = HOLD
        node.reason = because or "its turn never comes: nodes before it are held"


def _state_in_a_run(reading: NodeReading) -> str:
    """The mark that an upgrade has put on the node, in words; "" for none."""
    if not reading.is_readable:
        return f"annotation {ANNOTATION} cannot be read"
    mark = reading.mark
    return f"{mark.state} in run {mark.run}" if mark is not None else ""


def _with_budget_statuses(snapshot: PlanSnapshot, names: Sequence[str]) -> PlanSnapshot:
    """The cluster with a status for budgets that were written by hand and have none yet."""
    budgets = [ledger.budget for ledger in Scope(snapshot, names).world.disruption.ledgers.values()]
    written = [b for b in budgets if snapshot.find("PodDisruptionBudget", *b.key) is not b]
    return snapshot.changed(written) if written else snapshot


LONGEST_NS: Final = 366 * 24 * HOUR_NS
"""No run is played for longer."""


def play_run(
    snapshot: PlanSnapshot,
    what: events.UpgradeEvent,
    settings: Settings,
    progress: Progress = lambda done: None,
    *,
    other_luck: bool = False,
    pod_stop_ns: int | None = None,
) -> PlayedRun:
    """The course of the run on the cluster of the snapshot, which it begins at once; played until
    it is over or stands still for good. `pod_stop_ns`: None: pods stop as late as they may.
    """
    scenario = Scenario(
        file="",
        name="upgrade plan",
        profile=settings.profile,
        join=True,
        time_ns=snapshot.now_ns,
        duration_ns=LONGEST_NS,
        kubelet=KubeletTerms(pod_stop_ns=pod_stop_ns),
        events=(events.ScenarioEvent(0, what, FieldPath("the plan")),),
    )
    # The Lease of a run under way is not taken over: what is planned is another one.
    objects = (
        obj
        for obj in snapshot.cache.everything()
        if not (isinstance(obj, Lease) and obj.key == what.policy.lease_key)
    )
    read = snapshot.kinds_read
    kinds = frozenset(kind.name for kind in KINDS) if read is None else frozenset(read)
    given = Given(objects, kinds, snapshot.now_ns, settings.profile)
    played = run(
        assemble(scenario, given).under(settings),
        make_controllers(settings, scenario.controllers, pass_drift_ns=PASS_DRIFT_NS),
        make_decider=decider_for(settings, read, snapshot.release),
        until_upgraded=progress,
        other_luck=other_luck,
    )
    assert played.course is not None
    return played.course


FEW_NODES: Final = 20
"""In clusters of no more nodes other luck is played wherever a pod got its node by chance. In
larger ones single pods matter less to the time, so that there only a sign of trouble counts."""
_BY_CHANCE: Final = "if replacements land on other nodes of the same score"
_BY_STOPS: Final = "if pods stop at once"


def _chance_may_decide(course: PlayedRun, claimed: int, nodes: int) -> bool:
    """True if other luck may bring another end, or another time: of `claimed` nodes of a cluster of
    `nodes`."""
    if not course.by_chance:
        return False
    turns = course.turns.values()
    tried_again = any(turn.tried_ns != turn.claimed_ns for turn in turns)
    return nodes <= FEW_NODES or tried_again or bool(course.waiting) or _done(course) < claimed


def _add_doubts(nodes: Sequence[PlannedNode], courses: Sequence[PlayedRun], otherwise: str) -> None:
    """Say of the nodes which of them are done in some of the courses and not in others; `otherwise`
    says what brings another course, beginning with "if".
    """
    for node in nodes:
        doubtful = [course for course in courses if not course.does(node.name)]
        if not doubtful or len(doubtful) == len(courses):
            continue
        why = doubtful[0].why_not(node.name)
        if node.decision == CLAIM and not node.reason:
            node.reason = f"it may not be done {otherwise}" + (f": {why}" if why else "")
        else:
            node.reason += f"; it is done {otherwise}"
        node.by_chance = True


def _done(course: PlayedRun) -> int:
    return sum(map(course.does, course.turns))
