"""Studies of three nodes, computed by hand; all figures are of one hour.

A node that is silent from 100 s on was last heard of at 96, which the pass of 100.020 sees; it is
too old after 150.020, Unknown in the pass of 150.030, tainted at 150.1; a pod that tolerates 300 s
is deleted at 450.1, and its replacement is ready at 452.15.
"""

import pytest

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sweep.failures import (
    FIXED,
    Flap,
    Independent,
    Law,
    MachineOutage,
    Model,
    Trace,
)
from kubectl_nodelife.sweep.points import Point
from tests.sweep.stand import base, measure, plan
from tests.what_if.stand import budget, workload

WEB = [*workload("web", ["a1"]), *budget("web", 1, 1)]
FOR_EVER = 10_000


def off(to_s: float) -> Trace:
    """a1 is off from 100 s on, until then."""
    outage = MachineOutage("a1", 100 * SECOND_NS, round(to_s * SECOND_NS))
    return Trace((outage,), by_name=True)


def cut(to_s: float) -> Model:
    """All links are cut at 100 s, each until then, and not again within the hour."""
    return Flap(Law(FIXED, 100 * SECOND_NS), Law(FIXED, round((to_s - 100) * SECOND_NS)))


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        pytest.param(
            off(FOR_EVER),
            {
                "nodeMinutesLost": (3600 - 150.03) / 60,
                "needlessNodeMinutes": 0,
                "evictions": 1,
                "needlessEvictions": 0,
                "unavailablePodMinutes": 352.15 / 60,
                "atZeroMinutes": 352.15 / 60,
                "workloadsAtZero": 1,
                "belowBudgetMinutes": (452.15 - 150.03) / 60,
                "pendingPodMinutes": 0,
                "blindMinutes": 50.03 / 60,
                "movesPerPod": 1,
                "brakeMinutes": 0,
            },
            id="off for ever: evicted, and with reason",
        ),
        pytest.param(
            off(451),
            {
                "nodeMinutesLost": (451 - 150.03) / 60,
                "evictions": 1,
                "needlessEvictions": 1,
                "unavailablePodMinutes": 352.15 / 60,
            },
            id="back after the eviction and before the replacement is ready: needless",
        ),
        pytest.param(
            off(453),
            {"evictions": 1, "needlessEvictions": 0, "needlessNodeMinutes": 0},
            id="back after the replacement was ready: with reason",
        ),
        pytest.param(
            off(400),
            {
                "nodeMinutesLost": (400 - 150.03) / 60,
                "evictions": 0,
                "needlessEvictions": 0,
                "movesPerPod": 0,
                "unavailablePodMinutes": 302 / 60,  # its containers start anew, in 2 s
            },
            id="back before the pod's time is over: kept, and runs where it was",
        ),
        pytest.param(
            off(140),
            {"nodeMinutesLost": 0, "blindMinutes": 40 / 60, "evictions": 0},
            id="back before anything was noticed: traffic is lost for all of it",
        ),
    ],
)
def test_one_machine(failure: Model, expected: dict[str, float]) -> None:
    found = measure(plan(base(WEB), failure))
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=2e-3)


def test_a_link_is_lost_needlessly() -> None:
    """All three zones are dark: no taints, no eviction, and all pods serve."""
    found = measure(plan(base(WEB), cut(700), hours=0.2))
    lost = 3 * (700 - 150.03) / 60
    expected = {"nodeMinutesLost": lost, "needlessNodeMinutes": lost, "evictions": 0}
    brake = 3 * (700.14 - 150.03) / 60  # the pass after the nodes are back lets it go
    expected |= {"unavailablePodMinutes": 0, "blindMinutes": 0, "brakeMinutes": brake}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=2e-3)


def test_settings_of_a_point_hold() -> None:
    """A grace period of 20 s: too old after 120.020, Unknown in the pass of 120.024; the pods'
    stamps are those of a default of 30 s: deleted at 150.1, ready at 152.15."""
    owner, pod = workload("web", ["a1"])
    template = {**owner["spec"]["template"]["spec"], "tolerations": []}  # the pod's are stamps
    owner["spec"]["template"] = {**owner["spec"]["template"], "spec": template}
    point: Point = {"flags.node-monitor-grace-period": "20s", "tolerationSeconds": 30}
    found = measure(plan(base([owner, pod]), off(FOR_EVER)), point)
    assert found["blindMinutes"] == pytest.approx(20.024 / 60, abs=2e-3)
    assert found["unavailablePodMinutes"] == pytest.approx(52.15 / 60, abs=2e-3)


def test_a_budget_of_a_point_holds() -> None:
    found = measure(plan(base(WEB), off(FOR_EVER)), {"budgets.minAvailable": 0})
    assert found["belowBudgetMinutes"] == 0


def test_a_renewal_interval_of_a_point_holds() -> None:
    """Renewals at 26 k - 4: the last at 74, seen at 75.015: Unknown in the pass of 125.025."""
    found = measure(plan(base(WEB), off(FOR_EVER)), {"leaseRenewInterval": "26s"})
    assert found["blindMinutes"] == pytest.approx(25.025 / 60, abs=2e-3)


def test_a_machine_fails_again_and_again() -> None:
    """Up for 1000 s, down for 400 s, on every node: at 1000 and 2400, each evicted once."""
    failure = Independent(Law(FIXED, 1000 * SECOND_NS), Law(FIXED, 400 * SECOND_NS))
    found = measure(plan(base(WEB), failure))
    assert found["nodeMinutesLost"] == pytest.approx(3 * 2 * 349.9 / 60, abs=1)
    assert found["brakeMinutes"] > 0


def test_all_failures_at_once_leave_nothing_to_place_pods_on() -> None:
    """Pods of 3 cpu, of which a node of 4 holds one: the evicted pod waits to the end."""
    pods = workload("web", ["a1", "b1", "c1"], cpu="3")
    found = measure(plan(base(pods), off(FOR_EVER)))
    assert found["pendingPodMinutes"] == pytest.approx((3600 - 450.1) / 60, abs=2e-3)
