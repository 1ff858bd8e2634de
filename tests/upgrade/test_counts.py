"""How many nodes may be claimed: the rows 1 to 7 of the specification's decision vectors, and the
edges of the arithmetic.
"""

import pytest

from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    CountedNode,
    NodeCounts,
    NodeScope,
    at_most,
)
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.workload import IntOrString, scaled_value

POOL = NodeScope("pool", "blue")


def pool(
    available: int,
    not_ready: int = 0,
    ours: int = 0,
    *,
    most: IntOrString | None = "10%",
    least: IntOrString | None = None,
    at_start: int | None = None,
) -> NodeCounts:
    """A pool of one zone with so many nodes."""
    nodes = [CountedNode(f"a{i:03}", "blue", "a") for i in range(available)]
    nodes += [CountedNode(f"sick{i}", "blue", "a", "Ready is False") for i in range(not_ready)]
    nodes += [CountedNode(f"ours{i}", "blue", "a", "cordoned", claimed=True) for i in range(ours)]
    scopes = (CLUSTER, POOL, NodeScope("zone", "blue", "a"))
    start = None if at_start is None else dict.fromkeys(scopes, at_start)
    return NodeCounts.of(nodes, {"pool": (least, most)}, start)


@pytest.mark.parametrize(
    "counts, base, floor, most, slots",
    [
        pytest.param(pool(10, least="80%"), 10, 8, 1, 1, id="1: N 10, max 10 %, min 80 %"),
        pytest.param(pool(3), 3, 0, 1, 1, id="2: N 3, max 10 %: floor 0, so 1"),
        pytest.param(pool(3, least="80%"), 3, 3, 1, 0, id="3: N 3, min 80 %"),
        pytest.param(pool(8, not_ready=2), 10, 0, 1, 0, id="4: 2 of others NotReady"),
        pytest.param(pool(8, most="20%", at_start=10), 10, 0, 2, 0, id="5: two vanished"),
        pytest.param(pool(8, most="20%", at_start=8), 8, 0, 1, 1, id="5: after a rebase"),
        pytest.param(
            pool(12, most="20%", least=10, at_start=10), 12, 10, 2, 2, id="6: two nodes added"
        ),
        pytest.param(pool(96, ours=3, most="5%"), 99, 0, 4, 1, id="7: N 99, max 5 %, 3 Draining"),
        pytest.param(pool(10, most=3, least=9), 10, 9, 3, 1, id="the floor is hard"),
        pytest.param(pool(10, most=None, least=None), 10, 0, 10, 10, id="no limits"),
        pytest.param(pool(5, not_ready=5, most=2), 10, 0, 2, 0, id="never less than 0 slots"),
    ],
)
def test_slots(counts: NodeCounts, base: int, floor: int, most: int, slots: int) -> None:
    budget = counts.budget(POOL)
    assert (budget.base, budget.floor, budget.most_unavailable, budget.slots) == (
        base,
        floor,
        most,
        slots,
    )


def test_3_a_floor_that_leaves_none_is_refused() -> None:
    assert pool(3, least="80%").budget(POOL).refusal() == "3 of 3 must be available in pool blue"
    assert pool(3, least="60%").budget(POOL).refusal() == ""
    assert pool(3, most=0).budget(POOL).refusal() == (
        "none of the 3 nodes in pool blue may be unavailable"
    )


def test_4_a_hold_names_the_nodes_of_others() -> None:
    assert pool(8, not_ready=2).hold("a000") == (
        "pool blue: 2 of 10 unavailable, at most 1; not by this run:"
        " sick0 (Ready is False), sick1 (Ready is False)"
    )


def test_5_a_hold_names_nodes_that_vanished() -> None:
    assert pool(8, most="20%", at_start=10).hold("a000") == (
        "pool blue: 2 of 10 unavailable, at most 2; not by this run:"
        " 2 vanished since the start (resume --rebase forgets them)"
    )


def test_our_own_nodes_are_not_named() -> None:
    assert pool(9, ours=1).hold("a000") == "pool blue: 1 of 10 unavailable, at most 1"


def test_the_floor_is_named_where_it_is_the_limit() -> None:
    assert pool(9, ours=1, most=5, least=9).hold("a000") == (
        "pool blue: 1 of 10 unavailable, at least 9 must be available"
    )


def test_claims_in_one_pass_lower_what_is_available_one_after_another() -> None:
    counts = pool(10, most=2)
    assert counts.hold("a000") == ""
    counts.claim("a000")
    assert counts.hold("a001") == ""
    counts.claim("a001")
    assert counts.hold("a002") == "pool blue: 2 of 10 unavailable, at most 2"


def test_a_node_that_is_unavailable_already_costs_no_slot() -> None:
    counts = pool(8, not_ready=2)
    assert counts.hold("sick0") == ""
    counts.claim("sick0")
    assert counts.budget(POOL).unavailable == 2


def test_every_scope_needs_a_slot() -> None:
    nodes = [
        CountedNode(f"{pool}-{z}{i}", pool, z) for pool in ("x", "y") for z in "ab" for i in (1, 2)
    ]
    limits = {"cluster": (7, None), "zone": (None, 1)}
    counts = NodeCounts.of([*nodes, CountedNode("cp", "x", "a", control_plane=True)], limits)
    assert counts.budget(CLUSTER).base == 8, "the control plane is not counted"
    counts.claim("x-a1")
    assert counts.hold("x-a2").startswith("cluster: 1 of 8 unavailable, at least 7")
    assert counts.hold("cp") == ""


def test_counts_follow_a_node_that_changes_or_goes() -> None:
    counts = pool(3, most=1)
    counts.put(CountedNode("a000", "blue", "b", "cordoned"))
    assert counts.budget(POOL).available == 2
    assert counts.totals()[NodeScope("zone", "blue", "b")] == 1
    counts.remove("a000")
    assert NodeScope("zone", "blue", "b") not in counts.totals()
    assert counts.budget(POOL).base == 3, "a node that is gone is not forgotten"


@pytest.mark.parametrize(
    "value, base, least, most",
    [
        ("10%", 99, 10, 9),
        ("100%", 7, 7, 7),
        ("0%", 7, 0, 0),
        ("1%", 7, 1, 1),
        ("50%", 3, 2, 1),
        (4, 3, 4, 4),
        (0, 3, 0, 0),
    ],
)
def test_percentages_round_up_for_floors_and_down_for_ceilings(
    value: IntOrString, base: int, least: int, most: int
) -> None:
    assert (scaled_value(value, base), at_most(value, base)) == (least, most)


@pytest.mark.parametrize("value", ["-1%", "%", "ten%", "1.5%", "١%", "101%", "-1", True])
def test_what_is_neither_a_number_nor_a_percentage_is_refused(value: object) -> None:
    assert policy_from({"minAvailable": "10"}).min_available == 10
    with pytest.raises(BadInput, match="neither a number such as 3 nor a percentage"):
        policy_from({"minAvailable": value})
