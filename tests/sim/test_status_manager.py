"""The lasting status manager of each simulated kubelet: what a scenario can do to it, and what it
tells. The words are those of pkg/kubelet/status/status_manager.go."""

from typing import Any

import pytest

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.sim.run import run
from kubectl_nodelife.sim.scenario import assemble
from kubectl_nodelife.sim.status_manager import StatusManager, StatusManagers
from tests.objects import manifest
from tests.sim.documents import found, node, pod, scenario, start, stop, story, times

Json = dict[str, Any]
KUBELETS = {"controllers": ["pod-status"], "duration": "2m"}


def web(**status: Any) -> Json:
    """A pod with one container that runs and is ready."""
    made = pod("web", "n1", tolerates=None)
    container = {"name": "c", "ready": True, "started": True, "containerID": "x://c"}
    made["status"] = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            {"type": type_, "status": "True"}
            for type_ in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [{**container, "state": {"running": {}}}],
        **status,
    }
    return made


def container(at: str, **what: Any) -> Json:
    """An event of the container "c" of the pod "web"."""
    return {"at": at, "container": {"pods": ["web"], "name": "c", **what}}


def told(*events: Json, profile: str = "v1.36", subject: Json | None = None, **kubelet: Any) -> Any:
    """The story of one pod on one node."""
    return story(
        **KUBELETS,
        profile=profile,
        objects=[node("n1"), subject or web()],
        kubelet=kubelet,
        events=list(events),
    )


def last(*events: Json, profile: str = "v1.36", subject: Json | None = None) -> Pod | None:
    """The pod at the end."""
    spec = {**KUBELETS, "profile": profile, "objects": [node("n1"), subject or web()]}
    return run(assemble(scenario(**spec, events=list(events))), []).cluster.pods.get(
        ("default", "web")
    )


def reasons(done: Any) -> list[tuple[float, str]]:
    """(when, reason) of all events about the pod."""
    return [
        (r.at, r.detail["reason"])
        for r in done.records
        if r.action == "RecordEvent" and r.object.kind == "Pod"
    ]


def test_set_container_readiness_makes_a_version_and_is_sent_at_once() -> None:
    done = told(container("11s", ready=False))
    (change,) = found(done, "RecordEvent", reason="StatusChanged")
    assert change.reason == "container c is not ready: version 2"
    sent = found(done, "SetPodCondition", controller="pod-status")
    assert [(r.at, r.detail["type"], r.detail["status"]) for r in sent] == [
        (11, "Ready", "False"),
        (11, "ContainersReady", "False"),
    ]
    assert {r.detail["reason"] for r in sent} == {"ContainersNotReady"}


def test_versions_are_counted_across_updates() -> None:
    done = told(*(container(f"{s}s", ready=s % 2 == 0) for s in (11, 12, 13, 14)))
    changes = found(done, "RecordEvent", reason="StatusChanged")
    assert [r.reason.rsplit(" ", 1)[1] for r in changes] == ["2", "3", "4", "5"]


def test_an_unchanged_readiness_is_ignored() -> None:
    done = told(container("11s", ready=True))
    assert reasons(done) == [(11, "StatusIgnored")]
    assert not found(done, "SetPodCondition")


def test_set_container_startup_changes_no_condition() -> None:
    done = told(container("11s", started=False))
    assert reasons(done) == [(11, "StatusChanged"), (11, "StatusPatched")]
    subject = last(container("11s", started=False))
    assert subject is not None and subject.status.container_statuses is not None
    assert subject.status.container_statuses[0].started is False


def test_a_terminated_container_that_may_not_restart_does_not_come_back() -> None:
    """checkContainerStateTransition."""
    events = [container("11s", state="terminated"), container("12s", state="running")]
    never = web()
    never["spec"]["restartPolicy"] = "Never"
    done = told(*events, subject=never)
    (refused,) = found(done, "RecordEvent", reason="StatusRefused")
    assert refused.at == 12
    assert refused.reason == (
        "the update is aborted: terminated container c attempted illegal transition"
        " to non-terminated state"
    )
    assert not found(told(*events), "RecordEvent", reason="StatusRefused")


@pytest.mark.parametrize(
    "policy, code, phase",
    [
        ("Never", 0, "Succeeded"),
        ("Never", 1, "Failed"),
        ("OnFailure", 1, "Running"),
        ("Always", 1, "Running"),
    ],
)
def test_the_phase_follows_from_the_containers(policy: str, code: int, phase: str) -> None:
    subject = web()
    subject["spec"]["restartPolicy"] = policy
    ended = last(container("11s", state="terminated", exitCode=code), subject=subject)
    assert ended is not None and ended.status.phase == phase and not ended.ready()


def test_termination_messages_share_12_kib() -> None:
    """normalizeStatus: bytes, divided by the number of containers in the spec."""
    subject = web()
    subject["spec"]["containers"].append({"name": "d", "image": "registry.example/app:1"})
    event = container("11s", state="terminated", exitCode=1, message="é" * 4000)
    ended = last(event, subject=subject)
    assert ended is not None and ended.status.container_statuses is not None
    state = ended.status.container_statuses[0].state.terminated
    assert state is not None and state.message == "é" * 3072
    changed, *_ = found(told(event, subject=subject), "RecordEvent", reason="StatusChanged")
    assert "its message cut from 8000 bytes to 6144" in changed.reason


def test_a_container_that_fails_to_start_keeps_its_pod_pending() -> None:
    waiting = container("1s", state="waiting", reason="ImagePullBackOff")
    unbound = pod("web", "n1", ready=False)
    subject = last(waiting, subject=unbound)
    assert subject is not None and subject.status.phase == "Pending"
    assert subject.status.container_statuses is not None
    state = subject.status.container_statuses[0].state.waiting
    assert state is not None and state.reason == "ImagePullBackOff"
    mended = last(waiting, container("30s", state="running"), subject=unbound)
    assert mended is not None and mended.ready()


def test_a_pod_that_comes_later_fails_to_start_by_its_labels() -> None:
    failing = {"selector": "app=new", "state": "waiting", "reason": "ErrImagePull"}
    fresh = pod("late", ready=False)
    fresh["metadata"]["labels"] = {"app": "new"}
    done = story(
        **KUBELETS,
        objects=[node("n1")],
        events=[{"at": "1s", "container": failing}, {"at": "20s", "apply": fresh}],
    )
    (change,) = found(done, "RecordEvent", reason="StatusChanged", name="late")
    assert (change.at, "ErrImagePull" in change.reason) == (22, True)
    assert done.final["pods"]["ready"] == 0


MARK = {
    "at": "12s",
    "apply": manifest("Pod", "web", status={"conditions": [{"type": "Ready", "status": "False"}]}),
}


def test_somebody_elses_edit_is_set_right_by_the_next_batch() -> None:
    """needsReconcile; an `apply` to a status is not the kubelet's."""
    done = told(MARK)
    mends = found(done, "SetPodCondition", controller="pod-status")
    assert {r.at for r in mends} == {20}
    assert done.records[mends[0].cause].detail["reason"] == "Patched"


@pytest.mark.parametrize(
    "profile, listed, ready",
    [
        ("v1.16", None, False),
        ("v1.16", True, False),
        ("v1.16", False, True),
        ("v1.18", True, True),
        ("v1.36", True, True),
    ],
)
def test_the_two_kubelets_of_v1_16(profile: str, listed: bool | None, ready: bool) -> None:
    """One whose pods are listed between two batches compares its belief with itself (PR 77661)."""
    switch = {} if listed is None else {"podsListed": listed}
    done = told(MARK, profile=profile, **switch)
    assert done.final["pods"]["ready"] == int(ready)


def test_a_full_channel_leaves_a_change_to_the_batch() -> None:
    full = {"at": "1s", "kubelet": {"nodes": ["n1"], "statusChannel": "full"}}
    done = told(full, container("11s", ready=False), profile="v1.26")
    assert (11, "StatusDeferred") in reasons(done)
    assert {r.at for r in found(done, "SetPodCondition")} == {20}
    newer = told(full, container("11s", ready=False), profile="v1.27")
    assert {r.at for r in found(newer, "SetPodCondition")} == {11}


@pytest.mark.parametrize("call", ["get", "patch"])
def test_a_failed_call_is_tried_again_by_the_batch(call: str) -> None:
    def failing(at: str, *calls: str) -> Json:
        return {"at": at, "kubelet": {"nodes": ["n1"], "failingCalls": list(calls)}}

    done = told(failing("1s", call), container("11s", ready=False), failing("25s"))
    failed = found(done, "RecordEvent", reason="StatusSendFailed")
    assert times(failed) == [11, 20]
    assert {r.at for r in found(done, "SetPodCondition")} == {30}


def test_a_kubelet_that_is_cut_off_counts_on_and_sends_the_last_version() -> None:
    done = told(
        stop("5s", "n1"),
        container("11s", ready=False),
        container("12s", ready=True),
        container("13s", ready=False),
        start("31s", "n1"),
    )
    sent = found(done, "SetPodCondition", controller="pod-status", type="Ready")
    assert [(r.at, r.reason.endswith("version 4: container c is not ready")) for r in sent] == [
        (41, True)
    ]


def test_a_mirror_pod_is_mended_in_every_profile() -> None:
    """needsReconcile looks at the mirror of a static pod; listing overwrites the static pod alone,
    so even the blind kubelets of v1.16 mend mirrors."""
    mirror = web()
    mirror["metadata"]["annotations"] = {
        "kubernetes.io/config.mirror": "0123abcd",
        "kubernetes.io/config.source": "file",
    }
    for profile in ("v1.16", "v1.18", "v1.26", "v1.27", "v1.36"):
        done = told(MARK, profile=profile, subject=mirror)
        assert {r.at for r in found(done, "SetPodCondition", type="Ready")} == {20}, profile
        assert done.final["pods"]["ready"] == 1


DELETE = {"at": "10s", "delete": {"kind": "Pod", "name": "web"}}


def left(at: str, *what: str) -> Json:
    """What the node still has of the pod."""
    return {"at": at, "resources": {"pods": ["web"], "left": list(what)}}


@pytest.mark.parametrize("resource", ["containers", "runtime", "volumes", "cgroup"])
def test_what_is_left_of_a_pod_holds_its_object(resource: str) -> None:
    """PodResourcesAreReclaimed, asked by canBeDeleted with each batch (up to 1.26)."""
    subject = web()
    subject["spec"]["terminationGracePeriodSeconds"] = 5
    events = (left("1s", resource), DELETE, left("32s"))
    done = told(*events, profile="v1.16", subject=subject)
    (held,) = found(done, "RecordEvent", reason="PodHeld")
    assert held.at == 15
    gone = found(done, "DeletePod", gracePeriodSeconds=0)
    assert times(gone) == ([32] if resource == "containers" else [40])


@pytest.mark.parametrize("resource, at", [("containers", 32), ("volumes", 32), ("cgroup", 32)])
def test_a_newer_kubelet_finishes_first(resource: str, at: float) -> None:
    """SyncTerminatedPod (1.27 and later): TerminatePod only when all is cleaned up, and the object
    goes with the same send."""
    subject = web()
    subject["spec"]["terminationGracePeriodSeconds"] = 5
    done = told(left("1s", resource), DELETE, left("32s"), subject=subject)
    assert times(found(done, "RecordEvent", reason="PodHeld")) == [15]
    assert times(found(done, "DeletePod", gracePeriodSeconds=0)) == [at]


def test_a_kubelet_may_keep_volumes_or_do_without_cgroups() -> None:
    subject = web()
    subject["spec"]["terminationGracePeriodSeconds"] = 5
    for switch, resource in (
        ({"keepTerminatedPodVolumes": True}, "volumes"),
        ({"cgroupsPerQOS": False}, "cgroup"),
    ):
        done = told(left("1s", resource), DELETE, profile="v1.16", subject=subject, **switch)
        assert times(found(done, "DeletePod", gracePeriodSeconds=0)) == [15]


def test_terminate_pod_writes_what_its_release_writes() -> None:
    subject = web()
    subject["spec"]["terminationGracePeriodSeconds"] = 5
    for profile, phase, code in (("v1.16", "Running", 0), ("v1.26", "Running", 137)):
        ended = last(left("1s", "volumes"), DELETE, profile=profile, subject=subject)
        assert ended is not None and ended.status.container_statuses is not None
        state = ended.status.container_statuses[0].state.terminated
        assert state is not None and (ended.status.phase, state.exit_code) == (phase, code)


def test_what_is_believed_of_a_pod_that_is_gone_is_cleaned_up() -> None:
    """RemoveOrphanedStatuses, every 2 s."""
    done = story(
        controllers=["pod-gc", "pod-status"],
        duration="3m",
        objects=[node("n1"), web()],
        events=[
            container("11s", ready=False),
            {"at": "12s", "delete": {"kind": "Node", "name": "n1"}},
        ],
    )
    (orphan,) = found(done, "RecordEvent", reason="OrphanedStatusRemoved")
    (gone,) = found(done, "DeletePod", controller="pod-gc")
    assert orphan.at == gone.at + 2 and "version 2" in orphan.reason


def test_events_of_containers_need_the_status_managers() -> None:
    with pytest.raises(BadInput, match="do not run"):
        assemble(
            scenario(
                controllers=[],
                objects=[node("n1"), web()],
                events=[container("1s", ready=False)],
            )
        )


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all calls of kubelets that the API server answers."""
    calls: list[str] = []
    answer = StatusManagers._answer

    def listening(self: StatusManagers, manager: StatusManager, call: Any) -> Any:
        calls.append(type(call).__name__)
        return answer(self, manager, call)

    monkeypatch.setattr(StatusManagers, "_answer", listening)
    return calls


def test_sync_pod_drops_what_it_believed_of_a_pod_that_was_made_anew(calls: list[str]) -> None:
    """A kubelet that is cut off does not hear that its pod went: its next batch gets the pod, finds
    another uid under the name, and sends nothing."""
    anew = web()
    anew["metadata"]["uid"] = "another"
    done = story(
        controllers=["pod-gc", "pod-status"],
        duration="4m",
        objects=[node("n1"), web()],
        events=[
            stop("10s", "n1"),
            container("15s", ready=False),
            {"at": "20s", "delete": {"kind": "Node", "name": "n1"}},
            {"at": "100s", "apply": node("n1")},
            {"at": "101s", "apply": anew},
            start("110s", "n1"),
        ],
    )
    assert found(done, "DeletePod", controller="pod-gc", name="web")
    assert calls == ["GetPodCall"]
    assert not found(done, "SetPodCondition", controller="pod-status")


def disrupted(at: str, status: str) -> Json:
    """Another client's write of a condition that the kubelet shares with others."""
    condition = {"type": "DisruptionTarget", "status": status, "reason": "EvictionByEvictionAPI"}
    conditions = [condition, *web()["status"]["conditions"]]  # in the order of a merge
    return {"at": at, "apply": {**MARK["apply"], "status": {"conditions": conditions}}}


@pytest.mark.parametrize(
    "events, reads",
    [
        ([disrupted("12s", "True")], 0),  # the pod's sync came with what the cache begins with
        ([container("11s", started=False), disrupted("12s", "True")], 2),
        ([container("11s", started=False), disrupted("12s", "True"), disrupted("30s", "False")], 3),
    ],
    ids=["first-seen", "cached", "ended-by-another"],
)
@pytest.mark.parametrize("profile", ["v1.32", "v1.33"])
def test_a_shared_condition_is_taken_over_by_the_pods_sync(
    events: list[Json], reads: int, profile: str, calls: list[str]
) -> None:
    """`generateAPIPodStatus` copies it, so that the batch, which since 1.33 counts one that only
    the API server shows, does not read the pod every 10 s for ever, as it does where the cache has
    another: what no batch after it changes is played once.
    """
    last(*events, profile=profile)
    assert calls.count("GetPodCall") == reads


def test_a_shared_condition_of_the_cache_is_sent_with_the_end() -> None:
    """`generateAPIPodStatus` keeps the cached one, `mergePodStatus` sends it with a terminal phase,
    though another client has ended it in the meantime.
    """
    never = web()
    never["spec"]["restartPolicy"] = "Never"
    events = [container("11s", started=False), disrupted("12s", "True"), disrupted("30s", "False")]
    ended = last(*events, container("50s", state="terminated"), subject=never)
    assert ended is not None and ended.status.phase == "Succeeded"
    shown = ended.status.condition("DisruptionTarget")
    assert shown is not None and shown.status == "True"
