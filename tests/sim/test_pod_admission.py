"""Kubelets reject pods that no scheduler has filtered."""

from typing import Any

import pytest

from tests.sim.documents import Json, found, node, pod, story
from tests.sim.test_daemon_pods import asking, small

PORT = [{"name": "c", "image": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]


def full() -> Json:
    made = small("n1")
    made["status"]["allocatable"]["pods"] = "1"
    return made


@pytest.mark.parametrize(
    ("target", "there", "asked", "reason"),
    [
        (small("n1"), {"containers": asking("400m")}, {"containers": asking("500m")}, "OutOfcpu"),
        (full(), {}, {}, "OutOfpods"),
        (small("n1"), {}, {"nodeSelector": {"disk": "ssd"}}, "NodeAffinity"),
        (small("n1"), {"containers": PORT}, {"containers": PORT}, "NodePorts"),
        (full(), {}, {"priority": 2_000_000_000, "nodeSelector": {"disk": "ssd"}}, "NodeAffinity"),
        (
            node("n1", taints=[{"key": "k", "effect": "NoExecute"}]),
            {"tolerations": [{"operator": "Exists"}]},
            {"tolerations": []},
            "TaintToleration",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pod_with_a_node_name_of_its_own_is_rejected(
    target: Json, there: Any, asked: Any, reason: str
) -> None:
    """`predicateAdmitHandler`: Failed at once, with the first reason."""
    events = [{"at": "10s", "apply": pod("p", "n1", ready=False, **asked)}]
    objects = [target, pod("there", "n1", **there)]
    told = story(controllers=[], duration="1m", objects=objects, events=events)
    (failed,) = found(told, "SetPodPhase", name="p")
    assert (failed.at, failed.detail["phase"]) == (10, "Failed") and f"({reason})" in failed.reason
    assert not found(told, "SetPodCondition", name="p", type="Ready")


def test_what_fits_is_let_in_also_when_the_kubelet_comes_back() -> None:
    silent = {"at": "5s", "kubelet": {"nodes": ["n1"], "heartbeats": "stop"}}
    events = [
        silent,
        {"at": "10s", "apply": pod("fits", "n1", ready=False, containers=asking("100m"))},
        {"at": "11s", "apply": pod("big", "n1", ready=False, containers=asking("900m"))},
        {"at": "20s", "kubelet": {"nodes": ["n1"], "heartbeats": "start"}},
    ]
    told = story(controllers=[], duration="1m", objects=[small("n1")], events=events)
    (failed,) = found(told, "SetPodPhase")
    assert (failed.at, failed.object.name) == (20, "big")
    (ready,) = found(told, "SetPodCondition", type="Ready")
    assert ready.object.name == "fits"


def test_a_critical_pod_is_not_rejected_for_want_of_room() -> None:
    """`HandleAdmissionFailure`: InsufficientResourceError is no reason to reject it."""
    critical = pod("p", "n1", ready=False, priority=2_000_000_000)
    objects, events = [full(), pod("there", "n1")], [{"at": "10s", "apply": critical}]
    told = story(controllers=[], duration="1m", objects=objects, events=events)
    assert not found(told, "SetPodPhase", name="p")
    assert found(told, "SetPodCondition", name="p", type="Ready")
