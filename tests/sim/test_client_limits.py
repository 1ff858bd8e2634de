"""Clients of the scheduler, of each kubelet and of the ReplicaSet controller, beside those that
write to lost nodes. All keep the pace of upstream's defaults."""

from itertools import pairwise

import pytest

from tests.sim.documents import Json, found, node, owner, pod, start, stop, story, times
from tests.sim.test_scheduler import QUIET, roomy
from tests.simulating import NO_LIMIT

PODS = 110
GRACE = {"terminationGracePeriodSeconds": 1}


def cordoned(pods: int) -> list[Json]:
    """Two nodes without a pod, cordoned, and pods that wait for one."""
    big = [roomy(name, pods="500", cpu="500") for name in ("a", "b")]
    for each in big:
        each["spec"]["unschedulable"] = True
    return [*big, *(pod(f"p-{number:03}") for number in range(pods))]


def bound(pods: int, **spec: Json) -> list[float]:
    """When each pod is bound after an uncordon at 10 s."""
    event = {"at": "10s", "uncordon": {"nodes": ["a", "b"]}}
    told = story(**QUIET, objects=cordoned(pods), events=[event], **spec)
    return times(found(told, "RecordEvent", reason="Scheduled"))


def test_the_scheduler_binds_a_hundred_at_once_and_then_fifty_a_second() -> None:
    at = bound(350)
    assert len(at) == 350
    assert at[99] == 10
    assert at[-1] == pytest.approx(10 + 250 / 50, abs=0.03)
    assert {round(b - a, 2) for a, b in pairwise(at[99:])} == {0.02}


def test_new_pods_wait_for_the_scheduler_too() -> None:
    """None of them is called unschedulable for that."""
    events = [{"at": "10s", "apply": pod(f"p-{number:03}")} for number in range(150)]
    told = story(**QUIET, objects=[roomy("a", pods="500", cpu="500")], events=events)
    assert not found(told, "RecordEvent", reason="FailedScheduling")
    assert len(found(told, "SetPodCondition", type="Ready", status="True")) == 150
    late = times(found(told, "RecordEvent", reason="Scheduled"))
    assert len(late) == 50
    assert late[-1] == pytest.approx(10 + 50 / 50, abs=0.03)


def test_without_a_limit_all_are_bound_at_once() -> None:
    assert bound(350, flags=NO_LIMIT) == [10.0] * 350


def removed(profile: str) -> list[float]:
    """When a kubelet that comes back at 60 s removes the pods that were deleted meanwhile."""
    objects = [node("a"), *(pod(f"p-{number:03}", "a", **GRACE) for number in range(PODS))]
    gone = [
        {"at": "10s", "delete": {"kind": "Pod", "name": f"p-{number:03}"}} for number in range(PODS)
    ]
    told = story(
        profile=profile,
        controllers=[],
        duration="3m",
        objects=objects,
        events=[stop("5s", "a"), *gone, start("60s", "a")],
    )
    return times(found(told, "DeletePod", gracePeriodSeconds=0))


@pytest.mark.parametrize(("profile", "qps", "burst"), [("v1.36", 50, 100), ("v1.26", 5, 10)])
def test_a_kubelet_reports_at_the_pace_of_its_release(profile: str, qps: int, burst: int) -> None:
    """Three requests a pod: it is read, its status is patched, it is deleted."""
    at = removed(profile)
    assert len(at) == PODS
    assert at[0] == pytest.approx(60.1, abs=0.01)
    assert at[-1] == pytest.approx(60.1 + (3 * PODS - burst) / qps, abs=0.05)


@pytest.mark.parametrize(("profile", "qps", "burst"), [("v1.36", 50, 100), ("v1.26", 5, 10)])
def test_what_was_marked_is_set_right_at_that_pace(profile: str, qps: int, burst: int) -> None:
    """Two requests a pod; all of them in the first batch after the node's return."""
    objects = [node("a"), node("b"), *(pod(f"p-{n:03}", "a", tolerates=None) for n in range(PODS))]
    told = story(
        profile=profile,
        duration="6m",
        flags={"node-monitor-grace-period": "20s"},
        objects=objects,
        events=[stop("5s", "a"), start("90s", "a")],
    )
    assert len(found(told, "MarkPodNotReady")) == PODS
    at = times(found(told, "SetPodCondition", controller="pod-status", type="Ready", status="True"))
    assert len(at) == PODS
    assert at[0] == pytest.approx(100, abs=0.5)
    assert at[-1] == pytest.approx(at[0] + (2 * PODS - burst) / qps, abs=0.5)


def test_a_rollout_makes_pods_at_the_pace_of_the_replicaset_controller() -> None:
    """Thirty at once, then twenty a second."""
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/web:1"}]},
    }
    deployment = owner("Deployment", "web", 90, template=template)
    deployment["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    objects = [roomy("a", pods="500", cpu="500")]
    told = story(**QUIET, objects=objects, events=[{"at": "10s", "apply": deployment}])
    at = times(found(told, "CreatePod"))
    assert len(at) == 90
    assert at[29] == at[0]
    assert at[-1] - at[0] == pytest.approx(60 / 20, abs=0.06)
