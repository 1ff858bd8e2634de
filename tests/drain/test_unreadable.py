"""A plan that depends on an object that cannot be read says `unknown`, and why."""

from typing import Any

import pytest

from tests.drain.build import budget, merged, node, plan, pod, replica_set, workload

MUCH = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}}


def bad(name: str, on: str, **more: Any) -> dict[str, Any]:
    return merged(pod(name, on), merged(MUCH, more))


def test_a_node_with_such_a_pod_is_unknown_and_another_is_not() -> None:
    cluster = (*node("a1"), *node("a2"), *replica_set("web", "a1", "a2"), bad("x", "a1"))
    found = plan(*cluster, nodes=("a1", "a2"))
    assert [n.verdict for n in found.nodes] == ["unknown", "ready"]
    assert found.verdict == "unknown"
    assert found.warnings[0].startswith("whether node a1 is drained depends on Pod default/x")


@pytest.mark.parametrize(
    ("unreadable", "verdict"),
    [
        pytest.param([], "ready", id="nothing"),
        pytest.param(
            [merged(workload("ReplicaSet", "web", 2), {"spec": "x"})], "unknown", id="owner"
        ),
        pytest.param(
            [merged(workload("ReplicaSet", "app", 2), {"spec": "x"})], "ready", id="another"
        ),
        pytest.param(
            [merged(budget("b", "x", healthy=1, desired=1, expected=1), {"spec": "x"})],
            "unknown",
            id="a-budget-that-may-match",
        ),
    ],
)
def test_a_pod_hangs_on_its_owner_and_budgets(unreadable: list[Any], verdict: str) -> None:
    owner, *pods = replica_set("web", "a1", "a2")
    there = [] if unreadable and unreadable[0]["metadata"]["name"] == "web" else [owner]
    found = plan(*node("a1"), *node("a2"), *there, *pods, *unreadable)
    (moved,) = found.pods()
    assert moved.verdict == verdict, moved.reason
    assert ("cannot be read" in moved.reason) is (verdict == "unknown")
