"""What a leader tells on the Lease of its last pass."""

from kubectl_nodelife.controllers.upgrade.report import report_of
from tests.upgrade.stand import Stand


def lowest(stand: Stand) -> dict[str, int]:
    assert stand.controller.last is not None
    return {scope: low for scope, (low, _) in report_of(stand.controller.last).lowest.items()}


def test_a_blind_leader_tells_no_low_point() -> None:
    stand = Stand(cold=True, nodes=["x"], maxUnavailable=5)
    stand.add_nodes("x", "y", "z")
    stand.silence("z")  # and the leader cannot know it yet
    stand.run(45)
    assert lowest(stand) == {}
    stand.run(10)
    assert lowest(stand)["cluster"] <= 2
