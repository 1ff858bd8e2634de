"""Each gate by itself: a small cluster in which it decides, and one in which it does not."""

from itertools import pairwise
from typing import Any

import pytest

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.engine.settings import make_settings, parse_profile
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.drain.build import (
    Json,
    budget,
    merged,
    node,
    owned,
    plan,
    pod,
    pods_of,
    replica_set,
    snapshot,
    workload,
)

NODES = [*node("a1"), *node("a2"), *node("a3")]
TIMEOUT = 30 * SECOND_NS


def test_a_pod_without_a_budget_goes_at_the_first_try() -> None:
    answer = plan(NODES, replica_set("web", "a1", "a2"))
    web = pods_of(answer)["web-0"]
    assert (answer.verdict, web.verdict, web.gate) == ("ready", "ready", "none")
    assert web.start is not None and web.gone is not None and web.end is not None
    assert web.start < web.end and web.landing[0].node in ("a2", "a3")


# --- what kubectl itself objects to ---------------------------------------------------------------


def test_all_faults_are_told_at_once_with_every_flag() -> None:
    empty_dir = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    answer = plan(
        NODES,
        workload("DaemonSet", "agent", 0),
        owned("DaemonSet", "agent", "a1", 0),
        pod("lonely", "a1", **empty_dir),
        replica_set("web", "a1"),
    )
    pods = pods_of(answer)
    assert answer.verdict == "refused"
    assert answer.flags_needed == ["--ignore-daemonsets", "--delete-emptydir-data", "--force"]
    assert [fault.gate for fault in pods["lonely"].faults] == ["emptydir", "bare"]
    assert pods["agent-0"].gate == "daemonset"
    assert (pods["web-0"].verdict, pods["web-0"].gate) == ("refused", "none")
    assert answer.with_flags is not None and answer.with_flags.verdict == "ready"
    assert answer.nodes[0].command == (
        "kubectl drain a1 --ignore-daemonsets --delete-emptydir-data --force"
    )
    assert answer.estimate is None


@pytest.mark.parametrize(
    "more, options, expected",
    [
        pytest.param({}, {}, ("refused", "bare"), id="bare-pod"),
        pytest.param({}, {"force": True}, ("ready", "none"), id="bare-pod-with-force"),
        pytest.param({"status": {"phase": "Succeeded"}}, {}, ("ready", "none"), id="completed"),
        pytest.param(
            {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
            {},
            ("kept", "mirror"),
            id="mirror-pod",
        ),
        pytest.param(
            {}, {"pod_selector": "app=other"}, ("kept", "pod-selector"), id="not-selected"
        ),
    ],
)
def test_filters(more: Json, options: dict[str, Any], expected: tuple[str, str]) -> None:
    found = pods_of(plan(NODES, pod("one", "a1", **more), **options))["one"]
    assert (found.verdict, found.gate) == expected


def test_a_daemon_set_that_is_gone_needs_force() -> None:
    objects = (NODES, owned("DaemonSet", "agent", "a1", 0))
    answer = plan(*objects, ignore_daemonsets=True)
    assert (answer.verdict, answer.flags_needed) == ("refused", ["--force"])
    assert plan(*objects, ignore_daemonsets=True, force=True).verdict == "ready"


def test_a_daemon_set_of_another_group_is_an_ordinary_owner() -> None:
    foreign = owned("DaemonSet", "agent", "a1", 0)
    foreign["metadata"]["ownerReferences"][0]["apiVersion"] = "apps.kruise.io/v1alpha1"
    assert plan(NODES, foreign).verdict == "ready"


@pytest.mark.parametrize(
    ("profile", "there", "flags", "verdict", "needed"),
    [
        pytest.param("v1.33", True, {}, "refused", ["--ignore-daemonsets"], id="refused"),
        pytest.param("v1.33", True, {"ignore_daemonsets": True}, "ready", [], id="ignored"),
        pytest.param(
            "v1.33", False, {"ignore_daemonsets": True}, "refused", ["--force"], id="gone"
        ),
        pytest.param("v1.33", False, {"force": True}, "ready", [], id="forced"),
        pytest.param("v1.34", True, {}, "ready", [], id="since-v1.34"),
    ],
)
@pytest.mark.parametrize("group", ["apps.kruise.io/v1alpha1", "extensions/v1beta1"])
def test_until_v1_33_kubectl_compares_the_kind_alone(
    group: str, profile: str, there: bool, flags: Any, verdict: str, needed: list[str]
) -> None:
    """It looks for the DaemonSet of apps/v1 of that name, and fails where there is none.

    Of kubectl v1.36.3 `--dry-run=client` on such a pod says `evicting pod`, with and without flags.
    """
    foreign = owned("DaemonSet", "agent", "a1", 0)
    foreign["metadata"]["ownerReferences"][0]["apiVersion"] = group
    cluster = snapshot(NODES, foreign, [workload("DaemonSet", "agent", 0)] if there else [])
    cluster.settings = make_settings(parse_profile(profile), {})
    answer = make_plan(cluster, ["a1"], DrainOptions(**flags))
    assert (answer.verdict, answer.flags_needed) == (verdict, needed)


# --- budgets --------------------------------------------------------------------------------------


def test_a_budget_that_spares_none_is_never() -> None:
    guard = budget("web", "web", healthy=2, desired=2, expected=2, maxUnavailable=0)
    answer = plan(NODES, replica_set("web", "a1", "a2"), guard)
    web = pods_of(answer)["web-0"]
    assert (answer.verdict, web.gate) == ("never", "pdb")
    assert "2 healthy of 2" in web.reason
    assert web.remedy is not None and "maxUnavailable" in web.remedy.change


def test_a_budget_is_spent_and_refills_as_replacements_become_ready() -> None:
    guard = budget("web", "web", healthy=3, desired=2, expected=3, maxUnavailable=1)
    answer = plan(NODES, replica_set("web", "a1", "a1", "a1"), guard)
    starts = sorted(pod.start or 0 for pod in answer.pods())
    assert answer.verdict == "slow"
    assert [round(start / 5) for start in starts] == [0, 1, 2]
    assert sorted(pod.verdict for pod in answer.pods()) == ["ready", "slow", "slow"]
    points = answer.budgets[0].points
    assert [p.allowed for p, after in pairwise(points) if p.allowed != after.allowed][:3] == [
        1,
        0,
        1,
    ]


def test_two_budgets_stop_only_their_own_pods() -> None:
    answer = plan(
        NODES,
        replica_set("web", "a1", "a2"),
        replica_set("ok", "a1"),
        budget("p1", "web", healthy=2, desired=1, expected=2, maxUnavailable=1),
        budget("p2", "web", healthy=2, desired=1, expected=2, minAvailable=1),
    )
    pods = pods_of(answer)
    assert (pods["web-0"].verdict, pods["web-0"].gate) == ("never", "two-pdbs")
    assert pods["ok-0"].verdict == "ready"


def test_a_stale_budget_is_never() -> None:
    guard = budget("web", "web", healthy=2, desired=1, expected=2, maxUnavailable=1)
    guard = merged(guard, {"metadata": {"generation": 2}})
    web = pods_of(plan(NODES, replica_set("web", "a1", "a2"), guard))["web-0"]
    assert (web.verdict, web.gate) == ("never", "pdb-stale")


def test_a_recorded_sync_failure_is_believed() -> None:
    failed = {
        "disruptionsAllowed": 0,
        "conditions": [
            {
                "type": "DisruptionAllowed",
                "status": "False",
                "reason": "SyncFailed",
                "message": "rollouts.argoproj.io does not implement the scale subresource",
            }
        ],
    }
    guard = budget("web", "web", healthy=2, desired=1, expected=2, status=failed, maxUnavailable=1)
    web = pods_of(plan(NODES, replica_set("web", "a1", "a2"), guard))["web-0"]
    assert (web.verdict, web.gate) == ("never", "pdb-sync-failed")
    assert "scale subresource" in web.reason


@pytest.mark.parametrize(
    "rule, expected",
    [
        pytest.param({"maxUnavailable": 1}, ("never", "pdb-stale"), id="asks-for-the-scale"),
        pytest.param({"minAvailable": 1}, ("slow", "pdb"), id="counts-pods"),
    ],
)
def test_a_job_has_no_scale(rule: Json, expected: tuple[str, str]) -> None:
    """Nothing is recorded yet, so the planner has to see for itself that the sync will fail: that
    leaves the budget's spec unobserved (`failSafe`), which the Eviction API asks for first.
    """
    guard = budget("job", "job", healthy=0, desired=0, expected=0, **rule)
    del guard["status"]
    guard["metadata"].pop("generation")
    pods = [owned("Job", "job", "a1", i) for i in range(2)]
    found = pods_of(plan(NODES, workload("Job", "job", 0), pods, guard))
    assert expected in {(pod.verdict, pod.gate) for pod in found.values()}


@pytest.mark.parametrize(
    "healthy, policy, expected",
    [
        pytest.param(2, None, ("ready", "none"), id="if-healthy-budget-and-it-is-healthy"),
        pytest.param(1, None, ("never", "unready-under-pdb"), id="if-healthy-budget-and-it-is-not"),
        pytest.param(1, "AlwaysAllow", ("ready", "none"), id="always-allow"),
    ],
)
def test_unready_pods(healthy: int, policy: str | None, expected: tuple[str, str]) -> None:
    places = ["a2"] * healthy
    rule: Json = {"minAvailable": 2}
    if policy:
        rule["unhealthyPodEvictionPolicy"] = policy
    sick = replica_set("sick", "a1", metadata={"labels": {"app": "web"}}, status=NOT_READY)
    guard = budget("web", "web", healthy=healthy, desired=2, expected=healthy + 1, **rule)
    found = pods_of(plan(NODES, replica_set("web", *places), sick, guard))["sick-0"]
    assert (found.verdict, found.gate) == expected


NOT_READY = {"conditions": [{"type": "Ready", "status": "False"}]}


UNREACHABLE: Json = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


def lost_member(seconds: int | None) -> list[Json]:
    """A pod of web on a lost node, tainted a minute ago; its budget of 3 spares none meanwhile."""
    lost = node("b1", lease="2026-01-01T00:58:10Z")
    lost[0]["spec"] = {"taints": [{**UNREACHABLE, "timeAdded": "2026-01-01T00:59:00Z"}]}
    lost[0]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    tolerated: Json = {"key": UNREACHABLE["key"], "operator": "Exists"}
    if seconds is not None:
        tolerated["tolerationSeconds"] = seconds
    return [
        *lost,
        workload("ReplicaSet", "web", 3),
        owned("ReplicaSet", "web", "a1", 0),
        owned("ReplicaSet", "web", "a2", 1),
        owned("ReplicaSet", "web", "b1", 2, status=NOT_READY, spec={"tolerations": [tolerated]}),
        budget("web", "web", healthy=2, desired=2, expected=3, maxUnavailable=1),
    ]


def test_a_budget_waits_for_the_taint_manager() -> None:
    """A pod on a lost node holds the budget until it is deleted and its replacement counts."""
    answer = plan(NODES, lost_member(300))
    held = pods_of(answer)["web-0"]
    assert (answer.verdict, held.verdict, held.gate) == ("slow", "slow", "pdb")
    assert held.reason == "waits 4m5s for budget web: taint-eviction deletes web-2 at 4m"
    assert held.start is not None and 242 <= held.start <= 248
    assert answer.estimate is not None
    assert answer.estimate.low <= held.start + 2 <= answer.estimate.high


def test_a_pod_that_tolerates_its_lost_node_for_ever_holds_the_budget_for_ever() -> None:
    answer = plan(NODES, lost_member(None))
    held = pods_of(answer)["web-0"]
    assert held.verdict == "never"
    told = "1 of its pods is not Ready, and nothing that was read changes that"
    assert held.reason.endswith(told)
    assert held.remedy is not None


def test_disable_eviction_passes_budgets_by() -> None:
    guard = budget("web", "web", healthy=1, desired=1, expected=1, minAvailable=1)
    answer = plan(NODES, replica_set("web", "a1"), guard, disable_eviction=True)
    assert answer.verdict == "ready"


def test_pending_pods_pass_budgets_by() -> None:
    starting = replica_set("web", "a1", status={"phase": "Pending", "conditions": []})
    guard = budget("web", "web", healthy=0, desired=1, expected=1, minAvailable=1)
    assert plan(NODES, starting, guard).verdict == "ready"


# --- several nodes --------------------------------------------------------------------------------


def test_kubectl_never_comes_to_the_node_behind_one_that_does_not_end() -> None:
    guard = budget("web", "web", healthy=1, desired=1, expected=1, minAvailable=1)
    objects = (NODES, replica_set("web", "a1"), replica_set("ok", "a2"), guard)
    answer = plan(*objects, nodes=("a1", "a2"))
    ok = pods_of(answer)["ok-0"]
    assert (ok.verdict, ok.start) == ("never", None) and "never comes" in ok.reason
    answer = plan(*objects, nodes=("a1", "a2"), timeout_ns=TIMEOUT)
    ok = pods_of(answer)["ok-0"]
    assert ok.verdict == "ready" and (ok.start or 0) > 30


def test_no_replacement_lands_on_a_planned_node() -> None:
    answer = plan(NODES, replica_set("web", "a1", "a1"), nodes=("a1", "a2"))
    assert {pod.landing[0].node for pod in answer.pods()} == {"a3"}
