"""What keeps a pod that was evicted, and how long kubectl waits for it."""

from typing import Any

import pytest

from kubectl_nodelife.kube.times import SECOND_NS
from tests.drain.build import Json, node, plan, pod, pods_of, replica_set
from tests.objects import UNREACHABLE, taint

NODES = [*node("a1"), *node("a2"), *node("a3")]
TIMEOUT = 30 * SECOND_NS


@pytest.mark.parametrize(
    "more, expected",
    [
        pytest.param({"finalizers": ["example.com/hold"]}, "finalizer", id="somebody-s"),
        pytest.param({"finalizers": ["batch.kubernetes.io/job-tracking"]}, None, id="the-job-s"),
    ],
)
def test_finalizers(more: Json, expected: str | None) -> None:
    held = pods_of(plan(NODES, replica_set("web", "a1", metadata=more)))["web-0"]
    assert (held.gate, held.verdict) == ((expected, "never") if expected else ("none", "ready"))
    assert held.start is not None


def dead_nodes() -> list[Any]:
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    return [
        pytest.param(node("a1", lease="2026-01-01T00:59:00Z"), id="lease-ran-out"),
        pytest.param(node("a1", lease="", **unknown), id="ready-unknown"),
    ]


@pytest.mark.parametrize("dead", dead_nodes())
def test_unreachable_kubelet(dead: list[Json]) -> None:
    objects = (dead, node("a2"), replica_set("web", "a1"))
    web = pods_of(plan(*objects))["web-0"]
    assert (web.verdict, web.gate) == ("never", "kubelet-unreachable")
    assert web.start is not None and web.gone is None
    assert plan(*objects, grace_period_seconds=0).verdict == "ready"


def test_a_node_that_was_called_unknown_early_is_unreachable() -> None:
    """A cluster with a shorter grace period than the one assumed: Unknown, and its Lease is 24 s
    old."""
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    nodes = [*node("a1", lease="2026-01-01T00:59:36Z", **unknown), *node("a2")]
    web = pods_of(plan(nodes, replica_set("web", "a1")))["web-0"]
    assert (web.verdict, web.gate) == ("never", "kubelet-unreachable")
    assert web.reason.startswith("the kubelet of a1 stopped posting node status: nothing ends")


OUT_OF_SERVICE = [taint(UNREACHABLE), taint("node.kubernetes.io/out-of-service")]


@pytest.mark.parametrize(
    "alive",
    [
        pytest.param(
            node("a1", status={"conditions": [{"type": "Ready", "status": "Unknown"}]}),
            id="a kubelet that renews its Lease is coming back",
        ),
        # node-lifecycle takes the taint off in its next pass (monitorNodeHealth).
        pytest.param(
            node("a1", lease="", spec={"taints": [taint(UNREACHABLE)]}),
            id="a kubelet that posts is not dead for a taint that is left",
        ),
        pytest.param(node("a1", lease="2026-01-01T00:59:46Z"), id="nor with a fresh Lease"),
        pytest.param(
            node("a1", spec={"taints": OUT_OF_SERVICE}),
            id="out of service lets the collector remove pods",
        ),
    ],
)
def test_nothing_waits_for_a_kubelet(alive: list[Json]) -> None:
    assert plan(alive, node("a2"), replica_set("web", "a1")).verdict == "ready"


def test_a_late_kubelet_stays_silent_as_in_every_forecast() -> None:
    """As `status` counts it down and `what-if` plays it: after 15 s without a sign of life."""
    nodes = [*node("a1", lease="2026-01-01T00:59:21Z"), *node("a2")]
    answer = plan(nodes, replica_set("web", "a1"))
    web = pods_of(answer)["web-0"]
    assert (answer.verdict, web.gate) == ("never", "kubelet-unreachable")
    assert web.reason == (
        "the kubelet of a1 last reported 39s ago: nothing ends the pod until it reports again"
    )


def test_completed_pods_need_no_kubelet() -> None:
    nodes = [*node("a1", lease="2026-01-01T00:00:00Z"), *node("a2")]
    assert plan(nodes, pod("done", "a1", status={"phase": "Failed"})).verdict == "ready"


def test_skip_wait_for_delete_timeout() -> None:
    nodes = [*node("a1", lease="2026-01-01T00:00:00Z"), *node("a2")]
    answer = plan(nodes, replica_set("web", "a1"), skip_wait_seconds=10)
    web = pods_of(answer)["web-0"]
    assert (web.verdict, web.gate, web.gone) == ("slow", "kubelet-unreachable", None)
    # 2 s of grace, then strictly more than 10 s: it takes a look after 11 whole ones.
    assert answer.nodes[0].end == pytest.approx(14, abs=1.5)


def test_pods_that_terminate_already_are_waited_for() -> None:
    going = {"deletionTimestamp": "2026-01-01T01:00:20Z", "deletionGracePeriodSeconds": 30}
    web = pods_of(plan(NODES, replica_set("web", "a1", metadata=going)))["web-0"]
    assert web.verdict == "ready" and web.gone == pytest.approx(20, abs=0.5)


def test_timeout_shorter_than_the_grace() -> None:
    objects = (NODES, replica_set("web", "a1", spec={"terminationGracePeriodSeconds": 60}))
    web = pods_of(plan(*objects, timeout_ns=TIMEOUT))["web-0"]
    assert web.verdict == "slow" and "may not be gone within --timeout=30s" in web.reason
    assert plan(*objects, timeout_ns=TIMEOUT, grace_period_seconds=5).verdict == "ready"


def test_a_finalizer_outlasts_the_timeout_whatever_pods_take() -> None:
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    web = pods_of(plan(NODES, replica_set("web", "a1", **held), timeout_ns=TIMEOUT))["web-0"]
    assert (web.verdict, web.gate) == ("never", "finalizer")
