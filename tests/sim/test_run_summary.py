"""Records with their chains of causes, the end state, and the story of one object."""

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.sim.run import RunSummary, narrowed, summarize_run
from kubectl_nodelife.sim.scenario import assemble
from kubectl_nodelife.sim.timeline import Record
from tests.sim.documents import Json, found, node, owner, pod, scenario, start, stop, story
from tests.simulating import play

LOST = {
    "duration": "8m",
    "objects": [
        node("a1"),
        node("a2"),
        node("b1", "b"),
        owner("ReplicaSet", "web", 2),
        pod("web-1", "a1", owner=("ReplicaSet", "web"), tolerates=60),
        pod("web-2", "a2", owner=("ReplicaSet", "web"), tolerates=60),
        pod("forever", "a1", tolerates=None),
    ],
    "events": [stop("10s", "a1"), start("5m", "a1")],
}


def chain(told: RunSummary, record: Record) -> list[str]:
    """The actions that led to a record, the first cause last."""
    names = [f"{record.controller} {record.action}"]
    while record.cause is not None:
        record = told.records[record.cause]
        names.append(f"{record.controller} {record.action}")
    return names


def test_every_record_knows_its_whole_chain_of_causes() -> None:
    told = story(**LOST)
    (gone,) = (r for r in found(told, "DeletePod", name="web-1") if r.at > 300)
    assert chain(told, gone) == [
        "cluster DeletePod",
        "taint-eviction DeletePod",
        "taint-eviction ScheduleEviction",
        "node-lifecycle AddTaint",
        "node-lifecycle QueueNode",
        "node-lifecycle SetNodeCondition",
        "cluster RecordEvent",
    ]
    (ready,) = found(told, "SetPodCondition", controller="cluster")
    assert chain(told, ready)[:3] == [
        "cluster SetPodCondition",
        "cluster CreatePod",
        "taint-eviction DeletePod",
    ]


def test_causes_come_before_what_they_cause() -> None:
    told = story(**LOST)
    for index, record in enumerate(told.records):
        assert record.cause is None or record.cause < index
        assert record.cause is None or told.records[record.cause].at <= record.at
    assert [r.at for r in told.records] == sorted(r.at for r in told.records)


def test_due_is_told_in_seconds_since_the_start() -> None:
    told = story(**LOST)
    (planned,) = found(told, "ScheduleEviction", name="web-1")
    assert planned.detail["due"] == planned.at + 60
    assert planned.detail["tolerationSeconds"] == 60


def test_the_document_is_the_contracts_timeline() -> None:
    document = story(**LOST).document()
    assert document["kind"] == "Timeline"
    assert document["apiVersion"] == "nodelife.dev/v1alpha1"
    assert document["metadata"] == {"name": "test"}
    assert document["profile"] == "v1.37"
    assert document["flags"]["node-monitor-grace-period"] == "50s"
    assert document["start"] == "2026-01-01T00:00:00Z"
    assert document["duration"] == 480
    assert [n["name"] for n in document["final"]["nodes"]] == ["a1", "a2", "b1"]
    zones = [(z["name"], z["state"], z["nodes"]) for z in document["final"]["zones"]]
    assert zones == [("a", "Normal", 2), ("b", "Normal", 1)]
    counts = document["final"]["pods"]
    assert (counts["total"], counts["gone"], counts["terminating"]) == (3, 1, 0)


def test_who_lost_what() -> None:
    told = story(**LOST)
    (loss,) = told.nodes
    assert (loss.name, loss.zone, loss.silent_at, loss.back_at) == ("a1", "a", 10, 300)
    assert (loss.pods, loss.marked, loss.deleted) == (2, 2, 1)
    assert loss.first_deleted_at == loss.last_deleted_at
    (workload,) = told.workloads
    assert (workload.name, workload.pods, workload.deleted, workload.replaced) == ("web", 2, 1, 1)


def narrow(kind: str, namespace: str, name: str, **spec: object) -> RunSummary | None:
    setting = assemble(scenario(**{**LOST, **spec}))
    done = play(setting)
    return narrowed(
        summarize_run(done, make_settings(setting.profile, {})), done, kind, (namespace, name)
    )


def objects(told: RunSummary | None) -> set[str]:
    assert told is not None
    return {f"{r.object.kind}/{r.object.name}" for r in told.records}


def test_a_node_with_its_pods_and_what_led_to_it() -> None:
    assert objects(narrow("Node", "", "a1")) == {"Node/a1", "Pod/web-1", "Pod/forever"}


def test_a_pod_with_what_led_to_it() -> None:
    told = narrow("Pod", "default", "web-1")
    assert objects(told) == {"Node/a1", "Pod/web-1"}
    assert told is not None
    (gone,) = (r for r in found(told, "DeletePod") if r.controller == "cluster")
    assert chain(told, gone)[-1] == "cluster RecordEvent"


def test_a_node_to_which_nothing_happens_has_an_empty_story() -> None:
    quiet: Json = {"objects": [node("a"), node("b")], "events": [], "controllers": []}
    told = narrow("Node", "", "b", **quiet)
    assert told is not None and told.records == []


def test_what_never_was_there_has_no_story() -> None:
    assert narrow("Node", "", "a9") is None
    assert narrow("Pod", "other", "web-1") is None
