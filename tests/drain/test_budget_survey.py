"""`budgets`: states, findings and pools."""

from typing import Any

import pytest

from kubectl_nodelife.commands.budgets import budgets_page
from kubectl_nodelife.drain.budget_survey import BudgetSurvey, PodUnderTwo, survey
from tests.drain.build import Json, budget, merged, node, pod, replica_set, snapshot
from tests.objects import workload

POOL = {"metadata": {"labels": {"pool": "blue"}}}
NODES = [*node("a1", **POOL), *node("a2")]


def surveyed(*objects: Any, **options: Any) -> BudgetSurvey:
    return survey(snapshot(NODES, *objects), **options)


def of_two(healthy: int, desired: int, app: str = "web", **spec: Any) -> Json:
    """The budget of two pods."""
    expected = 2 if app == "web" else 0
    return budget("g", app, healthy=healthy, desired=desired, expected=expected, **spec)


BOTH = ["a1", "a2"]
ROUNDED_UP = "10% of 2 is 0.2, rounded up to 1"
UNSEEN = merged(of_two(2, 1, maxUnavailable=1), {"metadata": {"generation": 3}})


@pytest.mark.parametrize(
    "given, state, undrainable, told",
    [
        pytest.param(of_two(2, 1, maxUnavailable=1), "ok", [], "", id="ok"),
        pytest.param(
            *(of_two(2, 2, maxUnavailable=0), "never", BOTH, "spares none, ever"),
            id="max-unavailable-0",
        ),
        pytest.param(
            *(of_two(2, 2, minAvailable="60%"), "never", BOTH, "rounded up to all of them"),
            id="percentage-rounds-up-to-all",
        ),
        pytest.param(
            *(of_two(2, 1, maxUnavailable="10%"), "ok", [], ROUNDED_UP),
            id="percentage-rounds-up-to-more",
        ),
        pytest.param(
            *(of_two(0, 0, "nobody", maxUnavailable=1), "unused", [], "no pod (app=nobody)"),
            id="matches-nothing",
        ),
        pytest.param(UNSEEN, "stale", BOTH, "has not seen its newest spec", id="stale"),
        pytest.param(
            *(of_two(1, 1, maxUnavailable=1), "blocking", BOTH),
            "its status allows 0, the objects give 1",
            id="older-than-the-objects",
        ),
    ],
)
def test_states(given: Json, state: str, undrainable: list[str], told: str) -> None:
    view = surveyed(replica_set("web", "a1", "a2"), given).budgets[0]
    assert (view.state, view.undrainable) == (state, undrainable)
    findings = " / ".join(finding.what for finding in view.findings)
    assert told in findings if told else not findings


def test_two_budgets_and_pools() -> None:
    guard = {"healthy": 2, "desired": 1, "expected": 2}
    found = surveyed(
        replica_set("web", "a1", "a1"),
        budget("g1", "web", **guard, maxUnavailable=1),
        budget("g2", "web", **guard, minAvailable=1),
    )
    assert found.two_budgets == [
        PodUnderTwo("default/web-0", ["g1", "g2"], "a1"),
        PodUnderTwo("default/web-1", ["g1", "g2"], "a1"),
    ]
    pools = {pool.name: (pool.nodes, pool.undrainable, pool.budgets) for pool in found.pools}
    assert pools == {"blue": (1, ["a1"], ["default/g1+g2"]), "<none>": (1, [], [])}
    by_zone = surveyed(pool_label="topology.kubernetes.io/zone").pools
    assert [(pool.name, pool.nodes) for pool in by_zone] == [("a", 2)]


def test_unmanaged_pods_and_operators() -> None:
    labels = {"metadata": {"labels": {"app": "pg", "cnpg.io/cluster": "main"}}}
    guard = budget("g", "pg", healthy=1, desired=1, expected=1, minAvailable=1)
    view = surveyed(pod("pg-1", "a1", **labels), guard).budgets[0]
    assert any("CloudNativePG" in finding.what for finding in view.findings)
    percent = budget("g", "pg", healthy=1, desired=0, expected=0, maxUnavailable="50%")
    view = surveyed(pod("pg-1", "a1", **labels), percent).budgets[0]
    assert any("have no controller" in finding.what for finding in view.findings)


def test_an_autoscaler_s_floor() -> None:
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2},
    }
    objects = replica_set("web", "a1", "a1", "a2")
    above = {"kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}
    objects[0]["metadata"]["ownerReferences"] = [{**above, "apiVersion": "apps/v1"}]
    guard = budget("g", "web", healthy=3, desired=2, expected=3, minAvailable=2)
    view = surveyed(workload("Deployment", "web", 3), objects, guard, scaler).budgets[0]
    assert view.owners == ["Deployment/web"]
    assert any("go down to 2 pods" in finding.what for finding in view.findings)


def test_namespaces_and_what_was_not_read() -> None:
    guard = budget("g", "web", healthy=2, desired=1, expected=2, maxUnavailable=1)
    elsewhere = merged(guard, {"metadata": {"namespace": "other"}})
    found = surveyed(guard, elsewhere, namespace="other")
    assert [view.namespace for view in found.budgets] == ["other"]
    nothing = survey(snapshot(NODES, read={"Node", "Pod"}))
    assert nothing.warnings and not nothing.budgets


UNREADY = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}


@pytest.mark.parametrize(
    "more, healthy, desired, undrainable, remedy",
    [
        pytest.param({}, 1, 1, ["a2"], "kubectl delete pod {} -n default", id="if-healthy"),
        pytest.param({}, 1, 2, ["a1", "a2"], "AlwaysAllow lets these", id="too-few-are-healthy"),
        pytest.param(
            {"unhealthyPodEvictionPolicy": "AlwaysAllow"},
            *(1, 2, ["a2"], "kubectl delete pod {} -n default"),
            id="always-allow-is-set",
        ),
    ],
)
def test_a_node_with_only_an_unready_pod(
    more: Json, healthy: int, desired: int, undrainable: list[str], remedy: str
) -> None:
    """canIgnorePDB apart, eviction.go lets an unready pod go where the budget needs no more."""
    owner, sick, other, well = replica_set("web", "a1", "a1", "a2")
    name = sick["metadata"]["name"]
    guard = budget("g", "web", healthy=healthy, desired=desired, expected=3, minAvailable=desired)
    guard["spec"] |= more
    found = surveyed(owner, merged(sick, UNREADY), merged(other, UNREADY), well, guard)
    (view,) = found.budgets
    assert (view.state, view.undrainable) == ("blocking", undrainable)
    (advice,) = [f.remedy or "" for f in view.findings if "not Ready" in f.what]
    assert remedy.format(name) in advice


def test_the_budget_of_a_workload_without_pods_is_not_to_be_deleted() -> None:
    guard = budget("g", "web", healthy=0, desired=0, expected=0, maxUnavailable=1)
    owner = workload("Deployment", "web", 0)
    owner["spec"]["template"] = {"metadata": {"labels": {"app": "web"}}}
    (finding,) = surveyed(guard, owner).budgets[0].findings
    assert finding.what == "it matches no pod: Deployment web has none now"
    assert finding.remedy is None
    (finding,) = surveyed(guard).budgets[0].findings
    assert finding.remedy == "correct the selector, or delete it"


def test_the_headline_counts_the_nodes_of_the_table() -> None:
    """A pod under two budgets holds its node as well."""
    guards = [
        budget(name, "web", healthy=2, desired=1, expected=2, maxUnavailable=1) for name in "gh"
    ]
    found = surveyed(*replica_set("web", "a1", "a2"), *guards)
    headline = next(iter(budgets_page(found).blocks(wide=False)))
    assert str(headline).startswith("2 of 2 budgets keep 2 nodes from being drained now.")
    assert sum(len(pool.undrainable) for pool in found.pools) == 2
