"""How long a run under way still takes, from the nodes and its document alone.

What is left is rehearsed as the plan rehearses a whole run. Nothing is known of pods here: drains
take as long as those of this run took, or as the leader foresees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.claims import PoolPlace, UpgradeCandidate
from kubectl_nodelife.controllers.upgrade.counts import (
    CountedNode,
    NodeCounts,
    limits_of,
    why_unavailable,
)
from kubectl_nodelife.controllers.upgrade.document import NOT_BEGUN, RunDocument
from kubectl_nodelife.controllers.upgrade.expected import expected_work_ns, measured, phase_times
from kubectl_nodelife.controllers.upgrade.marks import IN_FLIGHT, TAKEN, NodeMark
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.controllers.upgrade.selection import is_control_plane, pool_name, zone_name
from kubectl_nodelife.controllers.upgrade.windows import parse_window
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.enumeration import counted
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, parse_time
from kubectl_nodelife.upgrade.ports import LifecycleZones
from kubectl_nodelife.upgrade.rehearsal import CONTROL_PLANE, BegunNode, RehearsedRun, rehearse

ASSUMED_DRAIN_NS: Final = MINUTE_NS
_MEASURED_DRAIN: Final = (0.7, 1.0, 1.5)
_FORESEEN_DRAIN: Final = (0.3, 1.0, 2.0)
_DOUBT: Final = 1.05


class RemainingTime(NamedTuple):
    """Seconds from now until the run is over, at least, as expected, at most.

    `nodes`: how many are in flight or still to be claimed. `rests_on`: what is assumed.
    """

    low: float
    expected: float
    high: float
    nodes: int
    rests_on: list[str]


def remaining_time(
    run: RunDocument,
    policy: UpgradePolicy,
    nodes: Mapping[str, Node],
    marks: Mapping[str, NodeMark],
    waiting: Sequence[str],
    drain_seconds: float | None,
    now_ns: int,
    settings: Settings,
) -> RemainingTime | None:
    """The time that is left of the run; None where nothing is.

    `waiting`: the nodes that are still to be claimed. `drain_seconds`: what the leader foresees.
    """
    flying = {n: m for n, m in marks.items() if m.state in IN_FLIGHT and n in nodes}
    if not flying and not waiting:
        return None
    times = measured(marks.values())
    if times.work_ns is not None:
        policy = replace(policy, expect_work_ns=times.work_ns)
    drain_ns = times.drain_ns
    shares = _MEASURED_DRAIN if drain_ns is not None else _FORESEEN_DRAIN
    if drain_ns is None:
        foreseen_ns = None if drain_seconds is None else int(drain_seconds * SECOND_NS)
        drain_ns = ASSUMED_DRAIN_NS if foreseen_ns is None else foreseen_ns
    ends = []
    for phases, share in zip(phase_times(policy), shares, strict=True):
        length_ns = min(int(drain_ns * share), policy.drain_timeout_ns)
        begun = [_begun(nodes[name], mark, policy, now_ns) for name, mark in flying.items()]
        lengths = dict.fromkeys(waiting, length_ns)
        lengths |= {b.name: max(0, length_ns - b.spent_ns) for b in begun}
        course = rehearse(
            _left(run, policy, nodes, marks, waiting, begun, now_ns, settings),
            lengths,
            phases,
        )
        ends.append(course.end_ns / SECOND_NS)
    return RemainingTime(
        min(ends),
        ends[1],
        max(ends) * _DOUBT,
        len(flying) + len(waiting),
        _rests_on(policy, times.nodes),
    )


def _begun(node: Node, mark: NodeMark, policy: UpgradePolicy, now_ns: int) -> BegunNode:
    spent = max(0, now_ns - parse_time(mark.since)) if mark.since else 0
    return BegunNode(node.name, _pool(node, policy), zone_name(node), mark.state, spent)


def _left(
    run: RunDocument,
    policy: UpgradePolicy,
    nodes: Mapping[str, Node],
    marks: Mapping[str, NodeMark],
    waiting: Sequence[str],
    begun: Sequence[BegunNode],
    now_ns: int,
    settings: Settings,
) -> RehearsedRun:
    flying = {node.name for node in begun}
    counted_nodes = [_counted(node, marks.get(node.name), policy) for node in nodes.values()]
    counts = NodeCounts.of(counted_nodes, limits_of(policy))
    counts.begin_from(run.base_counts)
    zones = LifecycleZones(settings)
    return RehearsedRun(
        policy=policy,
        candidates=[
            UpgradeCandidate(name, _pool(nodes[name], policy), zone_name(nodes[name]))
            for name in waiting
        ],
        nodes=counted_nodes,
        counts=counts,
        zone_of={node.name: zone_name(node) for node in nodes.values() if zones.counts(node)},
        not_ready=frozenset(
            name for name, node in nodes.items() if name not in flying and not node.is_ready
        ),
        zone_threshold=settings.unhealthy_zone_threshold,
        windows=[parse_window(text) for text in policy.window],
        now_ns=now_ns,
        begun=begun,
        place=_place(run, marks),
    )


def _place(run: RunDocument, marks: Mapping[str, NodeMark]) -> PoolPlace | None:
    step = run.step
    if step.window == NOT_BEGUN:
        return None
    return PoolPlace(
        step.pool,
        step.k if step.window else None,
        frozenset(name for name in step.nodes if name in marks),
        frozenset(entry.zone for entry in step.nodes.values()),
    )


def _counted(node: Node, mark: NodeMark | None, policy: UpgradePolicy) -> CountedNode:
    """A node that the run has out of service comes back: it is counted as available here."""
    taken = mark is not None and mark.state in TAKEN
    why = "" if taken else why_unavailable(node)
    control_plane = is_control_plane(node)
    return CountedNode(
        node.name, pool_name(node, policy), zone_name(node), why, control_plane=control_plane
    )


def _pool(node: Node, policy: UpgradePolicy) -> str:
    return CONTROL_PLANE if is_control_plane(node) else pool_name(node, policy)


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
