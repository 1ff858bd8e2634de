"""Every class of readiness, and the cases just beside it."""

from typing import Any

import pytest

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kubelet.releases import rules_for
from kubectl_nodelife.outlook.audit.classes import classify
from kubectl_nodelife.workloads.force_advice import NodeReadiness
from tests.pod_status.objects import LONG_AGO_S, NOW_NS, ago, health, marked, pod

RULES = rules_for(parse_profile("current"))
GATE = [{"conditionType": "g"}]
UNREADY = [{"name": "c", "ready": False, "state": {"running": {}}}]
COMPLAINT = ("False", "ContainersNotReady", "containers with unready status: [c]")


def gated(gate: str) -> Pod:
    """Its kubelet says that it is not Ready for its gate, which is that."""
    ready = ("False", "ReadinessGatesNotReady", "x")
    return pod(spec__readinessGates=GATE, conditions={"Ready": ready, "g": gate})


@pytest.mark.parametrize(
    "subject, expected",
    [
        pytest.param(pod(), "ok", id="healthy"),
        pytest.param(
            pod(
                status__containerStatuses=UNREADY,
                conditions={"Ready": COMPLAINT, "ContainersReady": COMPLAINT},
            ),
            "ok",
            id="not-ready-and-says-so",
        ),
        pytest.param(
            marked(conditions={"Ready": ("False", "Why", "")}),
            "lagging",
            id="false-with-a-reason-is-not-the-mark",
        ),
        pytest.param(
            marked(conditions={"ContainersReady": None}),
            "lagging",
            id="false-without-containers-ready-is-not-the-mark",
        ),
        pytest.param(marked(status__phase="Pending"), "lagging", id="marked-but-not-running"),
        pytest.param(
            marked(metadata__deletionTimestamp=ago(1)), "lagging", id="marked-but-terminating"
        ),
        pytest.param(
            marked(status__containerStatuses=UNREADY),
            "lagging",
            id="marked-and-a-container-failed-since",
        ),
        pytest.param(pod(status__containerStatuses=UNREADY), "stale-ready", id="ready-on-paper"),
        pytest.param(pod(status__phase="Failed"), "stale-ready", id="failed-and-ready"),
        pytest.param(pod(status__phase="Succeeded"), "stale-ready", id="succeeded-and-ready"),
        pytest.param(gated("False"), "gates", id="gate-false"),
        pytest.param(gated("True"), "gates", id="gate-true-kubelet-lags"),
        pytest.param(
            pod(spec__readinessGates=GATE, conditions={"g": "False"}),
            "stale-ready",
            id="ready-although-the-gate-is-false",
        ),
        pytest.param(pod(conditions={"Ready": None}), "unknown", id="no-ready-condition"),
        pytest.param(pod(status__containerStatuses=[]), "unknown", id="no-statuses"),
        pytest.param(
            pod(conditions={"ContainersReady": "False"}),
            "lagging",
            id="containers-ready-false-beside-ready-true",
        ),
        pytest.param(pod(conditions={"Initialized": "False"}), "lagging", id="initialized-false"),
        pytest.param(
            pod(conditions={"ContainersReady": None, "Initialized": None}),
            "ok",
            id="an-old-kubelet-writes-fewer-conditions",
        ),
        pytest.param(
            pod(
                status__phase="Failed",
                status__containerStatuses=[{"name": "c", "state": {"terminated": {}}}],
                conditions={"Ready": COMPLAINT, "ContainersReady": COMPLAINT},
            ),
            "ok",
            id="ended-under-an-older-release",
        ),
    ],
)
def test_class_on_a_node_that_is_well(subject: Pod, expected: str) -> None:
    assert classify(subject, health(), RULES, now_ns=NOW_NS).name == expected


@pytest.mark.parametrize(
    "subject, node, expected",
    [
        pytest.param(marked(), health(ready_for=61), "stuck-not-ready", id="marked-node-back"),
        pytest.param(marked(), health(ready_for=59), "recovering", id="marked-node-just-back"),
        pytest.param(marked(), health(ready="Unknown"), "marked-node-down", id="marked-node-lost"),
        pytest.param(marked(), health(ready="False"), "marked-node-down", id="marked-node-sick"),
        pytest.param(marked(), health(ready=None), "unknown", id="marked-node-says-nothing"),
        pytest.param(
            marked(), NodeReadiness("n1", read=False), "unknown", id="marked-node-not-read"
        ),
        pytest.param(pod(), health(ready="Unknown"), "stale-ready", id="ready-on-a-lost-node"),
        pytest.param(pod(), health(ready="False"), "stale-ready", id="ready-on-a-sick-node"),
        pytest.param(
            pod(), NodeReadiness("n1", exists=False), "stale-ready", id="ready-on-no-node"
        ),
        pytest.param(pod(), NodeReadiness("n1", read=False), "ok", id="ready-node-not-read"),
        pytest.param(pod(), health(ready=None), "ok", id="ready-node-says-nothing"),
    ],
)
def test_class(subject: Pod, node: NodeReadiness, expected: str) -> None:
    assert classify(subject, node, RULES, now_ns=NOW_NS).name == expected


def test_the_settle_time_ends() -> None:
    node = health(ready_for=59)
    assert classify(marked(), node, RULES, now_ns=NOW_NS).name == "recovering"
    later = NOW_NS + 2 * SECOND_NS
    assert classify(marked(), node, RULES, now_ns=later).name == "stuck-not-ready"


def test_a_node_that_does_not_say_since_when_is_not_taken_for_young() -> None:
    fresh = health(ready_for=LONG_AGO_S)
    unsaid = NodeReadiness(name="n1", ready="True", heartbeat_ns=fresh.heartbeat_ns)
    assert classify(marked(), unsaid, RULES, now_ns=NOW_NS).name == "stuck-not-ready"


def test_sidecars_count_from_1_29_on() -> None:
    sidecar: dict[str, Any] = {
        "spec__initContainers": [{"name": "s", "restartPolicy": "Always"}],
        "status__initContainerStatuses": [{"name": "s", "ready": False, "started": True}],
    }
    old = rules_for(parse_profile("v1.28"))
    assert classify(pod(**sidecar), health(), RULES, now_ns=NOW_NS).name == "stale-ready"
    assert classify(pod(**sidecar), health(), old, now_ns=NOW_NS).name == "ok"
