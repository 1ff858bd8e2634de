"""What upstream's vectors leave open about the status manager: queues, failures, releases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers.pod_status.calls import (
    Answer,
    ApiCall,
    DeletePod,
    GetPod,
    PatchPodStatus,
    Refused,
    drive,
)
from kubectl_nodelife.controllers.pod_status.conditions import need_to_reconcile_pod_readiness
from kubectl_nodelife.controllers.pod_status.machine import (
    MAX_WAITING_REQUESTS,
    PodStatusMachine,
    containers_are_stopped,
)
from kubectl_nodelife.controllers.pod_status.releases import SINCE_UNTIL, StatusRules, rules_for
from kubectl_nodelife.engine.profiles import parse_profile
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import ContainerState, ContainerStateRunning, Pod, PodStatus
from tests.pod_status.objects import NOW_NS, ago, marked, pod


class Kubelet:
    """A kubelet and its API server with one pod in it, "web"."""

    def __init__(self, profile: str = "v1.36", subject: Pod | None = None) -> None:
        self.machine = PodStatusMachine(rules_of(profile), self)
        self.stored: Pod | None = subject or pod()
        self.refuse: set[type] = set()
        self.calls: list[ApiCall] = []
        self.running = False
        self.reclaimed = False
        self.machine.observe(self.stored or pod())

    def could_have_running_containers(self, subject: Pod) -> bool:
        return self.running

    def pod_resources_are_reclaimed(self, subject: Pod, status: PodStatus) -> bool:
        return self.reclaimed

    def answer(self, call: ApiCall) -> Answer:
        self.calls.append(call)
        if type(call) in self.refuse:
            return Refused()
        if self.stored is None:
            return Refused(not_found=True)
        if isinstance(call, PatchPodStatus):
            self.stored = replace(self.stored, status=call.status)
        before = self.stored
        if isinstance(call, DeletePod):
            self.stored = None
        return before

    def sync(self, *, all_pods: bool = True) -> str:
        """One batch; the first letters of its calls."""
        sender = self.machine.sync_batch if all_pods else self.machine.sync_changed
        return "".join(type(c).__name__[0].lower() for c in drive(sender(NOW_NS), self.answer))

    def say(self, message: str) -> bool:
        """A pod sync computes a status with that message."""
        subject = self.machine.pods.by_uid("u-web")
        assert subject is not None
        return self.machine.set_pod_status(subject, replace(pod().status, message=message), NOW_NS)


def rules_of(profile: str) -> StatusRules:
    return rules_for(parse_profile(profile))


def test_a_full_queue_drops_requests_and_the_batch_finds_them() -> None:
    kubelet = Kubelet("v1.16")
    for number in range(MAX_WAITING_REQUESTS + 5):
        assert kubelet.say(str(number))
    assert len(kubelet.machine.requests) == MAX_WAITING_REQUESTS
    assert kubelet.sync() == "gp"
    assert kubelet.stored is not None
    assert kubelet.stored.status.message == str(MAX_WAITING_REQUESTS + 4)
    assert not kubelet.machine.requests


def test_older_releases_send_each_change_newer_ones_the_last() -> None:
    for profile, expected in (("v1.26", "gpgp"), ("v1.27", "gp")):
        kubelet = Kubelet(profile)
        kubelet.say("one")
        kubelet.say("two")
        assert kubelet.machine.wakes_sender()
        assert kubelet.sync(all_pods=False) == expected
        assert not kubelet.machine.wakes_sender()
        assert kubelet.stored is not None and kubelet.stored.status.message == "two"


@pytest.mark.parametrize("refused, calls", [(GetPod, "g"), (PatchPodStatus, "gp")])
def test_a_failure_is_tried_again_by_the_next_batch(refused: type, calls: str) -> None:
    kubelet = Kubelet()
    kubelet.say("one")
    kubelet.refuse = {refused}
    assert [kubelet.sync(), kubelet.sync()] == [calls, calls]
    assert not kubelet.machine.settled
    kubelet.refuse = set()
    assert kubelet.sync() == "gp"


def test_a_failed_delete_is_tried_again() -> None:
    kubelet = Kubelet(subject=pod(metadata__deletionTimestamp=ago(10)))
    assert kubelet.stored is not None
    kubelet.machine.terminate_pod(kubelet.stored, NOW_NS)
    kubelet.refuse = {DeletePod}
    assert kubelet.sync() == "gpd"
    assert kubelet.stored is not None
    kubelet.machine.observe(kubelet.stored)
    assert kubelet.sync() == "gd"  # what was patched is not patched again
    kubelet.refuse = set()
    assert kubelet.sync() == "gd"
    assert kubelet.stored is None and not kubelet.machine.statuses


def test_a_delete_carries_the_uid() -> None:
    kubelet = Kubelet(subject=pod(metadata__deletionTimestamp=ago(10)))
    assert kubelet.stored is not None
    kubelet.machine.terminate_pod(kubelet.stored, NOW_NS)
    kubelet.sync()
    assert kubelet.calls[-1] == DeletePod("shop", "web", "u-web")


@pytest.mark.parametrize(
    "profile, reclaimed, calls",
    [("v1.26", False, "gp"), ("v1.26", True, "gpd"), ("v1.27", True, "gp"), ("v1.16", True, "gpd")],
)
def test_what_lets_a_pod_object_go(profile: str, reclaimed: bool, calls: str) -> None:
    """Up to 1.26 that its resources are reclaimed, later that the kubelet has finished with it."""
    kubelet = Kubelet(profile, pod(metadata__deletionTimestamp=ago(10)))
    kubelet.reclaimed = reclaimed
    kubelet.say("one")
    assert kubelet.sync() == calls


def test_a_patch_names_the_uid_from_1_18_on() -> None:
    for profile, uid in (("v1.17", ""), ("v1.18", "u-web")):
        kubelet = Kubelet(profile)
        kubelet.say("one")
        kubelet.sync()
        (patch,) = [c for c in kubelet.calls if isinstance(c, PatchPodStatus)]
        assert patch.uid == uid


def test_an_empty_patch_is_sent_before_1_20() -> None:
    for profile, calls in (("v1.19", "gp"), ("v1.20", "g")):
        kubelet = Kubelet(profile)
        kubelet.say("one")
        kubelet.sync()
        kubelet.machine.api_versions.clear()
        assert kubelet.sync() == calls


def test_listing_pods_blinds_the_older_kubelet_only() -> None:
    for profile, calls in (("v1.16", ""), ("v1.17", ""), ("v1.18", "gp"), ("v1.36", "gp")):
        kubelet = Kubelet(profile)
        kubelet.say("")
        kubelet.sync()
        kubelet.stored = marked()
        kubelet.machine.observe(kubelet.stored)
        kubelet.machine.list_pods()
        assert kubelet.sync() == calls, profile


def test_a_settled_kubelet_has_nothing_to_send_until_something_changes() -> None:
    kubelet = Kubelet()
    kubelet.say("one")
    assert not kubelet.machine.settled
    assert kubelet.sync() == "gp"
    assert kubelet.stored is not None
    kubelet.machine.observe(kubelet.stored)
    assert kubelet.sync() == "" and kubelet.machine.settled
    kubelet.stored = marked()
    kubelet.machine.observe(kubelet.stored)
    assert not kubelet.machine.settled
    assert kubelet.sync() == "gp"


def test_a_terminating_pod_keeps_the_kubelet_unsettled() -> None:
    """Whether it can be deleted may change without a word to us."""
    kubelet = Kubelet("v1.16", pod(metadata__deletionTimestamp=ago(10)))
    kubelet.say("one")
    kubelet.sync()
    assert kubelet.stored is not None
    kubelet.machine.observe(kubelet.stored)
    assert kubelet.sync() == "" and not kubelet.machine.settled
    kubelet.reclaimed = True
    assert kubelet.sync() == "gpd"


def test_the_time_of_a_mark_that_is_undone_is_the_old_one() -> None:
    kubelet = Kubelet()
    kubelet.say("")
    kubelet.sync()
    kubelet.stored = marked(since=30)
    kubelet.machine.observe(kubelet.stored)
    kubelet.sync()
    ready = kubelet.stored.status.condition("Ready")
    before = pod().status.condition("Ready")
    assert ready is not None and before is not None
    assert (ready.status, ready.last_transition_time) == ("True", before.last_transition_time)


def test_a_terminal_phase_waits_while_containers_could_run() -> None:
    kubelet = Kubelet()
    kubelet.running = True
    subject = kubelet.stored
    assert subject is not None
    kubelet.machine.set_pod_status(subject, replace(pod().status, phase="Failed"), NOW_NS)
    kubelet.sync()
    assert kubelet.stored is not None and kubelet.stored.status.phase == "Running"
    kubelet.running = False
    kubelet.machine.observe(kubelet.stored)
    kubelet.sync()
    assert kubelet.stored is not None and kubelet.stored.status.phase == "Failed"


def test_what_a_finished_pod_says_later_does_not_make_it_unfinished() -> None:
    kubelet = Kubelet(subject=pod(metadata__deletionTimestamp=ago(10)))
    subject = kubelet.stored
    assert subject is not None
    kubelet.machine.terminate_pod(subject, NOW_NS)
    kubelet.say("late")
    assert kubelet.machine.statuses["u-web"].is_finished


def test_readiness_is_judged_at_once_only_behind_gates() -> None:
    rules = rules_of("v1.36")
    gate = [{"conditionType": "g"}]
    assert not need_to_reconcile_pod_readiness(pod(conditions={"Ready": "False"}), rules)
    assert need_to_reconcile_pod_readiness(pod(spec__readinessGates=gate), rules)
    gated = pod(spec__readinessGates=gate, conditions={"g": "True"})
    assert not need_to_reconcile_pod_readiness(gated, rules)
    unwritten = pod(spec__readinessGates=gate, conditions={"Ready": None})
    assert not need_to_reconcile_pod_readiness(unwritten, rules)


def test_stopped_containers_are_terminated_or_waiting() -> None:
    status = pod().status
    assert not containers_are_stopped(status)
    assert containers_are_stopped(replace(status, container_statuses=None))
    for word in ("waiting", "terminated"):
        stopped = pod(status__containerStatuses=[{"name": "c", "state": {word: {}}}])
        assert containers_are_stopped(stopped.status)


def test_an_older_profile_behaves_as_the_oldest_described() -> None:
    assert rules_of("v1.11") == rules_of("v1.16")


@pytest.mark.parametrize("rule", SINCE_UNTIL)
def test_each_rule_holds_from_its_release_on(rule: str) -> None:
    since, until = SINCE_UNTIL[rule]
    for minor, holds in boundaries(since, until):
        assert getattr(rules_of(f"v1.{minor}"), rule) is holds, minor


def boundaries(since: int, until: int | None) -> Iterator[tuple[int, bool]]:
    if since:
        yield since - 1, False
        yield since, True
    if until is not None:
        yield until - 1, True
        yield until, False


def test_inputs_are_not_changed() -> None:
    status = pod().status
    running = ContainerState(running=ContainerStateRunning(started_at=Time(NOW_NS + 1)))
    containers = tuple(replace(s, state=running) for s in status.container_statuses or ())
    given = replace(status, container_statuses=containers, start_time=Time(NOW_NS + 1))
    kubelet = Kubelet()
    subject = kubelet.stored
    assert subject is not None
    kubelet.machine.set_pod_status(subject, given, NOW_NS)
    cached = kubelet.machine.statuses["u-web"].status
    assert given.start_time == NOW_NS + 1
    assert cached.start_time == NOW_NS


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
    assert DeletePod not in {type(call) for call in kubelet.calls}


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
    assert DeletePod not in {type(call) for call in kubelet.calls}
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


def test_an_older_kubelet_sends_a_static_pods_request_once() -> None:
    source = {"kubernetes.io/config.source": "file"}
    mirror = pod(
        metadata__uid="u-mirror",
        metadata__annotations={**source, "kubernetes.io/config.mirror": "x"},
    )
    kubelet = Kubelet("v1.16", mirror)
    static = pod(metadata__uid="u-static", metadata__annotations=source)
    kubelet.machine.observe(static)
    kubelet.machine.set_pod_status(static, replace(static.status, message="one"), NOW_NS)
    kubelet.machine.requests.append(kubelet.machine.requests[0])
    assert kubelet.sync(all_pods=False) == "gp"
    assert kubelet.machine.api_versions == {"u-mirror": 1}


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
