"""Pods that wait for a node: in whose turn, and what makes the scheduler look again."""

from __future__ import annotations

from tests.sim.documents import Json, found, node, pod, story, times

QUIET = {"controllers": [], "duration": "2m"}


def roomy(name: str, **allocatable: str) -> Json:
    """A node that takes so much."""
    described = node(name)
    described["status"]["allocatable"] = {"cpu": "8", "memory": "8Gi", "pods": "110", **allocatable}
    return described


def placed(objects: list[Json], *events: Json) -> dict[str, float]:
    """Pod -> when it was placed after having waited, in that order."""
    told = story(**QUIET, objects=objects, events=list(events))
    return {r.object.name: r.at for r in found(told, "RecordEvent", reason="Scheduled")}


def test_pods_get_a_new_nodes_room_in_the_order_in_which_they_came() -> None:
    asking = {"resources": {"requests": {"cpu": "100m"}}, "name": "c"}
    objects = [pod("x"), pod("y", containers=[asking]), pod("z")]
    later = {"at": "10s", "apply": roomy("a", pods="2")}
    assert placed([node("far", unschedulable=True), *objects], later) == {"x": 10, "y": 10}


def test_a_full_node_is_looked_at_again_when_a_pod_has_left() -> None:
    objects = [roomy("a", pods="1"), pod("old", "a"), pod("p"), pod("q")]
    gone = {"at": "10s", "delete": {"kind": "Pod", "name": "old"}}
    assert placed(objects, gone) == {"p": 40}


def test_a_gated_pod_keeps_nobody_waiting_and_is_placed_when_its_gate_goes() -> None:
    gated = pod("gated", schedulingGates=[{"name": "wait"}])
    free = pod("gated")
    free["spec"]["schedulingGates"] = None
    later = {"at": "10s", "apply": free}
    told = story(**QUIET, objects=[gated, pod("p"), node("a")], events=[later])
    assert times(found(told, "SetPodCondition", name="p", status="True")) == [2]
    assert times(found(told, "SetPodCondition", name="gated", status="True")) == [12]


def test_a_waiting_pod_whose_demands_change_is_tried_again() -> None:
    picky = {"nodeSelector": {"name": "b"}}
    eased = pod("p", nodeSelector={"name": "a"})
    later = {"at": "10s", "apply": eased}
    assert placed([node("a"), pod("p", **picky), pod("q", **picky)], later) == {"p": 10}


def test_pods_that_differ_in_pod_level_resources_only_are_told_apart() -> None:
    def asks(cpu: str) -> Json:
        return {"resources": {"requests": {"cpu": cpu}}}

    objects = [
        pod("large1", **asks("600m")),
        pod("large2", **asks("600m")),
        pod("small", **asks("1m")),
    ]
    told = story(**QUIET, objects=[roomy("a", cpu="1"), *objects])
    ready = found(told, "SetPodCondition", status="True")
    assert [r.object.name for r in ready] == ["large1", "small"]
