"""What `drain-plan` says unblocks a pod does: the plan is made again as if somebody had done it."""

from typing import Any

import pytest

from kubectl_nodelife.drain.results import PodPlan
from tests.drain import build
from tests.objects import manifest

NODES = [*build.node("a1"), *build.node("a2"), *build.node("a3")]
ROLLOUT: build.Json = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"}
Given = tuple[build.Json | list[build.Json], ...]


def deployed(*places: str, top: build.Json | None = None, **pod_more: Any) -> list[build.Json]:
    """ReplicaSet web-5d8 of a Deployment web, with a pod on each of the nodes named."""
    owner = top or {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    owner = {**owner, "uid": "uid-top", "controller": True}
    made = build.replica_set("web", *places, **pod_more)
    made[0] = build.merged(made[0], {"metadata": {"ownerReferences": [owner]}})
    if top is not None:
        return made
    deployment = build.workload("Deployment", "web", len(places))
    return [build.merged(deployment, {"metadata": {"uid": "uid-top"}}), *made]


def guard(healthy: int, desired: int, expected: int, **more: Any) -> build.Json:
    return build.budget("web", "web", healthy=healthy, desired=desired, expected=expected, **more)


def blocked(*objects: build.Json | list[build.Json], **options: Any) -> PodPlan:
    found = build.pods_of(build.plan(*objects, **options))["web-0"]
    assert found.verdict == "never"
    return found


PATCH_ONE = (
    "kubectl patch pdb web -n default --type merge -p"
    ' \'{"spec":{"minAvailable":null,"maxUnavailable":1}}\''
)


SCALED = {
    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
    "minReplicas": 2,
    "maxReplicas": 5,
}


@pytest.mark.parametrize(
    "given, change, done",
    [
        pytest.param(
            (deployed("a1", "a2"), guard(2, 2, 2, minAvailable=2)),
            "kubectl scale deployment web -n default --replicas=3",
            (deployed("a1", "a2", "a3"), guard(3, 2, 3, minAvailable=2)),
            id="the-deployment-is-named-not-its-replica-set",
        ),
        pytest.param(
            (deployed("a1", "a2"), guard(2, 2, 2, minAvailable="100%")),
            PATCH_ONE,
            (deployed("a1", "a2"), guard(2, 1, 2, maxUnavailable=1)),
            id="of-100-percent-scaling-up-changes-nothing",
        ),
        pytest.param(
            (build.stateful_set("web", "a1", "a2"), guard(2, 2, 2, minAvailable="100%")),
            PATCH_ONE,
            (build.stateful_set("web", "a1", "a2"), guard(2, 1, 2, maxUnavailable=1)),
            id="nor-of-a-stateful-set",
        ),
        pytest.param(
            (
                deployed("a1", "a2"),
                guard(2, 2, 2, minAvailable=2),
                manifest("HorizontalPodAutoscaler", "web", "default", spec=SCALED),
            ),
            'kubectl patch hpa web -n default --type merge -p \'{"spec":{"minReplicas":3}}\'',
            (deployed("a1", "a2", "a3"), guard(3, 2, 3, minAvailable=2)),
            id="an-autoscaler-would-set-replicas-back",
        ),
        pytest.param(
            (deployed("a1", "a2"), guard(2, 2, 2, maxUnavailable=0)),
            'kubectl patch pdb web -n default --type merge -p \'{"spec":{"maxUnavailable":1}}\'',
            (deployed("a1", "a2"), guard(2, 1, 2, maxUnavailable=1)),
            id="a-budget-that-spares-none",
        ),
        pytest.param(
            (
                deployed("a1", "a2"),
                build.owned(
                    "ReplicaSet", "web", "a3", 7, status={"phase": "Pending", "conditions": []}
                ),
                guard(2, 2, 3, minAvailable=2),
            ),
            "repair web-7 (not Ready), so that 1 more of the budget's pods are Ready",
            (deployed("a1", "a2", "a3"), guard(3, 2, 3, minAvailable=2)),
            id="a-pod-of-the-budget-is-not-ready",
        ),
        pytest.param(
            (
                deployed("a1", "a2"),
                guard(2, 1, 2, minAvailable=1),
                build.merged(guard(2, 1, 2, minAvailable=1), {"metadata": {"name": "other"}}),
            ),
            "kubectl delete pdb web -n default, or narrow its selector",
            (deployed("a1", "a2"), guard(2, 1, 2, minAvailable=1)),
            id="two-budgets",
        ),
        pytest.param(
            (deployed("a1", metadata={"finalizers": ["example.com/clean"]}),),
            "let the controller of the finalizer finish; else kubectl patch pod web-0 -n default"
            ' --type merge -p \'{"metadata":{"finalizers":null}}\'',
            (deployed("a1"),),
            id="a-finalizer",
        ),
    ],
)
def test_the_change_is_told_and_helps(given: Given, change: str, done: Given) -> None:
    stuck = blocked(NODES, *given)
    assert stuck.remedy is not None and stuck.remedy.change == change
    assert build.plan(NODES, *done).verdict in ("ready", "slow")


def test_a_full_cluster_wants_a_node_or_an_uncordon() -> None:
    """The budget waits for a replacement that fits nowhere."""
    big = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]}}
    given = (deployed("a1", "a1", **big), guard(2, 1, 2, maxUnavailable=1))
    nodes = [*build.node("a1", cpu="16"), *build.node("a2", cpu="4")]
    stuck = next(p for p in build.plan(nodes, *given).pods() if p.gate == "landing")
    assert stuck.remedy is not None
    assert stuck.remedy.change == "add a node like a1 (cpu 16, memory 32Gi)"

    closed = build.node("a3", cpu="16", spec={"unschedulable": True})
    stuck = next(p for p in build.plan(nodes, closed, *given).pods() if p.gate == "landing")
    assert stuck.remedy is not None and stuck.remedy.change == "kubectl uncordon a3"


@pytest.mark.parametrize(
    "given, hint",
    [
        pytest.param(
            (
                deployed(
                    "a1", top={"apiVersion": "argoproj.io/v1", "kind": "Rollout", "name": "w"}
                ),
                build.merged(
                    guard(1, 1, 1, minAvailable=1),
                    {
                        "metadata": {
                            "ownerReferences": [
                                {"kind": "Shop", "name": "s", "uid": "u", "controller": True}
                            ]
                        }
                    },
                ),
            ),
            "nothing cheap helps; budget web belongs to Shop s: change it there",
            id="both-belong-to-others",
        ),
        pytest.param(
            (
                deployed("a1", "a2"),
                build.merged(guard(2, 1, 2, maxUnavailable=1), {"metadata": {"generation": 2}}),
            ),
            "evictions wait until kube-controller-manager syncs the budget: look at it",
            id="a-budget-that-no-controller-reads",
        ),
        pytest.param(
            (
                deployed("a1", "a2", metadata={"labels": {"cnpg.io/cluster": "db"}}),
                guard(2, 2, 2, maxUnavailable=0),
            ),
            "CloudNativePG pins this budget by design: switch the primary over, or set"
            " nodeMaintenanceWindow; without it data may be lost",
            id="an-operator-pins-it",
        ),
    ],
)
def test_where_nothing_cheap_helps_that_is_said(given: Given, hint: str) -> None:
    stuck = blocked(NODES, *given)
    assert stuck.remedy is None and stuck.hint == hint


def test_time_is_all_that_is_missing() -> None:
    """The second pod is asked for again after 5 s at the earliest."""
    slow = deployed("a1", "a1", spec={"terminationGracePeriodSeconds": 40})
    few = guard(2, 1, 2, minAvailable=1)
    stuck = build.pods_of(build.plan(NODES, slow, few, timeout_ns=4 * 10**9))["web-1"]
    assert "spares the next one" in stuck.reason and "too late" in stuck.reason
    assert stuck.remedy is not None and stuck.remedy.change == "--timeout=1m0s"
    assert build.plan(NODES, slow, few, timeout_ns=60 * 10**9).verdict == "slow"


def test_a_terminating_namespace() -> None:
    gone = build.namespace(phase="Terminating")
    stuck = blocked(NODES, gone, deployed("a1"), build.namespace("other"), timeout_ns=30 * 10**9)
    assert stuck.gate == "namespace-terminating"
    assert stuck.remedy is not None and stuck.remedy.change.startswith("kubectl delete pod web-0")


def test_one_reason_is_looked_into_once() -> None:
    """Both pods wait for the same budget, and both go once one more pod is there."""
    answer = build.plan(NODES, deployed("a1", "a1"), guard(2, 2, 2, minAvailable=2))
    remedies = {pod.remedy for pod in answer.pods()}
    assert len(remedies) == 1 and None not in remedies
    assert len(build.flattened((deployed("a1", "a1"),))) == 4
