"""A drain looked back on, from Events and from what pods and budgets show now."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import format_time
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.outlook.replay.drains import DrainReview, drain_review
from kubectl_nodelife.outlook.replay.timeline import ReplaySources, timeline
from kubectl_nodelife.report.drain_review import DrainReviewPage
from kubectl_nodelife.report.formats import render
from tests.replay.told import ALL, at, event, node, wrote

WEB = "web-5d8f9c7b6d"


def running(name: str, on: str, made: float, ready: float | None) -> Pod:
    """A pod of web, made and Ready at those seconds."""
    condition: dict[str, Any] = {"type": "Ready", "status": "False"}
    if ready is not None:
        since = format_time(at(ready))
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    owner = {"kind": "ReplicaSet", "name": WEB, "apiVersion": "apps/v1", "controller": True}
    obj = decode(
        "Pod",
        {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": name,
                "labels": {"app": "web"},
                "creationTimestamp": format_time(at(made)),
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": on},
            "status": {"phase": "Running", "conditions": [condition]},
        },
    )
    assert isinstance(obj, Pod)
    return obj


def budget() -> PodDisruptionBudget:
    made = decode(
        "PodDisruptionBudget",
        {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
            "status": {"desiredHealthy": 2, "expectedPods": 3},
        },
    )
    assert isinstance(made, PodDisruptionBudget)
    return made


def killing(seconds: float, name: str) -> Any:
    words = (f"pod/shop/{name}", "Killing", "Stopping container c")
    return event(seconds, *words, by="kubelet", host="a1")


def review(*pods: Pod, events: tuple[Any, ...]) -> DrainReview:
    """Node a1, cordoned at 12:00:05 by kubectl."""
    cordoned = node("a1", wrote("kubectl-cordon", 5, "unschedulable"), cordoned=True)
    sources = ReplaySources(None, events, [cordoned], pods)
    return drain_review(timeline(sources, ALL), pods, [budget()], "a1")


def test_who_each_pods_way_and_what_was_short() -> None:
    """Two of three pods leave in turn, and each comes back 4 and 5 s later elsewhere."""
    found = review(
        running(f"{WEB}-aaaaa", "b1", -100, -95),
        running(f"{WEB}-new01", "b1", 6, 10),
        running(f"{WEB}-new02", "c1", 11, 16),
        events=(killing(6, f"{WEB}-old01"), killing(11, f"{WEB}-old02")),
    )
    assert found.cordoned is not None and found.cordoned.actor.name == "kubectl-cordon (a user)"
    assert [(p.name[-5:], p.replacement[-5:], p.node, p.gap_s) for p in found.pods] == [
        ("old01", "new01", "b1", 4.0),
        ("old02", "new02", "c1", 5.0),
    ]
    (web,) = found.workloads
    assert (web.owner, web.moved, web.short_s, web.zero_s) == (WEB, 2, 9.0, 0.0)
    (spent,) = found.budgets
    assert (spent.name, spent.desired, spent.zero_s) == ("web", 2, 9.0)


def test_a_workload_at_zero() -> None:
    found = review(running(f"{WEB}-new01", "b1", 6, 10), events=(killing(6, f"{WEB}-old01"),))
    (web,) = found.workloads
    assert (web.short_s, web.zero_s) == (4.0, 4.0)


def test_what_nothing_tells_is_unknown_and_never_zero() -> None:
    """The replacement is not Ready; another pod was on a1 once, and left before the cordon."""
    bound = event(
        -60,
        f"pod/shop/{WEB}-old02",
        "Scheduled",
        f"Successfully assigned shop/{WEB}-old02 to a1",
        by="default-scheduler",
    )
    found = review(
        running(f"{WEB}-new01", "b1", 6, None), events=(bound, killing(6, f"{WEB}-old01"))
    )
    (first,) = found.pods
    assert (first.replacement[-5:], first.ready_ns, first.gap_s) == ("new01", None, None)
    (web,) = found.workloads
    assert (web.short_s, web.zero_s) == (None, None)
    page = DrainReviewPage(found, {"server": "s"}, None, [])
    assert "<unknown>" in render(page, "table")
    assert "1 pod left, the last went 1.0s later" in render(page, "table")
    promised = DrainReviewPage(found, {}, {"lowSeconds": 2.0, "highSeconds": 8.0}, [])
    assert "so no promise is judged" in render(promised, "table")


def test_a_node_that_nobody_drained_is_not_called_cordoned() -> None:
    found = drain_review(timeline(ReplaySources(nodes=[node("a1")]), ALL), [], [], "a1")
    told = render(DrainReviewPage(found, {}, None, []), "table")
    assert told.startswith("nothing shows a drain of a1: no cordon, and no pod that left it")


def test_promised_against_real() -> None:
    found = review(running(f"{WEB}-new01", "b1", 6, 10), events=(killing(6, f"{WEB}-old01"),))
    for high, word in ((8.0, ": as promised (2.0s to 8.0s)"), (4.0, ": later than promised")):
        page = DrainReviewPage(found, {}, {"lowSeconds": 2.0, "highSeconds": high}, [])
        first = render(page, "table").splitlines()[0]
        assert first.startswith("a1 was cordoned 2026-11-21T12:00:05Z, by kubectl-cordon (a user)")
        assert "; 1 pod left" in first
        assert word in first


def test_a_pod_that_no_kubelet_told_of_left_when_its_owner_made_the_next() -> None:
    bound = event(
        -60,
        f"pod/shop/{WEB}-old01",
        "Scheduled",
        f"Successfully assigned shop/{WEB}-old01 to a1",
        by="default-scheduler",
    )
    found = review(running(f"{WEB}-new01", "b1", 7, 10), events=(bound,))
    (moved,) = found.pods
    assert (moved.left_ns, moved.node, moved.gap_s) == (at(7), "b1", 3.0)
