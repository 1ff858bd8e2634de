"""Questions to clusters that can be reckoned by hand.

Last sign of life at -4 s: too old after 46 s, called Unknown by the pass at 50.010; tainted by the
100 ms loop at 50.1; pods that tolerate it for 300 s are deleted at 350.1, and their replacements
are Ready 2 s after that.
"""

import pytest

from tests.simulating import NO_LIMIT
from tests.what_if.stand import SIX, ask, budget, node, of, of_node, service, workload

NEAR = pytest.approx
WEB = workload("web", ["a1", "b1", "b2"])


def second(value: float | None) -> object:
    """Requests and controllers take some ms, whole seconds are cut."""
    return None if value is None else NEAR(value, abs=0.7)


def test_one_node_is_lost() -> None:
    answer = ask("lose node a1", WEB)
    lost, web = of_node(answer, "a1"), of(answer, "web")
    assert (lost.unknown_seconds, lost.tainted_seconds) == (50.01, 50.1)
    assert (lost.first_deletion_seconds, lost.evicted) == (350.1, 1)
    assert (web.outage, web.lowest_serving, web.lowest_ready) == ("degraded", 2, 2)
    assert (web.first_seconds, web.blind_seconds) == (0.0, NEAR(50.01))
    assert web.back_seconds == second(352.1)
    assert (web.evicted, web.moves, len(web.stuck)) == (1, 1, 1)
    assert not answer.zones, "one of three: the zone stays Normal"
    assert answer.verdict.text == "what if node a1 is lost: web has fewer pods for a while"


def test_a_node_that_is_back_before_anybody_notices() -> None:
    answer = ask("lose node a1 --for 40s", WEB)
    web = of(answer, "web")
    assert of_node(answer, "a1").unknown_seconds is None
    assert (web.lowest_serving, web.evicted) == (2, 0)
    assert web.back_seconds == second(42)


def test_a_lost_link_leaves_the_pods_serving() -> None:
    answer = ask("lose link node a1 --for 2m", WEB)
    web = of(answer, "web")
    assert (web.outage, web.lowest_ready, web.lowest_serving) == ("none", 2, 3)
    assert (web.evicted, web.blind_seconds) == (0, 0.0)
    assert of_node(answer, "a1").back_seconds == second(120)


def test_a_zone_is_lost_with_a_stateful_set() -> None:
    db = workload("db", ["a1", "a2", "a3"], "StatefulSet")
    answer = ask("lose zone a", [*db, *workload("web", ["a1", "a2", "b1"])])
    (zone,) = answer.zones
    assert [(c.at, c.state, c.rate) for c in zone.states] == [
        (0.0, "Normal", 0.1),
        (50.01, "FullDisruption", 0.1),
    ]
    assert [of_node(answer, n).tainted_seconds for n in ("a1", "a2", "a3")] == NEAR(
        [50.1, 60.1, 70.1], abs=0.11
    )
    assert (of(answer, "db").outage, len(of(answer, "db").stuck)) == ("full", 3)
    assert of(answer, "db").back_seconds is None
    assert of(answer, "web").lowest_serving == 1
    assert of(answer, "web").back_seconds == second(362.1)
    assert answer.verdict.text.startswith(
        "what if zone a is lost (3 nodes): db is down, to the end"
    )


def test_a_partial_disruption_stops_a_small_zone() -> None:
    five = ("a1", "a2", "a3", "a4", "a5", "b1", "b2", "b3")
    web = workload("web", ["a1", "a2", "a3"])
    answer = ask("lose node a1 a2 a3", web, nodes=five)
    (zone,) = answer.zones
    assert (zone.states[-1].state, zone.states[-1].rate, zone.held_pods) == (
        "PartialDisruption",
        0.0,
        3,
    )
    assert (of(answer, "web").outage, of(answer, "web").evicted) == ("full", 0)
    assert of(answer, "web").at_risk.brake == 3
    assert "a stops evicting" in answer.verdict.text


def test_two_of_five_are_too_few_to_stop_a_zone() -> None:
    five = ("a1", "a2", "a3", "a4", "a5", "b1", "b2", "b3")
    answer = ask("lose node a1 a2", workload("web", ["a1", "a2", "b1"]), nodes=five)
    assert not answer.zones
    assert of(answer, "web").back_seconds == second(362.1)


def test_the_link_of_all_nodes_is_lost() -> None:
    answer = ask("lose link", [*WEB, *service("web")])
    web = of(answer, "web")
    assert [zone.states[-1].rate for zone in answer.zones] == [0.0, 0.0]
    assert (web.outage, web.lowest_ready, web.lowest_serving, web.evicted) == ("none", 0, 3, 0)
    assert (answer.services[0].lowest, answer.services[0].blind_seconds) == (0, 0.0)
    assert answer.verdict.outage == "none"
    assert "Service web has no endpoints to the end" in answer.verdict.text


def test_a_daemon_pod_is_never_deleted() -> None:
    answer = ask("lose node a1", workload("agent", SIX, "DaemonSet", tolerates=None))
    agent = of(answer, "agent")
    assert (agent.evicted, agent.at_risk.for_ever) == (0, 1)


@pytest.mark.parametrize(
    "tolerates, deleted",
    [
        pytest.param(0, 50.1, id="not-at-all"),
        pytest.param(30, 80.1, id="for-thirty-seconds"),
        pytest.param(None, None, id="for-ever"),
    ],
)
def test_how_long_a_pod_tolerates_it(tolerates: int | None, deleted: float | None) -> None:
    answer = ask("lose node a1", workload("web", ["a1"], tolerates=tolerates))
    assert of_node(answer, "a1").first_deletion_seconds == deleted


def test_a_shorter_grace_period() -> None:
    answer = ask("set node-monitor-grace-period=20s --and lose node a1", WEB)
    lost = of_node(answer, "a1")
    assert (lost.unknown_seconds, lost.tainted_seconds) == (20.004, 20.1)
    assert lost.first_deletion_seconds == 320.1
    assert answer.settings["future"] == {**NO_LIMIT, "node-monitor-grace-period": "20s"}


def test_another_rate_and_the_old_form_of_set() -> None:
    web = workload("web", ["a1", "a2", "a3"])
    answer = ask("set node-eviction-rate=1 lose zone a", web)
    lost = [of_node(answer, name).first_deletion_seconds for name in ("a1", "a2", "a3")]
    assert lost == NEAR([350.1, 351.1, 352.1], abs=0.21)
    assert of(answer, "web").back_seconds == second(354.1)


def test_two_losses_one_after_the_other() -> None:
    web = workload("web", ["a1", "a2", "b1"])
    answer = ask("lose node a1 --and lose node a2 --at 3m", web)
    assert of_node(answer, "a2").unknown_seconds == 230.046
    assert of_node(answer, "a2").first_deletion_seconds == 530.1
    assert of(answer, "web").lowest_serving == 1
    assert of(answer, "web").outage == "degraded"


def test_a_single_point_of_failure() -> None:
    answer = ask("lose node a1", [*workload("web", ["a1", "a1"]), *service("web")])
    (found,) = answer.services
    assert (found.endpoints_before, found.lowest) == (2, 0)
    assert found.without_endpoints_seconds == NEAR(302.09, abs=0.7)
    assert found.blind_seconds == NEAR(50.01, abs=0.01)
    assert of(answer, "web").at_zero_seconds == second(352.1)


def test_no_room_is_left() -> None:
    small = [each for name in ("a1", "a2", "a3") for each in node(name)]
    pods = workload("web", ["a1"] * 4 + ["a2"] * 3 + ["a3"] * 3, cpu="1")
    answer = ask("lose node a1", [*small, *pods], nodes=("a1", "a2", "a3"))
    assert len(of(answer, "web").pending) == 2
    assert "2 pods find no place" in answer.verdict.text


def test_a_budget_holds_a_drain_until_the_replacement_is_ready() -> None:
    objects = [*workload("web", ["a1", "b1"]), *budget("web", 1, 2)]
    answer = ask("lose node a1 --and drain b1 --at 60s", objects)
    assert of(answer, "web").lowest_serving == 1
    assert of(answer, "web").evicted == 2
    assert of_node(answer, "b1").first_deletion_seconds == NEAR(356.3, abs=6)


def test_a_node_is_deleted() -> None:
    answer = ask("delete node a1", WEB)
    web = of(answer, "web")
    assert (web.evicted, web.collected) == (0, 1)
    assert web.back_seconds == second(62.003)


def test_a_kubelet_that_is_late_stays_silent_in_both_plays() -> None:
    late = [*node("a1", lease_age=20), *workload("web", ["a1"])]
    answer = ask("lose node a2", late)
    assert [each.name for each in answer.nodes] == ["a2"]
    assert not answer.workloads
    assert any("a1 last reported 20s ago and stays silent" in s for s in answer.assumed)


def test_no_act_that_changes_anything_makes_no_difference() -> None:
    answer = ask("uncordon a1", WEB)
    assert not answer.workloads and not answer.differences
    assert answer.verdict.text == "what if node a1 is uncordoned: no workload notices"


def test_the_same_question_gives_the_same_answer() -> None:
    assert ask("lose zone a", WEB) == ask("lose zone a", WEB)
