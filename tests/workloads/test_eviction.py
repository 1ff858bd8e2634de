"""The Eviction API's decision and what a deletion does, row by row.

Titles are upstream's where pkg/registry/core/pod/storage/eviction_test.go has the row.
"""

import pytest

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import Condition, PodDisruptionBudget
from kubectl_nodelife.workloads.budgets import Allowed, EvictionRefused, decide_eviction
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
        assert isinstance(answer, EvictionRefused)
        assert (answer.code, answer.gate, answer.retry_after_seconds) == expected


def test_two_budgets_are_refused_without_a_look_at_them() -> None:
    budgets = [make_budget(disruptions_allowed=5), make_budget(disruptions_allowed=5)]
    answer = decide_eviction(make_pod("p"), budgets, NOW)
    assert isinstance(answer, EvictionRefused) and (answer.code, answer.gate) == (500, "two-pdbs")
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
