"""What repair would send, and every reason for which it does not."""

from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.audit.audit_pods import AuditInput, audit
from kubectl_nodelife.outlook.audit.repair_plan import FirstSeen, RepairOptions, RepairStep, plan
from tests.pod_status.objects import NOW_NS, ago, marked, node, owner, pod

LOST = node(ready="Unknown", ready_for=600, heartbeat=640)
NOT_READY = "node.kubernetes.io/not-ready:NoSchedule"


def steps(
    *pods: Pod,
    of_node: Node | None = None,
    options: RepairOptions | None = None,
    first_seen: dict[str, FirstSeen] | None = None,
    profile: str = "v1.36",
) -> list[RepairStep]:
    """The plan for all findings about these pods."""
    settings = make_settings(profile)
    of_node = of_node or node()
    seen = AuditInput(pods, {of_node.name: of_node}, None)
    found = audit(seen, settings, NOW_NS).findings
    return plan(found, options or RepairOptions(), first_seen)


def only(*pods: Pod, **others: Any) -> RepairStep:
    (step,) = steps(*pods, **others)
    return step


def test_the_patch_is_exactly_this() -> None:
    step = only(marked())
    request = step.request
    assert request is not None
    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/shop/pods/web/status")
    assert request.content_type == "application/strategic-merge-patch+json"
    assert request.body == {
        "metadata": {"uid": "u-web", "resourceVersion": "9"},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
            ]
        },
    }
    assert step.command.startswith("kubectl patch pod -n shop web --subresource=status -p '{")


@pytest.mark.parametrize(
    "subject, of_node, refusal",
    [
        pytest.param(marked(), node(ready_for=30), "settle time", id="node-back-for-30s"),
        pytest.param(marked(), node(heartbeat=50), "heartbeat of node n1 is 50s old", id="silent"),
        pytest.param(marked(), node(heartbeat=None), "no heartbeat that was read", id="unheard"),
        pytest.param(
            marked(), node(taints=(NOT_READY,)), "still has the taint", id="taint-not-ready"
        ),
        pytest.param(
            marked(),
            node(taints=("node.kubernetes.io/unreachable:NoExecute",)),
            "still has the taint",
            id="taint-unreachable",
        ),
        pytest.param(
            marked(metadata__annotations={"kubernetes.io/config.mirror": "x"}),
            node(),
            "mirror pod",
            id="mirror",
        ),
        pytest.param(
            marked(status__containerStatuses=[{"name": "c", "ready": True, "state": {}}]),
            node(),
            "container c is not reported as running",
            id="ready-but-not-running",
        ),
        pytest.param(marked(since=59), node(), "not proven to have been so", id="marked-for-59s"),
        pytest.param(
            marked(metadata__resourceVersion=""), node(), "no precondition", id="no-version"
        ),
        pytest.param(marked(metadata__uid=""), node(), "no precondition", id="no-uid"),
    ],
)
def test_the_mark_is_not_undone(subject: Pod, of_node: Node, refusal: str) -> None:
    step = only(subject, of_node=of_node)
    assert step.request is None
    assert any(refusal in line for line in step.refusals), step.refusals


def test_a_kubelet_that_has_written_meanwhile_is_at_work() -> None:
    earlier = NOW_NS - 120 * SECOND_NS
    same = steps(marked(), first_seen={"u-web": FirstSeen(earlier, "9")})
    other = steps(marked(), first_seen={"u-web": FirstSeen(earlier, "8")})
    assert same[0].request is not None
    assert other[0].refusals == (
        "its status changed meanwhile: a kubelet at work repairs it by itself",
    )


def test_a_sighting_counts_and_not_the_times_alone() -> None:
    young = FirstSeen(NOW_NS - 30 * SECOND_NS, "9")
    assert only(marked(), first_seen={"u-web": young}).refusals == (
        "it is not proven to have been so for 60s",
    )


def test_without_times_one_look_proves_nothing() -> None:
    subject = marked()
    timeless = tuple(replace(c, last_transition_time=None) for c in subject.status.conditions)
    subject = replace(subject, status=replace(subject.status, conditions=timeless))
    assert "nothing proves since when it has been so" in only(subject).refusals


def test_the_grace_period_of_the_release_decides_what_a_young_heartbeat_is() -> None:
    for profile, would in (("v1.31", False), ("v1.32", True)):
        step = only(marked(), of_node=node(heartbeat=45), profile=profile)
        assert (step.request is not None) is would


DYING = pod(metadata__deletionTimestamp=ago(600))


def test_a_dead_node_is_dead_by_the_operators_word_only() -> None:
    assert "--fenced n1" in only(DYING, of_node=LOST).refusals[0]
    request = only(DYING, of_node=LOST, options=RepairOptions(fenced=frozenset({"n1"}))).request
    assert request is not None
    assert (request.method, request.path) == ("DELETE", "/api/v1/namespaces/shop/pods/web")
    assert request.body["gracePeriodSeconds"] == 0
    assert request.body["preconditions"] == {"uid": "u-web", "resourceVersion": "9"}


@pytest.mark.parametrize(
    "subject, of_node, refusal",
    [
        pytest.param(DYING, node(ready="False"), "is on", id="kubelet-speaks"),
        pytest.param(
            DYING,
            node(ready="Unknown", taints=("node.kubernetes.io/out-of-service:NoExecute",)),
            "pod-gc deletes the pod",
            id="out-of-service",
        ),
        pytest.param(
            pod(metadata__deletionTimestamp=ago(600), metadata__finalizers=["a/b"]),
            LOST,
            "finalizers would keep it",
            id="finalizer",
        ),
    ],
)
def test_even_a_fenced_node_is_not_forced(subject: Pod, of_node: Node, refusal: str) -> None:
    step = only(subject, of_node=of_node, options=RepairOptions(fenced=frozenset({"n1"})))
    assert step.request is None and refusal in step.refusals[0]


def test_an_orphan_is_left_to_garbage_collection_for_two_minutes() -> None:
    elsewhere = node(name="other")
    for overdue_s, would in ((61, False), (119, False), (121, True)):
        step = only(pod(metadata__deletionTimestamp=ago(overdue_s)), of_node=elsewhere)
        assert (step.request is not None) is would
    assert only(pod(), of_node=elsewhere).request is None


def leftover(**fields: Any) -> Pod:
    return pod(
        status__phase="Failed",
        status__reason="Evicted",
        status__containerStatuses=None,
        conditions={"Ready": None},
        **fields,
    )


def test_a_leftover_is_deleted_the_ordinary_way() -> None:
    request = only(leftover()).request
    assert request is not None and "gracePeriodSeconds" not in request.body
    assert (
        "Job report counts it"
        in only(leftover(metadata__ownerReferences=owner("Job", "report"))).refusals[0]
    )
    assert only(leftover(metadata__finalizers=["a/b"])).request is None


def test_a_stale_ready_pod_is_marked_only_when_asked_for_by_name() -> None:
    asked = RepairOptions(classes=frozenset({"stale-ready"}))
    assert only(pod(), of_node=LOST).request is None
    request = only(pod(), of_node=LOST, options=asked).request
    assert request is not None
    assert request.body["status"]["conditions"][0]["status"] == "False"
    sick = node(ready="False")
    assert only(pod(), of_node=sick, options=asked).request is None
    heard = node(ready="Unknown", heartbeat=10)
    assert only(pod(), of_node=heard, options=asked).request is None


def test_a_run_is_capped_and_a_node_gets_five_a_second() -> None:
    many = [marked(f"p{i:02}") for i in range(12)]
    found = steps(*many, options=RepairOptions(cap=11))
    assert [s.not_before_s for s in found if s.request] == [0] * 5 + [1] * 5 + [2]
    assert found[-1].refusals == ("one run sends at most 11 requests",)


def test_an_orphan_with_finalizers_would_stay() -> None:
    kept = pod(metadata__deletionTimestamp=ago(600), metadata__finalizers=["a/b"])
    step = only(kept, of_node=node(name="other"))
    assert step.request is None and "finalizers would keep it" in step.refusals[0]


def test_a_leftover_whose_container_runs_is_none() -> None:
    runs = replace(leftover().status, container_statuses=pod().status.container_statuses)
    step = only(replace(leftover(), status=runs))
    assert step.request is None and "reported as running" in step.refusals[0]
    ended = [{"name": "c", "state": {"terminated": {}}}]
    gone = pod(status__containerStatuses=ended).status.container_statuses
    status = replace(leftover().status, container_statuses=gone)
    assert only(replace(leftover(), status=status)).request is not None


@pytest.mark.parametrize(
    "subject, of_node",
    [
        pytest.param(pod(), node(ready="Unknown", heartbeat=None), id="no-heartbeat"),
        pytest.param(pod(), node(ready="Unknown", heartbeat=49), id="heartbeat-young"),
        pytest.param(pod(status__phase="Succeeded"), LOST, id="ended"),
        pytest.param(
            pod(metadata__annotations={"kubernetes.io/config.mirror": "x"}), LOST, id="mirror"
        ),
        pytest.param(pod(metadata__uid=""), LOST, id="no-uid"),
        pytest.param(pod(metadata__resourceVersion=""), LOST, id="no-version"),
    ],
)
def test_a_stale_ready_pod_is_not_marked(subject: Pod, of_node: Node) -> None:
    asked = RepairOptions(classes=frozenset({"stale-ready"}))
    assert only(subject, of_node=of_node, options=asked).request is None


def test_at_the_limit_a_heartbeat_is_old() -> None:
    asked = RepairOptions(classes=frozenset({"stale-ready"}))
    silent = node(ready="Unknown", heartbeat=50)
    assert only(pod(), of_node=silent, options=asked).request is not None
