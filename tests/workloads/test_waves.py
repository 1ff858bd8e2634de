"""Cutting waves: each limit alone, and that every node is in exactly one wave."""

import random
from collections import Counter

import pytest

from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Node, NodeStatus
from kubectl_nodelife.workloads.waves import (
    BudgetKey,
    CapacityLeft,
    NodeLoad,
    WaveLimits,
    cut_waves,
)

WEB = ("default", "web")


def roomy(cpu: str = "1000") -> CapacityLeft:
    left = CapacityLeft()
    status = NodeStatus(allocatable={"cpu": cpu, "memory": "1Ti", "pods": "1000"})
    left.add(Node(metadata=ObjectMeta(name="spare"), status=status), {})
    return left


def loads(count: int, budget: int = 0, zones: int = 1, cpu: int = 0) -> list[NodeLoad]:
    """Nodes of which each has so many pods under one budget, and asks for so much cpu (m)."""
    return [
        NodeLoad(
            f"n{i}", f"z{i % zones}", {WEB: budget} if budget else {}, {"cpu": cpu}, pods=budget
        )
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("nodes", "cap", "limits", "sizes"),
    [
        pytest.param(loads(5), 1, WaveLimits(2), [2, 2, 1], id="so-many-at-once"),
        pytest.param(loads(4, zones=2), 1, WaveLimits(4, 1), [2, 2], id="so-many-of-a-zone"),
        pytest.param(loads(6, budget=2), 4, WaveLimits(9), [2, 2, 2], id="what-a-budget-spares"),
        pytest.param(loads(2, budget=5), 4, WaveLimits(9), [1, 1], id="more-than-it-spares-alone"),
        pytest.param([], 1, WaveLimits(1), [], id="none"),
    ],
)
def test_limits(nodes: list[NodeLoad], cap: int, limits: WaveLimits, sizes: list[int]) -> None:
    cut = cut_waves(nodes, {WEB: cap}, limits, roomy)
    assert sorted((len(wave) for wave in cut), reverse=True) == sizes


def test_a_node_for_which_there_is_no_room_is_tried_alone() -> None:
    nodes = loads(3, cpu=600)
    cut = cut_waves(nodes, {}, WaveLimits(9), lambda: roomy("1"))
    assert sum(map(len, cut)) == 3 and len(cut) >= 2


@pytest.mark.parametrize("seed", range(20))
def test_every_node_is_in_one_wave_within_all_limits(seed: int) -> None:
    chance = random.Random(seed)
    keys: list[BudgetKey] = [("d", f"b{i}") for i in range(5)]
    caps = {key: chance.randint(1, 6) for key in keys}
    nodes = [
        NodeLoad(
            f"n{i}",
            f"z{chance.randint(0, 2)}",
            {key: chance.randint(1, 3) for key in chance.sample(keys, chance.randint(0, 3))},
        )
        for i in range(40)
    ]
    by_name = {load.name: load for load in nodes}
    cut = cut_waves(nodes, caps, WaveLimits(8, 4), roomy)
    assert sorted(name for wave in cut for name in wave) == sorted(by_name)
    for wave in cut:
        assert len(wave) <= 8
        assert max(Counter(by_name[name].zone for name in wave).values()) <= 4
        for key in keys:
            users = [by_name[n].budgets[key] for n in wave if key in by_name[n].budgets]
            assert sum(users) <= caps[key] or len(users) == 1
