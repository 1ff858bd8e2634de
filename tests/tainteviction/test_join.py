"""Joining a running controller: the timers that it must have, and how sure that is."""

from typing import Any

import pytest

from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.controllers.tainteviction.evictions import Work
from kubectl_nodelife.engine.actions import Action, DeletePod, ScheduleEviction
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import ObjectMeta, Time
from kubectl_nodelife.kube.node import Node, NodeSpec, Taint
from kubectl_nodelife.kube.pod import Pod, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS
from tests import objects
from tests.objects import typed

NOW = 10_000


def taint(key: str, added: int | None) -> Taint:
    when = None if added is None else Time(added * SECOND_NS)
    return Taint(key=key, effect="NoExecute", time_added=when)


def pod(*tolerations: tuple[str, int | None], bound: int = 1, **more: Any) -> Pod:
    scheduled = objects.condition("PodScheduled", changed=bound * SECOND_NS)
    accepted = [objects.toleration(key, "", seconds) for key, seconds in tolerations]
    about = {"namespace": "d", "conditions": [scheduled], "tolerations": accepted}
    return typed(objects.pod(uid="", **about, **more))


def join(
    it: Pod, *taints: Taint, profile: str = "v1.36"
) -> tuple[list[Action], Work | None, Engine]:
    controller, cache = TaintEvictionController(make_settings(profile)), Cache()
    cache.fill([Node(metadata=ObjectMeta(name="n1"), spec=NodeSpec(taints=taints)), it], 0)
    engine = Engine([controller], cache, join=True)
    actions = list(engine.step(NOW * SECOND_NS, ()))
    return actions, next(iter(controller.pending("n1")), None), engine


def due(work: Work | None) -> int:
    """The end of the timer in seconds."""
    assert work is not None
    assert work.due_ns % SECOND_NS == 0
    return work.due_ns // SECOND_NS


def test_a_timer_runs_since_the_taint_was_added() -> None:
    actions, pending, engine = join(pod(("a", 300)), taint("a", 9_800))
    (schedule,) = actions
    assert isinstance(schedule, ScheduleEviction)
    assert schedule.due_ns == 10_100 * SECOND_NS
    assert "300 s" in schedule.because
    assert "1970-01-01T02:43:20Z" in schedule.because
    assert due(pending) == 10_100
    assert engine.next_due() == 10_100 * SECOND_NS
    fired = list(engine.step(10_100 * SECOND_NS, ()))
    assert isinstance(fired[-1], DeletePod)
    assert fired[-1].cause is schedule


def test_a_pod_that_was_bound_later_met_the_taint_then() -> None:
    assert due(join(pod(("a", 300), bound=9_900), taint("a", 9_800))[1]) == 10_200


def test_a_pod_that_does_not_say_when_it_was_bound_was_there_since_it_was_made() -> None:
    it = pod(("a", 300), created=9_950 * SECOND_NS)
    it = Pod(metadata=it.metadata, spec=it.spec, status=PodStatus(phase="Running"))
    assert due(join(it, taint("a", 9_800))[1]) == 10_250


@pytest.mark.parametrize("tolerations", [(), (("a", 100),), (("a", 0),)])
def test_what_must_be_deleted_by_now_is_deleted_at_once(
    tolerations: tuple[tuple[str, int | None], ...],
) -> None:
    actions, pending, _ = join(pod(*tolerations), taint("a", 9_800))
    assert isinstance(actions[0], ScheduleEviction)
    assert actions[0].due_ns == (9_900 if tolerations == (("a", 100),) else 9_800) * SECOND_NS
    assert isinstance(actions[-1], DeletePod)
    assert pending is None


@pytest.mark.parametrize(("profile", "key_stays"), [("v1.30", True), ("v1.36", False)])
def test_a_terminating_pod_whose_time_is_over_is_done_work(profile: str, key_stays: bool) -> None:
    it = pod(("a", 100), deleted=9_930 * SECOND_NS)
    actions, pending, engine = join(it, taint("a", 9_800), profile=profile)
    assert (actions, pending) == ([], None)
    more = NodeSpec(taints=(taint("a", 9_800), taint("a", 9_999)))
    node = Node(metadata=ObjectMeta(name="n1"), spec=more)
    anew = list(engine.step((NOW + 1) * SECOND_NS, [Put("Node", node)]))
    assert bool(anew) != key_stays


def test_a_pod_that_tolerates_for_ever_has_no_timer() -> None:
    assert join(pod(("a", None)), taint("a", 9_800))[:2] == ([], None)


def test_a_taint_without_a_date_counts_from_now() -> None:
    assert due(join(pod(("a", 300), bound=9_850), taint("a", None))[1]) == 10_300


def test_an_undated_taint_beside_a_dated_one_is_the_later_one() -> None:
    it = pod(("a", 300), ("b", 280), bound=9_000)
    assert due(join(it, taint("a", 9_900), taint("b", None))[1]) == 10_200


def test_a_date_in_the_future_is_taken_for_now() -> None:
    assert due(join(pod(("a", 300)), taint("a", NOW + 50))[1]) == NOW + 300


@pytest.mark.parametrize(
    ("tolerations", "taints", "profile", "due_s"),
    [
        # The timer of the first taint goes on, however short or long the second is tolerated.
        ([("a", 300), ("b", 250)], [("a", 9_800), ("b", 9_900)], "v1.36", 10_100),
        ([("a", 300), ("b", 900)], [("a", 9_800), ("b", 9_900)], "v1.36", 10_100),
        # The order in time counts, not that in the list.
        ([("a", 300), ("b", 250)], [("a", 9_900), ("b", 9_800)], "v1.36", 10_050),
        # Both came at once: the shorter one.
        ([("a", 300), ("b", 250)], [("a", 9_900), ("b", 9_900)], "v1.36", 10_150),
        # For ever, then limited.
        ([("a", None), ("b", 250)], [("a", 9_800), ("b", 9_900)], "v1.36", 10_150),
        # Limited, then for ever: the limited taint still counts.
        ([("a", 300), ("b", None)], [("a", 9_800), ("b", 9_900)], "v1.36", 10_100),
        ([("a", 300), ("b", None)], [("a", 9_800), ("b", 9_900)], "v1.16", 10_100),
    ],
)
def test_taints_are_played_through_in_the_order_in_which_they_came(
    tolerations: list[tuple[str, int | None]],
    taints: list[tuple[str, int]],
    profile: str,
    due_s: int,
) -> None:
    given = [taint(*t) for t in taints]
    assert due(join(pod(*tolerations), *given, profile=profile)[1]) == due_s


def test_a_second_taint_that_is_not_tolerated_was_the_end() -> None:
    actions, _, _ = join(pod(("a", 300)), taint("a", 9_800), taint("b", 9_950))
    assert isinstance(actions[0], ScheduleEviction)
    assert actions[0].due_ns == 9_950 * SECOND_NS
    assert isinstance(actions[-1], DeletePod)


def test_after_joining_the_logic_is_the_same() -> None:
    _, pending, engine = join(pod(("a", 300)), taint("a", 9_800))
    assert pending is not None
    node = Node(metadata=ObjectMeta(name="n1"))
    actions = list(engine.step((NOW + 1) * SECOND_NS, [Put("Node", node)]))
    assert [type(a).__name__ for a in actions] == ["CancelEviction", "RecordEvent"]
