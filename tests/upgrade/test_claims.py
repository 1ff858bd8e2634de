"""The turn of steps and zones, and what holds a candidate: rows 7, 8, 15 and 16, and edges."""

from typing import Any

from kubectl_nodelife.controllers.upgrade import claims
from kubectl_nodelife.controllers.upgrade.document import Step, StepNode
from kubectl_nodelife.kube.node import Taint
from tests.upgrade.stand import Stand
from tests.upgrade.vector_cases import words


def candidates(*names: str) -> list[claims.UpgradeCandidate]:
    """Nodes of the zones that their names begin with."""
    return [claims.UpgradeCandidate(name, "p", name[0]) for name in names]


def draining(**policy: Any) -> Stand:
    """A run over ten nodes, of which none that is claimed gets beyond Draining."""
    s, names = Stand(**policy), [f"a{number}" for number in range(10)]
    s.add_nodes(*names)
    for name in names:
        s.verdicts[name] = claims.DrainVerdict("slow")
        s.add_pod(f"p-{name}", name)
    s.settle()
    return s


def test_a_node_that_is_held_does_not_hold_those_behind_it() -> None:
    s = Stand(maxUnavailable=1)
    s.short_of_room = lambda name, leaving: "no room" if name == "a0" else ""
    s.add_nodes("a0", "a1", "a2")
    s.settle()
    assert s.claimed() == ["a1"] and "a0" in s.holds


def test_no_more_than_max_parallel() -> None:
    s = draining(maxUnavailable=3, maxParallel=2)
    assert s.claimed() == ["a0", "a1"]
    assert s.holds["a2"] == claims.ClaimHold("max-parallel", "2 nodes in flight, --max-parallel 2")


def test_claims_stop_where_the_slots_do() -> None:
    s = draining(maxUnavailable=2)
    assert s.claimed() == ["a0", "a1"]
    by, because = s.holds["a2"]
    assert by == "slots" and because.startswith("pool (none): 2 of 10 unavailable, at most 2")


def growing(k: int, *named: str) -> Step:
    return Step(pool="p", k=k, window=1 << k, nodes={n: StepNode(zone=n[0]) for n in named})


def sliding(*named: str) -> Step:
    """Growth is over; these were claimed last."""
    return Step(pool="p", k=9, window=0, nodes={n: StepNode(zone=n[0]) for n in named})


def stage(step: Step, waiting: list[str], flying: list[str], zones: int = 1) -> claims.ClaimStage:
    in_flight = {name: name[0] for name in flying}
    return claims.stage_of(step, candidates(*waiting), in_flight, canary=1, zones_at_once=zones)


def test_a_step_claims_its_width_and_then_waits() -> None:
    step = growing(2, "a1")
    assert stage(step, ["a2", "b1"], ["a1"]) == claims.ClaimStage(3, ("a",))
    full = growing(1, "a1", "a2")
    assert stage(full, ["a3"], ["a1"]) == claims.ClaimStage()
    assert stage(full, ["a3"], []) == claims.ClaimStage(soak=True)


def test_a_step_goes_on_into_the_next_zone_when_the_one_before_has_ended() -> None:
    step = growing(2, "a1")
    assert stage(step, ["b1"], ["a1"]) == claims.ClaimStage(3, ("a",)), "zone a is not done with"
    assert stage(step, ["b1"], []) == claims.ClaimStage(3, ("b",))


def test_a_step_with_nothing_left_ends_the_pool_without_a_soak() -> None:
    assert stage(growing(3, "a1"), [], []) == claims.ClaimStage()


def test_once_growth_is_over_zones_follow_one_another_with_a_soak_between() -> None:
    first = sliding()
    assert stage(first, ["a1", "b1"], []) == claims.ClaimStage(2, ("a",)), (
        "growth's soak was just now"
    )
    begun = sliding("a1")
    assert stage(begun, ["b1"], ["a1"]).zones == ("a",)
    assert stage(begun, ["b1"], []) == claims.ClaimStage(1, ("b",), soak=True)
    assert stage(sliding("a1", "b1"), ["b1"], []).zones == ("b",)
    assert stage(begun, [], []) == claims.ClaimStage()


def test_all_zones_at_once() -> None:
    assert stage(sliding(), ["a1", "b1", "c1"], [], zones=0).zones == ("a", "b", "c")
    assert stage(sliding(), ["a1", "b1", "c1"], [], zones=2).zones == ("a", "b")
    begun = sliding("a1", "b1")
    assert stage(begun, ["c1"], ["b1"], zones=2).zones == ("b", "c"), "no soak: b goes on anyway"


def test_claims_that_the_document_does_not_name_yet_count_for_the_step_of_the_next_leader() -> None:
    s = Stand(grown=False, nodes=["a", "b", "c", "d"], canary=2, maxUnavailable=4)
    s.add_nodes("a", "b", "c", "d", "e", "f", "g", "h")
    while not s.claimed():
        s.step()
    assert s.claimed() == ["a", "b"] and s.document.step.nodes == {}, "the leader dies here"
    s.lead(2)
    s.settle()
    assert s.claimed() == ["a", "b"] and s.document.step.nodes.keys() == {"a", "b"}


def test_nothing_is_done_to_a_node_before_the_document_names_it() -> None:
    s = Stand(nodes=["a"], maxUnavailable=1)
    s.add_nodes("a", "b", "c")
    s.add_pod("web-1", "a")
    while not s.claimed():
        s.step()
    s.refuse["UpdateRun"] = (403, "forbidden")
    s.run(59)
    assert s.state("a") == "Draining" and "EvictPod" not in words(s.did)
    s.refuse.clear()
    s.run(60)
    assert "EvictPod" in words(s.did) and s.state("a") == "Working"


def test_a_node_given_back_to_be_taken_again_makes_room_in_its_step() -> None:
    s = Stand(grown=False, nodes=["a", "b"], canary=1, maxUnavailable=4)
    s.add_nodes("a", "b", "c", "d", "e", "f", "g", "h")
    for name in ("a", "b"):
        s.add_pod(f"web-{name}", name)
        s.verdicts[name] = claims.DrainVerdict("ready", moving=(("default", f"web-{name}"),))
    s.settle()
    assert s.claimed() == ["a"] and s.document.step.nodes.keys() == {"a"}
    taint = Taint("karpenter.sh/disrupted", "NoSchedule")
    s.edit("a", spec={"taints": (*s.node("a").spec.taints, taint)})
    s.settle()
    assert s.state("a") == "" and s.claimed() == ["a", "b"], "no soak for a step without a node"
