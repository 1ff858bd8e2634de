"""Each gate by itself: a small cluster in which it decides, and one in which it does not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kubectl_nodelife.kube.times import SECOND_NS
from tests.drain.build import (
    Json,
    budget,
    merged,
    namespace,
    node,
    owned,
    plan,
    pod,
    pods_of,
    replica_set,
    stateful_set,
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
        pytest.param({"maxUnavailable": 1}, ("never", "pdb-sync-failed"), id="asks-for-the-scale"),
        pytest.param({"minAvailable": 1}, ("slow", "pdb"), id="counts-pods"),
    ],
)
def test_a_job_has_no_scale(rule: Json, expected: tuple[str, str]) -> None:
    """Nothing is recorded yet, so the planner has to see for itself that the sync will fail."""
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


def test_disable_eviction_passes_budgets_by() -> None:
    guard = budget("web", "web", healthy=1, desired=1, expected=1, minAvailable=1)
    answer = plan(NODES, replica_set("web", "a1"), guard, disable_eviction=True)
    assert answer.verdict == "ready"


def test_pending_pods_pass_budgets_by() -> None:
    starting = replica_set("web", "a1", status={"phase": "Pending", "conditions": []})
    guard = budget("web", "web", healthy=0, desired=1, expected=1, minAvailable=1)
    assert plan(NODES, starting, guard).verdict == "ready"


# --- replacements with nowhere to go --------------------------------------------------------------


def guarded_pair(**pod_more: Any) -> list[Json]:
    guard = budget("web", "web", healthy=2, desired=1, expected=2, maxUnavailable=1)
    return [*replica_set("web", "a1", "a1", **pod_more), guard]


@pytest.mark.parametrize(
    "nodes, pod_more, reason",
    [
        pytest.param([*node("a1")], {}, "unschedulable", id="no-other-node"),
        pytest.param([*node("a1"), *node("a2", cpu="50m")], {}, "Insufficient cpu", id="no-room"),
        pytest.param(
            [*node("a1"), *node("a2", spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})],
            {},
            "untolerated taint",
            id="taint",
        ),
        pytest.param(
            NODES, {"spec": {"nodeSelector": {"disk": "ssd"}}}, "node affinity", id="selector"
        ),
        pytest.param(
            [*node("a1"), *node("a2", lease="2026-01-01T00:00:00Z")],
            {},
            "silent kubelet",
            id="the-other-kubelet-is-dead",
        ),
    ],
)
def test_landing(nodes: list[Json], pod_more: Json, reason: str) -> None:
    answer = plan(nodes, guarded_pair(**pod_more), timeout_ns=TIMEOUT)
    gates = {pod.verdict: pod for pod in answer.pods()}
    assert gates["never"].gate == "landing"
    assert reason in gates["never"].reason
    assert any(reason in place.reason for place in gates["ready"].landing)
    assert len([pod for pod in answer.pods() if pod.start is not None]) == 1


def test_topology_spread_over_a_cordoned_node() -> None:
    """The cordoned node stays a domain, without pods: no other may have more than one then."""
    spread = {
        "spec": {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        }
    }
    guard = budget("web", "web", healthy=4, desired=3, expected=4, maxUnavailable=1)
    places = ("a1", "a1", "a2", "a2")
    nodes = [*node("a1"), *node("a2")]
    answer = plan(nodes, replica_set("web", *places, **spread), guard, timeout_ns=TIMEOUT)
    assert {pod.gate for pod in answer.pods() if pod.verdict == "never"} == {"landing"}
    spread["spec"]["topologySpreadConstraints"][0]["nodeTaintsPolicy"] = "Honor"
    answer = plan(nodes, replica_set("web", *places, **spread), guard, timeout_ns=TIMEOUT)
    assert answer.verdict == "slow"


def test_anti_affinity_waits_until_the_old_pod_is_gone() -> None:
    """By zone, with one other node in it: the place is free only once the object has left."""
    apart = {
        "spec": {
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "labelSelector": {"matchLabels": {"app": "web"}},
                            "topologyKey": "topology.kubernetes.io/zone",
                        }
                    ]
                }
            },
            "terminationGracePeriodSeconds": 10,
        }
    }
    answer = plan(NODES, replica_set("web", "a1", **apart))
    web = pods_of(answer)["web-0"]
    assert web.gone is not None and web.end is not None and web.end > web.gone >= 10


def claim(name: str, volume: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"volumeName": volume, "storageClassName": "zonal"},
        "status": {"phase": "Bound"},
    }


def volume(name: str, key: str, value: str) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
    }


WITH_CLAIM = {
    "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
}


def test_a_zone_bound_volume_keeps_its_pod_in_the_zone() -> None:
    objects = [
        *node("a1", zone="a"),
        *node("b1", zone="b"),
        *stateful_set("db", "a1", pod_more=WITH_CLAIM),
        claim("data", "pv"),
        volume("pv", "topology.kubernetes.io/zone", "a"),
    ]
    stranded = pods_of(plan(objects))["db-0"]
    assert stranded.verdict == "ready" and stranded.end is None
    assert {place.reason for place in stranded.landing} == {
        "node(s) were unschedulable",
        "node(s) didn't match PersistentVolume's node affinity",
    }
    assert pods_of(plan(objects, *node("a2", zone="a")))["db-0"].landing[0].node == "a2"


def test_a_local_volume_strands_its_pod() -> None:
    answer = plan(
        NODES,
        stateful_set("db", "a1", pod_more=WITH_CLAIM),
        claim("data", "pv"),
        volume("pv", "kubernetes.io/hostname", "a1"),
    )
    db = pods_of(answer)["db-0"]
    assert (db.verdict, db.gate) == ("ready", "local-volume")


def test_a_missing_claim_is_told() -> None:
    db = pods_of(plan(NODES, stateful_set("db", "a1", pod_more=WITH_CLAIM)))["db-0"]
    assert [place.reason for place in db.landing] == ['persistentvolumeclaim "data" not found']


# --- what keeps a pod that was evicted ------------------------------------------------------------


@pytest.mark.parametrize(
    "more, expected",
    [
        pytest.param({"finalizers": ["example.com/hold"]}, "finalizer", id="somebody-s"),
        pytest.param({"finalizers": ["batch.kubernetes.io/job-tracking"]}, None, id="the-job-s"),
    ],
)
def test_finalizers(more: Json, expected: str | None) -> None:
    held = pods_of(plan(NODES, replica_set("web", "a1", metadata=more)))["web-0"]
    assert (held.gate, held.verdict) == ((expected, "never") if expected else ("none", "ready"))
    assert held.start is not None


def dead_nodes() -> list[Any]:
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    tainted = {
        "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}
    }
    return [
        pytest.param(node("a1", lease="2026-01-01T00:59:00Z"), id="lease-ran-out"),
        pytest.param(node("a1", **unknown), id="ready-unknown"),
        pytest.param(node("a1", **tainted), id="unreachable-taint"),
    ]


@pytest.mark.parametrize("dead", dead_nodes())
def test_unreachable_kubelet(dead: list[Json]) -> None:
    objects = (dead, node("a2"), replica_set("web", "a1"))
    web = pods_of(plan(*objects))["web-0"]
    assert (web.verdict, web.gate) == ("never", "kubelet-unreachable")
    assert web.start is not None and web.gone is None
    assert plan(*objects, grace_period_seconds=0).verdict == "ready"


def test_a_fresh_lease_is_no_dead_kubelet() -> None:
    nodes = [*node("a1", lease="2026-01-01T00:59:21Z"), *node("a2")]
    assert plan(nodes, replica_set("web", "a1")).verdict == "ready"


def test_out_of_service_lets_the_collector_remove_pods() -> None:
    taints = [
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"},
    ]
    nodes = [*node("a1", spec={"taints": taints}), *node("a2")]
    assert plan(nodes, replica_set("web", "a1")).verdict == "ready"


def test_completed_pods_need_no_kubelet() -> None:
    nodes = [*node("a1", lease="2026-01-01T00:00:00Z"), *node("a2")]
    assert plan(nodes, pod("done", "a1", status={"phase": "Failed"})).verdict == "ready"


def test_skip_wait_for_delete_timeout() -> None:
    nodes = [*node("a1", lease="2026-01-01T00:00:00Z"), *node("a2")]
    answer = plan(nodes, replica_set("web", "a1"), skip_wait_seconds=10)
    web = pods_of(answer)["web-0"]
    assert (web.verdict, web.gate, web.gone) == ("slow", "kubelet-unreachable", None)
    # 2 s of grace, then strictly more than 10 s: it takes a look after 11 whole ones.
    assert answer.nodes[0].end == pytest.approx(14, abs=1.5)


def test_pods_that_terminate_already_are_waited_for() -> None:
    going = {"deletionTimestamp": "2026-01-01T01:00:20Z", "deletionGracePeriodSeconds": 30}
    web = pods_of(plan(NODES, replica_set("web", "a1", metadata=going)))["web-0"]
    assert web.verdict == "ready" and web.gone == pytest.approx(20, abs=0.5)


def test_timeout_shorter_than_the_grace() -> None:
    objects = (NODES, replica_set("web", "a1", spec={"terminationGracePeriodSeconds": 60}))
    web = pods_of(plan(*objects, timeout_ns=TIMEOUT))["web-0"]
    assert web.verdict == "never" and "60 s" in web.reason
    assert plan(*objects, timeout_ns=TIMEOUT, grace_period_seconds=5).verdict == "ready"


# --- namespaces, webhooks, policies ---------------------------------------------------------------


def test_a_terminating_namespace_never_lets_an_eviction_in() -> None:
    objects = (NODES, replica_set("web", "a1"), namespace(phase="Terminating"))
    web = pods_of(plan(*objects))["web-0"]
    assert (web.verdict, web.gate, web.start) == ("never", "namespace-terminating", None)
    assert plan(*objects, disable_eviction=True).verdict == "ready"


def test_pods_that_go_with_their_namespace_are_waited_for() -> None:
    going = {"deletionTimestamp": "2026-01-01T01:00:08Z", "deletionGracePeriodSeconds": 10}
    objects = (NODES, replica_set("web", "a1", metadata=going), namespace(phase="Terminating"))
    web = pods_of(plan(*objects))["web-0"]
    assert (web.verdict, web.gate, web.start) == ("slow", "namespace-terminating", None)
    assert web.gone == pytest.approx(8, abs=0.5)


def webhook(policy: str = "Fail", resource: str = "pods/eviction", **more: Any) -> Json:
    hook = {
        "name": "guard.example.com",
        "rules": [
            {
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": [resource],
            }
        ],
        "failurePolicy": policy,
        "clientConfig": {"service": {"namespace": "guard", "name": "guard"}},
        **more,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard"},
        "webhooks": [hook],
    }


@pytest.mark.parametrize(
    "hook, expected",
    [
        pytest.param(webhook(), ("never", "webhook"), id="its-service-is-missing"),
        pytest.param(webhook("Ignore"), ("ready", "none"), id="ignored-when-it-fails"),
        pytest.param(webhook(resource="pods"), ("ready", "none"), id="about-pods-alone"),
        pytest.param(webhook(resource="*/*"), ("never", "webhook"), id="about-everything"),
        pytest.param(
            webhook(namespaceSelector={"matchLabels": {"guarded": "yes"}}),
            ("ready", "none"),
            id="another-namespace",
        ),
        pytest.param(
            webhook(objectSelector={"matchLabels": {"app": "web"}}),
            ("ready", "none"),
            id="an-eviction-has-no-labels",
        ),
        pytest.param(
            webhook(matchConditions=[{"name": "n", "expression": "request.name == 'other'"}]),
            ("ready", "none"),
            id="match-condition-does-not-hold",
        ),
        pytest.param(
            webhook(clientConfig={"url": "https://guard.example.com"}),
            ("unknown", "webhook"),
            id="nobody-knows-what-it-answers",
        ),
    ],
)
def test_webhooks(hook: Json, expected: tuple[str, str]) -> None:
    web = pods_of(plan(NODES, replica_set("web", "a1"), namespace(), hook))["web-0"]
    assert (web.verdict, web.gate) == expected


def policy(expression: str, actions: tuple[str, ...] = ("Deny",), **more: Any) -> list[Json]:
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods/eviction"],
    }
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "no-evictions"},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression, "message": "not today"}],
                **more,
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "everywhere"},
            "spec": {"policyName": "no-evictions", "validationActions": list(actions)},
        },
    ]


@pytest.mark.parametrize(
    "objects, expected",
    [
        pytest.param(policy("false"), ("never", "webhook"), id="denies"),
        pytest.param(policy("true"), ("ready", "none"), id="allows"),
        pytest.param(policy("false", ("Warn", "Audit")), ("ready", "none"), id="only-warns"),
        pytest.param(policy("false")[:1], ("ready", "none"), id="bound-nowhere"),
        pytest.param(
            policy("!object.metadata.name.startsWith('web')"), ("never", "webhook"), id="by-name"
        ),
        pytest.param(
            policy("object.metadata.labels.x == 'y'"), ("never", "webhook"), id="an-error-denies"
        ),
        pytest.param(
            policy("object.metadata.labels.x == 'y'", failurePolicy="Ignore"),
            ("ready", "none"),
            id="an-error-is-ignored",
        ),
        pytest.param(
            policy("request.userInfo.username != 'me'"), ("unknown", "webhook"), id="by-user"
        ),
    ],
)
def test_policies(objects: list[Json], expected: tuple[str, str]) -> None:
    web = pods_of(plan(NODES, replica_set("web", "a1"), namespace(), objects))["web-0"]
    assert (web.verdict, web.gate) == expected


def test_a_policy_fails_its_pod_at_once_and_others_go() -> None:
    answer = plan(
        NODES,
        replica_set("web", "a1"),
        replica_set("ok", "a1"),
        policy("object.metadata.name != 'web-0'"),
        nodes=("a1", "a2"),
    )
    pods = pods_of(answer)
    assert (pods["web-0"].verdict, pods["ok-0"].verdict) == ("never", "ready")
    assert "not today" in pods["web-0"].reason
    assert answer.nodes[1].start is not None


# --- what was not read ----------------------------------------------------------------------------


def test_kinds_that_were_not_read_make_it_unknown() -> None:
    read = {"Node", "Pod", "Lease", "ReplicaSet"}
    answer = plan(NODES, replica_set("web", "a1"), read=read)
    assert answer.verdict == "unknown" and answer.estimate is not None
    kinds = {missing.kind for missing in answer.not_evaluated}
    assert "PodDisruptionBudget" in kinds and "Lease" not in kinds
    assert "PodDisruptionBudget" in pods_of(answer)["web-0"].reason


def test_never_stays_never_whatever_was_not_read() -> None:
    guard = budget("web", "web", healthy=1, desired=1, expected=1, minAvailable=1)
    read = {"Node", "Pod", "PodDisruptionBudget"}
    assert plan(NODES, replica_set("web", "a1"), guard, read=read).verdict == "never"


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


# --- StatefulSets ---------------------------------------------------------------------------------


def test_a_stateful_set_is_replaced_in_order_once_the_old_pods_are_gone() -> None:
    pods = pods_of(plan(NODES, stateful_set("db", "a1", "a1")))
    first, second = pods["db-0"], pods["db-1"]
    assert first.gone is not None and first.end is not None and second.end is not None
    assert first.end > first.gone
    assert second.end >= first.end + 2
    parallel = pods_of(plan(NODES, stateful_set("db", "a1", "a1", podManagementPolicy="Parallel")))
    assert parallel["db-1"].end == pytest.approx(parallel["db-0"].end, abs=0.1)
