"""The plan of an upgrade as values, and the course of a run to come: the upgrade controller itself,
played on a copy of the cluster.

There is no second set of rules. The virtual cluster of every scenario begins with the objects that
were read, its controllers join, `upgrade start` is given, and the course is read off the
records. Assumed is only what cannot be known: how long the work takes and pods need to stop, that
all work succeeds, and that nothing else fails meanwhile.

It is played once, with what is expected. How much less or more time it may take follows from how
much less or more each phase of each node may, in the order in which they were played.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.claims import SLACK, PhaseTimes, expected_work_ns
from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.counts import ScopeBudget
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.drain.results import Remedy
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import HOUR_NS, SECOND_NS
from kubectl_nodelife.sim.events import ScenarioEvent
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.run import Progress, run
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Given, Scenario, Setting, assemble
from kubectl_nodelife.sim.upgrade_course import Course, NodeTurn
from kubectl_nodelife.sim.upgrade_reading import REBOOT, REPLACE, UpgradeEvent, WorkAssumptions
from kubectl_nodelife.sim.upgrade_run import MakeDecider
from kubectl_nodelife.upgrade.ports import make_ports
from kubectl_nodelife.workloads.force_advice import Release

CLAIM: Final = "claim"
SKIP: Final = "skip"
HOLD: Final = "hold"

REFUSED_BY: Final = "refused"
WARNING: Final = "warning"
NOT_EVALUATED: Final = "not evaluated"


class PreflightFinding(NamedTuple):
    """Something to be said before the start. `check`: what was looked at; `severity`: `refused`
    (the start is), `warning`, or `not evaluated`.
    """

    check: str
    severity: str
    text: str


class UpgradeEstimate(NamedTuple):
    """How long the run takes, in seconds. `cold`: what passes before the first claim."""

    low: float
    high: float
    cold: float


@dataclass(slots=True)
class PlannedNode:
    """One selected node. `decision`: claim, skip (it is left out), hold (its turn never comes).

    `turn`: when, for those that are claimed. `remedies`, which it takes together, and
    `flags_needed`: of one that cannot be drained.
    """

    node: Node
    pool: str
    zone: str
    decision: str
    reason: str
    verdict: DrainVerdict
    turn: NodeTurn | None = None
    remedies: list[Remedy] = field(default_factory=list)
    flags_needed: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """metadata.name"""
        return self.node.name


@dataclass(slots=True)
class UpgradePlan:
    """The answer to "what will happen, how long does it take, how low does the cluster get?".

    `budgets`: the numbers of each scope as they are now. `refusals`: why no run would be started.
    `rights`: kubectl lines that ask whether one may do what a run does; a plan itself does not ask.
    """

    policy: UpgradePolicy
    nodes: list[PlannedNode]
    course: Course
    estimate: UpgradeEstimate | None
    budgets: list[ScopeBudget] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    findings: list[PreflightFinding] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    not_evaluated: list[str] = field(default_factory=list)
    rights: list[str] = field(default_factory=list)

    @property
    def expected_seconds(self) -> float:
        """How long the run takes as it was played."""
        cold = self.estimate.cold if self.estimate is not None else 0.0
        return cold + self.course.end_ns / SECOND_NS

    @property
    def done(self) -> list[PlannedNode]:
        """The nodes that the run does."""
        return [node for node in self.nodes if node.decision == CLAIM]

    @property
    def undone(self) -> list[PlannedNode]:
        """The nodes that cannot be done: not those that are there already, or held by a person."""
        bad = {"never", "refused", "unknown"}
        return [
            node
            for node in self.nodes
            if node.decision == HOLD
            or (node.decision == SKIP and (node.verdict.verdict in bad or node.turn is not None))
        ]


LONGEST_NS: Final = 366 * 24 * HOUR_NS
"""No run is played for longer."""

_PLACE: Final = FieldPath("the plan")


def forecast(
    snapshot: PlanSnapshot, policy: UpgradePolicy, settings: Settings, progress: Progress
) -> Course:
    """The course of the policy's run on the cluster of the snapshot. `progress`: is called with the
    number of nodes that are done in it so far.
    """
    # The Lease of a run under way is not taken over: what is planned is another one.
    objects = (
        obj
        for obj in snapshot.cache.everything()
        if not (isinstance(obj, Lease) and obj.key == policy.lease_key)
    )
    what = UpgradeEvent(policy, work_of(policy, expected_work_ns(policy)))
    setting = setting_of(objects, what, settings, snapshot.now_ns, snapshot.kinds_read)
    decider = decider_for(settings, snapshot.kinds_read, snapshot.release)
    return play(setting, settings, decider, progress)


def play(
    setting: Setting,
    settings: Settings,
    decider: MakeDecider,
    progress: Progress = lambda done: None,
) -> Course:
    """The course of the setting's upgrade, played until it is over or stands still for good."""
    names = setting.scenario.controllers
    controllers = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
    course = run(setting, controllers, make_decider=decider, until_upgraded=progress).course
    assert course is not None
    return course


def setting_of(
    objects: Iterable[KubeObject],
    what: UpgradeEvent,
    settings: Settings,
    now_ns: int,
    kinds_read: Collection[str] | None = None,
) -> Setting:
    """The joined present of these objects, and the run that begins, or goes on, at its first
    instant. `kinds_read`: the kinds of which it has all that there are, None for every kind.
    """
    scenario = Scenario(
        file="",
        name="upgrade plan",
        profile=settings.profile,
        join=True,
        time_ns=now_ns,
        duration_ns=LONGEST_NS,
        events=(ScenarioEvent(0, what, _PLACE),),
    )
    kinds = frozenset(kind.name for kind in KINDS) if kinds_read is None else frozenset(kinds_read)
    given = Given(objects, kinds, now_ns, settings.profile)
    return assemble(scenario, given).under(settings)


def work_of(policy: UpgradePolicy, work_ns: int) -> WorkAssumptions:
    """The effect of the policy's work on a machine, in so much time."""
    mode = REPLACE if policy.work.mode is WorkMode.REPLACE else REBOOT
    return WorkAssumptions(mode=mode, duration_ns=work_ns)


def estimate(
    played: Course,
    times: tuple[PhaseTimes, PhaseTimes, PhaseTimes],
    verdicts: Mapping[str, DrainVerdict],
    options: DrainOptions,
    cold_ns: int,
) -> UpgradeEstimate:
    """The ends of what was played: its course, with each phase of each node at its least and its
    longest.

    `times`: of a node's phases at least, as expected, at most. `cold_ns`: what passes before the
    run begins.
    """
    least, expected, most = times
    shorter_ns = longer_ns = 0.0
    for number, step in enumerate(played.steps):
        turns = [turn for turn in played.turns.values() if turn.step == number]
        whole = [turn for turn in turns if turn.drained_ns is not None]
        took_ns = sum(_end_of(turn) - turn.tried_ns for turn in whole)
        if not took_ns:
            continue
        saved_ns = sum(_saved_ns(t, least, expected, verdicts[t.name]) for t in whole)
        added_ns = sum(_added_ns(t, expected, most, verdicts[t.name], options) for t in whole)
        lasted_ns = max(_end_of(turn) for turn in turns) - step.start_ns
        shorter_ns += lasted_ns * min(saved_ns, took_ns) / took_ns
        longer_ns += lasted_ns * added_ns / took_ns
    cold, end = cold_ns / SECOND_NS, played.end_ns / SECOND_NS
    high = cold + end + longer_ns / SECOND_NS
    return UpgradeEstimate(cold + end - shorter_ns / SECOND_NS, high * SLACK, cold)


def _end_of(turn: NodeTurn) -> int:
    """When the node was in service again."""
    return turn.released_ns or turn.done_ns or turn.claimed_ns


def _saved_ns(
    turn: NodeTurn, least: PhaseTimes, expected: PhaseTimes, verdict: DrainVerdict
) -> int:
    """How much sooner than when it was played the node may be in service again: in a drain that
    ends, nothing is given back to be tried again.
    """
    assert turn.drained_ns is not None
    drain_ns = turn.drained_ns - turn.tried_ns
    quick_ns = int((verdict.low_seconds + 1.0) * SECOND_NS)
    settling_ns = 0
    if turn.worked_ns is not None and turn.settled_ns is not None:
        settling_ns = max(0, turn.settled_ns - turn.worked_ns - least.settle_ns)
    work_ns = expected.work_ns - least.work_ns
    return max(0, drain_ns - quick_ns) + work_ns + settling_ns


def _added_ns(
    turn: NodeTurn,
    expected: PhaseTimes,
    most: PhaseTimes,
    verdict: DrainVerdict,
    options: DrainOptions,
) -> int:
    """How much later it may be, within the time limit of its drain."""
    assert turn.drained_ns is not None
    drain_ns = turn.drained_ns - turn.claimed_ns
    slow_ns = max(int(1.1 * drain_ns) + 10 * SECOND_NS, int(verdict.high_seconds * SECOND_NS))
    slow_ns = min(slow_ns, options.timeout_ns or slow_ns)
    return max(0, slow_ns - drain_ns) + sum(most) - sum(expected)


def decider_for(
    settings: Settings, kinds_read: Collection[str] | None = None, release: Release | None = None
) -> MakeDecider:
    """Makes upgrade controllers. `kinds_read`: the kinds of which the virtual cluster has all that
    there is, None for every kind.
    """

    def make(policy: UpgradePolicy, epoch: int, began_ns: int) -> UpgradeController:
        ports = make_ports(policy, settings, kinds_read, release)
        return UpgradeController(policy, ports, epoch, began_ns)

    return make
