"""Runs played beforehand: the hand calculation of 500 nodes, and what each limit does to a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.claims import PoolPlace, UpgradeCandidate
from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    CountedNode,
    NodeCounts,
    ScopeLimits,
    pool_scope,
)
from kubectl_nodelife.controllers.upgrade.expected import PhaseTimes
from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.sim.upgrade_course import Course
from kubectl_nodelife.upgrade.rehearsal import BegunNode, RehearsedRun, rehearse

POOL = pool_scope("p")
TIMES = PhaseTimes(12 * MINUTE_NS, MINUTE_NS, MINUTE_NS)
"""14 minutes from claim to release."""


AFTER = {
    "claimed": NodeState.DRAINING,
    "drained": NodeState.WORKING,
    "worked": NodeState.SETTLING,
    "settled": NodeState.PROVING,
    "released": NodeState.SOAKING,
}


def course(
    zones: dict[str, int],
    begun: Sequence[BegunNode] = (),
    place: PoolPlace | None = None,
    done: Collection[str] = (),
    **policy: Any,
) -> Course:
    taken = {*done, *(node.name for node in begun)}
    nodes = [CountedNode(f"{z}{i:03}", "p", z) for z, n in zones.items() for i in range(n)]
    made = policy_from(policy)
    limits = {
        "pool": ScopeLimits(made.min_available, made.max_unavailable),
        "zone": ScopeLimits(None, made.max_per_zone),
    }
    run = RehearsedRun(
        policy=made,
        candidates=[UpgradeCandidate(n.name, "p", n.zone) for n in nodes if n.name not in taken],
        nodes=nodes,
        counts=NodeCounts.of(nodes, limits),
        zone_of={node.name: node.zone for node in nodes},
        begun=begun,
        place=place,
    )
    return rehearse(run, {}, TIMES)


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


STATES = ("claimed", "drained", "worked", "settled", "released", "done")


@pytest.mark.parametrize("minute", [0, 3, 13, 22, 47, 75, 120, 150, 190, 233, 280])
def test_a_run_under_way_ends_when_the_whole_run_would(minute: int) -> None:
    """What is rehearsed from the middle on takes what was left of the whole."""
    zones, now_ns = {"a": 30, "b": 30}, minute * MINUTE_NS
    whole = course(zones)
    if now_ns >= whole.end_ns:
        return
    begun, done = [], set()
    for turn in whole.turns.values():
        reached = [(getattr(turn, f"{s}_ns"), s) for s in STATES]
        entered_ns, state = max((at, s) for at, s in reached if at is not None and at <= now_ns) \
            if turn.claimed_ns <= now_ns else (0, "")  # fmt: skip
        if state == "done":
            done.add(turn.name)
        elif state:
            begun.append(BegunNode(turn.name, "p", turn.zone, AFTER[state], now_ns - entered_ns))
    taken = done | {node.name for node in begun}
    step = max((s for s in whole.steps if s.start_ns <= now_ns), key=lambda s: s.start_ns)
    k = whole.steps.index(step) if step.width else None
    grown = {whole.turns[name].zone for s in whole.steps if not s.width for name in s.names}
    place = PoolPlace("p", k, frozenset(taken & set(step.names)), frozenset(
        whole.turns[name].zone for name in taken if k is None and whole.turns[name].zone in grown
    ))  # fmt: skip
    rest = course(zones, begun=begun, place=place, done=done)
    in_soak = step.end_ns is not None and step.end_ns <= now_ns
    waited_ns = now_ns - step.end_ns if in_soak and step.end_ns is not None else 0
    assert rest.end_ns == whole.end_ns - now_ns + waited_ns
