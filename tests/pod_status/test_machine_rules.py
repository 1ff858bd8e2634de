"""The status manager: what is never deleted, whose times count, static pods, what it answers."""

import pytest
from msgspec.structs import replace

from kubectl_nodelife.kubelet.machine import DeletePodCall
from tests.pod_status.kubelet import Kubelet
from tests.pod_status.objects import NOW_NS, ago, pod


@pytest.mark.parametrize("profile", ["v1.16", "v1.36"])
def test_a_pod_that_nobody_deleted_is_not_deleted(profile: str) -> None:
    kubelet = Kubelet(profile)
    kubelet.reclaimed = True
    subject = kubelet.stored
    assert subject is not None
    kubelet.machine.terminate_pod(subject, NOW_NS)
    assert kubelet.sync() == "gp"
    assert kubelet.stored is not None
    kubelet.machine.observe(kubelet.stored)
    kubelet.sync()
    assert DeletePodCall not in {type(call) for call in kubelet.calls}


@pytest.mark.parametrize("profile", ["v1.16", "v1.36"])
def test_a_mirror_is_never_deleted(profile: str) -> None:
    source = {"kubernetes.io/config.source": "file"}
    mirror = pod(
        metadata__uid="u-mirror",
        metadata__annotations={**source, "kubernetes.io/config.mirror": "x"},
        metadata__deletionTimestamp=ago(10),
    )
    kubelet = Kubelet(profile, mirror)
    kubelet.reclaimed = True
    static = pod(metadata__uid="u-static", metadata__annotations=source)
    kubelet.machine.observe(static)
    kubelet.machine.terminate_pod(static, NOW_NS)
    assert kubelet.sync() == "gp"
    assert kubelet.stored is not None
    kubelet.machine.observe(kubelet.stored)
    kubelet.sync()
    assert DeletePodCall not in {type(call) for call in kubelet.calls}
    kubelet.machine.forget(kubelet.stored)
    assert not kubelet.machine.settled
    assert kubelet.sync() == ""  # a static pod without a mirror


@pytest.mark.parametrize(
    "type_, since", [("PodReadyToStartContainers", 29), ("DisruptionTarget", 26)]
)
def test_the_newer_conditions_keep_their_time(type_: str, since: int) -> None:
    """From the release on that knows the type, its time is the kubelet's to set."""
    for minor, is_kept in ((since - 1, False), (since, True)):
        subject = pod(conditions={type_: "True"})
        kubelet = Kubelet(f"v1.{minor}", subject)
        later = replace(pod(conditions={type_: "True"}, since=5).status, message="a change")
        kubelet.machine.set_pod_status(subject, later, NOW_NS)
        before = subject.status.condition(type_)
        after = kubelet.machine.statuses["u-web"].status.condition(type_)
        assert before is not None and after is not None
        same = after.last_transition_time == before.last_transition_time
        assert same is is_kept, minor


def test_each_entry_point_says_whether_it_made_a_new_version() -> None:
    kubelet = Kubelet()
    machine = kubelet.machine
    assert not machine.set_container_readiness("u-web", "", False, NOW_NS)  # not synced yet
    assert not machine.set_container_startup("u-web", "", True, NOW_NS)
    assert kubelet.say("one") and not kubelet.say("one")
    assert not machine.set_container_readiness("u-web", "other", False, NOW_NS)
    assert not machine.set_container_readiness("u-web", "", True, NOW_NS)
    assert machine.set_container_readiness("u-web", "", False, NOW_NS)
    assert not machine.set_container_startup("u-other", "", True, NOW_NS)
    assert machine.set_container_startup("u-web", "", True, NOW_NS)
    assert not machine.set_container_startup("u-web", "", True, NOW_NS)
    never = pod(spec__restartPolicy="Never")
    machine.terminate_pod(never, NOW_NS)
    assert not machine.set_pod_status(never, pod().status, NOW_NS)  # a container came back


def test_an_orphan_unsettles_the_kubelet() -> None:
    kubelet = Kubelet()
    kubelet.say("one")
    kubelet.sync()
    kubelet.machine.observe(kubelet.stored or pod())
    kubelet.sync()
    assert kubelet.machine.settled
    kubelet.machine.remove_orphaned_statuses([])
    assert not kubelet.machine.settled
    kubelet.sync()
    assert not kubelet.machine.api_versions


def test_a_prober_reaches_an_init_container_too() -> None:
    """A sidecar's readiness counts for the pod, from the release on that knows sidecars."""
    for profile, ready in (("v1.28", "True"), ("v1.29", "False")):
        subject = pod(
            spec__initContainers=[{"name": "s", "restartPolicy": "Always"}],
            status__initContainerStatuses=[
                {"name": "s", "ready": True, "started": True, "containerID": "x://s"}
            ],
        )
        kubelet = Kubelet(profile, subject)
        kubelet.machine.set_pod_status(subject, subject.status, NOW_NS)
        assert kubelet.machine.set_container_readiness("u-web", "x://s", False, NOW_NS)
        status = kubelet.machine.statuses["u-web"].status
        condition = status.condition("Ready")
        assert condition is not None and condition.status == ready
        assert [s.ready for s in status.init_container_statuses or ()] == [False]


def test_a_static_pod_that_has_finished_may_start_again() -> None:
    static = pod(metadata__annotations={"kubernetes.io/config.source": "file"})
    kubelet = Kubelet(subject=static)
    kubelet.machine.terminate_pod(static, NOW_NS)
    assert kubelet.machine.statuses["u-web"].is_finished
    kubelet.say("again")
    assert not kubelet.machine.statuses["u-web"].is_finished
