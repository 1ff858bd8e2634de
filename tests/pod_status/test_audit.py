"""The sweep: pods that only a human releases, and pods that nobody moves."""

from typing import Any

import pytest

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.audit.audit_pods import AuditInput, audit
from tests.pod_status.objects import NOW_NS, ago, marked, node, owner, pod
from tests.pod_status.sweeping import EVICTED, FIVE_MINUTES, LOST, SETTINGS, sweep

FOR_EVER = [{"operator": "Exists"}]


def classes(*pods: Pod, nodes: tuple[Node, ...] | None = None) -> list[str]:
    return [f.name for f in sweep(*pods, nodes=nodes).findings]


@pytest.mark.parametrize(
    "overdue_s, of_node, finalizers, expected",
    [
        pytest.param(60, LOST, [], [], id="given-a-minute"),
        pytest.param(61, LOST, [], ["terminating-dead-node"], id="node-lost"),
        pytest.param(61, node(ready="False"), [], ["terminating-dead-node"], id="node-sick"),
        pytest.param(61, LOST, ["a/b"], ["terminating-dead-node"], id="node-lost-and-finalizer"),
        pytest.param(61, node(), ["a/b"], ["terminating-finalizer"], id="finalizer"),
        pytest.param(60, node(), ["a/b"], [], id="finalizer-given-a-minute"),
        pytest.param(61, node(), [], ["terminating-slow"], id="kubelet-at-work"),
        pytest.param(61, node(name="n2"), [], ["orphaned"], id="node-gone"),
        pytest.param(-30, LOST, [], [], id="within-its-grace-period"),
    ],
)
def test_terminating(
    overdue_s: int, of_node: Node, finalizers: list[str], expected: list[str]
) -> None:
    dying = pod(metadata__deletionTimestamp=ago(overdue_s), metadata__finalizers=finalizers)
    assert classes(dying, nodes=(of_node,)) == expected


@pytest.mark.parametrize(
    "subject, nodes, expected",
    [
        pytest.param(pod(), (), ["orphaned"], id="no-such-node"),
        pytest.param(pod(status__phase="Succeeded"), (), ["orphaned"], id="ended-on-no-node"),
        pytest.param(pod(spec__nodeName="", status__phase="Pending"), (), [], id="not-bound"),
        pytest.param(pod(**EVICTED), None, ["evicted-leftover"], id="evicted"),
        pytest.param(
            pod(**{**EVICTED, "status__reason": "Terminated"}), None, [], id="terminated-by-what"
        ),
        pytest.param(
            pod(
                **{**EVICTED, "status__reason": "Terminated"},
                status__message="Pod was terminated in response to imminent node shutdown.",
            ),
            None,
            ["evicted-leftover"],
            id="node-shutdown",
        ),
        pytest.param(
            pod(
                status__phase="Failed",
                conditions={
                    "Ready": ("False", "PodFailed", ""),
                    "ContainersReady": "False",
                    "DisruptionTarget": ("True", "DeletionByTaintManager", ""),
                },
            ),
            None,
            ["evicted-leftover"],
            id="put-out-by-somebody",
        ),
        pytest.param(
            pod(
                status__phase="Failed",
                conditions={"Ready": ("False", "PodFailed", ""), "ContainersReady": "False"},
            ),
            None,
            [],
            id="failed-by-itself",
        ),
    ],
)
def test_orphans_and_leftovers(
    subject: Pod, nodes: tuple[Node, ...] | None, expected: list[str]
) -> None:
    assert classes(subject, nodes=nodes) == expected


@pytest.mark.parametrize(
    "tolerations, kind, of_node, expected",
    [
        pytest.param(FOR_EVER, "DaemonSet", LOST, "daemonset-never-evicted", id="daemon"),
        pytest.param(FOR_EVER, "ReplicaSet", LOST, "never-evicted", id="tolerates-all"),
        pytest.param(FIVE_MINUTES, "DaemonSet", LOST, None, id="daemon-for-five-minutes"),
        pytest.param([], "ReplicaSet", LOST, None, id="tolerates-nothing"),
        pytest.param(FOR_EVER, "DaemonSet", node(), None, id="node-is-well"),
        pytest.param(
            [{"operator": "Exists", "key": "node.kubernetes.io/unreachable"}],
            "DaemonSet",
            node(ready="False"),
            None,
            id="tolerates-the-other-taint",
        ),
        pytest.param(
            [{"operator": "Exists", "key": "node.kubernetes.io/unreachable"}],
            "DaemonSet",
            node(
                ready="Unknown", taints=("node.kubernetes.io/unreachable:NoExecute", "x:NoExecute")
            ),
            None,
            id="a-taint-of-somebody-else-evicts-it",
        ),
    ],
)
def test_never_evicted(
    tolerations: list[Any], kind: str, of_node: Node, expected: str | None
) -> None:
    subject = marked(spec__tolerations=tolerations, metadata__ownerReferences=owner(kind))
    found = classes(subject, nodes=(of_node,))
    stays = [name for name in found if name.endswith("never-evicted")]
    assert stays == ([expected] if expected else [])


def test_a_lagging_pod_is_given_a_minute() -> None:
    started = [{"name": "c", "ready": True, "state": {"running": {"startedAt": ago(30)}}}]
    words = ("False", "ContainersNotReady", "containers with unready status: [c]")
    young = pod(conditions={"Ready": words}, status__containerStatuses=started)
    assert classes(young) == []
    assert classes(pod(conditions={"Ready": words})) == ["lagging"]


def test_ages_are_those_of_the_newest_fact() -> None:
    (back,) = sweep(marked(since=900), nodes=(node(ready_for=120),)).findings
    assert back.since_ns == NOW_NS - 120 * 10**9
    assert back.since_field == "node.status.conditions[Ready].lastTransitionTime"
    (again,) = sweep(marked(since=90), nodes=(node(ready_for=120),)).findings
    assert again.since_ns == NOW_NS - 90 * 10**9


def test_what_was_not_read_is_said_and_not_guessed() -> None:
    found = audit(AuditInput([pod(), marked("m")], None, None), SETTINGS, NOW_NS)
    assert found.findings == ()
    assert found.counts == {"ok": 1, "unknown": 1}
    assert any("nodes were not read" in line for line in found.not_evaluated)
    assert any("1 pods bear the node controller's mark" in line for line in found.not_evaluated)


def test_a_stale_lease_alone_makes_no_finding_but_a_warning() -> None:
    seen = AuditInput([pod(), marked("m")], {"n1": node()}, {"n1": NOW_NS - 600 * 10**9})
    found = audit(seen, SETTINGS, NOW_NS)
    assert [f.name for f in found.findings] == ["stuck-not-ready"]
    assert ["10m old" in line for line in found.warnings] == [True]
