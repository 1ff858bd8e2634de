"""What each release's own DaemonSet controller does, where releases differ.

The titles name the function of `pkg/controller/daemon` that a clause was read in; v1.11 is v1.11.0,
the others are the last patch of their release.
"""

from typing import Any

import pytest

from kubectl_nodelife.controllers.daemonset.behaviour import behaviour_of
from kubectl_nodelife.controllers.daemonset.handlers import should_ignore_node_update
from kubectl_nodelife.controllers.daemonset.placement import yes
from kubectl_nodelife.controllers.daemonset.pods_on_node import (
    SECOND_NS,
    FailedPodsBackoff,
    NodeDecision,
    NodeQuestion,
    pods_should_be_on_node,
)
from kubectl_nodelife.controllers.daemonset.template import PodTemplate, knows_match_fields
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, Toleration
from kubectl_nodelife.kube.workload import DaemonSet
from tests.sim.documents import Json, found, node, pod, story, times
from tests.sim.test_daemon_pods import agents

OFF = "ScheduleDaemonSetPods=false"


def the_set() -> DaemonSet:
    made = decode("DaemonSet", agents("100m"))
    assert isinstance(made, DaemonSet)
    return made


def failed_pod() -> Pod:
    made = decode("Pod", {**pod("agent-x", "n1"), "status": {"phase": "Failed"}})
    assert isinstance(made, Pod)
    return made


def decide(minor: int, backoff: FailedPodsBackoff, at_seconds: float) -> NodeDecision:
    """podsShouldBeOnNode for a node whose only pod has failed."""
    now = round(at_seconds * SECOND_NS)
    question = NodeQuestion(the_set(), "1", False, behaviour_of((1, minor)), backoff, now)
    return pods_should_be_on_node(question, "n1", yes(), [failed_pod()])


# --- failed pods ---------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", [12, 13, 14, 15, 16, 26, 36])
def test_pods_should_be_on_node_comes_back_after_the_whole_delay(minor: int) -> None:
    """`delay := failedPodsBackoff.Get(backoffKey); enqueueDaemonSetAfter(ds, delay)`: a pod found
    in backoff at 8.0 s, last deleted at 6.0 s with a delay of 4 s, is looked at again at 12.0 s."""
    backoff = FailedPodsBackoff()
    for at in (0.0, 2.0, 6.0):
        assert decide(minor, backoff, at).delete
    found_in_backoff = decide(minor, backoff, 8.0)
    assert not found_in_backoff.delete
    assert found_in_backoff.requeue_at_ns == 12 * SECOND_NS
    assert decide(minor, backoff, 10.0).delete  # at the end of the delay it is free


def test_v1_11_has_no_backoff_of_failed_pods() -> None:
    backoff = FailedPodsBackoff()
    assert all(decide(11, backoff, at).delete for at in (0, 0.1, 0.2))


@pytest.mark.parametrize("minor", [11, 12, 13, 14, 16, 36])
def test_pods_should_be_on_node_always_tells_of_a_failed_pod(minor: int) -> None:
    assert decide(minor, FailedPodsBackoff(), 0).events == [
        (
            "Warning",
            "FailedDaemonPod",
            "Found failed daemon pod default/agent-x on node n1, will try to kill it",
        )
    ]


def failing(profile: str) -> Any:
    """A pod of a set fails at 30 s."""
    owned = pod("agent-1", "n1", owner=("DaemonSet", "agent"))
    owned["metadata"]["labels"] = {"app": "agent"}
    the = agents("100m")
    the["metadata"]["uid"] = "DaemonSet-agent"
    the["spec"]["updateStrategy"] = {"type": "OnDelete"}
    fails = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent-1"}}
    return story(
        profile=profile,
        controllers=["daemonset"],
        duration="5m",
        objects=[roomy("n1"), the, owned],
        events=[{"at": "30s", "apply": {**fails, "status": {"phase": "Failed"}}}],
    )


@pytest.mark.parametrize(("profile", "ends"), [("v1.11", True), ("v1.15", True), ("v1.16", False)])
def test_manage_ends_the_sync_with_an_error_up_to_1_15(profile: str, ends: bool) -> None:
    """`if failedPodsObserved > 0 { return fmt.Errorf("deleted %d failed pods of DaemonSet") }`:
    the status is not written in the sync that deletes the pod."""
    told = failing(profile)
    (deleted,) = found(told, "DeletePod", name="agent-1", controller="daemonset")
    (written, *_) = [r for r in found(told, "UpdateDaemonSetStatus") if r.at == deleted.at]
    assert (
        written.cause == told.records.index(deleted)
    ) is ends  # else both follow from the pod's failure


# --- expectations --------------------------------------------------------------------------------


def unlabelled(profile: str, *events: Json) -> Any:
    """n1 no longer matches at 60 s; its pod takes 30 s to stop."""
    the = agents("100m")
    the["spec"]["template"]["spec"]["nodeSelector"] = {"role": "worker"}
    nodes = [worker("n1"), worker("n2")]
    other = {"apiVersion": "v1", "kind": "Node"}
    other |= {"metadata": {"name": "n1", "labels": {"role": None}}}  # type: ignore[dict-item]
    return story(
        profile=profile,
        controllers=["daemonset"],
        duration="3m",
        kubelet={"podStopDuration": "30s"},
        objects=[*nodes, the],
        events=[{"at": "60s", "apply": other}, *events],
    )


def roomy(name: str) -> Json:
    """A node with room, which v1.11 looks at itself."""
    one = node(name)
    one["status"]["allocatable"] = {"cpu": "4", "memory": "4Gi", "pods": "10"}
    return one


def worker(name: str) -> Json:
    """A node that the set selects."""
    one = roomy(name)
    one["metadata"]["labels"]["role"] = "worker"
    return one


N3: Json = {"at": "65s", "apply": worker("n3")}


@pytest.mark.parametrize(
    "profile, deleted, created",
    [
        *((f"v1.{minor}", [60], 90) for minor in range(11, 15)),
        ("v1.15", [60, 60], 90),
        ("v1.16", [60], 65),
        ("v1.36", [60], 65),
    ],
)
def test_a_deletion_is_observed_at_the_mark_from_1_15(
    profile: str, deleted: list[int], created: int
) -> None:
    """`updatePod` has no DeletionTimestamp branch before 1.15.0: the pod must be gone. 1.15
    observes the deletion at the mark and deletes the pod once more (`podsShouldBeOnNode`); that
    second deletion changes nothing, so it is observed when the pod is gone. 1.16 skips pods that
    terminate.
    """
    told = unlabelled(profile, N3)
    assert times(found(told, "DeletePod", controller="daemonset")) == deleted
    (made,) = [r for r in found(told, "CreatePod") if r.at > 60]
    assert round(made.at) == created


# --- which nodes ---------------------------------------------------------------------------------


def as_node(one: Json) -> Node:
    made = decode("Node", one)
    assert isinstance(made, Node)
    return made


@pytest.mark.parametrize(
    ("minor", "what", "ignored"),
    [
        (11, "allocatable", True),
        (12, "allocatable", False),
        (29, "allocatable", False),
        (30, "allocatable", True),
        (11, "condition", False),
        (12, "condition", False),
        (30, "condition", True),
        (11, "label", False),
        (30, "label", False),
    ],
)
def test_update_node_and_should_ignore_node_update(minor: int, what: str, ignored: bool) -> None:
    """1.11 compares labels, taints and True conditions; 1.12 all but heartbeats; 1.30 labels and
    taints."""
    old, new = node("n1"), node("n1")
    if what == "allocatable":
        new["status"]["allocatable"] = {"cpu": "8"}
    elif what == "label":
        new["metadata"]["labels"]["more"] = "yes"
    else:
        new["status"]["conditions"][0]["status"] = "False"
    rules = behaviour_of((1, minor))
    assert should_ignore_node_update(as_node(old), as_node(new), rules) is ignored


def grown(profile: str, **more: Any) -> Any:
    """A node has no room for the pod until its allocatable grows at 60 s."""
    small = node("n1")
    small["status"]["allocatable"] = {"cpu": "50m", "memory": "1Gi", "pods": "10"}
    larger = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    larger |= {"status": {"allocatable": {"cpu": "4"}}}
    return story(
        profile=profile,
        controllers=["daemonset"],
        duration="3m",
        objects=[small, agents("100m")],
        events=[{"at": "60s", "apply": larger}],
        **more,
    )


def test_update_node_of_1_11_does_not_look_at_allocatable() -> None:
    assert not found(grown("v1.11"), "CreatePod")


@pytest.mark.parametrize("profile", ["v1.12", "v1.13", "v1.14", "v1.15", "v1.16"])
def test_predicates_without_schedule_daemon_set_pods_to_1_16(profile: str) -> None:
    """The gate is honoured to 1.16: `Predicates` looks at room, `syncNodes` binds the pod."""
    told = grown(profile, flags={"feature-gates": OFF})
    (created,) = found(told, "CreatePod")
    assert round(created.at) == 60
    assert found(told, "RecordEvent", reason="FailedPlacement")
    assert not found(told, "RecordEvent", reason="Scheduled")


@pytest.mark.parametrize("minor", [12, 13, 14, 15, 16])
def test_sync_nodes_names_its_own_scheduler_from_1_14(minor: int) -> None:
    rules = behaviour_of((1, minor), {"ScheduleDaemonSetPods": False})
    spec = PodTemplate(the_set(), rules).pod_manifest("agent-x", "n1", "1", "v1.16.0")["spec"]
    assert spec["nodeName"] == "n1"
    assert spec.get("schedulerName") == (
        "kubernetes.io/daemonset-controller" if minor >= 14 else None
    )


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("v1.11.0", True),
        ("v1.12.10+k3s1", True),
        ("v1.10.13", False),
        ("v1.11.0-beta.1", False),
        ("", False),
        ("1.11", False),
    ],
)
def test_match_field_version_of_1_12(version: str, known: bool) -> None:
    """`nodeCanUseMatchFields`: an older kubelet, or one that cannot be read, gets a bound pod."""
    assert knows_match_fields(version) is known
    for minor in (12, 13):
        template = PodTemplate(the_set(), behaviour_of((1, minor)))
        spec = template.pod_manifest("agent-x", "n1", "1", version)["spec"]
        assert ("nodeName" in spec) is (minor == 12 and not known)


@pytest.mark.parametrize(
    ("minor", "scheduled", "expected"),
    [
        (11, False, set()),
        (11, True, {"unschedulable"}),
        (12, True, {"unschedulable", "network-unavailable"}),
        (13, False, {"unschedulable", "network-unavailable"}),
        (14, True, {"unschedulable", "network-unavailable", "pid-pressure"}),
    ],
)
def test_add_or_update_daemon_pod_tolerations(
    minor: int, scheduled: bool, expected: set[str]
) -> None:
    """v1.11.0 tolerates `network-unavailable` never, `unschedulable` with the gate alone
    (`AppendNoScheduleTolerationIfNotExist`)."""
    asked = agents("100m")
    asked["spec"]["template"]["spec"]["hostNetwork"] = True
    made = decode("DaemonSet", asked)
    assert isinstance(made, DaemonSet)
    rules = behaviour_of((1, minor), {"ScheduleDaemonSetPods": scheduled})
    tolerated = {t.key.removeprefix("node.kubernetes.io/") for t in _tolerations(made, rules)}
    always = {"not-ready", "unreachable", "disk-pressure", "memory-pressure"}
    assert tolerated == always | expected


def test_a_toleration_that_is_null_is_gos_zero_value() -> None:
    asked = agents("100m")
    asked["spec"]["template"]["spec"]["tolerations"] = [None]
    made = decode("DaemonSet", asked)
    assert isinstance(made, DaemonSet)
    assert _tolerations(made, behaviour_of((1, 36)))[0] == Toleration()


def _tolerations(made: DaemonSet, rules: Any) -> Any:
    return PodTemplate(made, rules).trial_tolerations


@pytest.mark.parametrize(
    ("minor", "scheduled", "deleted"),
    [(11, True, False), (12, True, True), (12, False, False), (36, True, True)],
)
def test_get_unscheduled_pods_without_node_since_1_12(
    minor: int, scheduled: bool, deleted: bool
) -> None:
    rules = behaviour_of((1, minor), {"ScheduleDaemonSetPods": scheduled})
    assert rules.unscheduled_pods_of_missing_nodes_deleted is deleted


@pytest.mark.parametrize(("profile", "observed"), [("v1.12", 66), ("v1.13", 90)])
def test_update_daemon_set_status_raises_the_generation_while_it_waits_to_1_12(
    profile: str, observed: int
) -> None:
    """`updateObservedGen` begins with 1.13: before, a sync that waits for expectations and only
    writes the status raises observedGeneration too."""
    changed = {"at": "66s", "apply": agents("100m", "registry.example/agent:2")}
    changed["apply"]["metadata"]["generation"] = 2  # type: ignore[index]
    told = unlabelled(profile, N3, changed)
    written = [r for r in found(told, "UpdateDaemonSetStatus") if r.at > 60]
    (first, *_) = [r for r in written if r.detail["observedGeneration"] == 2]
    assert round(first.at) == observed
