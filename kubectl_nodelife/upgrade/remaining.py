"""How long a run under way still takes, from its Lease and its nodes alone.

What is left is played by the run's own controller in the virtual cluster, as in `forecast.py`. No
pods are read here: in their place each node has one, which takes as long to stop as drains of this
run took, or as its leader foresees. All work succeeds, and there is room for all pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    RunDocument,
    RunPhase,
    StepNode,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.expected import (
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
from kubectl_nodelife.controllers.upgrade.selection import pool_name, zone_name
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Lease, Node, NodeCondition
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodSpec, PodStatus
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, parse_time
from kubectl_nodelife.kube.wellknown import TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE
from kubectl_nodelife.sim.run import Progress
from kubectl_nodelife.sim.upgrade_course import Course
from kubectl_nodelife.sim.upgrade_reading import UpgradeEvent
from kubectl_nodelife.upgrade.forecast import SLACK, decider_for, play, setting_of, work_of

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

    def told(done: int) -> None:
        if clock() > until:
            raise PlayGivenUp(f"its play took longer than {seconds:.0f}s")
        progress(done)

    return told


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
