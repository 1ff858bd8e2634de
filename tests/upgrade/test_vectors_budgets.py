"""The decision vectors of budgets: how many nodes are claimed, and what holds the next one.

A number is the vector's row. B: nodes that count, A: available, L: floor, M: most unavailable.
"""

from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict
from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.times import SECOND_NS, parse_time
from tests.upgrade.stand import Stand
from tests.upgrade.stand_cluster import START_NS
from tests.upgrade.vector_cases import DONE, DRAINING, SETTLING, WORKING


def run_of(count: int, *, at_start: int = 0, zone: str = "a", **policy: Any) -> Stand:
    """A run over nodes n0, n1, ... that began with `at_start` of them."""
    s = Stand(**{"work": {"mode": "run", "command": "true"}, **policy})
    s.add_nodes(*[f"n{i}" for i in range(count)], zone=zone)
    if at_start:
        s.write(base_counts={"cluster": at_start, "pool": at_start, f"zone//{zone}": at_start})
    return s


def drain_slowly(s: Stand) -> None:
    """What is claimed stays in Draining."""
    for node in list(s.cache.nodes):
        if s.state(node) == "":
            s.verdicts[node] = DrainVerdict("slow")
            s.add_pod(f"p-{node}", node)


def claims(s: Stand) -> int:
    """How many are claimed while nothing else moves."""
    drain_slowly(s)
    s.settle()
    return len(s.claimed())


def budget(s: Stand) -> tuple[int, int, int, int, int]:
    """(B, A, L, M, slots) of the pool, as the last pass left them."""
    assert s.controller.last is not None
    scope = next(x for x in s.controller.last.fleet.counts.scopes() if x.kind == "pool")
    found = s.controller.last.fleet.counts.budget(scope)
    return found.base, found.available, found.floor, found.most_unavailable, found.slots


def test_1_ten_nodes_ten_percent_at_least_eighty() -> None:
    s = run_of(10, maxUnavailable="10%", minAvailable="80%")
    assert claims(s) == 1 and budget(s) == (10, 9, 8, 1, 0)


def test_2_a_percentage_whose_floor_is_0_gives_1() -> None:
    s = run_of(3, maxUnavailable="10%")
    assert claims(s) == 1 and budget(s)[3] == 1


def test_3_all_must_be_available_is_refused() -> None:
    s = run_of(3, minAvailable="80%")
    assert claims(s) == 0
    assert s.controller.last is not None
    scope = next(x for x in s.controller.last.fleet.counts.scopes() if x.kind == "pool")
    refusal = s.controller.last.fleet.counts.budget(scope).refusal()
    assert "3 of 3 must be available" in refusal


def test_4_others_sick_nodes_hold_and_are_named() -> None:
    s = run_of(10, maxUnavailable="10%")
    s.ready("n8", "False")
    s.ready("n9", "False")
    assert claims(s) == 0
    by, because = s.holds["n0"]
    assert by == "slots" and "n8" in because and "n9" in because


def test_5_vanished_nodes_hold_until_a_rebase() -> None:
    s = run_of(8, at_start=10, maxUnavailable="20%")
    assert claims(s) == 0 and budget(s)[:2] == (10, 8)
    assert "vanished" in s.holds["n0"][1]
    s.request("resume", rebase=True)
    s.settle()
    assert len(s.claimed()) == 1 and budget(s)[0] == 8


def test_6_added_nodes_raise_what_is_available() -> None:
    s = run_of(12, at_start=10, maxUnavailable="20%", minAvailable=10)
    assert claims(s) == 2 and budget(s)[:4] == (12, 10, 10, 2)


def test_7_three_of_ours_draining_leave_one() -> None:
    s = run_of(99, maxUnavailable="5%")
    drain_slowly(s)
    for name in ("n0", "n1", "n2"):
        s.mark(name, DRAINING)
    assert claims(s) == 1 and budget(s)[3] == 4


def test_8_a_cordoned_node_waits_without_a_slot() -> None:
    s = run_of(4, maxUnavailable=1)
    s.edit("n0", spec={"unschedulable": True})
    assert claims(s) == 0 and s.skipped["n0"] == "cordoned by others"
    included = run_of(4, maxUnavailable=0, includeCordoned=True, nodes=["n0"])
    included.edit("n0", spec={"unschedulable": True})
    assert claims(included) == 0


ZONES = [
    pytest.param(3, 0, 0, 1, id="9: n=3, o=0, a=0: k 2, claim"),
    pytest.param(3, 0, 1, 0, id="9: n=3, o=0, a=1: k 3, hold"),
    pytest.param(4, 1, 0, 0, id="10: n=4, o=1: k 3, 0.75: hold"),
    pytest.param(10, 3, 0, 1, id="11: n=10, o=3: k 5, 0.5: claim"),
    pytest.param(10, 4, 0, 0, id="11: n=10, o=4: k 6, 0.6: hold"),
    pytest.param(20, 4, 5, 0, id="12: n=20, a+o=9: k 11, 0.55: hold"),
    pytest.param(20, 4, 4, 1, id="12: n=20, a+o=8: k 10, 0.5: claim"),
]


@pytest.mark.parametrize(("nodes", "ours", "down", "expected"), ZONES)
def test_zone_brake(nodes: int, ours: int, down: int, expected: int) -> None:
    s = run_of(nodes, maxUnavailable=20, nodes=[f"n{i}" for i in range(ours + 1)])
    drain_slowly(s)
    for i in range(ours):
        s.mark(f"n{i}", DRAINING)
    for i in range(nodes - down, nodes):
        s.ready(f"n{i}", "False")
    s.settle()
    assert len(s.claimed()) == expected
    if not expected:
        assert s.holds[f"n{ours}"][0] == "zone"


def test_13_a_zone_of_one_is_dark_but_where_that_is_allowed() -> None:
    assert claims(run_of(1, maxUnavailable=1)) == 0
    assert claims(run_of(1, maxUnavailable=1, allowDarkZone=True)) == 1


def test_13_a_zone_of_two_whose_other_node_is_down() -> None:
    s = run_of(2, maxUnavailable=2)
    s.ready("n1", "False")
    assert claims(s) == 0 and s.holds["n0"][0] == "zone"


def test_14_no_room_holds_by_what_leaves_the_nodes_draining() -> None:
    s = run_of(10, maxUnavailable=2)
    s.short_of_room = lambda name, leaving: "0 of 32 free" if leaving else ""
    assert claims(s) == 1
    assert next(iter(s.holds.values())) == ("room", "0 of 32 free")


def test_49_a_window_that_closes_before_the_estimate_holds() -> None:
    s = run_of(3, maxUnavailable=1, window=["08:00-08:30"])
    s.verdicts = {f"n{i}": DrainVerdict("ready", high_seconds=13 * 60.0) for i in range(3)}
    assert parse_time("2027-01-15T08:00:00Z") == START_NS
    s.settle()
    assert not s.claimed() and s.holds["n0"][0] == "window"
    for name in s.verdicts:
        s.verdicts[name] = DrainVerdict("ready", high_seconds=60.0)
    s.run(61)
    assert s.claimed()


def test_50_a_window_of_friday_night_is_open_on_saturday_morning() -> None:
    for stamp, is_open in (("2027-01-16T02:00:00Z", True), ("2027-01-15T02:00:00Z", False)):
        s = Stand(maxUnavailable=1, window=["Fri 22:00-04:00"])
        s.add_nodes("n0", "n1", "n2")
        s.clock_ns = parse_time(stamp)
        s.settle()
        assert bool(s.claimed()) == is_open
        assert ("window" in s.gates) != is_open


def test_a_pool_that_an_autoscaler_shrinks_does_not_hold_the_run() -> None:
    s = run_of(10, maxUnavailable=1)
    s.edit("n9", spec={"taints": (Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule"),)})
    drain_slowly(s)
    s.settle()
    assert s.claimed() == []
    s.cache.set("Node", ("", "n9"), None)
    s.settle()
    assert len(s.claimed()) == 1 and budget(s)[0] == 9


def test_a_node_that_an_autoscaler_took_leaves_the_count_though_the_first_write_was_refused() -> (
    None
):
    s = run_of(10, maxUnavailable=1)
    drain_slowly(s)
    s.settle()
    s.edit("n9", spec={"taints": (Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule"),)})
    s.settle()
    s.refuse["UpdateRun"] = (409, "the object has been modified")
    s.cache.set("Node", ("", "n9"), None)
    s.step()
    del s.refuse["UpdateRun"]
    s.settle()
    assert budget(s)[0] == 9 and s.document.base_counts["cluster"] == 9
    s.run(60)
    assert budget(s)[0] == 9


@pytest.mark.parametrize("state", [DRAINING, WORKING, SETTLING, DONE])
def test_an_autoscaler_may_take_a_node_that_the_run_has_named(state: NodeState) -> None:
    s = Stand(grown=False, maxUnavailable=1, canaryNodes=["n0"])
    s.add_nodes(*[f"n{i}" for i in range(10)])
    if state == DRAINING:
        drain_slowly(s)
    s.settle()
    if state == SETTLING:
        s.silence("n0")
    if state in (SETTLING, DONE):
        s.ends("n0", 0)
        s.run(4 * 60)
    assert s.state("n0") == state and s.claimed() == ["n0"]
    s.edit("n0", spec={"taints": (Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule"),)})
    s.settle()
    s.cache.set("Node", ("", "n0"), None)
    s.run(20 * 60, every=30)
    assert s.claimed()[:2] == ["n0", "n1"] and s.document.failed == ()
    assert budget(s)[0] == 9


def test_a_node_that_is_to_be_replaced_is_waited_for_though_an_autoscaler_deletes_it() -> None:
    s = run_of(10, maxUnavailable=1, work={"mode": "replace"})
    s.settle()
    s.edit("n0", spec={"taints": (Taint("karpenter.sh/disrupted", "NoSchedule"),)})
    s.settle()
    s.cache.set("Node", ("", "n0"), None)
    s.run(120)
    assert s.claimed() == ["n0"] and budget(s)[0] == 10
    s.add_nodes("new", born_ns=s.now_ns)
    s.settle()
    assert s.state("new") == SETTLING and budget(s)[0] == 10


def test_a_node_made_after_the_start_is_no_candidate_without_a_target() -> None:
    s = run_of(2, maxUnavailable=1)
    s.add_nodes("late", born_ns=Time(START_NS + 5 * SECOND_NS))
    s.settle()
    assert "late" not in s.claimed() and "after the start" in s.skipped["late"]


def test_a_node_whose_budget_refills_is_passed_over_and_skipped_in_the_end() -> None:
    s = run_of(3, maxUnavailable=1, work={"mode": "nothing"})
    s.verdicts["n0"] = DrainVerdict("ready", "budget a is at zero", waits=True)
    s.run(5 * 60, every=20)
    assert s.claimed() == ["n1", "n2"] and s.holds["n0"] == ("budget", "budget a is at zero")
    s.run(16 * 60, every=30)
    assert s.document.phase == "Finished" and "budget a" in s.document.given_back["n0"]


@pytest.mark.parametrize("grown", [True, False])
def test_a_node_for_whose_pods_there_is_no_room_holds_up_neither_zones_nor_pools(
    grown: bool,
) -> None:
    s = Stand(grown=grown, maxUnavailable=1, work={"mode": "nothing"}, soak="1s")
    s.add_nodes("a1", "a2", zone="a")
    s.add_nodes("b1", "b2", zone="b")
    s.add_nodes("c1", zone="a", labels={"pool": "c"})
    short = {"a1": "pod p finds no other node"}
    s.short_of_room = lambda name, leaving: short.get(name, "")
    s.run(15 * 60)
    assert s.claimed() == ["a2", "b1", "b2"] and s.holds["a1"] == ("room", short["a1"])
    s.run(10 * 60)
    assert s.claimed() == ["a2", "b1", "b2", "c1"] and s.document.phase == "Finished"
    assert s.document.given_back == {"a1": "no room: pod p finds no other node"}


def test_a_node_for_whose_pods_there_is_room_again_is_done_last() -> None:
    s = Stand(maxUnavailable=1, work={"mode": "nothing"}, soak="1s")
    s.add_nodes("a1", "a2", zone="a")
    s.add_nodes("b1", "b2", zone="b")
    short = {"a1": "pod p finds no other node"}
    s.short_of_room = lambda name, leaving: short.get(name, "")
    s.run(10 * 60)
    short.clear()
    s.run(5 * 60)
    assert s.claimed() == ["a2", "b1", "b2", "a1"] and s.document.phase == "Finished"


def test_nodes_chosen_in_one_pass_are_judged_one_after_another() -> None:
    s = run_of(10, maxUnavailable=9)
    assert claims(s) == 4, "the zone brake: k 6 of 10 would be 0.6"
    before = len(s.did)
    s.run(60)
    assert [a for a in s.did[before:] if type(a).__name__ == "UpdateRun"] == []


def test_a_pool_that_was_not_asked_for_is_skipped() -> None:
    s = run_of(3, maxUnavailable=1, pools=["blue"])
    s.label("n0", pool="blue")
    s.settle()
    assert s.claimed() == ["n0"] and "--pools" in s.skipped["n1"]


def test_pools_come_one_after_another() -> None:
    s = Stand(grown=False, maxUnavailable=1, work={"mode": "nothing"}, soak="1s")
    s.add_nodes("b1", "b2", labels={"pool": "b"})
    s.add_nodes("a1", "a2", labels={"pool": "a"})
    s.run(20 * 60, every=20)
    assert s.claimed() == ["a1", "a2", "b1", "b2"] and s.document.phase == "Finished"


def test_a_named_canary_goes_first_whatever_its_zone() -> None:
    s = Stand(grown=False, maxUnavailable=5, canaryNodes=["z2"])
    s.add_nodes("a1", "a2", "a3")
    s.add_nodes("z1", "z2", "z3", zone="z")
    s.settle()
    assert s.claimed() == ["z2"]
