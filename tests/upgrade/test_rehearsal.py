"""Runs played beforehand: the hand calculation of 500 nodes, and what each limit does to a run."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    CountedNode,
    NodeCounts,
    ScopeLimits,
    pool_scope,
)
from kubectl_nodelife.controllers.upgrade.order import UpgradeCandidate
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.upgrade.course import Course, PhaseTimes
from kubectl_nodelife.upgrade.drain_driver import TimedDrains
from kubectl_nodelife.upgrade.rehearsal import RehearsedRun, rehearse

POOL = pool_scope("p")
TIMES = PhaseTimes(12 * MINUTE_NS, MINUTE_NS, MINUTE_NS)
"""14 minutes from claim to release."""


def course(zones: dict[str, int], **policy: Any) -> Course:
    nodes = [CountedNode(f"{z}{i:03}", "p", z) for z, n in zones.items() for i in range(n)]
    made = policy_from(policy)
    limits = {
        "pool": ScopeLimits(made.min_available, made.max_unavailable),
        "zone": ScopeLimits(None, made.max_per_zone),
    }
    run = RehearsedRun(
        policy=made,
        candidates=[UpgradeCandidate(node.name, "p", node.zone) for node in nodes],
        nodes=nodes,
        counts=NodeCounts.of(nodes, limits),
        zone_of={node.name: node.zone for node in nodes},
    )
    return rehearse(run, TimedDrains({}), TIMES)


def test_500_nodes_as_calculated_by_hand() -> None:
    found = course({"a": 167, "b": 167, "c": 166})
    assert found.end_ns == 287 * MINUTE_NS
    assert found.lowest[POOL].available == found.lowest[CLUSTER].available == 450
    assert [step.width for step in found.steps] == [1, 2, 4, 8, 16, 32, 0, 0, 0]
    assert [step.start_ns // MINUTE_NS for step in found.steps] == [
        0, 20, 40, 60, 80, 100, 120, 168, 230,
    ]  # fmt: skip
    assert [len(step.names) for step in found.steps[6:]] == [104, 167, 166]
    assert all(turn.done_ns is not None for turn in found.turns.values())
