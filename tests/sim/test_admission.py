"""Pods that are made in the simulation get what DefaultTolerationSeconds gives them."""

import pytest

from tests.sim.documents import found, node, owner, pod, stop, story

UNREACHABLE = "node.kubernetes.io/unreachable"


def applied(name: str, **spec: object) -> dict[str, object]:
    """An event that creates a pod on the node a1 after 5 s."""
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return {"at": "5s", "apply": {**made, "spec": {"nodeName": "a1", **spec}}}


def test_a_pod_made_without_tolerations_stays_for_the_flag_s_seconds_after_the_taint() -> None:
    told = story(
        objects=[node(n) for n in ("a1", "a2", "a3", "a4")],
        duration="4m",
        flags={"default-unreachable-toleration-seconds": 30},
        events=[applied("plain"), stop("10s", "a1")],
    )
    [tainted] = [r for r in found(told, "AddTaint") if r.detail["effect"] == "NoExecute"]
    [due] = found(told, "ScheduleEviction", name="plain")
    assert due.detail["tolerationSeconds"] == 30
    [gone] = found(told, "DeletePod", name="plain")
    assert gone.at - tainted.at == pytest.approx(30, abs=0.1)


def test_what_a_pod_says_itself_counts() -> None:
    own = [{"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 7}]
    told = story(
        objects=[node(n) for n in ("a1", "a2", "a3", "a4")],
        duration="3m",
        events=[applied("own", tolerations=own), stop("10s", "a1")],
    )
    [due] = found(told, "ScheduleEviction", name="own")
    assert due.detail["tolerationSeconds"] == 7


def test_a_successor_gets_them_where_its_template_has_none() -> None:
    told = story(
        objects=[
            *(node(n) for n in ("a1", "a2", "a3", "a4")),
            owner("ReplicaSet", "web"),
            pod("web-1", "a1", owner=("ReplicaSet", "web"), tolerates=-1),
        ],
        duration="4m",
        flags={"default-unreachable-toleration-seconds": 60},
        events=[stop("10s", "a1"), stop("70s", "a2")],
    )
    # The first is written without tolerations and goes at once; the pod in its place waits 60 s.
    at_once, waiting = found(told, "ScheduleEviction")
    assert (at_once.object.name, at_once.detail["tolerationSeconds"]) == ("web-1", 0)
    assert waiting.detail["tolerationSeconds"] == 60
    assert found(told, "DeletePod", name=waiting.object.name)
