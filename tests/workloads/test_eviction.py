"""The Eviction API's decision and what a deletion does, row by row.

Titles are upstream's where pkg/registry/core/pod/storage/eviction_test.go has the row.
"""

from __future__ import annotations

import pytest

from kubectl_nodelife.kube.meta import (
    Time,
)
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import (
    Condition,
    PodDisruptionBudget,
)
from kubectl_nodelife.workloads.eviction import (
    Allowed,
    Refused,
    decide_eviction,
    deletion_grace_seconds,
    mark_deleted,
)
from tests.workloads.objects import NOW, make_budget, make_pod

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
