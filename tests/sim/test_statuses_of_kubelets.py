"""Pods whose start or end hangs on more than containers: readiness gates, and calls that fail."""

from typing import Any

from tests.sim.documents import Json, found, node, pod, story

GATE = "example.com/lb"


def failing(at: str, *calls: str) -> Json:
    return {"at": at, "kubelet": {"nodes": ["n1"], "failingCalls": list(calls)}}


def played(events: list[Json], *pods: Json) -> Any:
    objects = [node("n1"), *pods]
    return story(controllers=["pod-status"], duration="1m", objects=objects, events=events)


def test_readiness_gates_keep_a_started_pod_unready_until_they_are_set() -> None:
    """`GeneratePodReadyCondition`, and `HandlePodReconcile` once another client sets the gate."""
    gated = pod("p", "n1", ready=False, readinessGates=[{"conditionType": GATE}])
    named = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    states = {"Initialized": "True", "Ready": "False", "ContainersReady": "True", GATE: "True"}
    conditions = [{"type": type_, "status": status} for type_, status in states.items()]
    events = [
        {"at": "13s", "apply": gated},
        {"at": "33s", "apply": {**named, "status": {"conditions": conditions}}},
    ]
    unready, ready = found(played(events), "SetPodCondition", name="p", type="Ready")
    assert (unready.at, unready.detail["reason"]) == (15, "ReadinessGatesNotReady")
    assert (ready.at, ready.detail["status"]) == (33, "True")


def test_patches_that_fail_hold_up_the_start_of_an_ordinary_pod() -> None:
    starts = [
        failing("11s", "patch"),
        {"at": "13s", "apply": pod("p", "n1", ready=False)},
        failing("43s"),
    ]
    (ready,) = found(played(starts), "SetPodCondition", name="p", type="Ready")
    assert ready.at == 50  # the kubelet's first batch after that


def test_deletions_that_fail_hold_up_the_end_of_an_ordinary_pod() -> None:
    ends = [failing("11s", "delete"), {"at": "13s", "delete": {"kind": "Pod", "name": "p"}}]
    held = pod("p", "n1", terminationGracePeriodSeconds=2)
    *_, gone = found(played([*ends, failing("33s")], held), "DeletePod", name="p")
    assert gone.at == 40


def test_daemon_sets_of_extensions_v1beta1_are_not_updated_by_default() -> None:
    """`SetDefaults_DaemonSet` of extensions/v1beta1: OnDelete; of apps/v1: RollingUpdate."""
    deleted = {}
    for version in ("extensions/v1beta1", "apps/v1"):
        name = {"name": "agent", "namespace": "default"}
        meta = {"apiVersion": version, "kind": "DaemonSet", "metadata": name}

        def template(image: str) -> Json:
            return {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            }

        spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent:1")}
        update = {"at": "20s", "apply": {**meta, "spec": {"template": template("agent:2")}}}
        told = story(
            controllers=["daemonset"],
            duration="1m",
            objects=[node("n1"), {**meta, "spec": spec}],
            events=[update],
        )
        deleted[version] = bool(found(told, "DeletePod"))
    assert deleted == {"extensions/v1beta1": False, "apps/v1": True}
