"""Budget arithmetic and the Eviction API's decision, row by row.

Titles are upstream's where there is a test for it: pkg/controller/disruption/disruption_test.go and
pkg/registry/core/pod/storage/eviction_test.go.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubectl_nodelife.kube.meta import (
    KubeObject,
    LabelSelector,
    ObjectMeta,
    OwnerReference,
    Time,
)
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodSpec, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import (
    Condition,
    Deployment,
    IntOrString,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    ReplicaSet,
    ScaleSpec,
    StatefulSet,
)
from kubectl_nodelife.workloads.budgets import (
    DELETION_TIMEOUT_NS,
    budget_status,
    disrupted_pods,
    scaled_value,
    sync_failure,
)
from kubectl_nodelife.workloads.eviction import (
    Allowed,
    Refused,
    decide_eviction,
    deletion_grace_seconds,
    mark_deleted,
)
from kubectl_nodelife.workloads.scales import ScaleUnknown, SyncFailure

NOW = 1_000_000 * SECOND_NS
ALL = LabelSelector()


class Owners:
    """Some objects as a lister."""

    def __init__(self, *objects: KubeObject, unread: tuple[str, ...] = ()) -> None:
        self._objects = {(type(obj).__name__, *obj.key): obj for obj in objects}
        self._unread = unread

    def find(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        return self._objects.get((kind, namespace, name))

    def was_read(self, kind: str) -> bool:
        return kind not in self._unread


def reference(kind: str, name: str, api_version: str = "apps/v1") -> OwnerReference:
    return OwnerReference(kind, name, f"uid-{name}", api_version, controller=True)


def meta(name: str, *owners: OwnerReference) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", owner_references=owners)


def make_pod(name: str, *owners: OwnerReference, ready: bool = True, **more: Any) -> Pod:
    phase = more.pop("phase", "Running")
    conditions = (PodCondition(type="Ready", status="True" if ready else "False"),)
    return Pod(
        metadata=msgspec.structs.replace(meta(name, *owners), **more),
        spec=PodSpec(node_name="n1", termination_grace_period_seconds=30),
        status=PodStatus(phase=phase, conditions=conditions),
    )


def make_budget(
    *,
    min_available: IntOrString | None = None,
    max_unavailable: IntOrString | None = None,
    policy: str | None = None,
    generation: int = 1,
    **status: Any,
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="guard", namespace="ns", generation=generation),
        spec=PodDisruptionBudgetSpec(
            min_available=min_available,
            max_unavailable=max_unavailable,
            selector=ALL,
            unhealthy_pod_eviction_policy=policy,
        ),
        status=PodDisruptionBudgetStatus(**{"observed_generation": 1, **status}),
    )


REPLICA_SET = ReplicaSet(metadata=meta("rs"), spec=ScaleSpec(replicas=5))
OF_RS = reference("ReplicaSet", "rs")


def counts(status: PodDisruptionBudgetStatus) -> tuple[int, int, int, int]:
    """(allowed, healthy, desired, expected), as upstream's VerifyPdbStatus has them."""
    return (
        status.disruptions_allowed,
        status.current_healthy,
        status.desired_healthy,
        status.expected_pods,
    )


@pytest.mark.parametrize(
    "rule, ready, unready, expected",
    [
        pytest.param({"min_available": 3}, 1, 0, (0, 1, 3, 1), id="NoSelector-one-pod"),
        pytest.param({"min_available": 1}, 0, 1, (0, 0, 1, 1), id="UnavailablePod"),
        pytest.param({"min_available": 1}, 2, 0, (1, 2, 1, 2), id="IntegerMinAvailable"),
        pytest.param({"max_unavailable": 1}, 5, 0, (1, 5, 4, 5), id="IntegerMaxUnavailable"),
        pytest.param({"max_unavailable": 2}, 4, 1, (1, 4, 3, 5), id="one-is-down-already"),
        pytest.param({"max_unavailable": "10%"}, 5, 0, (1, 5, 4, 5), id="rounds-up-1-of-5"),
        pytest.param({"min_available": "90%"}, 5, 0, (0, 5, 5, 5), id="rounds-up-to-all"),
        pytest.param({"min_available": "28%"}, 2, 0, (0, 2, 2, 5), id="ReplicaSet-28%"),
        pytest.param({"max_unavailable": 9}, 5, 0, (5, 5, 0, 5), id="more-than-there-are"),
        pytest.param({}, 5, 0, (0, 5, 0, 0), id="no-rule"),
    ],
)
def test_budget_status(
    rule: dict[str, Any], ready: int, unready: int, expected: tuple[int, int, int, int]
) -> None:
    pods = [make_pod(f"r{i}", OF_RS) for i in range(ready)]
    pods += [make_pod(f"u{i}", OF_RS, ready=False) for i in range(unready)]
    status = budget_status(make_budget(**rule), pods, Owners(REPLICA_SET), NOW)
    assert counts(status) == expected


def test_nothing_is_allowed_while_nothing_is_expected() -> None:
    status = budget_status(make_budget(min_available=0), [], Owners(), NOW)
    assert counts(status) == (0, 0, 0, 0)


def test_terminating_pods_are_not_healthy() -> None:
    pods = [make_pod("a", OF_RS), make_pod("b", OF_RS, deletion_timestamp=Time(NOW))]
    status = budget_status(make_budget(max_unavailable=4), pods, Owners(REPLICA_SET), NOW)
    assert counts(status) == (0, 1, 1, 5)


def test_several_controllers_add_up_and_a_deployment_counts_once() -> None:
    above = reference("Deployment", "web")
    old = ReplicaSet(metadata=meta("old", above), spec=ScaleSpec(replicas=1))
    new = ReplicaSet(metadata=meta("new", above), spec=ScaleSpec(replicas=9))
    owners = Owners(
        old,
        new,
        Deployment(metadata=meta("web"), spec=ScaleSpec(replicas=10)),
        StatefulSet(metadata=meta("db")),
    )
    pods = [
        make_pod("o", reference("ReplicaSet", "old")),
        make_pod("n", reference("ReplicaSet", "new")),
        make_pod("d", reference("StatefulSet", "db")),
    ]
    status = budget_status(make_budget(max_unavailable=1), pods, owners, NOW)
    assert counts(status) == (0, 3, 10, 11)


@pytest.mark.parametrize(
    "owner, owners, message",
    [
        pytest.param(OF_RS, Owners(), 'found no controllers for pod "p"', id="owner-is-gone"),
        pytest.param(
            reference("DaemonSet", "agent"),
            Owners(),
            "daemonsets.apps does not implement the scale subresource",
            id="TestScaleFinderNoResource",
        ),
        pytest.param(
            reference("Job", "batch", "batch/v1"),
            Owners(),
            "jobs.batch does not implement the scale subresource",
            id="job",
        ),
    ],
)
def test_fail_safe(owner: OwnerReference, owners: Owners, message: str) -> None:
    budget = make_budget(max_unavailable=1, current_healthy=3, disruptions_allowed=2)
    status = budget_status(budget, [make_pod("p", owner)], owners, NOW)
    assert sync_failure(status) == message
    assert (status.disruptions_allowed, status.current_healthy) == (0, 3)
    plain = budget_status(make_budget(min_available=0), [make_pod("p", owner)], owners, NOW)
    assert plain.disruptions_allowed == 1, "an integer minAvailable only counts pods"


def test_pods_without_a_controller_are_left_out_of_scales() -> None:
    status = budget_status(make_budget(max_unavailable=1), [make_pod("p")], Owners(), NOW)
    assert counts(status) == (0, 1, 0, 0)


def test_an_orphaned_replica_set_counts_through_its_scale() -> None:
    orphan = ReplicaSet(metadata=meta("rs", reference("Deployment", "gone")))
    status = budget_status(
        make_budget(max_unavailable=0), [make_pod("p", OF_RS)], Owners(orphan), NOW
    )
    assert counts(status) == (0, 1, 1, 1)


@pytest.mark.parametrize(
    "owner, unread",
    [
        pytest.param(reference("Rollout", "r", "argoproj.io/v1alpha1"), (), id="custom-resource"),
        pytest.param(OF_RS, ("ReplicaSet",), id="kind-not-read"),
    ],
)
def test_unknown_scale(owner: OwnerReference, unread: tuple[str, ...]) -> None:
    with pytest.raises(ScaleUnknown):
        budget_status(
            make_budget(max_unavailable=1), [make_pod("p", owner)], Owners(unread=unread), NOW
        )


def test_an_unchanged_status_is_the_very_same_object() -> None:
    pods = [make_pod(f"r{i}", OF_RS) for i in range(5)]
    budget = make_budget(max_unavailable=1)
    owners = Owners(REPLICA_SET)
    budget = msgspec.structs.replace(budget, status=budget_status(budget, pods, owners, NOW))
    assert budget_status(budget, pods, owners, NOW + 1) is budget.status


def test_disrupted_pods_end_when_deleted_gone_or_forgotten() -> None:
    """TestPDBDisruptedPods... : the entry of a pod that was not deleted lasts two minutes."""
    pods = [make_pod("kept"), make_pod("old"), make_pod("going", deletion_timestamp=Time(NOW))]
    entries = {
        "kept": Time(NOW - SECOND_NS),
        "old": Time(NOW - DELETION_TIMEOUT_NS - 1),
        "going": Time(NOW),
        "gone": Time(NOW),
    }
    kept, recheck = disrupted_pods(pods, entries, NOW)
    assert list(kept) == ["kept"]
    assert recheck == NOW - SECOND_NS + DELETION_TIMEOUT_NS


@pytest.mark.parametrize("text", ["10", "x%", "-5%", "1.5%", ""])
def test_scaled_value_of_text_that_is_no_percentage(text: str) -> None:
    with pytest.raises(SyncFailure):
        scaled_value(text, 10)


# --- the Eviction API ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod, budget, expected",
    [
        pytest.param(
            make_pod("p"),
            make_budget(disruptions_allowed=0, generation=1),
            (429, "pdb", 0),
            id="pdb-allows-nothing",
        ),
        pytest.param(
            make_pod("p"), make_budget(disruptions_allowed=1), None, id="matching-pdbs-with-room"
        ),
        pytest.param(
            make_pod("p"),
            make_budget(disruptions_allowed=1, generation=2),
            (429, "pdb-stale", 10),
            id="still-being-processed",
        ),
        pytest.param(
            make_pod("p"), make_budget(disruptions_allowed=-1), (403, "pdb", 0), id="negative"
        ),
        pytest.param(
            make_pod("p"),
            make_budget(
                disruptions_allowed=1, disrupted_pods={str(i): Time(0) for i in range(2001)}
            ),
            (403, "pdb", 0),
            id="map-too-big",
        ),
        pytest.param(
            make_pod("p"),
            make_budget(
                conditions=(Condition("DisruptionAllowed", "False", "SyncFailed", "no scale"),)
            ),
            (429, "pdb-sync-failed", 0),
            id="sync-failed",
        ),
        pytest.param(
            make_pod("p", ready=False),
            make_budget(current_healthy=2, desired_healthy=2),
            None,
            id="not-ready-and-healthy-enough",
        ),
        pytest.param(
            make_pod("p", ready=False),
            make_budget(current_healthy=1, desired_healthy=2),
            (429, "unready-under-pdb", 0),
            id="not-ready-and-not-healthy-enough",
        ),
        pytest.param(
            make_pod("p", ready=False),
            make_budget(current_healthy=0, desired_healthy=0),
            (429, "unready-under-pdb", 0),
            id="desired-0-is-no-shortcut",
        ),
        pytest.param(
            make_pod("p", ready=False),
            make_budget(current_healthy=0, desired_healthy=2, policy="AlwaysAllow"),
            None,
            id="not-ready-AlwaysAllow",
        ),
        pytest.param(make_pod("p", phase="Pending"), make_budget(), None, id="pending"),
        pytest.param(make_pod("p", phase="Succeeded"), make_budget(), None, id="succeeded"),
        pytest.param(make_pod("p", phase="Failed"), make_budget(), None, id="failed"),
        pytest.param(
            make_pod("p", deletion_timestamp=Time(NOW)),
            make_budget(),
            None,
            id="deletion-timestamp",
        ),
    ],
)
def test_decide_eviction(
    pod: Pod, budget: PodDisruptionBudget, expected: tuple[int, str, int] | None
) -> None:
    answer = decide_eviction(pod, [budget], NOW)
    if expected is None:
        assert isinstance(answer, Allowed)
    else:
        assert isinstance(answer, Refused)
        assert (answer.code, answer.gate, answer.retry_after_seconds) == expected


def test_two_budgets_are_refused_without_a_look_at_them() -> None:
    budgets = [make_budget(disruptions_allowed=5), make_budget(disruptions_allowed=5)]
    answer = decide_eviction(make_pod("p"), budgets, NOW)
    assert isinstance(answer, Refused) and (answer.code, answer.gate) == (500, "two-pdbs")
    assert isinstance(decide_eviction(make_pod("p", phase="Pending"), budgets, NOW), Allowed)


def test_spending_the_last_disruption() -> None:
    answer = decide_eviction(make_pod("p"), [make_budget(disruptions_allowed=1)], NOW)
    assert isinstance(answer, Allowed) and answer.status is not None
    assert answer.status.disruptions_allowed == 0
    assert answer.status.disrupted_pods == {"p": Time(NOW)}
    assert answer.status.conditions[0].status == "False"


def test_a_dry_run_spends_nothing() -> None:
    budget = make_budget(disruptions_allowed=1)
    assert decide_eviction(make_pod("p"), [budget], NOW, dry_run=True) == Allowed(budget)


def test_unready_pods_are_not_charged() -> None:
    budget = make_budget(current_healthy=2, desired_healthy=2, disruptions_allowed=1)
    assert decide_eviction(make_pod("p", ready=False), [budget], NOW) == Allowed(
        budget, guarded=True
    )


# --- deletions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod, requested, expected",
    [
        pytest.param(make_pod("p"), None, 30, id="the-pod-s-own"),
        pytest.param(make_pod("p"), 5, 5, id="requested"),
        pytest.param(make_pod("p"), 0, 0, id="at-once"),
        pytest.param(make_pod("p"), -7, 1, id="negative-is-1"),
        pytest.param(make_pod("p", phase="Failed"), 60, 0, id="over"),
    ],
)
def test_deletion_grace_seconds(pod: Pod, requested: int | None, expected: int) -> None:
    assert deletion_grace_seconds(pod, requested) == expected


def test_marking_deleted() -> None:
    marked = mark_deleted(make_pod("p"), NOW)
    assert marked is not None
    assert marked.metadata.deletion_timestamp == NOW + 30 * SECOND_NS
    assert mark_deleted(marked, NOW) is marked, "a second delete with the same grace does nothing"
    assert mark_deleted(marked, NOW, 60) is marked, "a grace can only be shortened"
    shorter = mark_deleted(marked, NOW + SECOND_NS, 10)
    assert shorter is not None
    assert shorter.metadata.deletion_timestamp == NOW + 10 * SECOND_NS
    assert mark_deleted(marked, NOW, 0) is None
    assert mark_deleted(make_pod("p", phase="Failed"), NOW) is None


def test_finalizers_keep_the_object() -> None:
    held = make_pod("p", finalizers=("example.com/hold",))
    marked = mark_deleted(held, NOW, 0)
    assert marked is not None and marked.metadata.deletion_timestamp == NOW
    assert mark_deleted(marked, NOW, 0) is marked
