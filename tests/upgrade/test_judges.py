"""The judges see what they are there for: each of them, shown a breach, says so."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import DeletePod, EvictPod, SetUnschedulable, SetZoneState
from kubectl_nodelife.kube.node import Node
from tests.planned import on_node, on_pod
from tests.upgrade.fault_plan import Plan
from tests.upgrade.judges import ANNOTATION, Judges
from tests.upgrade.simulation import Fleet


class Stand:
    """A fleet on which nothing happens but what a test does, and its judges."""

    def __init__(self) -> None:
        self.fleet = Fleet(Plan())
        self.api = self.fleet.world.api
        self.judges: Judges = self.fleet.judges

    def node(self, name: str) -> Node:
        return self.api.store.nodes[name]

    def put(self, name: str, *, state: str = "", epoch: int = 1, **spec: Any) -> None:
        """The run writes the node."""
        node = self.node(name)
        if state:
            text = json.dumps({"run": "u1", "state": state, "epoch": epoch})
            node = replace(node, metadata=replace(node.metadata, annotations={ANNOTATION: text}))
        node = replace(node, spec=replace(node.spec, **spec))
        cause = on_node(SetUnschedulable, name, controller="upgrade", unschedulable=True)
        self.api.put("Node", node, cause)

    def said(self, invariant: str) -> bool:
        return any(fault.startswith(invariant) for fault in self.judges.faults)


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_i1_a_fourth_node_of_twelve_is_one_too_many(stand: Stand) -> None:
    for name in ("a1", "b1", "c1"):
        stand.put(name, state="Draining", unschedulable=True)
    assert not stand.judges.faults
    stand.put("a2", state="Draining", unschedulable=True)
    assert stand.said("I1")


def test_i2_a_zone_is_disrupted_by_nodes_of_the_run(stand: Stand) -> None:
    for name in ("a1", "a2", "a3"):
        stand.put(name, state="Working")
        node = stand.node(name)
        status = replace(node.status, conditions=())
        stand.api.put("Node", replace(node, status=status))
    stand.judges.decided(
        SetZoneState(
            controller="node-lifecycle",
            because="",
            zone=":\0:a",
            from_="Normal",
            to="PartialDisruption",
            rate=0.0,
        )
    )
    assert stand.said("I2")


def test_i3_a_plain_pod_is_bound_to_a_node_under_work(stand: Stand) -> None:
    stand.put("a1", state="Working", unschedulable=True)
    pod = next(p for p in stand.api.store.pods.values() if p.spec.node_name == "b1")
    waits = replace(pod, spec=replace(pod.spec, node_name=""))
    stand.api.put("Pod", waits)
    stand.api.put("Pod", replace(pod, spec=replace(pod.spec, node_name="a1")))
    assert stand.said("I3")


def test_i4_a_persons_cordon_is_taken_off(stand: Stand) -> None:
    stand.judges.persons.add("a1")
    stand.api.put(
        "Node", replace(stand.node("a1"), spec=replace(stand.node("a1").spec, unschedulable=True))
    )
    stand.put("a1", unschedulable=False)
    assert stand.said("I4")


def test_i5_a_mark_stays(stand: Stand) -> None:
    stand.put("a1", state="Done")
    assert stand.judges.leftovers(stand.fleet.nodes, released=False)


def test_i7_an_older_epoch_writes_after_a_newer_one(stand: Stand) -> None:
    stand.put("a1", state="Draining", epoch=2)
    assert not stand.judges.faults
    stand.put("a1", state="Working", epoch=1)
    assert stand.said("I7")


def test_i9_an_eviction_past_its_budget_and_a_delete(stand: Stand) -> None:
    pod = stand.api.store.pods[("default", "app0-0")]
    for other in list(stand.api.store.pods.values()):
        if other.name in ("app0-1", "app0-2"):
            stand.api.drop("Pod", other.key)
    evict = on_pod(EvictPod, pod.name, pod_uid=pod.uid)
    gone = evict.effect(pod, stand.api.now_ns)
    assert gone is not None
    stand.api.put("Pod", gone, evict)
    assert stand.said("I9")
    stand.judges.faults.clear()
    delete = on_pod(DeletePod, pod.name, pod_uid=pod.uid, controller="upgrade")
    stand.judges.wrote(delete, 1, object())
    assert stand.said("I9")
