"""The course of a run to come, and of one under way: the upgrade controller itself, played on a
copy of the cluster.

There is no second set of rules. The virtual cluster of every scenario begins with the objects that
were read, its controllers join, `upgrade start` is given, and the course is read off the
records. Assumed is only what cannot be known: how long the work takes and pods need to stop, that
all work succeeds, and that nothing else fails meanwhile.

It is played once, with what is expected. How much less or more time it may take follows from how
much less or more each phase of each node may, in the order in which they were played.

What a run under way has left is played in the same way from its Lease and its nodes alone. No pods
are read here: in their place each node has one, which takes as long to stop as drains of this run
took, or as its leader foresees. All work succeeds, and there is room for all pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    RunDocument,
    RunPhase,
    StepNode,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.expected import (
    PhaseTimes,
    expected_work_ns,
    measured,
    phase_times,
)
from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    IN_FLIGHT,
    NodeMark,
    NodeState,
    encode_mark,
)
from kubectl_nodelife.controllers.upgrade.policy import (
    Duration,
    NodeWork,
    UpgradePolicy,
    WorkMode,
)
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.controllers.upgrade.selection import pool_name, zone_name
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Lease, Node, NodeCondition
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodSpec, PodStatus
from kubectl_nodelife.kube.times import HOUR_NS, MINUTE_NS, SECOND_NS, parse_time
from kubectl_nodelife.kube.wellknown import TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE
from kubectl_nodelife.sim.events import ScenarioEvent
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.run import Progress, run
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Given, Scenario, Setting, assemble
from kubectl_nodelife.sim.upgrade_course import Course, NodeTurn
from kubectl_nodelife.sim.upgrade_reading import (
    REBOOT,
    REPLACE,
    UpgradeEvent,
    WorkAssumptions,
)
from kubectl_nodelife.sim.upgrade_run import MakeDecider
from kubectl_nodelife.upgrade.plan_values import UpgradeEstimate
from kubectl_nodelife.upgrade.ports import make_ports
from kubectl_nodelife.workloads.force_advice import Release

LONGEST_NS: Final = 366 * 24 * HOUR_NS
"""No run is played for longer."""

_PLACE: Final = FieldPath("the plan")

SLACK: Final = 1.05
"""The time that passes between the phases: the leader's looks, its requests, their answers."""


def forecast(
    snapshot: PlanSnapshot, policy: UpgradePolicy, settings: Settings, progress: Progress
) -> Course:
    """The course of the policy's run on the cluster of the snapshot. `progress`: is called with the
    number of nodes that are done in it so far.
    """
    # The Lease of a run under way is not taken over: what is planned is another one.
    objects = (
        obj
        for obj in snapshot.objects()
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
    settings: Settings,
    kinds_read: Collection[str] | None = None,
    release: Release | None = None,
) -> MakeDecider:
    """Makes upgrade controllers. `kinds_read`: the kinds of which the virtual cluster has all that
    there is, None for every kind.
    """

    def make(policy: UpgradePolicy, epoch: int, began_ns: int) -> UpgradeController:
        ports = make_ports(policy, settings, kinds_read, release)
        return UpgradeController(policy, ports, epoch, began_ns)

    return make


ASSUMED_DRAIN_NS: Final = MINUTE_NS
"""Where no drain of the run has ended, and its leader foresees nothing."""

_MEASURED_DRAIN: Final = (0.7, 1.0, 1.5)
_FORESEEN_DRAIN: Final = (0.3, 1.0, 2.0)


LONGEST_PLAY_S: Final = 10.0
"""So long a status waits for the play of the rest of a run: some 1,000 nodes."""


class PlayGivenUp(Exception):
    """The play takes longer than the answer may wait for it."""


def within(seconds: float, clock: Callable[[], float], progress: Progress) -> Progress:
    """The same progress for so many seconds of the clock; then it raises PlayGivenUp."""
    until = clock() + seconds

    def bounded(done: int) -> None:
        if clock() > until:
            raise PlayGivenUp(f"its play took longer than {seconds:.0f}s")
        progress(done)

    return bounded


class RemainingTime(NamedTuple):
    """Seconds from now until the run is over, at least, as expected, at most.

    `nodes`: how many are in flight or still to be claimed. `rests_on`: what is assumed.
    """

    low: float
    expected: float
    high: float
    nodes: int
    rests_on: list[str]


class RunUnderWay(NamedTuple):
    """A run as its Lease and its nodes' marks show it. `waiting`: the nodes that are still to be
    claimed. `drain_seconds`: what the leader foresees of a drain.
    """

    lease: Lease
    document: RunDocument
    policy: UpgradePolicy
    nodes: Mapping[str, Node]
    marks: Mapping[str, NodeMark]
    waiting: Collection[str]
    drain_seconds: float | None
    now_ns: int

    @property
    def replaced(self) -> dict[str, StepNode]:
        """The nodes that went and whose newcomers are still to come."""
        come = {mark.for_ for mark in self.marks.values()}
        return {
            name: entry
            for name, entry in self.document.step.nodes.items()
            if entry.mark is not None and name not in self.nodes and name not in come
        }


def remaining_time(
    under_way: RunUnderWay, settings: Settings, progress: Progress = lambda done: None
) -> RemainingTime | None:
    """The time that is left of the run; None where nothing is. `progress`: is called with the
    number of nodes that are done in the play so far; what it raises ends the play.

    Its ends are in proportion: how long one node takes at least and at most, to what is expected.
    """
    nodes, marks, policy = under_way.nodes, under_way.marks, under_way.policy
    flying = {n: m for n, m in marks.items() if m.state in IN_FLIGHT and n in nodes}
    count = len(flying) + len(under_way.waiting) + len(under_way.replaced)
    if not count:
        return None
    times = measured(marks.values())
    if times.work_ns is not None:
        policy = replace(policy, expect_work_ns=Duration(times.work_ns))
    drain_ns = times.drain_ns
    shares = _FORESEEN_DRAIN if drain_ns is None else _MEASURED_DRAIN
    if drain_ns is None:
        foreseen = under_way.drain_seconds
        drain_ns = ASSUMED_DRAIN_NS if foreseen is None else int(foreseen * SECOND_NS)
    least, expected, most = (
        min(int(drain_ns * share), policy.drain_timeout_ns) + sum(phases) + policy.node_soak_ns
        for phases, share in zip(phase_times(policy), shares, strict=True)
    )
    length_ns = min(drain_ns, policy.drain_timeout_ns)
    seconds = _play(under_way, flying, policy, length_ns, settings, progress).end_ns / SECOND_NS
    return RemainingTime(
        seconds * least / expected,
        seconds,
        seconds * most / expected * SLACK,
        count,
        _rests_on(policy, times.nodes),
    )


def _play(
    under_way: RunUnderWay,
    flying: Mapping[str, NodeMark],
    policy: UpgradePolicy,
    drain_ns: int,
    settings: Settings,
    progress: Progress,
) -> Course:
    """The rest of the run, with drains of that length."""
    names = sorted({*flying, *under_way.waiting, *under_way.replaced})
    event = UpgradeEvent(
        _for_nodes_alone(policy, names),
        work_of(policy, expected_work_ns(policy)),
        is_under_way=True,
    )
    objects = _nodes_alone(under_way, flying, drain_ns)
    setting = setting_of(objects, event, settings, under_way.now_ns)
    return play(setting, settings, decider_for(settings), progress)


def _for_nodes_alone(policy: UpgradePolicy, names: Sequence[str]) -> UpgradePolicy:
    """The policy for these nodes. How the work is started makes no difference to its length, unless
    it takes the node away.
    """
    work = policy.work
    if work.mode not in (WorkMode.REPLACE, WorkMode.NOTHING):
        work = NodeWork(WorkMode.RUN, "-")
    return replace(
        policy,
        work=work,
        nodes=tuple(names),
        canary_nodes=tuple(name for name in policy.canary_nodes if name in names),
        drain={"force": True},
        require=(),
        low_water=0.0,
        gate="",
    )


def _nodes_alone(
    under_way: RunUnderWay, flying: Mapping[str, NodeMark], drain_ns: int
) -> Iterator[KubeObject]:
    """The run's cluster; nodes in flight come back."""
    yield _led(under_way)
    lengths_ns = dict.fromkeys(under_way.waiting, drain_ns)
    for name, mark in flying.items():
        if mark.state is NodeState.DRAINING:
            spent_ns = under_way.now_ns - parse_time(mark.since) if mark.since else 0
            lengths_ns[name] = max(0, drain_ns - max(0, spent_ns))
    yield from _replaced(under_way)
    for name, node in under_way.nodes.items():
        yield _that_returns(node, flying[name]) if name in flying else node
        if lengths_ns.get(name, 0) >= SECOND_NS:
            yield _leaving(name, lengths_ns[name] // SECOND_NS)


def _replaced(under_way: RunUnderWay) -> Iterator[Node]:
    """The nodes whose newcomers are still to come, as they were: there, and in work."""
    nodes, policy = under_way.nodes, under_way.policy
    for name, entry in under_way.replaced.items():
        alike = (n for n in nodes.values() if pool_name(n, policy) == entry.pool)
        like = min(alike, key=lambda node: zone_name(node) != entry.zone, default=None)
        if like is not None and entry.mark is not None:
            meta = replace(like.metadata, name=name, uid=entry.uid)
            yield _that_returns(replace(like, metadata=meta), entry.mark)


def _leaving(node: str, seconds: int) -> Pod:
    """A pod that nothing makes anew, and that takes so long to stop."""
    return Pod(
        metadata=ObjectMeta(name=f"pods-of-{node}", namespace="default"),
        spec=PodSpec(node_name=node, termination_grace_period_seconds=seconds),
        status=PodStatus(phase="Running", conditions=(PodCondition("Ready", "True"),)),
    )


def _that_returns(node: Node, mark: NodeMark) -> Node:
    """The node as it is once its machine is back; which checks it passed before is not known."""
    meta, spec, status = node.metadata, node.spec, node.status
    mark = replace(mark, before=replace(mark.before, csi=None))
    others = tuple(each for each in status.conditions if each.type != "Ready")
    lost = (TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE)
    return replace(
        node,
        metadata=replace(
            meta, annotations={**(meta.annotations or {}), ANNOTATION: encode_mark(mark)}
        ),
        spec=replace(spec, taints=tuple(each for each in spec.taints if each.key not in lost)),
        status=replace(status, conditions=(NodeCondition("Ready", "True"), *others)),
    )


def _led(under_way: RunUnderWay) -> Lease:
    """The run's Lease while it goes on: not paused, and with each node there that is replaced."""
    document, lease = under_way.document, under_way.lease
    there = {name: replace(entry, mark=None) for name, entry in under_way.replaced.items()}
    named = {**document.step.nodes, **there}
    phase = RunPhase.RUNNING if document.phase is RunPhase.PAUSED else document.phase
    step = replace(document.step, nodes=named)
    document = replace(document, phase=phase, failed=(), step=step)
    annotations = {**(lease.metadata.annotations or {}), ANNOTATION_RUN: encode_document(document)}
    annotations.pop(ANNOTATION_REQUEST, None)
    namespace, name = under_way.policy.lease_key
    meta = replace(lease.metadata, namespace=namespace, name=name, annotations=annotations)
    return replace(lease, metadata=meta)


def _rests_on(policy: UpgradePolicy, measured_nodes: int) -> list[str]:
    if policy.work.mode is WorkMode.NOTHING:
        work = "no work is done"
    else:
        seconds = expected_work_ns(policy) // SECOND_NS
        if measured_nodes:
            source = f"the median of {counted(measured_nodes, 'node')} of this run"
        elif policy.expect_work_ns is not None:
            source = "--expect-work"
        else:
            source = "assumed: give --expect-work"
        work = f"the work takes {seconds}s ({source})"
    return [work, "all work succeeds, and no other node fails meanwhile"]
