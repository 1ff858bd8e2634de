"""`failingWrites`: writes that the API server fails because the scenario says so."""

from typing import Any

import pytest

from kubectl_nodelife.errors import BadInput
from tests.objects import workload
from tests.sim.documents import Json, found, node, owner, pod, scenario, stop, story, times

LOST_NODE: Json = {
    "duration": "8m",
    "objects": [
        node("n1"),
        node("n2"),
        node("n3"),
        owner("ReplicaSet", "web"),
        pod("web-1", "n1", owner=("ReplicaSet", "web")),
    ],
    "events": [stop("10s", "n1")],
}


def told(*failing: Json, **more: Any) -> Any:
    return story(**{**LOST_NODE, **more}, failingWrites=list(failing))


@pytest.mark.parametrize("code", [403, 404, 409, 422, 429, 500, 502, 503, 504])
def test_a_write_fails_with_the_code_so_many_times(code: int) -> None:
    entry = {"controller": "taint-eviction", "verb": "delete", "kind": "Pod", "code": code}
    deletes = found(told({**entry, "times": 2}), "DeletePod", controller="taint-eviction")
    refused = [r for r in deletes if r.error]
    assert all(r.error.startswith(str(code)) for r in refused)
    assert len(refused) == (1 if code == 404 else 2)  # 404: it is gone, and nothing is retried


def test_five_deletes_ten_milliseconds_apart_and_then_none() -> None:
    """`deletePodHandler`: retries of the taint manager."""
    entry = {"controller": "taint-eviction", "verb": "delete", "kind": "Pod", "code": 500}
    deletes = found(told(entry), "DeletePod", controller="taint-eviction")
    assert len(deletes) == 5
    first, *_, last = times(deletes)
    assert round(last - first, 3) == 0.04


def test_poll_immediate_writes_a_nodes_status_seven_times_in_100_ms() -> None:
    """`wait.PollImmediate(20ms, 100ms)`: at once, at five ticks, and when the time is over."""
    entry = {"controller": "node-lifecycle", "kind": "Node", "code": 500, "until": "65s"}
    written = found(told(entry), "SetNodeCondition", type="Ready", controller="node-lifecycle")
    first = written[0].at
    of_a_pass = [r for r in written if r.error and r.at < first + 1]
    assert [round(r.at - first, 3) for r in of_a_pass] == [
        0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.1,
    ]  # fmt: skip


def test_a_node_whose_status_could_not_be_written_spends_no_token() -> None:
    """Upstream's pass goes on to the next node, and queues this one once the write went well."""
    entry = {"controller": "node-lifecycle", "kind": "Node", "code": 500, "times": 8}
    result = told(entry)
    lost = found(result, "SetNodeCondition", type="Ready", status="Unknown")
    (tainted,) = found(result, "AddTaint", effect="NoExecute")
    assert tainted.at - next(r.at for r in lost if not r.error) < 0.1


def test_a_pod_that_could_not_be_patched_is_not_deleted_by_that_try() -> None:
    """`addConditionAndDeletePod` returns the error of the patch; each of five tries patches."""
    entry = {"controller": "taint-eviction", "verb": "patch", "kind": "Pod", "code": 500}
    result = told({**entry, "times": 2})
    patched = found(result, "SetPodCondition", controller="taint-eviction")
    assert [bool(r.error) for r in patched] == [True, True, False]
    (deleted,) = found(result, "DeletePod", controller="taint-eviction")
    assert deleted.at == patched[-1].at == pytest.approx(patched[0].at + 0.02)
    assert len(found(told(entry), "SetPodCondition", controller="taint-eviction")) == 5
    assert not found(told(entry), "DeletePod")


def test_an_orphan_that_could_not_be_patched_waits_for_its_nodes_next_quarantine() -> None:
    """`markFailedAndDeletePodWithCondition` returns the error of the patch, and the run that saw
    the orphan has put its node into quarantine again: 40 s, which the third run after it sees over.
    """
    entry = {"controller": "pod-gc", "verb": "patch", "kind": "Pod", "code": 409, "times": 1}
    gone = {"at": "20s", "delete": {"kind": "Node", "name": "n1"}}
    result = told(entry, controllers=["pod-gc"], events=[gone])
    refused, patched = found(result, "SetPodCondition", controller="pod-gc")
    (deleted,) = found(result, "DeletePod", controller="pod-gc")
    assert refused.error and not patched.error
    assert deleted.at == patched.at == pytest.approx(refused.at + 60, abs=0.01)


def test_the_pods_of_a_node_that_could_not_be_written_are_marked_once_it_is() -> None:
    """`monitorNodeHealth` goes on to the next node where seven tries failed."""
    entry = {"controller": "node-lifecycle", "kind": "Node", "code": 500, "times": 8}
    result = told(entry)
    lost = found(result, "SetNodeCondition", type="Ready", status="Unknown")
    (marked,) = found(result, "MarkPodNotReady")
    assert marked.at == next(r.at for r in lost if not r.error)
    notices = found(result, "RecordEvent", reason="NodeNotReady", controller="node-lifecycle")
    assert {(r.object.kind, r.at) for r in notices} == {("Node", marked.at), ("Pod", marked.at)}


def test_of_two_taints_that_change_places_the_second_stays_where_the_first_is_refused() -> None:
    """`SwapNodeControllerTaint` adds one, then removes the other, and returns the first error."""
    says = {"at": "20s", "kubelet": {"nodes": ["n1"], "conditions": {"Ready": "False"}}}
    entry = {"controller": "node-lifecycle", "kind": "Node", "code": 500, "times": 1}
    entry |= {"verb": "patch", "name": "n1", "from": "80s", "until": "86s"}
    back = {"at": "81.5s", "kubelet": {"nodes": ["n1"], "conditions": {"Ready": "Unknown"}}}
    result = told(entry, events=[says, back], controllers=["node-lifecycle"], duration="2m")
    refused = [r for r in result.records if r.error]
    assert refused
    taken_off = found(result, "RemoveTaint", key="node.kubernetes.io/not-ready")
    assert all(r.at > refused[0].at for r in taken_off if r.detail["effect"] == "NoExecute")


def test_a_lost_answer_means_that_the_server_did_it() -> None:
    entry = {"controller": "taint-eviction", "verb": "delete", "code": "lost", "times": 1}
    result = told(entry)
    assert found(result, "DeletePod", controller="taint-eviction")[0].error
    assert result.final["pods"]["terminating"] == 1
    entry["code"] = "unreachable"
    first, second = found(told(entry), "DeletePod", controller="taint-eviction")
    assert first.error and not second.error


def test_a_probability_is_drawn_from_the_seed() -> None:
    def refusals(seed: int) -> list[bool]:
        entry = {"controller": "daemonset", "verb": "create", "kind": "Pod", "code": 500}
        the = workload("DaemonSet", "x", uid="")
        objects = [the, *(node(f"n{i}") for i in range(20))]
        failing = [{**entry, "probability": 0.5, "seed": seed}]
        run = story(objects=objects, controllers=["daemonset"], failingWrites=failing)
        return [bool(r.error) for r in found(run, "CreatePod")]

    assert refusals(1) == refusals(1) != refusals(2)
    assert 0 < sum(refusals(1)) < len(refusals(1))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "spec.failingWrites[0].code: the field is missing"),
        ({"code": 418}, "spec.failingWrites[0].code: found a number (418)"),
        ({"code": 500, "verb": "deltee"}, "did you mean delete?"),
        ({"code": 500, "kind": "Gizmo"}, "Gizmo is not a kind that is simulated"),
        ({"code": 500, "controller": "scheduler"}, "unknown value 'scheduler'"),
        ({"code": 500, "probability": 2}, "give a number above 0, at most 1"),
        ({"code": 500, "times": 0}, "0 is out of range"),
        ({"code": 500, "form": "1m"}, "did you mean from?"),
    ],
)
def test_what_is_wrong_in_an_entry_is_named(entry: Json, words: str) -> None:
    with pytest.raises(BadInput) as error:
        scenario(failingWrites=[entry])
    assert words in str(error.value)


def test_controllers_that_are_cut_off_write_nothing_and_see_the_end_of_it() -> None:
    """They lose every node, and at the end see that only one is lost, from the next pass on."""
    events = [
        {"at": "60s", "controllers": {"connection": "lost"}},
        stop("70s", "n1"),
        {"at": "80s", "delete": {"kind": "Pod", "name": "web-1"}},
        {"at": "105s", "controllers": {"connection": "restored"}},
    ]
    result = told(events=events, duration="5m", profile="v1.36")
    lost = found(result, "SetNodeCondition", type="Ready", controller="node-lifecycle")
    assert {r.object.name for r in lost if r.at < 105} == {"n1", "n2", "n3"}
    assert all(r.error for r in lost if r.at < 105)
    (written,) = [r for r in lost if not r.error]
    assert (written.object.name, round(written.at)) == ("n1", 155)  # heard of in the pass at 105 s
    assert result.final["pods"]["terminating"] == 1  # what people did meanwhile was done


def test_from_1_37_on_controllers_that_are_cut_off_call_no_node_lost() -> None:
    """The Lease that they read before a loss does not come."""
    events = [
        {"at": "60s", "controllers": {"connection": "lost"}},
        stop("70s", "n1"),
        {"at": "125s", "controllers": {"connection": "restored"}},
    ]
    result = told(events=events, duration="5m", profile="v1.37")
    (lost,) = found(result, "SetNodeCondition", type="Ready", controller="node-lifecycle")
    assert (lost.object.name, lost.error, round(lost.at)) == ("n1", "", 175)


def test_a_connection_is_lost_or_restored() -> None:
    with pytest.raises(BadInput) as error:
        scenario(events=[{"at": "1m", "controllers": {"connection": "los"}}])
    assert "did you mean lost?" in str(error.value)


def excluded(name: str) -> Json:
    made = node(name, "b")
    made["metadata"]["labels"]["node.kubernetes.io/exclude-disruption"] = "true"
    return made


def test_each_node_of_a_zone_that_counts_none_has_its_turn() -> None:
    """Such a zone loses its state in each pass and gets a new queue, with a token, in the next;
    which of its nodes is the first there is chance (drawn from the number of the queue)."""
    lost = [f"b{i}" for i in range(6)]
    result = story(
        objects=[*(node(f"a{i}") for i in range(3)), *map(excluded, lost)],
        controllers=["node-lifecycle"],
        events=[stop("10s", *lost)],
        duration="15m",
    )
    tainted = [r.object.name for r in found(result, "AddTaint", effect="NoExecute")]
    assert set(tainted) == set(lost)
    assert max(tainted.count(name) for name in lost) < len(tainted) / 2
