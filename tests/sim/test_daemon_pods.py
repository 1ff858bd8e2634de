"""The scheduler filters daemon pods: the roll-out waits for one that does not fit."""

from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife import cli
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.times import format_time
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.narration import narration_page
from kubectl_nodelife.sim.run import run
from kubectl_nodelife.sim.scenario import assemble
from tests.objects import manifest, write_list
from tests.sim.documents import Json, found, node, pod, scenario, story, times

CONTROLLERS = {"controllers": ["daemonset", "pod-status"], "duration": "10m"}


def asking(cpu: str, image: str = "registry.example/agent:1") -> list[Json]:
    """Containers that request so much."""
    return [{"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}]


def small(name: str) -> Json:
    """A node with 600m of cpu."""
    made = node(name)
    made["status"]["allocatable"] = {"cpu": "600m", "memory": "1Gi", "pods": "10"}
    return made


def agents(cpu: str, image: str = "registry.example/agent:1") -> Json:
    """A DaemonSet whose pods request so much."""
    labels = {"app": "agent"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": asking(cpu, image)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def spec(*events: Json, **more: Any) -> dict[str, Any]:
    """Two nodes, one of which has another pod of 400m, and a set whose pods request 100m."""
    other = pod("other", "n1", tolerates=None, containers=asking("400m"))
    objects = [small("n1"), small("n2"), other, agents("100m")]
    return {**CONTROLLERS, "objects": objects, "events": list(events), **more}


LARGER = {"at": "1m", "apply": agents("500m", "registry.example/agent:2")}


def test_the_roll_out_hangs_because_the_new_pod_cannot_start() -> None:
    told = story(**spec(LARGER))
    (failed,) = found(told, "RecordEvent", reason="FailedScheduling")
    assert failed.reason == (
        "0/2 nodes are available: 1 Insufficient cpu,"
        " 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    assert told.final["pods"] == {
        **told.final["pods"],
        "ready": 2,
        "unbound": 1,
    }  # the other pod, and the agent of n2: old or new, by the order of the update
    last = found(told, "UpdateDaemonSetStatus")[-1]
    assert last.detail["numberUnavailable"] == 1


def test_it_goes_on_when_there_is_room_again() -> None:
    gone = {"at": "3m", "delete": {"kind": "Pod", "name": "other"}}
    told = story(**spec(LARGER, gone))
    (scheduled,) = found(told, "RecordEvent", reason="Scheduled")
    assert 180 < scheduled.at <= 220
    last = found(told, "UpdateDaemonSetStatus")[-1]
    assert (last.detail["updatedNumberScheduled"], last.detail["numberAvailable"]) == (2, 2)


def test_a_pod_that_waits_backs_off_as_in_the_schedulers_queue() -> None:
    """1 s after the first attempt that failed, then 2 s, 4 s, 8 s, 10 s at most."""
    labelled = [
        {
            "at": f"{second}s",
            "apply": {**small("far"), "metadata": {"name": "far", "labels": {"n": str(second)}}},
        }
        for second in range(11, 60)
    ]
    events = [{"at": "10s", "apply": pod("p", nodeSelector={"n": "58"})}, *labelled]
    queue = {"controllers": [], "duration": "3m", "objects": [small("far")], "profile": "v1.32"}
    told = story(**queue, events=events)
    # attempts at 10, 11, 13, 17, 25, 35, 45, 55 and 65 s; the label fits from 58 s to 59 s only
    assert found(told, "RecordEvent", reason="Scheduled") == []
    events[0] = {"at": "10s", "apply": pod("p", nodeSelector={"n": "35"})}
    assert times(found(story(**queue, events=events), "RecordEvent", reason="Scheduled")) == [35]


def test_an_idle_scheduler_leaves_the_back_off_out_since_1_33() -> None:
    """`SchedulerPopFromBackoffQ`: what was moved is tried at once."""
    other = {**small("far"), "metadata": {"name": "far", "labels": {"n": "1"}}}
    events = [
        {"at": "10s", "apply": pod("p", nodeSelector={"n": "1"})},
        {"at": "10500ms", "apply": other},
    ]
    for profile, at in (("v1.32", 11), ("v1.33", 10.5)):
        told = story(
            controllers=[], duration="1m", objects=[small("far")], events=events, profile=profile
        )
        assert times(found(told, "RecordEvent", reason="Scheduled")) == [at]


def test_the_pod_says_why_it_is_not_scheduled() -> None:
    done = run(assemble(scenario(**spec(LARGER))), _controllers()).cluster
    (waiting,) = [p for p in done.pods.values() if not p.spec.node_name]
    condition = waiting.status.condition("PodScheduled")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    assert "1 Insufficient cpu" in condition.message


def test_a_set_that_was_created_long_ago_has_the_defaults_of_the_api_all_the_same() -> None:
    """One with uid and creationTimestamp and without updateStrategy rolls out."""
    old = agents("100m")
    made = "2025-01-01T00:00:00Z"
    old["metadata"] |= {"uid": "DaemonSet-agent", "creationTimestamp": made, "generation": 1}
    theirs = pod("agent-1", "n1", owner=("DaemonSet", "agent"))
    theirs["metadata"]["labels"] = {"app": "agent", "controller-revision-hash": "old"}
    told = story(controllers=["daemonset"], objects=[small("n1"), old, theirs])
    assert found(told, "DeletePod", name="agent-1", controller="daemonset")


def _controllers() -> list[Any]:
    from kubectl_nodelife.controllers import make_controllers
    from kubectl_nodelife.engine.settings import make_settings, parse_profile

    return make_controllers(make_settings(parse_profile("current"), {}), ["daemonset"])


def test_v1_11_checks_room_itself_and_tells_failed_placement() -> None:
    told = story(**spec(LARGER, profile="v1.11"))
    assert found(told, "RecordEvent", reason="FailedPlacement")
    assert not found(told, "RecordEvent", reason="FailedScheduling")
    lines = [
        line for line in render(narration_page(told), "table").splitlines() if "Failed" in line
    ]
    assert lines and all("RecordEvent FailedPlacement" in line for line in lines)


def test_daemonset_and_rollout_explain_why_it_hangs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(assemble(scenario(**spec(LARGER))), _controllers())
    kinds = ("Node", "Pod", "DaemonSet", "ControllerRevision")
    items = [encode(obj) for kind in kinds for obj in done.cluster.all(kind)]
    path = write_list(tmp_path / "dump.json", items)
    flags = ["-f", path, "--now", format_time(done.end_ns)]
    assert cli.main(["daemonset", "status", "daemonset", "agent", *flags]) == 0
    shown = capsys.readouterr().out
    assert "waits: 1 of maxUnavailable 1 in use: by n1" in shown
    assert "not scheduled: n1 has 0.2 of cpu left and is asked for 0.5" in shown
    assert cli.main(["daemonset", "agent", "--nodes", *flags]) == 0
    assert "(not scheduled)" in capsys.readouterr().out


def read_from_a_cluster(*objects: Json) -> list[Json]:
    """The objects as the API server shows them: each has a version."""
    return [{**o, "metadata": {**o["metadata"], "resourceVersion": "7"}} for o in objects]


def running_set() -> list[Json]:
    """A DaemonSet with its pod on a node, as a cluster shows them."""
    made = agents("100m")
    made["metadata"] |= {"uid": "DaemonSet-agent", "generation": 1}
    template = made["spec"]["template"]["spec"]
    template |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}
    template["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    counts = ("current", "desired", "updated")
    made["status"] = {f"{word}NumberScheduled": 1 for word in counts} | {
        "numberReady": 1,
        "numberAvailable": 1,
        "observedGeneration": 1,
    }
    own = pod("agent-x", "n1", owner=("DaemonSet", "agent"), tolerates=None)
    own["metadata"]["labels"] = {"app": "agent", "controller-revision-hash": "h"}
    return read_from_a_cluster(node("n1"), node("n2", ready="Unknown"), made, own)


def test_pods_of_a_cluster_that_was_read_are_heard_of_when_they_change() -> None:
    """A play changes an object and not its version, which is no resync for that."""
    unready = {"at": "20s", "container": {"pods": ["agent-x"], "name": "c", "ready": False}}
    controllers = ["daemonset", "pod-status"]
    told = story(start="join", objects=running_set(), controllers=controllers, events=[unready])
    seen = found(told, "UpdateDaemonSetStatus")
    assert [(r.at, r.detail["numberReady"]) for r in seen if r.at > 0] == [(20.0, 0)]


def test_a_joined_set_goes_on_once_its_new_pods_are_available() -> None:
    """`updatePod` has asked for that when they became Ready, and a join sees no such event: under
    maxSurge a node's old pod hides that its new one is Ready, so that no count of the status says
    that something is awaited.
    """
    made, own = running_set()[2:]
    made["spec"] |= {"minReadySeconds": 30}
    rolling = {"maxSurge": 1, "maxUnavailable": 0}
    made["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T23:59:50Z"}
    new = {**own, "metadata": {**own["metadata"], "name": "agent-y", "uid": "new"}}
    new["metadata"]["creationTimestamp"] = "2025-12-31T23:59:45Z"
    new["status"] = {"phase": "Running", "conditions": [ready]}
    revision = manifest(
        "ControllerRevision",
        "agent-new",
        "default",
        labels={"app": "agent", "controller-revision-hash": "new"},
        owners=own["metadata"]["ownerReferences"],
        data={"spec": {"template": {**made["spec"]["template"], "$patch": "replace"}}},
        revision=2,
    )
    new["metadata"]["labels"] = {"app": "agent", "controller-revision-hash": "new"}
    own["metadata"]["creationTimestamp"] = "2025-12-31T22:00:00Z"
    own["status"]["conditions"][0]["lastTransitionTime"] = "2025-12-31T22:00:05Z"
    objects = read_from_a_cluster(node("n1"), made, own, new, revision)
    told = story(start="join", objects=objects, controllers=["daemonset"])
    assert [(r.at, r.object.name) for r in found(told, "DeletePod", controller="daemonset")] == [
        (21.0, "agent-x")
    ]


def test_the_template_that_is_there_already_is_no_new_generation() -> None:
    """`PrepareForUpdate` compares what has its defaults: kubectl apply of one and the same file."""
    events = [{"at": "20s", "apply": agents("100m")}, {"at": "40s", "apply": agents("200m")}]
    told = story(start="join", objects=running_set(), controllers=["daemonset"], events=events)
    seen = found(told, "UpdateDaemonSetStatus")
    assert [(r.at, r.detail["observedGeneration"]) for r in seen if r.at >= 20][:1] == [(40.0, 2)]
