"""What a leader tells on the Lease of its last pass."""

from kubectl_nodelife.controllers.upgrade.report import report_of
from kubectl_nodelife.kube.times import MINUTE_NS, format_time
from tests.upgrade.stand import Stand
from tests.upgrade.vector_cases import FAILED, SETTLING, TARGET, one


def lowest(stand: Stand) -> dict[str, int]:
    assert stand.controller.last is not None
    return {scope: low for scope, (low, _) in report_of(stand.controller.last).lowest.items()}


def deadlines(stand: Stand) -> dict[str, str]:
    assert stand.controller.last is not None
    return report_of(stand.controller.last).deadlines


def settling() -> Stand:
    """x is in Settling, of which its mark says when its 15 minutes are over."""
    begun = Stand().now_ns
    return one(SETTLING, nodes=5, policy=TARGET, deadline=format_time(begun + 15 * MINUTE_NS))


def test_a_blind_leader_tells_no_low_point() -> None:
    stand = Stand(cold=True, nodes=["x"], maxUnavailable=5)
    stand.add_nodes("x", "y", "z")
    stand.silence("z")  # and the leader cannot know it yet
    stand.run(45)
    assert lowest(stand) == {}
    stand.run(10)
    assert lowest(stand)["cluster"] <= 2


def test_a_leader_tells_that_a_clock_stands_and_when_its_time_is_over_then() -> None:
    stand, others = settling(), ("n0", "n1", "n2")
    stand.run(60)
    assert deadlines(stand) == {}, "the mark says it"
    for name in others:
        stand.ready(name, "False")
    stand.run(20 * 60, every=30)
    assert deadlines(stand) == {"x": ""}
    for name in others:
        stand.ready(name)
    stand.run(60, every=30)
    told = deadlines(stand)["x"]
    while format_time(stand.now_ns) < told:
        assert stand.state("x") == SETTLING
        stand.run(10)
    stand.run(10)
    assert stand.state("x") == FAILED
