"""A drain looked back on, from Events and from what pods and budgets show now."""

from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.replay.drain_review import DrainReview, drain_review
from kubectl_nodelife.outlook.replay.timeline import ReplaySources, timeline
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.replay import drain_review_page
from tests.objects import budget, owner, pod, typed
from tests.replay.told import ALL, at, event, node, wrote

WEB = "web-5d8f9c7b6d"


def running(
    name: str, on: str, made: float, ready: float | None, of: str = WEB, kind: str = "ReplicaSet"
) -> Pod:
    """A pod of web, made and Ready at those seconds."""
    about = {"namespace": "shop", "labels": {"app": "web"}, "owner": owner(kind, of)}
    since = None if ready is None else at(ready)
    return typed(pod(name, on, created=at(made), ready=since is not None, since=since, **about))


BUDGET = typed(
    budget(namespace="shop", maxUnavailable=1, status={"desiredHealthy": 2, "expectedPods": 3})
)


STOPPED = ("Killing", "Stopping container c")


def killing(seconds: float, name: str) -> Any:
    words = (f"pod/shop/{name}", "Killing", "Stopping container c")
    return event(seconds, *words, by="kubelet", host="a1")


def review(*pods: Pod, events: tuple[Any, ...]) -> DrainReview:
    """Node a1, cordoned at 12:00:05 by kubectl."""
    cordoned = node("a1", wrote("kubectl-cordon", 5, "unschedulable"), cordoned=True)
    sources = ReplaySources(None, events, [cordoned], pods)
    return drain_review(timeline(sources, ALL), pods, [BUDGET], node("a1"))


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
    assert (web.owner, web.moved, web.short_seconds, web.zero_seconds) == (WEB, 2, 9.0, 0.0)
    (spent,) = found.budgets
    assert (spent.name, spent.desired, spent.zero_seconds) == ("web", 2, 9.0)


def test_a_workload_at_zero() -> None:
    found = review(running(f"{WEB}-new01", "b1", 6, 10), events=(killing(6, f"{WEB}-old01"),))
    (web,) = found.workloads
    assert (web.short_seconds, web.zero_seconds) == (4.0, 4.0)


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
    assert (web.short_seconds, web.zero_seconds) == (None, None)
    page = drain_review_page(found, {"server": "s"}, None, [])
    assert "<unknown>" in render(page, "table")
    assert "1 pod left, the last went 1.0s later" in render(page, "table")
    promised = drain_review_page(found, {}, {"lowSeconds": 2.0, "highSeconds": 8.0}, [])
    assert "so no promise is judged" in render(promised, "table")


def test_a_node_that_nobody_drained_is_not_called_cordoned() -> None:
    lines = timeline(ReplaySources(nodes=[node("a1")]), ALL)
    found = drain_review(lines, [], [], node("a1"))
    told = render(drain_review_page(found, {}, None, []), "table")
    assert told.startswith("nothing shows a drain of a1: no cordon, and no pod that left it")


def test_a_cordon_that_nothing_dates_is_said_all_the_same() -> None:
    closed = node("a1")
    closed = replace(closed, spec=replace(closed.spec, unschedulable=True))
    there = [running(f"{WEB}-1", "a1", 0, 1), running(f"{WEB}-2", "b1", 0, 1)]
    told = render(drain_review_page(drain_review([], there, [], closed), {}, None, []), "table")
    assert told.startswith("a1 is cordoned, since when and by whom nothing shows; no pod is seen")
    assert "and 1 pod that a drain takes is on it" in told.splitlines()[0]


def test_promised_against_real() -> None:
    found = review(running(f"{WEB}-new01", "b1", 6, 10), events=(killing(6, f"{WEB}-old01"),))
    for high, word in ((8.0, ": as promised (2.0s to 8.0s)"), (4.0, ": later than promised")):
        page = drain_review_page(found, {}, {"lowSeconds": 2.0, "highSeconds": high}, [])
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


def made(seconds: float, name: str, owner: str = f"rs/shop/{WEB}") -> Any:
    """The owner's Event about a pod that it has made."""
    words = (owner, "SuccessfulCreate", f"Created pod: {name}")
    return event(seconds, *words, by="replicaset-controller")


def assigned(seconds: float, name: str, on: str) -> Any:
    words = f"Successfully assigned shop/{name} to {on}"
    return event(seconds, f"pod/shop/{name}", "Scheduled", words, by="default-scheduler")


def test_the_next_nodes_drain_does_not_change_the_review_of_this_one() -> None:
    """The replacement went with its node 100 s later: when it was Ready is not known, and that of
    the pod which replaced it is not its own."""
    before = review(running(f"{WEB}-new01", "b1", 6, 8), events=(killing(6, f"{WEB}-old01"),))
    assert [p.gap_s for p in before.pods] == [2.0]
    later = running(f"{WEB}-new02", "c1", 113, 121)
    for told in (made(6, f"{WEB}-new01"), assigned(6, f"{WEB}-new01", "b1")):
        (pod,) = review(later, events=(told, killing(6, f"{WEB}-old01"))).pods
        assert (pod.replacement[-5:], pod.ready_ns) == ("new01", None)
    (pod,) = review(
        later, events=(assigned(6, f"{WEB}-new01", "b1"), killing(6, f"{WEB}-old01"))
    ).pods
    assert pod.node == "b1"


def test_a_stateful_sets_pod_is_made_anew_under_its_name() -> None:
    """Twice: the second time from another node."""
    again = running("db-0", "c1", 113, 121, "db")
    told = [made(seconds, "db-0", "rs/shop/db") for seconds in (36, 113)]
    found = review(again, events=(*told, killing(6, "db-0")))
    (pod,) = found.pods
    assert (pod.owner, pod.replacement, pod.ready_ns) == ("db", "db-0", None)
    (pod,) = review(again, events=(told[1], killing(6, "db-0"))).pods
    assert pod.gap_s == 115.0, "nothing else was made"


def test_an_owner_is_not_guessed_where_it_is_said() -> None:
    """A Job named as the ReplicaSet's pods are, and one that the ReplicaSet makes."""
    job = f"{WEB}-batch"
    told = (made(4, f"{job}-old01", f"rs/shop/{job}"), killing(6, f"{job}-old01"))
    found = review(running(f"{WEB}-new01", "b1", 6, 8), events=told)
    (pod,) = found.pods
    assert (pod.owner, pod.replacement) == (job, "")


def numbered(name: str, on: str, made: float, ready: float | None) -> Pod:
    return running(name, on, made, ready, "db", "StatefulSet")


def test_a_stateful_sets_pod_is_replaced_by_that_of_its_name() -> None:
    """db-1 left another node, and was made first."""
    left = (killing(6, "db-0"), event(5, "pod/shop/db-1", *STOPPED, by="kubelet", host="b1"))
    found = review(numbered("db-1", "c1", 36, 38), numbered("db-0", "c1", 40, 42), events=left)
    (moved,) = found.pods
    assert (moved.replacement, moved.gap_s) == ("db-0", 36.0)
    (db,) = found.workloads
    assert (db.moved, db.short_seconds, db.zero_seconds) == (1, 37.0, 32.0), (
        "db-1 left at 5, Ready at 38"
    )


def test_a_pod_that_was_made_anew_on_its_node_had_left() -> None:
    """db-1 was deleted and came back where it was: for two seconds none was Ready."""
    left = (killing(6, "db-0"), event(20, "pod/shop/db-1", *STOPPED, by="kubelet", host="b1"))
    found = review(numbered("db-0", "c1", 15, 22), numbered("db-1", "b1", 50, 52), events=left)
    (db,) = found.workloads
    assert (db.moved, db.short_seconds, db.zero_seconds) == (1, 16.0, 2.0)


def test_a_pod_of_another_nodes_drain_is_replaced_by_its_own() -> None:
    """Two nodes lose a pod each, three seconds apart, and the owner makes one each time."""
    left = (
        killing(9, f"{WEB}-old02"),
        event(6, f"pod/shop/{WEB}-old01", *STOPPED, by="kubelet", host="b1"),
    )
    made_ones = (running(f"{WEB}-new01", "c1", 6, 30), running(f"{WEB}-new02", "c1", 9, 31))
    found = review(*made_ones, events=left)
    (moved,) = found.pods
    assert (moved.name[-5:], moved.replacement[-5:], moved.gap_s) == ("old02", "new02", 22.0)
    (web,) = found.workloads
    assert (web.short_seconds, web.zero_seconds) == (25.0, 21.0), (
        "old01 left at 6, and new01 is Ready at 30"
    )


def test_a_pod_that_was_ready_only_later_did_not_serve_meanwhile() -> None:
    found = review(
        running(f"{WEB}-slow1", "b1", -100, 40),
        running(f"{WEB}-new01", "b1", 6, 60),
        events=(killing(6, f"{WEB}-old01"),),
    )
    (web,) = found.workloads
    assert (web.short_seconds, web.zero_seconds) == (34.0, 34.0)


def test_a_replacement_that_left_again_may_never_have_been_ready() -> None:
    """A pod that was made 8 s before the cordon left with the node."""
    made_ones = (made(-3, f"{WEB}-old01"), killing(6, f"{WEB}-old01"))
    found = review(running(f"{WEB}-new01", "b1", 6, 10), events=made_ones)
    (web,) = found.workloads
    assert (web.moved, web.short_seconds, web.zero_seconds) == (1, None, None)
