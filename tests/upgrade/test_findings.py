"""What a plan says beforehand: one row for each finding, as the objects of a cluster show it."""

import json
from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.upgrade.findings import UpgradePlan
from kubectl_nodelife.upgrade.plan import make_upgrade_plan
from tests import objects
from tests.acts.program import nodelife
from tests.drain import build
from tests.loopback import sandbox
from tests.objects import webhook
from tests.upgrade.test_plan import blue

SETTINGS = make_settings("v1.36")
THREE = ("a1", "a2", "a3")


def plan(
    *objects: build.Json | list[build.Json], nodes: list[build.Json] | None = None, **policy: Any
) -> UpgradePlan:
    made = build.snapshot(build.namespace(), *(blue(*THREE) if nodes is None else nodes), *objects)
    asked = {"selector": "pool=blue", "target": ["bootID=changed"], "work": {"mode": "wait"}}
    return make_upgrade_plan(made, policy_from({**asked, **policy}), SETTINGS)


def told(found: UpgradePlan) -> dict[str, list[str]]:
    by_check: dict[str, list[str]] = {}
    for finding in found.findings:
        by_check.setdefault(finding.check, []).append(f"{finding.severity}: {finding.text}")
    return by_check


def lease(name: str, age_s: int) -> build.Json:
    return objects.lease(name, build.NOW_NS - age_s * SECOND_NS, namespace="kube-system")


def daemon_set(**toleration: str) -> build.Json:
    pods = {"tolerations": [toleration]}
    return objects.workload("DaemonSet", "cni", namespace="kube-system", pods=pods)


def labelled(key: str, value: str = "x", where: str = "labels") -> list[build.Json]:
    metadata = {"labels": {"pool": "blue"}}
    metadata.setdefault(where, {})[key] = value
    return [obj for name in THREE for obj in build.node(name, zone="a", metadata=metadata)]


def test_a_namespace_that_is_missing_refuses_the_start_and_says_what_to_type() -> None:
    found = plan()
    wanted = "namespace nodelife, for the canary pods, does not exist: "
    assert found.refusals == [f"{wanted}kubectl create namespace nodelife"]
    assert found.course.steps, "what the run would be is told all the same"


def test_the_namespace_of_a_job_must_exist_as_well() -> None:
    spec = {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    meta = {"namespace": "infra"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    found = plan(build.namespace("nodelife"), work={"mode": "job", "manifest": job})
    assert any("namespace infra, for the Jobs" in refusal for refusal in found.refusals)


def test_pod_security_of_the_namespace_concerns_a_template_alone() -> None:
    strict = build.namespace("nodelife")
    strict["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert "namespace" not in told(plan(strict))
    (text,) = told(plan(strict, canaryTemplate=template))["namespace"]
    assert "enforces Pod Security 'restricted'" in text


@pytest.mark.parametrize("name", ["kube-controller-manager", "kube-scheduler"])
def test_who_proves_a_node_must_live(name: str) -> None:
    assert told(plan())[name][0].startswith(f"not evaluated: whether {name} runs")
    assert name not in told(plan(lease(name, age_s=5)))
    assert f"{name} has not renewed its Lease" in told(plan(lease(name, age_s=90)))[name][0]


def test_a_daemon_set_that_does_not_tolerate_the_taint_of_the_proof_is_named() -> None:
    assert (
        "kube-system/cni" in told(plan(daemon_set(key="other", operator="Exists")))["DaemonSets"][0]
    )
    assert "DaemonSets" not in told(plan(daemon_set(operator="Exists")))


@pytest.mark.parametrize("resources, found", [
    (["pods/eviction"], True), (["*/*"], True), (["pods"], False), (["deployments"], False),
])  # fmt: skip
def test_webhooks_that_are_asked_about_evictions_are_named(
    resources: list[str], found: bool
) -> None:
    assert ("webhooks" in told(plan(webhook(*resources)))) is found


def test_pods_that_nothing_keeps_off_are_named() -> None:
    app = build.replica_set("web", "a1")
    for obj in app:
        if obj["kind"] == "Pod":
            obj["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert "default/web-" in told(plan(app))["tolerations"][0]


def test_other_upgraders_are_named() -> None:
    assert "kured" in told(plan(build.replica_set("kured", "a1")))["other upgraders"][0]


def test_nodes_that_cannot_be_drained_are_named() -> None:
    numbers = {"healthy": 1, "desired": 1, "expected": 1}
    found = plan(
        build.stateful_set("db", "a1"), build.budget("db", "db", **numbers, minAvailable=1)
    )
    assert "a1 cannot be drained as things are" in told(found)["drains"][0]


def test_nodes_that_are_not_ready_are_named() -> None:
    down = {"conditions": [{"type": "Ready", "status": "False", "lastHeartbeatTime": build.NOW}]}
    found = plan(nodes=[*blue("a1", "a2"), *blue("a3", status=down)])
    assert "a3" in told(found)["unhealthy nodes"][0]


def test_a_grace_period_shorter_than_two_renewals_is_named() -> None:
    rhythm = objects.lease("a1", build.NOW_NS)
    made = build.snapshot(build.namespace(), *blue(*THREE), rhythm)
    policy = policy_from({"selector": "pool=blue", "work": {"mode": "nothing"}})
    short = make_settings("v1.36", {"node-monitor-grace-period": "8s"})
    [text] = told(make_upgrade_plan(made, policy, short))["settings"]
    assert "8s is not longer than the 10s between two heartbeats" in text
    assert "settings" not in told(make_upgrade_plan(made, policy, SETTINGS))


def test_without_a_target_nobody_knows_what_the_work_did() -> None:
    found = plan(target=[], work={"mode": "run", "command": "true"})
    assert told(found)["target"][0].startswith("warning: no --target")
    assert "target" not in told(plan())


def test_a_run_under_way_tells_how_long_the_work_takes() -> None:
    begun, ended = "2026-01-01T00:10:00Z", "2026-01-01T00:14:00Z"
    work = marks.WorkMark(started=begun, ended=ended)
    mark = marks.encode_mark(
        marks.NodeMark(run="r1", state=marks.NodeState.DONE, claimed=begun, work=work)
    )
    done = build.node(
        "a1", metadata={"labels": {"pool": "blue"}, "annotations": {marks.ANNOTATION: mark}}
    )
    found = plan(build.namespace("nodelife"), nodes=[*done, *blue("a2", "a3")], expectWork="20m")
    assert "the work takes 4m0s (the median of 1 node of the run under way)" in found.assumptions


def test_kinds_that_were_not_read_are_named_with_what_is_not_known() -> None:
    made = build.snapshot(
        build.namespace("nodelife"), *blue(*THREE), read={"Node", "Pod", "Namespace"}
    )
    found = make_upgrade_plan(made, policy_from({"selector": "pool=blue"}), SETTINGS)
    unread = told(found)["unread"]
    assert "not evaluated: what budgets allow: no PodDisruptionBudget was read" in unread


def test_windows_nodes_need_a_canary_of_their_own() -> None:
    nodes = labelled("kubernetes.io/os", "windows")
    assert any("a1, a2, a3" in text for text in told(plan(nodes=nodes))["canary image"])


def test_machines_that_cluster_api_owns_may_be_replaced_meanwhile() -> None:
    nodes = labelled("cluster.x-k8s.io/machine", where="annotations")
    (text,) = told(plan(nodes=nodes))["owners of machines"]
    assert "cluster.x-k8s.io/skip-remediation" in text


def test_a_providers_own_upgrade_cannot_be_held() -> None:
    nodes = labelled("eks.amazonaws.com/nodegroup")
    (text,) = told(plan(nodes=nodes))["owners of machines"]
    assert "an EKS managed node group" in text and "upgrade prove" in text
    run = {"mode": "run", "command": "true"}
    assert "owners of machines" not in told(plan(nodes=nodes, work=run))


def test_a_limit_by_zone_that_leaves_none_is_refused() -> None:
    found = plan(build.namespace("nodelife"), maxPerZone=0)
    assert found.refusals == ["none of the 3 nodes in zone a of pool blue may be unavailable"]


def test_a_window_that_is_too_short_for_any_node_is_refused() -> None:
    found = plan(build.namespace("nodelife"), window=["Mon-Sun 01:00-01:05"])
    assert any("the longest window is 5m" in refusal for refusal in found.refusals)


@pytest.mark.deep("commands as processes")
async def test_a_live_plan_reads_by_which_leases_the_control_plane_lives() -> None:
    fresh = {**lease("kube-scheduler", 0), "spec": {"renewTime": "2126-01-01T00:00:00.000000Z"}}
    old = {**lease("kube-controller-manager", 0)}
    async with sandbox(objects=[fresh, old]) as served:
        words = ("plan", "a1", "--wait", "--target", "bootID=changed", "-o", "json")
        ended = await nodelife(served.kubeconfig, served.folder, "upgrade", *words)
        findings = json.loads(ended.out)["findings"]
        checks = {finding["check"]: finding["severity"] for finding in findings}
        assert "kube-scheduler" not in checks
        assert checks["kube-controller-manager"] == "warning"
