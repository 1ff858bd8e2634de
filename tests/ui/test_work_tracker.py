"""Works in progress over time: promised against real, and what is waited for since when."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.meta import ObjectMeta, Time
from kubectl_nodelife.kube.node import Node, NodeCondition
from kubectl_nodelife.outlook.works import (
    MOST_WAITS,
    WorkDetails,
    WorkInProgress,
    WorkTracker,
    details_of_drain,
    details_of_roll_out,
    details_of_upgrade,
)
from tests import objects

S = 10**9
KEY = ("Node", "", "a1")


def instant(at_ns: int) -> float:
    return at_ns / S


def cluster(pods: int, going: int = 0, conditions: tuple[NodeCondition, ...] = ()) -> Cache:
    """A cordoned node, on which the first pods were asked at 70 s to end within 30 s."""
    cache = Cache()
    made = [objects.node("a1", None, conditions=conditions, unschedulable=True)]
    for number in range(pods):
        grace = {"deletionGracePeriodSeconds": 30} if number < going else {}
        ends = 100 * S if number < going else None
        uid = f"u{number}"
        made.append(objects.pod(f"web-{number}", "a1", uid=uid, deleted=ends, metadata=grace))
    for change in map(objects.put, made):
        cache.apply(change, 0)
    return cache


def only(works: WorkTracker, cache: Cache, at_s: int) -> WorkInProgress:
    (found,) = works.works(cache, at_s * S, instant)
    return found


def test_a_drain_is_followed_from_its_first_deletion_to_its_last_pod() -> None:
    works = WorkTracker()
    begun = only(works, cluster(4, going=1), 80)
    assert (begun.done, begun.total, begun.since_s) == (0, 4, 70.0)
    stuck = only(works, cluster(3), 200)  # an eviction that is refused leaves no trace
    assert (stuck.done, stuck.total, stuck.since_s) == (1, 4, 70.0)
    assert "0 pods are Terminating" in stuck.sentence
    assert works.works(cluster(0), 210 * S, instant) == []
    assert works.works(cluster(3), 220 * S, instant) == []  # cordoned alone is none


def test_a_pod_that_was_quick_to_go_has_begun_a_drain() -> None:
    works = WorkTracker()
    assert works.works(cluster(3), 80 * S, instant) == []
    begun = only(works, cluster(2), 82)
    assert (begun.done, begun.total, begun.since_s) == (0, 2, 82.0)
    assert only(works, cluster(2), 84).since_s == 82.0
    uncordoned = Cache()
    uncordoned.set("Node", ("", "a1"), Node(metadata=ObjectMeta(name="a1")))
    assert works.works(uncordoned, 86 * S, instant) == []


def test_one_who_drains_may_say_so_before_a_pod_goes() -> None:
    began = NodeCondition("DrainInProgress", "True", last_transition_time=Time(50 * S))
    assert only(WorkTracker(), cluster(2, conditions=(began,)), 80).since_s == 50.0
    ended = replace(began, status="False")
    assert WorkTracker().works(cluster(2, conditions=(ended,)), 80 * S, instant) == []


def test_the_first_promise_stays_beside_what_is_expected_now() -> None:
    works, cache = WorkTracker(), cluster(2, going=1)
    assert only(works, cache, 80).promised is None
    works.take(KEY, WorkDetails((10, 40), [], []), 80 * S)
    works.take(KEY, WorkDetails((50, 60), [], []), 100 * S)
    late = only(works, cache, 101)
    assert (late.promised, late.expected) == ((90.0, 120.0), (150.0, 160.0))
    works.take(KEY, WorkDetails(None, [], []), 110 * S)
    never = only(works, cache, 111)
    assert (never.promised, never.expected) == ((90.0, 120.0), None)


def test_a_wait_keeps_its_beginning_while_its_words_change() -> None:
    works, cache = WorkTracker(), cluster(2, going=1)
    only(works, cache, 80)
    works.take(KEY, WorkDetails(None, [("pod web", "asked once", None)], ["b"]), 80 * S)
    again = [("pod web", "asked 5 times", None), ("pod db", "new", None), ("node", "told", 30.0)]
    works.take(KEY, WorkDetails(None, again, ["c"]), 100 * S)
    shown = only(works, cache, 101)
    assert [(w.what, w.because, w.since_s) for w in shown.waits] == [
        ("pod web", "asked 5 times", 80.0),
        ("pod db", "new", 100.0),
        ("node", "told", 70.0),
    ]
    assert shown.budgets == ["c"]
    works.take(("Node", "", "gone"), WorkDetails(None, again, []), 100 * S)
    many = [(f"pod {number}", "", None) for number in range(MOST_WAITS + 3)]
    works.take(KEY, WorkDetails(None, many, []), 120 * S)
    waits = only(works, cache, 121).waits
    assert len(waits) == MOST_WAITS + 1 and waits[-1].what == "3 more"


POD = {"namespace": "shop", "verdict": "never", "goneSeconds": None}
PLAN = {
    "estimate": {"lowSeconds": 5.0, "highSeconds": 9.0},
    "waves": [
        {
            "pods": [
                {**POD, "name": "db", "goneSeconds": 9.0, "reason": "goes"},
                {**POD, "name": "web", "reason": "budget web allows 0"},
                {**POD, "name": "agent", "verdict": "kept", "reason": "ignored"},
            ]
        }
    ],
    "budgets": [
        {
            "namespace": "shop",
            "name": "web",
            "healthy": 2,
            "expected": 3,
            "desired": 2,
            "allowed": 0,
        }
    ],
}
ROLL_OUT = {
    "estimate": None,
    "budget": {"desired": 6, "maxUnavailable": 1, "maxSurge": 0, "used": 1},
    "budgetUsedBy": [
        {"node": "a1", "because": "agent-x: not Ready", "countsAs": "", "stuck": True}
    ],
    "waitsFor": ["a place in the budget"],
}
SCOPE = {"scope": "cluster", "available": 5, "base": 6, "floor": 4, "slots": 1}
STATUS = {
    "estimate": {"lowSeconds": 60, "highSeconds": 90, "nodes": 2},
    "gates": [{"gate": "window", "because": "no window is open", "toldSecondsAgo": None}],
    "holds": [{"what": "a2", "because": "room: no place for shop/web"}],
    "nodes": [
        {"name": "a1", "state": "Draining", "because": "budget shop/web", "sinceSeconds": 12.0},
        {"name": "a3", "state": "Waiting", "because": "its turn", "sinceSeconds": None},
    ],
    "budgets": [SCOPE],
}

Reader = Callable[[dict[str, Any]], WorkDetails]


@pytest.mark.parametrize(
    "read, told, within, waits, budgets",
    [
        pytest.param(
            *(details_of_drain, PLAN, (5.0, 9.0)),
            [("pod shop/web", "budget web allows 0", None), ("pod shop/db", "goes", None)],
            ["shop/web: 2 of 3 healthy, 2 needed, 0 may go now"],
            id="drain",
        ),
        pytest.param(
            *(details_of_roll_out, ROLL_OUT, None),
            [("node a1", "agent-x: not Ready", None)],
            ["maxUnavailable 1, maxSurge 0: 1 of 6 nodes use it"],
            id="roll-out",
        ),
        pytest.param(
            *(details_of_roll_out, {**ROLL_OUT, "budgetUsedBy": [], "budget": None}, None),
            [("a place in the budget", "", None)],
            [],
            id="roll-out-without-a-budget",
        ),
        pytest.param(
            *(details_of_upgrade, STATUS, (60, 90)),
            [
                ("gate window", "no window is open", None),
                ("a2", "room: no place for shop/web", None),
                ("node a1 (Draining)", "budget shop/web", 12.0),
            ],
            ["cluster: 5 of 6 nodes available, 4 needed, 1 more may go"],
            id="upgrade",
        ),
    ],
)
def test_details_are_read_off_the_documents(
    read: Reader, told: dict[str, Any], within: object, waits: object, budgets: object
) -> None:
    found = read(told)
    assert (found.within, list(found.waits), found.budgets) == (within, waits, budgets)
