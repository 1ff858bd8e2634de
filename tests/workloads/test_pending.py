"""Why a pod has no node, in one line, and the smallest change."""

from typing import Any

import pytest

from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.workloads.pending import Origin, PendingReason, pending_reason
from tests.sim import documents
from tests.sim.test_daemon_pods import asking, small

NOT_THERE = {"key": "metadata.name", "operator": "In", "values": ["n9"]}


def reason(*objects: Any, **spec: Any) -> PendingReason | None:
    """Of a pod with that spec beside these nodes and pods."""
    nodes = {o["metadata"]["name"]: decode("Node", o) for o in objects if o["kind"] == "Node"}
    pods = [decode("Pod", o) for o in objects if o["kind"] == "Pod"]
    asks = decode("Pod", documents.pod("asks", **spec))
    assert isinstance(asks, Pod)
    return pending_reason(
        asks,
        {name: node for name, node in nodes.items() if isinstance(node, Node)},
        lambda name: [p for p in pods if isinstance(p, Pod) and p.spec.node_name == name],
        Origin(),
    )


def pinned(where: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchFields": [where]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("there", "spec", "because", "change", "lasts"),
    [
        ([documents.node("n1", unschedulable=True)], {}, "n1 is cordoned", "uncordon n1", True),
        (
            [documents.node("n1", taints=[{"key": "gpu", "effect": "NoSchedule"}])],
            {},
            "n1 has the taint gpu:NoSchedule",
            "remove the taint",
            True,
        ),
        (
            [
                documents.node(
                    "n1",
                    taints=[{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}],
                )
            ],
            {},
            "disk-pressure",
            "",
            False,
        ),
        ([documents.node("n1")], {"nodeSelector": {"a": "b"}}, "nodeSelector a=b", "a=b", True),
        ([small("n1")], {"containers": asking("2")}, "no pod there takes of it", "less", True),
        ([documents.node("n1")], {"affinity": pinned(NOT_THERE)}, "no such node", "", True),
    ],
    ids=["cordon", "taint", "condition", "selector", "too large", "missing"],
)
def test_one_node(there: Any, spec: Any, because: str, change: str, lasts: bool) -> None:
    found = reason(*there, **spec)
    assert found is not None and because in str(found)
    assert change in found.obstacle.change and found.obstacle.lasts is lasts


def test_preemption_and_pods_that_go_are_waited_for() -> None:
    held = documents.pod("held", "n1", containers=asking("400m"), priority=-10)
    found = reason(small("n1"), held, containers=asking("500m"))
    assert found is not None and "lower priority are preempted" in str(found)
    assert not found.obstacle.lasts
    going = documents.pod("going", "n1", containers=asking("400m"))
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = reason(small("n1"), going, containers=asking("500m"))
    assert found is not None and "until going, which is terminating, is gone" in str(found)


def test_where_one_would_do_or_none_was_read_nothing_is_said() -> None:
    assert reason(documents.node("n1"), documents.node("n2", unschedulable=True)) is None
    assert reason(affinity=pinned(NOT_THERE)) is None


def test_of_several_nodes_the_kinds_are_counted() -> None:
    found = reason(documents.node("n1", unschedulable=True), small("n2"), containers=asking("2"))
    assert found is not None and "none of 2 nodes will do" in str(found)
    assert found.obstacle.change == "kubectl uncordon n1"


def test_an_uncordon_that_does_not_help_is_no_change() -> None:
    cordoned = {**small("n1"), "spec": {"unschedulable": True}}
    found = reason(cordoned, containers=asking("2"))
    assert found is not None and str(found).startswith("none of 1 nodes will do")
    assert "n1 is cordoned; n1 has 0.6 of cpu left" in str(found) and not found.obstacle.change
