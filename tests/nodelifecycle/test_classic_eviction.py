"""The eviction without taints under writes that fail.

`DeletePods` of pkg/controller/util/node (v1.16.15 to v1.26.15) ends with the first DELETE that
fails, and skips a pod whose status meets a conflict; `doEvictionPass` then puts the node back into
its queue, and `processPod` the pod into that of its worker.
"""

import pytest

from kubectl_nodelife.sim.run import RunSummary
from kubectl_nodelife.sim.timeline import Record
from tests.sim.documents import Json, found, node, pod, stop, story, times

STATUS = {"verb": "patch", "from": "100s"}
DELETE = {"verb": "delete"}


def told(*failing: Json, profile: str = "v1.16", events: tuple[Json, ...] = ()) -> RunSummary:
    """Three pods of n1, whose kubelet stops; a token comes each ten seconds."""
    gates = "TaintBasedEvictions=false" if profile == "v1.16" else ""
    manager = {"feature-gates": gates} if gates else {"enable-taint-manager": False}
    of_pods = {"controller": "node-lifecycle", "kind": "Pod"}
    return story(
        profile=profile,
        flags={"pod-eviction-timeout": "2m", **manager},
        duration="4m",
        objects=[*map(node, ("n1", "n2", "n3")), *(pod(name, "n1") for name in "abc")],
        events=[stop("10s", "n1"), *events],
        failingWrites=[{**of_pods, **entry} for entry in failing],
    )


def written(run: RunSummary, action: str) -> list[tuple[str, bool]]:
    """The pods, in order, and whether the write failed."""
    return [(r.object.name, bool(r.error)) for r in found(run, action)]


def evictions(run: RunSummary) -> list[Record]:
    """The Events that announce a DELETE."""
    return found(run, "RecordEvent", reason="NodeControllerEviction")


def test_a_failed_delete_ends_the_turn_and_the_next_token_goes_on() -> None:
    run = told({**DELETE, "name": "b", "code": 500, "times": 1})
    assert written(run, "DeletePod") == [("a", False), ("b", True), ("b", False), ("c", False)]
    reasons = found(run, "SetPodReason")
    assert [r.object.name for r in reasons] == ["a", "b", "c"]
    first, refused, again, last = times(found(run, "DeletePod"))
    assert (again, last) == pytest.approx((refused + 10, refused + 10), abs=0.11)
    assert reasons[1].at == first and reasons[2].at == last
    announced = [(r.object.name, r.at) for r in evictions(run)]
    assert announced == [("a", first), ("b", refused), ("b", again), ("c", last)]


def test_a_conflict_skips_the_pod_and_the_node_has_another_turn() -> None:
    run = told({**STATUS, "name": "b", "code": 409, "times": 1})
    assert written(run, "SetPodReason") == [("a", False), ("b", True), ("c", False), ("b", False)]
    assert written(run, "DeletePod") == [("a", False), ("c", False), ("b", False)]
    _, before, at = times(found(run, "DeletePod"))
    assert at == pytest.approx(before + 10, abs=0.11)
    assert [r.object.name for r in evictions(run)] == ["a", "c", "b"]


@pytest.mark.parametrize("code", [403, 404, 500])
def test_what_else_comes_of_a_pods_status_is_no_error(code: int) -> None:
    run = told({**STATUS, "code": code})
    assert written(run, "SetPodReason") == [(name, True) for name in "abc"]
    assert written(run, "DeletePod") == [(name, False) for name in "abc"]


def test_a_pod_that_is_gone_is_no_error() -> None:
    run = told({**DELETE, "name": "a", "code": 404})
    assert written(run, "DeletePod") == [("a", True), ("b", False), ("c", False)]


def test_a_node_counts_as_evicted_once_a_turn_went_well() -> None:
    """v1.17 to v1.26: before that the next turn, not a pod's worker, deletes what comes to it."""
    late = {"at": "150s", "apply": pod("late", "n1")}
    refused = {**DELETE, "name": "a", "code": 500, "until": "155s"}
    deletes = found(told(refused, profile="v1.20", events=(late,)), "DeletePod", name="late")
    assert [round(r.at) for r in deletes] == [pytest.approx(160, abs=10)]
    deletes = found(told(profile="v1.20", events=(late,)), "DeletePod", name="late")
    assert times(deletes) == [150]


def test_a_pods_worker_tries_again_and_marks_the_pod_only_then() -> None:
    """`AddRateLimited`: 5 ms, 10 ms, 20 ms. The mark comes after `processNoTaintBaseEviction`, and
    with 40 ms more: its first try is of the version before the DELETE, and meets a conflict.
    """
    late = {"at": "151s", "apply": pod("late", "n1")}
    run = told({**DELETE, "name": "late", "code": 500, "times": 3}, profile="v1.20", events=(late,))
    at = [151, 151.005, 151.015, 151.035]
    assert times(found(run, "DeletePod", name="late")) == pytest.approx(at)
    assert times(found(run, "MarkPodNotReady", name="late")) == pytest.approx([151.075])
    marks = found(run, "RecordEvent", name="late", reason="NodeNotReady")
    assert times(marks)[0] == pytest.approx(at[-1])


def test_each_pass_deletes_what_an_evicted_node_still_has() -> None:
    """v1.17 to v1.26: `evictPods` of a pass, which does not stop at a pod that it cannot delete."""
    late = {"at": "151s", "apply": pod("late", "n1")}
    refused = {**DELETE, "name": "late", "code": 500, "until": "161s"}
    run = told(refused, profile="v1.20", events=(late,))
    deleted = found(run, "DeletePod", name="late")
    assert [r.at for r in deleted if not r.error] == [pytest.approx(165, abs=5)]
