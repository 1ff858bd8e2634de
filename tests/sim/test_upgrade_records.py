"""The records of a scenario's upgrade and `final.upgrade`: their words, in each mode and fault."""

from typing import Any

import pytest

from kubectl_nodelife.sim.events import FAULTS
from kubectl_nodelife.sim.timeline import Record
from tests.sim.documents import Json, node, story

WORDS = {
    *("ClaimNode", "EvictPod", "StartWork", "WorkDone", "SetUpgradeState", "OpenForProof"),
    *("CreateCanary", "DeleteCanary", "ReleaseNode", "RestoreNode", "FailNode", "SetGate"),
    *("SetUpgradePhase", "SetWindow", "MarkNode", "RecordEvent"),
}
FIELDS = {
    *("done", "failed", "held", "skipped", "seconds", "lowestAvailable", "lowestReady"),
    *("lowestFreeShare", "zoneStates", "evictions", "movesOfAPod", "pendingPodSeconds"),
    *("budgetZeroSeconds", "waitSeconds", "longestState"),
}
WORK: Json = {"mode": "reboot", "duration": "2m", "down": "1m", "daemonPods": "20s"}
NAMES = [f"b{number}" for number in range(1, 7)]
WAY = ["Draining", "Working", "Settling", "Proving", "Soaking", "Done"]


def told(**upgrade: Any) -> tuple[list[Record], Json]:
    """The upgrade's records, and its summary."""
    objects: list[Json] = []
    for name in NAMES:
        one = node(name)
        one["metadata"]["labels"]["pool"] = "blue"
        one["status"]["allocatable"] = {
            "cpu": "8",
            "memory": "16Gi",
            "pods": "110",
            "nvidia.com/gpu": "2",
        }
        one["status"]["nodeInfo"] = {"bootID": f"boot-{name}", "kubeletVersion": "v1.35.2"}
        objects.append(one)
        drivers = {"drivers": [{"name": "csi.example", "nodeID": name}]}
        objects.append({"kind": "CSINode", "metadata": {"name": name}, "spec": drivers})
        objects[-1]["apiVersion"] = "storage.k8s.io/v1"
    policy = {"soak": "1m", "maxFailures": 2, "maxUnavailable": 2, **upgrade.pop("policy", {})}
    work = {**WORK, **upgrade.pop("work", {})}
    act = {"selector": "pool=blue", "policy": policy, "work": work, **upgrade}
    came = story(objects=objects, events=[{"at": "1m", "upgrade": act}], duration="2h")
    assert came.final["upgrade"].keys() == FIELDS
    records = [r for r in came.records if r.controller == "upgrade"]
    assert {r.action for r in records} <= WORDS
    return records, came.final["upgrade"]


def way_of(records: list[Record], name: str) -> list[str]:
    """The states of a node, one after another."""
    return [str(r.detail["to"]) for r in records if r.object.name == name and r.detail.get("to")]


@pytest.mark.parametrize("mode", ["reboot", "kubelet"])
def test_each_node_goes_the_whole_way(mode: str) -> None:
    records, came = told(work={"mode": mode})
    assert came["done"] == NAMES and came["skipped"] == came["failed"] == came["held"] == []
    for name in NAMES:
        assert way_of(records, name) == WAY
    of_one = {r.action: r.detail for r in records if r.object.name == "b1"}
    assert of_one["OpenForProof"] == {"from": "Settling", "to": "Proving"}
    assert of_one["ReleaseNode"] == {"from": "Proving", "to": "Soaking"}
    assert of_one["SetUpgradeState"] == {"from": "Soaking", "to": "Done"}
    assert [r.detail for r in records if r.action == "SetGate"] == [
        {"gate": "blind", "holds": True}, {"gate": "blind", "holds": False},
    ]  # fmt: skip
    assert [r.detail["to"] for r in records if r.action == "SetUpgradePhase"] == ["Finished"]
    assert [r.detail["window"] for r in records if r.action == "SetWindow"] == [1, 0]
    counts = {r.action: 0 for r in records} | {"StartWork": 0}
    for record in records:
        counts[record.action] += 1
    assert counts["StartWork"] == counts["WorkDone"] == counts["CreateCanary"] == 6
    assert came["lowestAvailable"]["byPool"] == {"blue": 4}
    assert came["longestState"].keys() == set(WAY[:-1])


def test_the_newcomers_of_replaced_nodes_are_done_and_nobody_is_skipped() -> None:
    records, came = told(work={"mode": "replace"})
    assert came["done"] == [f"{name}-2" for name in NAMES] and came["skipped"] == []
    assert came["longestState"]["Working"] < 130
    assert way_of(records, "b1") == WAY[:2] and way_of(records, "b1-2") == WAY[2:]


def test_a_replacement_that_never_comes_is_a_failure_by_name() -> None:
    fault = {"nodes": ["b1"], "how": "never-returns"}
    records, came = told(work={"mode": "replace"}, faults=[fault])
    assert came["failed"] == ["b1"] and "b1" not in came["skipped"]
    (failed,) = (r for r in records if r.action == "FailNode")
    assert failed.object.name == "b1" and failed.detail == {"to": "Failed"}


@pytest.mark.parametrize("how", FAULTS)
def test_each_fault_hits_its_node_alone(how: str) -> None:
    policy = {"target": ["bootID=changed"]}
    fault = {"nodes": ["b1"], "how": how}
    records, came = told(policy=policy, faults=[fault])
    if how == "drain-never":  # nothing runs there: there is nothing to drain
        assert came["failed"] == []
        return
    assert came["failed"] == ["b1"] and "b1" not in came["done"]
    assert way_of(records, "b1")[-1] == "Failed"
    assert came["done"] == NAMES[1:] or how in ("never-returns", "cni"), "the zone has room"
    (reason,) = [r.reason for r in records if r.action == "FailNode"]
    check = {
        "never-returns": "S2", "no-effect": "no effect", "flaps": "flaps", "cni": "S4",
        "no-csi": "S8", "less-gpu": "S9", "canary-hangs": "P4",
    }[how]  # fmt: skip
    assert check in reason


def test_faults_that_hit_some_tries_hit_no_others() -> None:
    policy = {"target": ["bootID=changed"]}
    fault = {"nodes": ["b2"], "how": "no-csi", "times": 1}
    _, came = told(policy=policy, faults=[fault])
    assert came["failed"] == ["b2"]


@pytest.mark.parametrize(("how", "words"), [("no-csi", "no CSINode"), ("no-effect", "no target")])
def test_a_fault_that_nothing_can_notice_is_told(how: str, words: str) -> None:
    work = {"selector": "name=b1", "work": WORK, "faults": [{"nodes": ["b1"], "how": how}]}
    events = [{"at": "1m", "upgrade": work}]
    came = story(objects=[node("b1"), node("b2")], events=events, duration="10m")
    (told, *_) = [r for r in came.records if r.detail.get("reason") == "FaultWithoutEffect"]
    assert told.object.name == "b1" and words in told.reason


ACT: Json = {"selector": "pool=blue", "policy": {"soak": "10s"}, "work": WORK}


def late(name: str) -> Json:
    """A node of the pool that is upgraded."""
    one = node(name)
    one["metadata"]["labels"]["pool"] = "blue"
    one["status"]["nodeInfo"] = {"bootID": f"boot-{name}", "kubeletVersion": "v1.35.2"}
    return one


THREE = [late("b1"), late("b2"), late("b3")]


def test_a_newcomer_goes_on_where_the_node_before_it_was() -> None:
    came = story(
        objects=THREE,
        events=[{"at": "1m", "upgrade": {**ACT, "work": {**WORK, "mode": "replace"}}}],
        duration="1h",
    )
    assert came.course is not None
    one = came.course.turns["b1"]
    assert one.now == "b1-2" and [state for _, state in one.entered if state] == WAY
    assert came.final["upgrade"]["done"] == ["b1-2", "b2-2", "b3-2"]


def test_a_node_that_came_after_the_start_is_read_too() -> None:
    target = {"target": ["bootID=changed"]}
    events = [
        {"at": "1m", "upgrade": {**ACT, "policy": target}},
        {"at": "2m", "apply": late("b4")},
    ]
    came = story(objects=THREE, events=events, duration="1h")
    assert came.course is not None
    assert came.course.turns.keys() == {"b1", "b2", "b3", "b4"}


def test_the_course_says_of_a_newcomer_that_never_came_that_its_node_failed() -> None:
    fault = {"nodes": ["b1"], "how": "never-returns"}
    act = {**ACT, "work": {**WORK, "mode": "replace"}, "faults": [fault]}
    came = story(objects=THREE, events=[{"at": "1m", "upgrade": act}], duration="2h")
    assert came.course is not None
    assert "no newcomer" in came.course.turns["b1"].failed and not came.course.does("b1")
