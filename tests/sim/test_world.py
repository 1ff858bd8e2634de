"""Carrying out actions: what the API server refuses, faults, and the order of one instant."""

import gc
from collections.abc import Iterable

import pytest

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.events import Event, Gone, Outcome, Put, one_by_one
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.failing_writes import InjectedFault
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.sim.scenario import assemble
from kubectl_nodelife.sim.timeline import KUBELET, SCRIPT, Timeline
from kubectl_nodelife.sim.world import Faults, StandstillError, World
from tests.planned import not_ready, on_pod, tainted
from tests.sim.documents import node, owner, pod, scenario, stop
from tests.simulating import play

TAINT = Taint(key="k", effect="NoExecute")


def world(faults: Faults | None = None, end_ns: int = 100 * SECOND_NS) -> World:
    setting = assemble(scenario(time="1970-01-01T00:00:00Z", objects=[node("a"), pod("p", "a")]))
    timeline = Timeline(0)
    api = Api(timeline, 0, setting.cluster.copy())
    made = World(api, KubeletTerms(), end_ns=end_ns, faults=faults)
    made.begin(())
    made.next(None)
    return made


def add_taint(**fields: str) -> actions.AddTaints:
    return tainted("a", TAINT, **{"node_uid": "", **fields})


def next_events(made: World) -> list[Event]:
    tick = made.next(None)
    return list(tick[1]) if tick is not None else []


def outcomes(events: Iterable[Event]) -> list[int]:
    return [e.code for e in events if isinstance(e, Outcome)]


def taints(made: World) -> tuple[Taint, ...]:
    return made.api.store.nodes["a"].spec.taints


def test_a_write_is_seen_in_the_next_tick_of_the_same_instant() -> None:
    made = world()
    action = add_taint()
    made.start(action, 0)
    tick = made.next(None)
    assert tick is not None
    now_ns, events = tick
    (put,) = events
    assert (now_ns, type(put)) == (0, Put)
    assert isinstance(put, Put) and isinstance(put.obj, Node)
    assert put.cause is action
    assert put.obj.spec.taints == (TAINT,)


EVENT = actions.RecordEvent(controller="c", because="", kind="Node", name="a", reason="R")
QUEUED = actions.QueueNode(controller="c", because="", node="a", zone="")
NOTHING = actions.RemoveTaints(controller="c", because="", node="a", taints=(TAINT,))


@pytest.mark.parametrize("action", [EVENT, QUEUED, NOTHING], ids=["event", "decision", "no-change"])
def test_what_changes_nothing_is_no_news(action: actions.Action) -> None:
    made = world()
    made.start(action, 0)
    assert not made.api.pending


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(on_pod(actions.DeletePod, "gone", pod_uid=""), id="no-pod"),
        pytest.param(on_pod(actions.DeletePod, pod_uid="old"), id="another-pod-of-that-name"),
        pytest.param(add_taint(node_uid="old"), id="another-node-of-that-name"),
    ],
)
def test_what_is_not_there_is_refused(action: actions.Action) -> None:
    made = world()
    made.start(action, 0)
    assert outcomes(next_events(made)) == [404]
    assert [(f.action, f.code) for f in made.failures] == [(action, 404)]


def mark(name: str, uid: str) -> actions.MarkPodNotReady:
    return not_ready(name, pod_uid=uid)


def test_what_is_decided_together_comes_to_the_same_as_one_by_one() -> None:
    uid = world().api.store.pods[("default", "p")].uid
    decided = [mark("p", uid), EVENT, mark("p", "old"), mark("gone", "x"), add_taint()]
    together, singly = world(), world()
    together.start_all(decided, 0)
    for action in decided:
        singly.start(action, 0)
    assert together.api.store.pods == singly.api.store.pods
    assert together.api.store.pods_on("a") == [together.api.store.pods[("default", "p")]]
    assert [(f.action, f.code) for f in together.failures] == [(decided[2], 404), (decided[3], 404)]
    of_pods = [e for e in one_by_one(next_events(together)) if not isinstance(e, Outcome)]
    assert of_pods == [e for e in next_events(singly) if not isinstance(e, Outcome)]


def test_a_fault_leaves_things_as_they_are() -> None:
    made = world(lambda action, now: InjectedFault(500, "boom"))
    made.start(add_taint(), 0)
    assert outcomes(next_events(made)) == [500]
    assert taints(made) == ()


def test_a_lost_answer_to_a_call_that_was_carried_out() -> None:
    made = world(lambda action, now: InjectedFault(500, "time out", applied=True))
    made.start(add_taint(), 0)
    events = next_events(made)
    assert outcomes(events) == [500]
    assert any(isinstance(e, Put) for e in events)
    assert taints(made) == (TAINT,)


def test_a_late_answer() -> None:
    made = world(lambda action, now: InjectedFault(429, delay_ns=3 * SECOND_NS))
    made.start(add_taint(), 0)
    assert not made.api.pending
    tick = made.next(None)
    assert tick is not None and tick[0] == 3 * SECOND_NS
    assert outcomes(tick[1]) == [429]


def test_a_forced_delete_is_gone_at_once() -> None:
    made = world()
    made.start(on_pod(actions.DeletePod, pod_uid="", grace_period_seconds=0), 0)
    assert [type(e) for e in next_events(made)] == [Gone]
    assert not made.api.store.pods


def test_the_script_comes_before_kubelets_and_both_before_controllers() -> None:
    made = world()
    order: list[str] = []
    made.agenda.add(SECOND_NS, KUBELET, lambda at: order.append("kubelet"))
    made.agenda.add(SECOND_NS, SCRIPT, lambda at: order.append("script"))
    tick = made.next(SECOND_NS)
    assert tick is not None and tick[0] == SECOND_NS
    assert order == ["script", "kubelet"]


def test_the_end_is_the_last_instant() -> None:
    made = world(end_ns=5 * SECOND_NS)
    assert made.next(5 * SECOND_NS) is not None
    assert made.next(5 * SECOND_NS + 1) is None
    assert made.next(None) is None


def test_going_in_circles_is_told() -> None:
    made = world()

    def again(at_ns: int) -> None:
        made.agenda.add(at_ns + 1, SCRIPT, again)

    again(0)
    with pytest.raises(StandstillError, match="does not get past 1970-01-01T00:00:00Z"):
        while made.next(None):
            pass


def test_a_run_leaves_nothing_that_only_the_garbage_collector_would_find() -> None:
    objects = [
        node("a"),
        node("b"),
        owner("ReplicaSet", "r"),
        pod("p", "a", owner=("ReplicaSet", "r")),
    ]
    played = scenario(objects=objects, duration="10m", events=[stop("20s", "a")])
    play(assemble(played))  # what is made once and kept
    gc.collect()
    gc.disable()
    try:
        entries = len(play(assemble(played)).timeline.entries)
        assert (gc.collect(), entries > 10) == (0, True)
    finally:
        gc.enable()
