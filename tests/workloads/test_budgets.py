"""Budget arithmetic, row by row.

Titles are upstream's where pkg/controller/disruption/disruption_test.go has the row.
"""

from typing import Any

import msgspec
import pytest

from kubectl_nodelife.kube.meta import OwnerReference, Time
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import (
    Deployment,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    ReplicaSet,
    ScaleSpec,
    StatefulSet,
)
from kubectl_nodelife.sim.disruption import BudgetLedger
from kubectl_nodelife.workloads.budgets import (
    DELETION_TIMEOUT_NS,
    desired_pods,
    expected_pods,
    standing,
    sync_failure,
)
from kubectl_nodelife.workloads.owners import ScaleUnknown, SyncFailure
from tests.workloads.objects import (
    NOW,
    OF_RS,
    REPLICA_SET,
    Owners,
    make_budget,
    make_pod,
    meta,
    reference,
)


def budget_status(
    budget: PodDisruptionBudget, pods: list[Pod], owners: Owners, now_ns: int
) -> PodDisruptionBudgetStatus:
    """The status that one sync writes for the budget and the pods that it matches."""
    ledger = BudgetLedger(budget)
    ledger.disrupted = standing(ledger.disrupted, pods, now_ns)
    for pod in pods:
        ledger.pod_changed(None, pod, owners)
    ledger.sync(0, now_ns, reads_spec=True)
    return ledger.budget.status


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
        expected_pods(
            make_budget(max_unavailable=1).spec, [make_pod("p", owner)], Owners(unread=unread)
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
    assert standing(entries, pods, NOW) == {"kept": Time(NOW - SECOND_NS)}


@pytest.mark.parametrize("text", ["10", "x%", "1.5%", ""])
def test_no_count_is_made_of_text_that_is_no_percentage(text: str) -> None:
    with pytest.raises(SyncFailure, match="invalid value for IntOrString: "):
        desired_pods(PodDisruptionBudgetSpec(max_unavailable=text), 10, 10)
