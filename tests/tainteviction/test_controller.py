"""Taint eviction on the engine: causes and sentences, tries, gates, and views.

What upstream's own tests say is in the vectors (tests/conformance).
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    CancelEviction,
    DeletePod,
    RecordEvent,
    ScheduleEviction,
    SetPodCondition,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Change, Event, Gone, Outcome, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import PodCondition, PodStatus, Toleration
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from tests import objects
from tests.objects import put

LOST = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")
CUSTOM = Taint(key="maintenance", effect="NoExecute", value="now")


def node(*taints: Taint, name: str = "n1") -> Put:
    return put(objects.node(name, None, taints=taints, uid=""))


def tolerates(key: str, seconds: int | None, **words: str) -> Toleration:
    words = {"operator": "Exists", "effect": "NoExecute", **words}
    return Toleration(key=key, toleration_seconds=seconds, **words)


def pod(name: str, *tolerations: Toleration, on: str = "n1", **fields: Any) -> Put:
    return put(objects.pod(name, on, namespace="d", tolerations=tolerations, **fields))


class World:
    """The controller on an engine; deletions are only noted, or fail."""

    def __init__(
        self, profile: str = "v1.36", gates: str = "", events: Iterable[Event] = ()
    ) -> None:
        self.controller = TaintEvictionController(make_settings(profile, {"feature-gates": gates}))
        self.cache = Cache()
        self.engine = Engine([self.controller], self.cache)
        self.done: list[tuple[float, Action]] = []
        self.code: Callable[[DeletePod], int] = lambda delete: 200
        self.at(0, *events)

    def at(self, seconds: float, *events: Event) -> list[Action]:
        """Play everything due before, then these events; what was decided on the way."""
        now_ns = round(seconds * SECOND_NS)
        before = len(self.done)
        while (due_ns := self.engine.next_due()) is not None and due_ns < now_ns:
            self._step(due_ns, ())
        self._step(now_ns, events)
        return [action for _, action in self.done[before:]]

    def _step(self, now_ns: int, events: Iterable[Event]) -> None:
        failures: list[Event] = []
        for action in self.engine.step(now_ns, events):
            self.done.append((now_ns / SECOND_NS, action))
            if isinstance(action, DeletePod) and (code := self.code(action)) != 200:
                failures.append(Outcome(action, code))
        if failures:
            self._step(now_ns, failures)

    def deletes(self) -> list[tuple[float, str]]:
        return [(at, a.pod) for at, a in self.done if isinstance(a, DeletePod)]


def kinds(actions: Iterable[Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


def test_the_whole_chain_of_causes_with_its_numbers() -> None:
    world = World(events=[node(), pod("a", tolerates(LOST.key, 300))])
    tainted = AddTaints(controller="node-lifecycle", because="", node="n1", taints=(LOST,))
    (schedule,) = world.at(55, replace(node(LOST), cause=tainted))
    assert isinstance(schedule, ScheduleEviction)
    assert schedule.cause is tainted
    assert (schedule.due_ns, schedule.toleration_seconds) == (355 * SECOND_NS, 300)
    assert schedule.taints == (LOST,)
    for word in ("node.kubernetes.io/unreachable:NoExecute", "n1", "300 s", "1970-01-01T00:00:55Z"):
        assert word in schedule.because
    event, condition, delete = world.at(355)
    assert isinstance(event, RecordEvent)
    assert isinstance(condition, SetPodCondition)
    assert isinstance(delete, DeletePod)
    assert {a.cause for a in (event, condition, delete)} == {schedule}
    assert event.message == "Marking for deletion Pod d/a"
    assert condition.condition == PodCondition(
        type="DisruptionTarget",
        status="True",
        reason="DeletionByTaintManager",
        message="Taint manager: deleting due to NoExecute taint",
        last_transition_time=Time(355 * SECOND_NS),
    )
    assert (delete.pod_uid, delete.grace_period_seconds, delete.force) == ("uid-a", None, False)
    assert delete.taints == (LOST,)
    assert "300 s" in delete.because


def test_at_once_has_a_schedule_too_and_names_the_taint() -> None:
    world = World(events=[node(), pod("a", tolerates(LOST.key, 300))])
    actions = world.at(5, node(LOST, CUSTOM))
    assert kinds(actions) == ["ScheduleEviction", "RecordEvent", "SetPodCondition", "DeletePod"]
    schedule, delete = actions[0], actions[-1]
    assert isinstance(schedule, ScheduleEviction)
    assert isinstance(delete, DeletePod)
    assert (schedule.due_ns, schedule.toleration_seconds) == (5 * SECOND_NS, 0)
    assert delete.taints == (CUSTOM,)
    assert "does not tolerate maintenance=now:NoExecute on node n1" in delete.because


def test_a_pod_that_comes_later_has_the_taint_as_its_cause() -> None:
    tainted = AddTaints(controller="node-lifecycle", because="", node="n1", taints=(LOST,))
    world = World(events=[node()])
    world.at(1, replace(node(LOST), cause=tainted))
    (schedule,) = world.at(9, pod("late", tolerates(LOST.key, 10)))
    assert schedule.cause is tainted
    world.at(30)
    assert world.deletes() == [(19, "late")]


def test_recovery_cancels_with_an_event() -> None:
    world = World(events=[node(LOST), pod("a", tolerates(LOST.key, 60))])
    cancel, event = world.at(10, node())
    assert isinstance(cancel, CancelEviction)
    assert isinstance(event, RecordEvent)
    assert cancel.due_ns == 60 * SECOND_NS
    assert "no NoExecute taint" in cancel.because
    assert event.message == "Cancelling deletion of Pod d/a"
    assert event.cause is cancel
    world.at(100)
    assert world.deletes() == []


def test_a_node_that_goes_leaves_its_pods_timers_running() -> None:
    world = World(events=[node(LOST), pod("a", tolerates(LOST.key, 60))])
    assert world.at(10, Gone("Node", ("", "n1"))) == []
    assert world.controller.tainted_nodes == {}
    world.at(100)
    assert world.deletes() == [(60, "a")]


def test_a_change_of_status_is_let_pass_without_a_look() -> None:
    world = World(events=[node(LOST), pod("a", tolerates(LOST.key, 60))])
    old = world.cache.pods["d", "a"]
    new = replace(old, status=PodStatus(phase="Running", reason="x"))
    decoded_anew = pod("a", tolerates(LOST.key, 60)).obj
    for after in (new, decoded_anew):
        change = Change("Pod", old, after)
        assert world.controller.changed(change, world.cache, SECOND_NS) == ()
    change = Change("Node", node(LOST).obj, node(LOST).obj)
    assert world.controller.changed(change, world.cache, SECOND_NS) == ()


def test_an_exchange_of_taints_in_one_instant_is_one_change() -> None:
    ready = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
    tolerations = (tolerates(ready.key, 60), tolerates(LOST.key, 60))
    world = World(events=[node(), pod("a", *tolerations), pod("b")])
    actions = world.at(1, node(ready), node(ready, LOST), node(LOST))
    assert kinds(actions).count("ScheduleEviction") == 2
    assert kinds(actions).count("DeletePod") == 1
    assert "CancelEviction" not in kinds(actions)


def test_five_tries_ten_milliseconds_apart_with_one_event() -> None:
    world = World(events=[node(), pod("a")])
    world.code = lambda delete: 500
    world.at(1, node(CUSTOM))
    world.at(2)
    first = round(1 * SECOND_NS)
    assert [round(at * SECOND_NS) - first for at, _ in world.deletes()] == [
        n * 10 * MILLISECOND_NS for n in range(5)
    ]
    assert kinds(a for _, a in world.done).count("RecordEvent") == 1
    world.at(3, node(CUSTOM, LOST))
    assert world.deletes()[5] == (3, "a")


@pytest.mark.parametrize("profile", ["v1.16", "v1.36"])
def test_a_try_that_works_ends_the_tries(profile: str) -> None:
    world = World(profile, events=[node(), pod("a")])
    codes = iter([500, 429, 200])
    world.code = lambda delete: next(codes)
    world.at(1, node(CUSTOM))
    world.at(2)
    assert world.deletes() == [(1, "a"), (1.01, "a"), (1.02, "a")]


def test_a_pod_that_is_not_found_is_not_tried_again() -> None:
    world = World(events=[node(), pod("a")])
    world.code = lambda delete: 404
    world.at(1, node(CUSTOM))
    world.at(2)
    assert world.deletes() == [(1, "a")]


@pytest.mark.parametrize(
    "events",
    [
        [node()],
        [Gone("Node", ("", "n1"))],
        [Gone("Pod", ("d", "a"))],
        [Gone("Pod", ("d", "a")), pod("a", tolerates("", 300))],
        [pod("a", tolerates("", None))],
    ],
)
def test_no_try_after_the_reason_is_gone(events: list[Event]) -> None:
    world = World(events=[node(), pod("a")])
    world.code = lambda delete: 500
    world.at(1, node(CUSTOM))
    for event in events:
        world.at(1.005, event)
    world.at(2)
    assert world.deletes() == [(1, "a")]


def test_a_retry_names_the_pod_that_is_there_by_then() -> None:
    world = World(events=[node(), pod("a")])
    codes = iter([409, 200])
    world.code = lambda delete: next(codes)
    world.at(1, node(CUSTOM))
    again = pod("a").obj
    again = replace(again, metadata=replace(again.metadata, uid="uid-2"))
    world.at(1.005, Put("Pod", again))
    world.at(2)
    assert [a.pod_uid for _, a in world.done if isinstance(a, DeletePod)] == ["uid-a", "uid-2"]


def test_a_pod_that_has_the_condition_is_only_deleted() -> None:
    has = PodCondition(
        type="DisruptionTarget",
        status="True",
        reason="DeletionByTaintManager",
        message="Taint manager: deleting due to NoExecute taint",
    )
    other = PodCondition(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI")
    world = World(events=[node(), pod("a", conditions=(has,)), pod("b", conditions=(other,))])
    actions = world.at(1, node(CUSTOM))
    assert [a.pod for a in actions if isinstance(a, SetPodCondition)] == ["b"]
    assert [a.pod for a in actions if isinstance(a, DeletePod)] == ["a", "b"]


@pytest.mark.parametrize(
    ("profile", "gates", "marks"),
    [
        ("v1.16", "", False),
        ("v1.25", "", False),
        ("v1.25", "PodDisruptionConditions=true", True),
        ("v1.26", "", True),
        ("v1.30", "PodDisruptionConditions=false", False),
        ("v1.36", "", True),
    ],
)
def test_the_condition_came_with_its_gate(profile: str, gates: str, marks: bool) -> None:
    world = World(profile, gates, [node(), pod("a")])
    assert ("SetPodCondition" in kinds(world.at(1, node(CUSTOM)))) == marks
    assert world.deletes() == [(1, "a")]


@pytest.mark.parametrize("gate", [False, True])
def test_numbers_are_compared_only_with_the_gate(gate: bool) -> None:
    below = tolerates("sla", 10, operator="Lt", value="950")
    gates = f"TaintTolerationComparisonOperators={str(gate).lower()}"
    world = World("v1.36", gates, [node(), pod("a", below)])
    world.at(1, node(Taint(key="sla", effect="NoExecute", value="900")))
    world.at(60)
    assert world.deletes() == [(11 if gate else 1, "a")]


def test_the_first_toleration_that_matches_counts() -> None:
    world = World(
        events=[
            node(),
            pod("short-first", tolerates("", 10), tolerates(LOST.key, 300)),
            pod("for-ever-first", tolerates(LOST.key, None), tolerates("", 10)),
            pod("other-taint", tolerates(LOST.key, 300), tolerates("maintenance", 20)),
            pod("negative", tolerates("", -7)),
        ]
    )
    world.at(1, node(LOST))
    assert [w.key[1] for w in world.controller.pending("n1")] == ["short-first", "other-taint"]
    world.at(1000)
    assert world.deletes() == [(1, "negative"), (11, "short-first"), (301, "other-taint")]


@pytest.mark.parametrize("seconds", [(1 << 63) - 1, 9_223_372_037, 10**10])
def test_more_seconds_than_a_duration_holds_are_for_ever(seconds: int) -> None:
    world = World(events=[node(), pod("a", tolerates(LOST.key, seconds))])
    assert world.at(1, node(LOST)) == []
    assert world.controller.pending("n1") == []


def test_a_start_counts_every_period_anew() -> None:
    dated = replace(LOST, time_added=Time(-500 * SECOND_NS))
    world = World(events=[node(dated), pod("a", tolerates(LOST.key, 60)), pod("b")])
    world.at(100)
    assert world.deletes() == [(0, "b"), (60, "a")]


@pytest.mark.parametrize(("profile", "again"), [("v1.32", False), ("v1.33", True)])
def test_a_key_that_stays_blocks_the_pod(profile: str, again: bool) -> None:
    world = World(profile, events=[node(), pod("a", tolerates("", 10))])
    world.at(1, node(LOST))
    world.at(20, node(LOST, CUSTOM))
    world.at(100)
    assert world.deletes() == [(11, "a"), (30, "a")][: 2 if again else 1]


@pytest.mark.parametrize(("profile", "cancels"), [("v1.16", False), ("v1.17", True)])
def test_an_infinite_toleration_cancels_since_1_17(profile: str, cancels: bool) -> None:
    world = World(profile, events=[node(LOST), pod("a", tolerates(LOST.key, 10))])
    world.at(5, pod("a", tolerates(LOST.key, None)))
    world.at(100)
    assert world.deletes() == ([] if cancels else [(10, "a")])


def test_views_tell_what_waits() -> None:
    world = World(
        events=[
            node(LOST),
            pod("slow", tolerates(LOST.key, 60)),
            pod("quick", tolerates(LOST.key, 20)),
            pod("calm", tolerates(LOST.key, None)),
        ]
    )
    quick, slow = world.controller.pending("n1")
    assert (quick.key, slow.key) == (("d", "quick"), ("d", "slow"))
    assert (slow.due_ns, slow.schedule.toleration_seconds) == (60 * SECOND_NS, 60)
    assert world.controller.pending("n2") == []
    world.at(30)
    assert world.controller.pending("n1") == [slow]


def test_a_second_look_at_one_instant_keeps_the_timer() -> None:
    """As one a moment later: time passes upstream between any two looks at a pod."""
    longer = tolerates(CUSTOM.key, 48)
    tolerant = pod("p", tolerates(LOST.key, 21), longer)
    world = World(events=[node(LOST, CUSTOM), tolerant])
    world.at(0, node(CUSTOM))
    world.at(60)
    assert world.deletes() == [(21, "p")]


def test_a_toleration_of_no_time_deletes_once_at_one_instant() -> None:
    """An exchange of taints is two patches; upstream's first run is under way when the second is
    seen.
    """
    other = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
    tolerant = pod("p", tolerates(LOST.key, -5), tolerates(other.key, None))
    world = World(events=[node(other), tolerant])
    world.at(5, node(other, LOST))
    world.at(5, node(LOST))
    assert world.deletes() == [(5, "p")]
