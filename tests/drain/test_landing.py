"""Replacements with nowhere to go, or only one place: every scheduling filter in a plan."""

from typing import Any

import pytest

from kubectl_nodelife.kube.times import SECOND_NS
from tests.drain.build import NOW, Json, budget, node, plan, pods_of, replica_set, stateful_set
from tests.objects import manifest
from tests.sim.documents import found, story

NODES = [*node("a1"), *node("a2"), *node("a3")]
TIMEOUT = 30 * SECOND_NS
LOST = {
    "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]},
    "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
}


# --- replacements with nowhere to go --------------------------------------------------------------


def guarded_pair(**pod_more: Any) -> list[Json]:
    guard = budget("web", "web", healthy=2, desired=1, expected=2, maxUnavailable=1)
    return [*replica_set("web", "a1", "a1", **pod_more), guard]


@pytest.mark.parametrize(
    "nodes, pod_more, reason",
    [
        pytest.param([*node("a1")], {}, "unschedulable", id="no-other-node"),
        pytest.param([*node("a1"), *node("a2", cpu="50m")], {}, "Insufficient cpu", id="no-room"),
        pytest.param(
            [*node("a1"), *node("a2", spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})],
            {},
            "untolerated taint",
            id="taint",
        ),
        pytest.param(
            NODES, {"spec": {"nodeSelector": {"disk": "ssd"}}}, "node affinity", id="selector"
        ),
        pytest.param(
            [*node("a1"), *node("a2", lease="2026-01-01T00:00:00Z", **LOST)],
            {},
            "untolerated taint",
            id="the-other-kubelet-is-dead",
        ),
    ],
)
def test_landing(nodes: list[Json], pod_more: Json, reason: str) -> None:
    answer = plan(nodes, guarded_pair(**pod_more), timeout_ns=TIMEOUT)
    gates = {pod.verdict: pod for pod in answer.pods()}
    assert gates["never"].gate == "landing"
    assert reason in gates["never"].reason
    assert any(reason in place.reason for place in gates["ready"].landing)
    assert len([pod for pod in answer.pods() if pod.start is not None]) == 1


def test_topology_spread_over_a_cordoned_node() -> None:
    """The cordoned node stays a domain, without pods: no other may have more than one then."""
    spread = {
        "spec": {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        }
    }
    guard = budget("web", "web", healthy=4, desired=3, expected=4, maxUnavailable=1)
    places = ("a1", "a1", "a2", "a2")
    nodes = [*node("a1"), *node("a2")]
    answer = plan(nodes, replica_set("web", *places, **spread), guard, timeout_ns=TIMEOUT)
    assert {pod.gate for pod in answer.pods() if pod.verdict == "never"} == {"landing"}
    spread["spec"]["topologySpreadConstraints"][0]["nodeTaintsPolicy"] = "Honor"
    answer = plan(nodes, replica_set("web", *places, **spread), guard, timeout_ns=TIMEOUT)
    assert answer.verdict == "slow"


def test_anti_affinity_waits_until_the_old_pod_is_gone() -> None:
    """By zone, with one other node in it: the place is free only once the object has left."""
    apart = {
        "spec": {
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "labelSelector": {"matchLabels": {"app": "web"}},
                            "topologyKey": "topology.kubernetes.io/zone",
                        }
                    ]
                }
            },
            "terminationGracePeriodSeconds": 10,
        }
    }
    answer = plan(NODES, replica_set("web", "a1", **apart))
    web = pods_of(answer)["web-0"]
    assert web.gone is not None and web.end is not None and web.end > web.gone >= 10


def claim(name: str, volume: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"volumeName": volume, "storageClassName": "zonal"},
        "status": {"phase": "Bound"},
    }


def volume(name: str, key: str, value: str) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    return manifest(
        "PersistentVolume", name, spec={"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    )


WITH_CLAIM = {
    "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
}


def test_a_zone_bound_volume_keeps_its_pod_in_the_zone() -> None:
    objects = [
        *node("a1", zone="a"),
        *node("b1", zone="b"),
        *stateful_set("db", "a1", pod_more=WITH_CLAIM),
        claim("data", "pv"),
        volume("pv", "topology.kubernetes.io/zone", "a"),
    ]
    stranded = pods_of(plan(objects))["db-0"]
    assert stranded.verdict == "ready" and stranded.end is None
    assert {place.reason for place in stranded.landing} == {
        "node(s) were unschedulable",
        "node(s) didn't match PersistentVolume's node affinity",
    }
    assert pods_of(plan(objects, *node("a2", zone="a")))["db-0"].landing[0].node == "a2"


def test_a_local_volume_strands_its_pod() -> None:
    answer = plan(
        NODES,
        stateful_set("db", "a1", pod_more=WITH_CLAIM),
        claim("data", "pv"),
        volume("pv", "kubernetes.io/hostname", "a1"),
    )
    db = pods_of(answer)["db-0"]
    assert (db.verdict, db.gate) == ("ready", "local-volume")


def test_a_missing_claim_is_told() -> None:
    db = pods_of(plan(NODES, stateful_set("db", "a1", pod_more=WITH_CLAIM)))["db-0"]
    assert [place.reason for place in db.landing] == ['persistentvolumeclaim "data" not found']


# --- StatefulSets ---------------------------------------------------------------------------------


def test_a_stateful_set_is_replaced_in_order_once_the_old_pods_are_gone() -> None:
    pods = pods_of(plan(NODES, stateful_set("db", "a1", "a1")))
    first, second = pods["db-0"], pods["db-1"]
    assert first.gone is not None and first.end is not None and second.end is not None
    assert first.end > first.gone
    assert second.end >= first.end + 2
    parallel = pods_of(plan(NODES, stateful_set("db", "a1", "a1", podManagementPolicy="Parallel")))
    assert parallel["db-1"].end == pytest.approx(parallel["db-0"].end, abs=0.1)


def test_the_last_pod_of_a_plan_has_no_end_where_its_successor_has_no_place() -> None:
    """A StatefulSet makes the next once the old one is gone, when the last command has returned."""
    nodes = [*node("a1"), *node("a2")]
    answer = plan(nodes, stateful_set("db", "a1", "a2"), nodes=("a1", "a2"))
    assert [(pod.gone is None, pod.end) for pod in answer.pods()] == [(False, None)] * 2


@pytest.mark.parametrize(("word", "lands"), [({}, "b1"), ({"scheduler": "FewestPods"}, "a1")])
def test_a_scenario_lands_a_pod_where_the_plan_does(word: Json, lands: str) -> None:
    """One node has the most free, the other the fewest pods."""
    big = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]}}
    objects = [*node("x1"), *node("a1"), *node("b1"), *replica_set("web", "x1")]
    objects += [*replica_set("big", "a1", **big), *replica_set("small", "b1", "b1")]
    planned = pods_of(plan(objects, nodes=("x1",)))["web-0"]
    assert planned.landing[0].node == "b1"
    drain = {"at": "0s", "drain": {"nodes": ["x1"]}}
    told = story(start="join", time=NOW, objects=objects, events=[drain], **word)
    assert [r.detail["node"] for r in found(told, "CreatePod")] == [lands]
