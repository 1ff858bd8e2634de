"""The engine: nothing before all is synced, then events, outcomes and timers in their order."""

from collections.abc import Hashable, Iterable, Sequence

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, DeletePod, RecordEvent, Requeue
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import ANY_OWNER
from kubectl_nodelife.engine.engine import Engine, EngineHost, RequeueInThePast, drive
from kubectl_nodelife.engine.events import (
    NO_ANSWER,
    Change,
    ConditionsChanged,
    Event,
    Gone,
    Heartbeats,
    Outcome,
    Put,
    Synced,
)
from kubectl_nodelife.kube.meta import ObjectMeta, OwnerReference
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodSpec, PodStatus

Said = list[Action | Requeue]


class Scribe:
    """A controller that tells what it was told, and asks to be woken as it was given."""

    def __init__(
        self,
        name: str,
        watches: Iterable[str],
        wake: Iterable[Requeue] = (),
        reads_conditions_of: Iterable[str] = ("",),
    ) -> None:
        self.name = name
        self.watches = frozenset(watches)
        self.reads_conditions_of = frozenset(reads_conditions_of)
        self.reads_success = False
        self.wake = list(wake)
        self.seen: list[str] = []

    def _say(self, word: str) -> Said:
        self.seen.append(word)
        note = RecordEvent(controller=self.name, because="", kind="Node", name=word, reason="r")
        said: Said = [note, *self.wake]
        self.wake = []
        return said

    def start(self, cache: Cache, now_ns: int) -> Said:
        return self._say("start")

    def join(self, cache: Cache, now_ns: int) -> Said:
        return self._say("join")

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Said:
        obj = change.new or change.old
        assert obj is not None
        return self._say(f"{change.kind} {obj.name} {len(cache.nodes)}")

    def rests(self, key: Hashable) -> bool:
        return False

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Said:
        return self._say(f"woken {key} {now_ns}")

    def outcome(self, outcome: Outcome, cache: Cache, now_ns: int) -> Said:
        return self._say(f"outcome {outcome.code}")


def node(name: str) -> Put:
    return Put("Node", Node(metadata=ObjectMeta(name=name)))


def said(engine: Engine, now_ns: int, events: Iterable[Event] = ()) -> list[str]:
    return [f"{a.controller} {a.target[1][1]}" for a in engine.step(now_ns, events)]


def test_nothing_is_decided_before_every_kind_is_synced() -> None:
    engine = Engine([Scribe("c", ["Node"])], Cache(), kinds=["Node", "Pod"])
    assert said(engine, 1, [node("a"), Synced("Node")]) == []
    assert said(engine, 2, [node("b")]) == []
    assert not engine.started
    assert said(engine, 3, [Synced("Pod")]) == ["c start"]
    assert engine.started
    assert said(engine, 4, [node("c")]) == ["c Node c 3"]


def test_joining_begins_in_its_own_way() -> None:
    assert said(Engine([Scribe("c", [])], Cache(), join=True), 1) == ["c join"]


def test_controllers_see_what_they_watch_in_their_order() -> None:
    engine = Engine([Scribe("one", ["Node"]), Scribe("two", ["Node", "Pod"])], Cache())
    said(engine, 1)
    pod = Put("Pod", Pod(metadata=ObjectMeta(name="p")))
    assert said(engine, 2, [pod, node("a")]) == ["two Pod p 1", "one Node a 1", "two Node a 1"]
    assert said(engine, 3, [Gone("Node", ("", "a")), Gone("Node", ("", "never"))]) == [
        "one Node a 0",
        "two Node a 0",
    ]


READY = PodStatus(conditions=(PodCondition("Ready", "True"),))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        pytest.param({"status": READY}, False, id="a-condition"),
        pytest.param({"status": PodStatus(phase="Failed")}, True, id="the-phase"),
        pytest.param({"spec": PodSpec(node_name="a")}, True, id="the-node"),
        pytest.param({"metadata": ObjectMeta(name="p", labels={})}, True, id="its-metadata"),
    ],
)
def test_who_does_not_read_conditions_is_not_told_of_them(
    changed: dict[str, object], told: bool
) -> None:
    blind = Scribe("blind", ["Pod"], reads_conditions_of=())
    engine = Engine([blind, Scribe("other", ["Node"]), Scribe("reads", ["Pod"])], Cache())
    pod = Pod(metadata=ObjectMeta(name="p"))
    said(engine, 1, [Put("Pod", pod)])
    heard = said(engine, 2, [Put("Pod", replace(pod, **changed))])
    assert heard == ["blind Pod p 0"] * told + ["reads Pod p 0"]
    assert said(engine, 3, [Gone("Pod", pod.key)]) == ["blind Pod p 0", "reads Pod p 0"]


@pytest.mark.parametrize("reads_all", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_conditions_that_change_together_are_told_to_those_who_read_of_such_pods(
    together: bool, reads_all: bool
) -> None:
    readers = {
        "sets": ["ReplicaSet"],
        "orphans": [""],
        "both": ["", "ReplicaSet"],
        "none": [],
        **({"all": [ANY_OWNER]} if reads_all else {}),
    }
    controllers = [Scribe(name, ["Pod"], (), of) for name, of in readers.items()]
    engine = Engine(controllers, Cache())
    owner = OwnerReference("ReplicaSet", "r", "u", controller=True)
    pods = [
        Pod(metadata=ObjectMeta(name="of-a-set", owner_references=(owner,))),
        Pod(metadata=ObjectMeta(name="orphan")),
        Pod(metadata=ObjectMeta(name="of-a-job", owner_references=(replace(owner, kind="Job"),))),
    ]
    said(engine, 1, [Put("Pod", pod) for pod in pods])
    changed = ConditionsChanged([(pod, replace(pod, status=READY), None) for pod in pods])
    events: list[Event] = [changed] if together else list(changed.puts())
    heard = said(engine, 2, events)
    assert [word for word in heard if not word.startswith("all ")] == [
        "sets Pod of-a-set 0",
        "both Pod of-a-set 0",
        "orphans Pod orphan 0",
        "both Pod orphan 0",
    ]
    every = ["all Pod of-a-set 0", "all Pod orphan 0", "all Pod of-a-job 0"]
    assert [word for word in heard if word.startswith("all ")] == every * reads_all
    assert all(pod.ready() for pod in engine.cache.pods.values())


def test_events_of_one_instant_are_in_the_cache_before_anybody_decides() -> None:
    engine = Engine([Scribe("c", ["Node"])], Cache())
    said(engine, 1)
    assert said(engine, 2, [node("a"), node("b")]) == ["c Node a 2", "c Node b 2"]


def test_a_heartbeat_reaches_those_who_watch_heartbeats() -> None:
    engine = Engine([Scribe("n", ["Node"]), Scribe("h", ["Heartbeat"])], Cache())
    said(engine, 1, [node("a")])
    assert said(engine, 2, [Heartbeats("a", 0, 10)]) == ["h Heartbeat a 1"]


def test_a_wake_up_comes_after_the_events_of_its_instant() -> None:
    wake = [Requeue("c", "later", 9), Requeue("c", "sooner", 7)]
    engine = Engine([Scribe("c", ["Node"], wake)], Cache())
    said(engine, 1)
    assert engine.next_due() == 7
    assert said(engine, 9, [node("a")]) == ["c Node a 1", "c woken sooner 9", "c woken later 9"]
    assert engine.next_due() is None


def test_a_later_requeue_of_the_same_key_replaces_the_first() -> None:
    engine = Engine([Scribe("c", [], [Requeue("c", "k", 5), Requeue("c", "k", 8)])], Cache())
    said(engine, 1)
    assert said(engine, 6) == []
    assert said(engine, 8) == ["c woken k 8"]


def test_an_outcome_goes_to_whose_action_it_was() -> None:
    engine = Engine([Scribe("one", []), Scribe("two", [])], Cache())
    said(engine, 1)
    action = DeletePod(controller="two", because="", namespace="d", pod="p")
    stranger = DeletePod(controller="three", because="", namespace="d", pod="p")
    events = [Outcome(action, 409), Outcome(stranger, 500)]
    assert said(engine, 2, events) == ["two outcome 409"]


def test_success_is_told_to_a_controller_that_asks_for_it() -> None:
    asks = Scribe("asks", [])
    asks.reads_success = True
    engine = Engine([asks, Scribe("other", [])], Cache())
    said(engine, 1)
    done = [DeletePod(controller=c, because="", namespace="d", pod="p") for c in ("asks", "other")]
    assert said(engine, 2, [Outcome(action, 200) for action in done]) == ["asks outcome 200"]


def test_a_requeue_in_the_past_is_refused() -> None:
    engine = Engine([Scribe("c", [], [Requeue("c", "k", 4)])], Cache())
    with pytest.raises(RequeueInThePast, match="at 5"):
        said(engine, 5)


def test_who_hears_of_a_change_may_be_woken_in_the_same_tick_once_all_have_heard() -> None:
    """What the others write about it is seen in the next tick only."""
    first = Scribe("first", ["Node"])
    engine = Engine([first, Scribe("second", ["Node"])], Cache())
    said(engine, 1)
    first.wake = [Requeue("first", "k", 5)]
    told = ["first Node a 2", "second Node a 2", "first Node b 2", "second Node b 2"]
    assert said(engine, 5, [node("a"), node("b")]) == [*told, "first woken k 5"]


def test_who_is_woken_is_not_woken_again_at_that_instant() -> None:
    scribe = Scribe("c", ["Node"])
    engine = Engine([scribe], Cache())
    said(engine, 1)
    scribe.wake = [Requeue("c", "k", 4)]
    said(engine, 3, [node("a")])
    scribe.wake = [Requeue("c", "k", 4)]
    with pytest.raises(RequeueInThePast, match="at 4"):
        said(engine, 4)


class Tape:
    """A source that plays its ticks and what comes due, until an end; and a journal."""

    def __init__(self, ticks: dict[int, list[Event]], end_ns: int) -> None:
        self.ticks = ticks
        self.end_ns = end_ns
        self.now_ns = 0
        self.written: list[str] = []
        self.begun: list[int] = []

    def next(self, due_ns: int | None) -> tuple[int, list[Event]] | None:
        instants = [t for t in self.ticks if t > self.now_ns]
        instants += [due_ns] if due_ns is not None else []
        if not instants or min(instants) > self.end_ns:
            return None
        self.now_ns = min(instants)
        return self.now_ns, self.ticks.get(self.now_ns, [])

    def start_all(self, actions: Sequence[Action], now_ns: int) -> None:
        self.written += [f"{now_ns} {action.target[1][1]}" for action in actions]
        self.begun += [now_ns] * len(actions)


def test_the_loop_goes_from_instant_to_instant_until_the_source_ends() -> None:
    engine = Engine([Scribe("c", ["Node"], [Requeue("c", "k", 30)])], Cache(), kinds=["Node"])
    tape = Tape({10: [Synced("Node")], 20: [node("a")], 99: [node("b")]}, end_ns=50)
    drive(tape.next, EngineHost(engine, tape))
    assert tape.written == ["10 start", "20 Node a 1", "30 woken k 30"]
    assert tape.begun == [10, 20, 30]


def test_what_was_done_is_no_news_to_the_controller_and_an_unknown_end_is() -> None:
    engine = Engine([Scribe("one", [])], Cache())
    list(engine.step(1, []))
    action = DeletePod(controller="one", because="", namespace="d", pod="p")
    assert said(engine, 2, [Outcome(action, 200)]) == []
    assert said(engine, 3, [Outcome(action, NO_ANSWER)]) == ["one outcome 0"]
