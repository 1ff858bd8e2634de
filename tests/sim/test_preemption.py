"""A pod that fits nowhere takes the room of pods of lower priority."""

from typing import Any

import pytest

from tests.objects import of_kind
from tests.sim.documents import Json, found, node, pod, story
from tests.sim.test_daemon_pods import agents, asking, small


def holding(name: str, on: str, priority: int | None, cpu: str = "400m") -> Json:
    """A pod that holds cpu on a node of 600m."""
    return pod(name, on, tolerates=None, containers=asking(cpu), priority=priority)


def critical() -> Json:
    """A DaemonSet of system-node-critical pods that need more than is free."""
    the = agents("500m")
    the["spec"]["template"]["spec"]["priority"] = 2_000_001_000
    return the


def play(*objects: Json, **more: Any) -> Any:
    return story(**{"controllers": ["daemonset"], "duration": "5m", "objects": objects, **more})


def test_a_critical_daemon_pod_takes_the_room_of_an_ordinary_one() -> None:
    """Why daemon pods moved to the default scheduler."""
    told = play(small("n1"), holding("app", "n1", None), critical())
    (event,) = found(told, "RecordEvent", reason="Preempted")
    (deleted,) = found(told, "DeletePod", name="app")[:1]
    assert event.object.name == deleted.object.name == "app"
    (marked,) = found(told, "SetPodCondition", name="app", type="DisruptionTarget")
    assert marked.detail["reason"] == "PreemptionByScheduler"
    last = found(told, "UpdateDaemonSetStatus")[-1]
    assert last.detail["numberReady"] == 1


def test_v1_11_binds_its_pods_itself_and_preempts_nobody() -> None:
    told = play(small("n1"), holding("app", "n1", None), critical(), profile="v1.11")
    assert found(told, "RecordEvent", reason="FailedPlacement")
    assert not found(told, "RecordEvent", reason="Preempted") and not found(told, "CreatePod")


@pytest.mark.parametrize(
    ("priority", "policy"), [(0, None), (100, "Never"), (5, None)], ids=["none", "Never", "equal"]
)
def test_who_preempts_nobody(priority: int, policy: str | None) -> None:
    asks = pod("asks", containers=asking("500m"), priority=priority)
    if policy:
        asks["spec"]["preemptionPolicy"] = policy
    events = [{"at": "10s", "apply": asks}]
    told = play(small("n1"), holding("app", "n1", 5), events=events)
    assert not found(told, "RecordEvent", reason="Preempted")


def test_select_victims_on_node_puts_back_the_most_important() -> None:
    """Of pods of 10 and 20 the first has to go, where one is enough."""
    held = [holding("ten", "n1", 10, "300m"), holding("twenty", "n1", 20, "300m")]
    events = [{"at": "10s", "apply": pod("asks", containers=asking("300m"), priority=100)}]
    told = play(small("n1"), *held, events=events)
    assert [r.object.name for r in found(told, "RecordEvent", reason="Preempted")] == ["ten"]


def test_pick_one_node_for_preemption_takes_the_least_important_victims() -> None:
    held = [holding("dear", "n1", 50), holding("cheap", "n2", 10)]
    events = [{"at": "10s", "apply": pod("asks", containers=asking("500m"), priority=100)}]
    told = play(small("n1"), small("n2"), *held, events=events)
    (event,) = found(told, "RecordEvent", reason="Preempted")
    assert event.object.name == "cheap"
    (bound,) = found(told, "RecordEvent", reason="Scheduled", name="asks")
    assert bound.reason.endswith("n2")


def test_while_victims_go_no_others_are_preempted() -> None:
    """`PodEligibleToPreemptOthers`: the pod is tried again meanwhile, as a node comes and goes."""
    held = [holding("one", "n1", 10), holding("two", "n2", 10)]
    far = {**node("far", "b"), "spec": {"unschedulable": True}}
    busy: list[Json] = [
        {"at": "15s", "apply": far},
        {"at": "20s", "delete": {"kind": "Node", "name": "far"}},
    ]
    asks = {"at": "10s", "apply": pod("asks", containers=asking("500m"), priority=100)}
    told = play(small("n1"), small("n2"), *held, events=[asks, *busy])
    assert len(found(told, "RecordEvent", reason="Preempted")) == 1


def test_a_pod_without_priority_preempts_placeholders_one_for_each() -> None:
    """`PodEligibleToPreemptOthers` asks for no positive priority, and the room is kept: the owner's
    new placeholder, which comes first, does not take it.
    """
    placeholder = holding("placeholder", "n1", -10)
    owner: Json = of_kind("ReplicaSet", "rooms", "default", uid="rooms", spec={"replicas": 2})
    owned = {"kind": "ReplicaSet", "name": "rooms", "uid": "rooms", "controller": True}
    others = [placeholder, holding("second", "n2", -10)]
    for other in others:
        other["metadata"]["ownerReferences"] = [owned]
    events = [{"at": "10s", "apply": pod("asks", containers=asking("500m"))}]
    told = play(small("n1"), small("n2"), owner, *others, events=events)
    assert len(found(told, "RecordEvent", reason="Preempted")) == 1
    (bound,) = found(told, "RecordEvent", reason="Scheduled", name="asks")
    (gone,) = [r for r in found(told, "DeletePod") if r.detail.get("gracePeriodSeconds") == 0]
    assert bound.at == gone.at


def test_two_placeholders_weigh_more_than_one() -> None:
    """A sum of negative priorities does not make many victims cheap."""
    held = [
        *(holding(f"half-{i}", "n1", -10, "200m") for i in range(2)),
        holding("whole", "n2", -10),
    ]
    events = [{"at": "10s", "apply": pod("asks", containers=asking("500m"))}]
    told = play(small("n1"), small("n2"), *held, events=events)
    assert [r.object.name for r in found(told, "RecordEvent", reason="Preempted")] == ["whole"]


def test_filter_pods_with_pdb_violation_takes_those_that_break_no_budget() -> None:
    held = [holding("guarded", "n1", 1), holding("free", "n2", 50)]
    held[0]["metadata"]["labels"] = {"app": "guarded"}
    budget: Json = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    events = [{"at": "10s", "apply": pod("asks", containers=asking("500m"), priority=100)}]
    told = play(small("n1"), small("n2"), *held, budget, events=events)
    assert [r.object.name for r in found(told, "RecordEvent", reason="Preempted")] == ["free"]
