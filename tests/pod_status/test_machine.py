"""What upstream's vectors leave open about the status manager: queues, failures, releases."""

from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import replace

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import ContainerState, ContainerStateRunning
from kubectl_nodelife.kubelet import machine
from kubectl_nodelife.kubelet.conditions import need_to_reconcile_pod_readiness
from kubectl_nodelife.kubelet.reclaim import containers_are_stopped
from kubectl_nodelife.kubelet.releases import SINCE_UNTIL
from tests.pod_status.kubelet import Kubelet, rules_of
from tests.pod_status.objects import NOW_NS, ago, marked, pod


def test_a_full_queue_drops_requests_and_the_batch_finds_them() -> None:
    for profile, left in (("v1.16", machine.MAX_WAITING_REQUESTS), ("v1.17", 0)):
        kubelet = Kubelet(profile)
        for number in range(machine.MAX_WAITING_REQUESTS + 5):
            assert kubelet.say(str(number))
        assert len(kubelet.machine.requests) == machine.MAX_WAITING_REQUESTS
        assert kubelet.sync() == "gp"
        assert kubelet.stored is not None
        assert kubelet.stored.status.message == str(machine.MAX_WAITING_REQUESTS + 4)
        assert len(kubelet.machine.requests) == left
        assert kubelet.sync(all_pods=False) == ""  # needsUpdate: none of them is news


def test_each_request_of_a_static_pod_is_sent_since_it_asks_with_the_raw_uid() -> None:
    """`syncPod` asks `needsUpdate` with the static pod's uid, versions stand under the mirror's:
    what was sent already is sent again (up to 1.26)."""
    for profile, calls in (("v1.16", "gpgp"), ("v1.27", "gp")):
        mirror = pod(metadata__annotations={"kubernetes.io/config.mirror": "hash"})
        kubelet = Kubelet(profile, mirror)
        static = machine.static_pod_of(mirror)
        kubelet.machine.observe(static)
        for message in ("one", "two"):
            status = replace(mirror.status, message=message)
            assert kubelet.machine.set_pod_status(static, status, NOW_NS)
        assert kubelet.sync(all_pods=False) == calls
        assert kubelet.machine.api_versions == {mirror.uid: 2}


def test_older_releases_send_each_change_newer_ones_the_last() -> None:
    for profile, expected in (("v1.26", "gpgp"), ("v1.27", "gp")):
        kubelet = Kubelet(profile)
        kubelet.say("one")
        kubelet.say("two")
        assert kubelet.machine.wakes_sender()
        assert kubelet.sync(all_pods=False) == expected
        assert not kubelet.machine.wakes_sender()
        assert kubelet.stored is not None and kubelet.stored.status.message == "two"


@pytest.mark.parametrize(
    "refused, calls", [(machine.GetPodCall, "g"), (machine.PatchPodStatusCall, "gp")]
)
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
    kubelet.refuse = {machine.DeletePodCall}
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
    assert kubelet.calls[-1] == machine.DeletePodCall("shop", "web", "u-web")


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


def test_a_patch_names_the_uid_from_1_17_on() -> None:
    for profile, uid in (("v1.16", ""), ("v1.17", "u-web")):
        kubelet = Kubelet(profile)
        kubelet.say("one")
        kubelet.sync()
        (patch,) = [c for c in kubelet.calls if isinstance(c, machine.PatchPodStatusCall)]
        assert patch.uid == uid


def test_an_empty_patch_is_sent_before_1_18() -> None:
    for profile, calls in (("v1.17", "gp"), ("v1.18", "g")):
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
    """But for the bug of listing pods, which came with 1.15."""
    mended = msgspec.structs.replace(rules_of("v1.16"), listing_blinds_reconcile=False)
    assert rules_of("v1.11") == rules_of("v1.14") == mended


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
