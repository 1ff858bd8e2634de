"""The ends of the estimate: near enough to each other to be of use, and told from what is read."""

from typing import Any

from kubectl_nodelife.upgrade.findings import UpgradeEstimate
from tests.drain.build import Json, budget, owned, replica_set
from tests.upgrade.test_plan import NAMES, blue, plan


def estimate(*objects: Json | list[Json], **policy: Any) -> UpgradeEstimate:
    found = plan(blue(*NAMES), *objects, **policy).estimate
    assert found is not None
    return found


def leases(seconds: int) -> list[Json]:
    return [
        {
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"leaseDurationSeconds": seconds, "renewTime": "2026-01-01T01:00:00Z"},
        }
        for name in NAMES
    ]


def test_the_ends_are_less_than_a_factor_two_apart_where_the_work_is_known() -> None:
    known, unknown = estimate(expectWork="10m"), estimate()
    assert known.low < known.high < 2 * known.low
    assert unknown.low < unknown.high < 4 * unknown.low


def test_kubelets_that_renew_often_are_soon_believed() -> None:
    policy = {"readyFor": "2s", "expectWork": "4s", "soak": "3s", "nodeSoak": "1s"}
    slow, quick = estimate(leases(40), **policy), estimate(leases(4), **policy)
    assert slow.low > 1.5 * quick.low and slow.high > quick.high + 60
    assert quick.high < 8 * quick.low


def test_at_most_and_at_least_wait_for_budgets_as_well() -> None:
    web = budget("web", "web", healthy=3, desired=2, expected=3, minAvailable=2)
    pods = replica_set("web", "a1", "b1", "c1")
    policy = {"zones": 0, "canary": 3, "maxUnavailable": "50%", "expectWork": "10s"}
    free, held = estimate(pods, **policy), estimate(pods, web, **policy)
    assert held.high > free.high + 20, "the drains follow one another"
    assert held.low >= free.low


def test_at_the_low_end_no_drain_is_given_back_and_tried_again() -> None:
    policy = {"zones": 0, "drainTimeout": "15m", "expectWork": "10s", "readyFor": "5s"}
    lasting = owned("StatefulSet", "gone", "a2", 0, grace=600)
    free, tried_again = estimate(**policy), estimate(lasting, **policy)
    assert tried_again.high > free.high + 15 * 60, "nothing takes its place: given back at 15m"
    assert abs(tried_again.low - free.low) < 240
