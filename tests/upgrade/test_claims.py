"""The turn of steps and zones, and what holds a candidate: rows 7, 8, 15 and 16, and edges."""

from __future__ import annotations

from kubectl_nodelife.controllers.upgrade.claims import (
    ClaimHold,
    ClaimStage,
    PoolPlace,
    UpgradeCandidate,
    choose_claims,
    stage_of,
)
from kubectl_nodelife.controllers.upgrade.counts import CountedNode, NodeCounts, ScopeLimits


def candidates(*names: str) -> list[UpgradeCandidate]:
    """Nodes of the zones that their names begin with."""
    return [UpgradeCandidate(name, "p", name[0]) for name in names]


def counts(total: int, ours: int = 0, most: int | str = 2) -> NodeCounts:
    nodes = [CountedNode(f"a{i}", "p", "a", claimed=i >= total - ours) for i in range(total)]
    return NodeCounts.of(nodes, {"pool": ScopeLimits(max_unavailable=most)})


def choose(names: list[str], of: NodeCounts, **more: int) -> tuple[list[str], dict[str, ClaimHold]]:
    def hold(candidate: UpgradeCandidate) -> ClaimHold | None:
        because = of.hold(candidate.name)
        return ClaimHold("slots", because) if because else None

    arguments = {"wanted": 99, **more}
    return choose_claims(candidates(*names), hold, of.claim, **arguments)


def test_claims_stop_where_the_slots_do() -> None:
    claimed, held = choose(["a0", "a1", "a2"], counts(10))
    assert claimed == ["a0", "a1"]
    assert held == {"a2": ClaimHold("slots", "pool p: 2 of 10 unavailable, at most 2")}


def test_7_three_of_ours_in_draining_leave_one_of_four() -> None:
    claimed, _ = choose(["a0", "a1"], counts(99, ours=3, most="5%"))
    assert claimed == ["a0"]


def test_15_a_node_that_is_held_does_not_hold_those_behind_it() -> None:
    def hold(candidate: UpgradeCandidate) -> ClaimHold | None:
        return ClaimHold("budget", "web spares none now") if candidate.name == "a0" else None

    claimed, held = choose_claims(candidates("a0", "a1"), hold, counts(10).claim, wanted=1)
    assert claimed == ["a1"]
    assert held["a0"].by == "budget"


def test_no_more_than_wanted_and_no_more_than_max_parallel() -> None:
    assert choose(["a0", "a1"], counts(10), wanted=1) == (["a0"], {})
    claimed, held = choose(["a0", "a1"], counts(10), in_flight=1, max_parallel=2)
    assert claimed == ["a0"]
    assert held["a1"] == ClaimHold("max-parallel", "2 nodes in flight, --max-parallel 2")


def stage(place: PoolPlace, waiting: list[str], flying: list[str], zones: int = 1) -> ClaimStage:
    in_flight = {name: name[0] for name in flying}
    return stage_of(place, candidates(*waiting), in_flight, canary=1, zones_at_once=zones)


def test_a_step_claims_its_width_and_then_waits() -> None:
    step = PoolPlace("p", 2, frozenset({"a1"}))
    assert stage(step, ["a2", "b1"], ["a1"]) == ClaimStage(3, ("a",))
    full = PoolPlace("p", 1, frozenset({"a1", "a2"}))
    assert stage(full, ["a3"], ["a1"]) == ClaimStage()
    assert stage(full, ["a3"], []) == ClaimStage(soak=True)


def test_a_step_goes_on_into_the_next_zone_when_the_one_before_has_ended() -> None:
    step = PoolPlace("p", 2, frozenset({"a1"}))
    assert stage(step, ["b1"], ["a1"]) == ClaimStage(3, ("a",)), "zone a is not done with"
    assert stage(step, ["b1"], []) == ClaimStage(3, ("b",))


def test_a_step_with_nothing_left_ends_the_pool_without_a_soak() -> None:
    assert stage(PoolPlace("p", 3, frozenset({"a1"})), [], []) == ClaimStage()


def test_once_growth_is_over_zones_follow_one_another_with_a_soak_between() -> None:
    first = PoolPlace("p", None)
    assert stage(first, ["a1", "b1"], []) == ClaimStage(2, ("a",)), "growth's soak was just now"
    begun = PoolPlace("p", None, zones=frozenset("a"))
    assert stage(begun, ["b1"], ["a1"]).zones == ("a",)
    assert stage(begun, ["b1"], []) == ClaimStage(soak=True)
    assert stage(PoolPlace("p", None, zones=frozenset("ab")), ["b1"], []).zones == ("b",)
    assert stage(begun, [], []) == ClaimStage()


def test_all_zones_at_once() -> None:
    assert stage(PoolPlace("p", None), ["a1", "b1", "c1"], [], zones=0).zones == ("a", "b", "c")
    assert stage(PoolPlace("p", None), ["a1", "b1", "c1"], [], zones=2).zones == ("a", "b")
    begun = PoolPlace("p", None, zones=frozenset("ab"))
    assert stage(begun, ["c1"], ["b1"], zones=2).zones == ("b", "c"), "no soak: b goes on anyway"
