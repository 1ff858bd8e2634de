"""The steps of a roll-out. Rows: rolling_test.go of pkg/controller/deployment."""

from typing import Any

import pytest

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import DeploymentStrategy, IntOrString, RollingUpdateDeployment
from kubectl_nodelife.sim.deployments import ReplicaCount, fenceposts, first_to_go, next_step
from tests.objects import pod, typed


def rolling(surge: IntOrString, unavailable: IntOrString) -> DeploymentStrategy:
    return DeploymentStrategy("RollingUpdate", RollingUpdateDeployment(unavailable, surge))


def step(
    wanted: int, strategy: DeploymentStrategy, new: tuple[int, int], *old: tuple[int, int]
) -> dict[str, int]:
    """(replicas, available) of the new ReplicaSet and of the old ones."""
    sets = [ReplicaCount(f"old-{i}", *one) for i, one in enumerate(old)]
    return next_step(wanted, strategy, ReplicaCount("new", *new), sets, old_pods=True)


@pytest.mark.parametrize(
    ("surge", "old", "new", "expected"),
    [
        pytest.param(2, 10, 0, {"new": 2}, id="up-by-the-surge"),
        pytest.param(2, 5, 0, {"new": 7}, id="up-by-what-is-missing-too"),
        pytest.param(2, 10, 2, {}, id="the-surge-is-used-up"),
        pytest.param(2, 2, 11, {"new": 10}, id="down-to-what-is-wanted"),
    ],
)
def test_reconcile_new_replica_set(
    surge: int, old: int, new: int, expected: dict[str, int]
) -> None:
    found = step(10, rolling(surge, 0), (new, 0), (old, 10))
    assert {k: v for k, v in found.items() if k == "new"} == expected


@pytest.mark.parametrize(
    ("unavailable", "old", "ready", "new", "expected"),
    [
        pytest.param(0, 10, 10, 0, 9, id="neither-may-be-0-so-that-one-may-be-missing"),
        pytest.param(2, 10, 10, 0, 8, id="down-by-maxUnavailable"),
        pytest.param(2, 10, 8, 0, 8, id="unhealthy-replicas-are-cleaned-up"),
        pytest.param(2, 10, 9, 0, 8, id="one-unhealthy-and-one-ready"),
        pytest.param(2, 8, 8, 2, 8, id="unavailable-pods-of-the-new-one-stop-it"),
    ],
)
def test_reconcile_old_replica_sets(
    unavailable: int, old: int, ready: int, new: int, expected: int
) -> None:
    found = step(10, rolling(0, unavailable), (new, 0), (old, ready))
    assert found.get("old-0", old) == expected


def test_unhealthy_replicas_of_the_oldest_go_first_then_ready_ones() -> None:
    assert step(4, rolling(1, 1), (1, 1), (2, 1), (2, 2)) == {"old-0": 0}
    assert step(4, rolling(0, 2), (0, 0), (1, 1), (3, 3)) == {"old-0": 0, "old-1": 2}


def test_recreate_waits_until_no_old_pod_is_left() -> None:
    strategy = DeploymentStrategy("Recreate")
    new, old = ReplicaCount("new", 0, 0), ReplicaCount("old", 3, 3)
    assert next_step(3, strategy, new, [old], old_pods=True) == {"old": 0}
    gone = ReplicaCount("old", 0, 0)
    assert next_step(3, strategy, new, [gone], old_pods=True) == {}
    assert next_step(3, strategy, new, [gone], old_pods=False) == {"new": 3}


@pytest.mark.parametrize(
    ("strategy", "wanted", "expected"),
    [
        (DeploymentStrategy(), 10, (3, 2)),
        (rolling("25%", "25%"), 1, (1, 0)),
        (rolling(0, "10%"), 3, (0, 1)),
        (rolling(1, 5), 3, (1, 3)),
    ],
)
def test_surge_rounds_up_unavailable_down_and_not_both_are_0(
    strategy: DeploymentStrategy, wanted: int, expected: tuple[int, int]
) -> None:
    assert fenceposts(strategy, wanted) == expected


def scaled(name: str, on: str, ready: int | None = 0, cost: str = "", **more: Any) -> Pod:
    """`ready`: since when, in ns; None: not Ready."""
    notes = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}} if cost else {}
    state = {"ready": ready is not None, "since": ready or 0, "created": 0}
    return typed(pod(name, on, metadata=notes, **state, **more))


def test_pods_that_matter_least_go_first() -> None:
    """ActivePodsWithRanks."""
    pods = [
        scaled("old", "a", 1),
        scaled("young", "b", 900_000_000_000),
        scaled("dear", "c", 1, cost="5"),
        scaled("doubled", "d", 1),
        scaled("unready", "e", None),
        scaled("pending", "f", None, phase="Pending"),
        scaled("unbound", "", None, phase="Pending"),
    ]
    related = [*pods, scaled("other", "d", 1)]
    order = [p.name for p in first_to_go(pods, related, 1_000_000_000_000)]
    assert order == ["unbound", "pending", "unready", "doubled", "young", "old", "dear"]
