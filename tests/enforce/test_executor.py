"""The executor against a writer that only notes: order, gate, intents, and what hangs on what."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import (
    Action,
    CancelEviction,
    DeletePod,
    RecordEvent,
    RemoveTaints,
    SetNodeConditions,
    SetPodCondition,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Get, Result, Write
from kubectl_nodelife.engine.events import NOT_SENT, Event, Outcome, Put
from kubectl_nodelife.engine.guard import UPSTREAM, Guard, WriteConditions
from kubectl_nodelife.engine.quarantine import Bug
from kubectl_nodelife.engine.settlement import sign_of_life_since
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.live import action_sender
from kubectl_nodelife.live.executor import LiveExecutor
from kubectl_nodelife.live.executor_port import ControllerWriter, ExecutorPort
from tests import objects
from tests.objects import UNREACHABLE, lease, node, put, typed
from tests.planned import lost, not_ready, on_node, on_pod, tainted

POSTED = "the kubelet posted its status"
NOW = 1_000 * SECOND_NS
NODE: Node = typed(node("n", None, version="5"))


def pod(name: str) -> Pod:
    return typed(objects.pod(name, "n", version="3"))


LOST = lost("n")
MARK = not_ready()
TARGET = on_pod(SetPodCondition, condition=PodCondition("DisruptionTarget", "True"))
TAINT = tainted("n", Taint(UNREACHABLE, "NoExecute"))
NOT_READY = RecordEvent(
    controller="node-lifecycle",
    because="b",
    kind="Pod",
    namespace="default",
    name="p",
    object_uid="uid-p",
    reason="NodeNotReady",
)
DELETE = on_pod(DeletePod)
OTHER = replace(DELETE, pod="q", pod_uid="uid-q")


class Lab:
    """Everything that an executor stands on; `log` is what happened, in order."""

    def __init__(
        self, answer: Callable[[Any], Answer] | None = None, *, has_evidence: bool = True
    ) -> None:
        self.log: list[str] = []
        self.events: list[Event] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.view = WriteConditions(kill_switch_absent_ns=NOW)
        self.evidence = Result(200)
        self.on_intent: Callable[[], None] = lambda: None
        self.on_held: Callable[[], None] = lambda: None
        self.on_credentials: Callable[[], None] = lambda: None
        self.on_evidence: Callable[[], None] = lambda: None
        self.ends: list[tuple[str, int, str]] = []
        self.sendings: list[str] = []
        self.now_ns = NOW
        self.set_by_ns = 0  # by how much the API server's clock was set since
        self.guard = Guard(UPSTREAM)
        self.most = self.running = 0
        self._answer = answer or (lambda call: Answer(200, self.objects.get(call.key)))
        self.cache = Cache()
        self.objects: dict[Any, KubeObject] = {}
        for obj in (NODE, pod("p"), pod("q")):
            self.cache.apply(Put(type(obj).__name__, obj), NOW)
            self.objects[obj.key] = obj
        port = ExecutorPort(
            self.cache,
            self.guard,
            lambda: self.view,
            self,
            self,
            lambda: self.now_ns + self.set_by_ns,
            lambda: self.now_ns,
            5 * SECOND_NS,
            self if has_evidence else None,
            self.events.append,
        )
        names = ("node-lifecycle", "taint-eviction")
        one = ControllerWriter(cast(Any, self), TokenBucket(1000, 1000), cast(Any, self))
        self.executor = LiveExecutor(port, dict.fromkeys(names, one))

    def play(self, *actions: Action, then: Callable[[], None] = lambda: None) -> None:
        async def run() -> None:
            for action in actions:
                self.executor.start(action, NOW)
            then()
            async with asyncio.timeout(5):
                while self.executor.busy:
                    await asyncio.sleep(0)

        asyncio.run(run())

    @property
    def outcomes(self) -> list[tuple[str, int]]:
        return [(type(e.action).__name__, e.code) for e in self.events if isinstance(e, Outcome)]

    # Writer, journal, recorder, evidence, events

    async def call(
        self, call: Get | Write, may_send: Callable[[], bool] = lambda: True, **_: Any
    ) -> Answer:
        self.on_credentials()
        if not may_send():
            return Answer(NOT_SENT)
        self.running += 1
        self.most = max(self.most, self.running)
        self.log.append(f"{type(call).__name__} {call.key[1]}")
        await asyncio.sleep(0.01)
        self.running -= 1
        return self._answer(call)

    async def begin(self, action: Action, version: str, digest: str) -> int:
        assert digest
        self.log.append(f"intent {action.target[1][1]}")
        self.on_intent()
        return 1

    def note(
        self, number: int, state: str, code: int = 0, message: str = "", version: str = ""
    ) -> None:
        self.log.append(state)

    async def check_loss(self, node: str) -> Result:
        self.on_evidence()
        return self.evidence

    def reported_since(self, action: SetNodeConditions, node: Node | None, decided_ns: int) -> str:
        renewal = self.cache.heartbeats[action.node].renewal(NOW) if self.cache.heartbeats else None
        return sign_of_life_since(action, node, renewal[1] if renewal else None, decided_ns)

    def planned(self, *_: Any) -> None: ...

    def held(self, *_: Any) -> None:
        self.on_held()

    def sending(self, action: Action) -> None:
        self.sendings.append(type(action).__name__)

    def answered(self, *_: Any) -> None: ...
    def ended(self, action: Action, result: Result, _: int) -> None:
        if not result.ok or not result.changed:
            self.ends.append((type(action).__name__, result.code, result.message))

    def put(self, event: Any) -> None:
        self.log.append(f"event {event.name}")


def test_the_intent_comes_before_the_first_byte() -> None:
    lab = Lab()
    lab.play(DELETE)
    assert lab.log == ["intent p", "sent", "Delete p", "applied"]
    assert lab.outcomes == [("DeletePod", 200)]


def test_marks_come_to_the_disk_while_their_node_is_written() -> None:
    lab = Lab()
    lab.play(LOST, MARK, NOT_READY, replace(MARK, pod="q", pod_uid="uid-q"))
    begun = ["intent n", "sent", "Patch n", "intent p", "intent q", "applied"]
    assert lab.log[:6] == begun
    assert lab.log[6:9] == ["sent", "Patch p", "applied"]
    assert lab.log[-3:] == ["sent", "Patch q", "applied"] and lab.log.count("intent q") == 1


def test_an_intent_that_came_to_nothing_says_so() -> None:
    """Its node could not be called lost after all."""
    lab = Lab(lambda call: Answer(409, reason="Conflict"))
    lab.play(LOST, MARK)
    assert lab.log[:4] == ["intent n", "sent", "Patch n", "intent p"]
    assert "Patch p" not in lab.log and lab.log.count("failed") == 2


def test_a_gate_that_closes_meanwhile_sends_nothing_until_it_opens() -> None:
    lab = Lab()

    def lose() -> None:
        lab.view, lab.on_intent = replace(lab.view, leads=False), lambda: None

    def lead() -> None:
        lab.log.append("held")
        lab.view = replace(lab.view, leads=True)

    lab.on_intent, lab.on_held = lose, lead
    lab.play(DELETE)
    assert lab.log == ["intent p", "failed", "held", "intent p", "sent", "Delete p", "applied"]


def test_a_gate_that_closes_while_credentials_are_fetched_sends_nothing_until_it_opens() -> None:
    """And what was not sent is none of the writes that a cap allows."""
    lab = Lab()
    lab.guard.caps = replace(UPSTREAM, total=1)

    def lose() -> None:
        lab.view, lab.on_credentials = replace(lab.view, leads=False), lambda: None

    def lead() -> None:
        lab.log.append("held")
        lab.view = replace(lab.view, leads=True)

    lab.on_credentials, lab.on_held = lose, lead
    lab.play(DELETE)
    assert lab.log == ["intent p", "failed", "held", "intent p", "sent", "Delete p", "applied"]
    assert lab.guard.sent == 1 and lab.sendings == ["DeletePod"]


def test_what_waits_for_credentials_counts_towards_a_cap_once_it_is_sent() -> None:
    """Two are let through while one may be written: the second finds the cap used up."""
    lab = Lab()
    lab.guard.caps = replace(UPSTREAM, total=1)
    lab.play(DELETE, OTHER)
    assert "Delete p" in lab.log and "Delete q" not in lab.log
    assert lab.guard.sent == 1 and lab.outcomes == [("DeletePod", 425), ("DeletePod", 200)]


def test_without_a_journal_nothing_is_sent() -> None:
    lab = Lab()

    def full() -> None:
        if lab.log.count("intent p") < 3:
            raise OSError("disk full")

    lab.on_intent = full
    lab.play(DELETE)
    assert lab.log == ["intent p"] * 3 + ["sent", "Delete p", "applied"]


def test_what_others_used_up_first_waits_its_turn() -> None:
    lab = Lab()
    lab.guard.caps = replace(UPSTREAM, deletions_a_minute=1)
    due = replace(DELETE, taints=(Taint("k", "NoExecute"),))

    def next_minute() -> None:
        lab.log.append("held")
        lab.now_ns += 60 * SECOND_NS
        lab.view = replace(lab.view, kill_switch_absent_ns=lab.now_ns)

    lab.on_held = next_minute
    lab.cache.apply(Put("Node", replace(NODE, spec=NodeSpec(taints=due.taints))), NOW)
    lab.play(due, replace(due, pod="q", pod_uid="uid-q"))
    assert lab.log.count("held") == 1 and lab.log[-2:] == ["Delete q", "applied"]
    assert lab.log.count("intent q") == 1, "a cap is looked at before the disk is troubled"
    assert [code for _, code in lab.outcomes] == [200, 200]


def test_without_a_check_of_the_last_sign_of_life_no_node_is_called_lost() -> None:
    lab = Lab(has_evidence=False)
    lab.play(LOST)
    assert "Patch n" not in lab.log
    [(what, code, because)] = lab.ends
    assert (what, code) == ("SetNodeConditions", NOT_SENT)
    assert because == "nothing is known of the last sign of life of the kubelet"


def test_a_node_that_could_not_be_called_lost_keeps_its_pods() -> None:
    newer = replace(NODE, metadata=replace(NODE.metadata, resource_version="6"))

    def conflict(call: Any) -> Answer:
        return Answer(200, newer) if isinstance(call, Get) else Answer(409)

    lab = Lab(conflict)
    lab.play(LOST, MARK)
    assert lab.outcomes == [("SetNodeConditions", 409)] and "Patch p" not in lab.log
    assert lab.events[0] == Put("Node", newer), "who decides anew sees what was read"


def ready(status: str) -> Put:
    conditions = (NodeCondition("Ready", status),)
    return Put("Node", replace(NODE, status=NodeStatus(conditions=conditions)))


@pytest.mark.parametrize(
    ("status", "late_s", "sent"),
    [
        pytest.param("True", 6, False, id="late-and-the-node-is-back"),
        pytest.param("Unknown", 6, True, id="late-and-still-lost"),
        pytest.param("True", 4, True, id="within-one-monitor-period"),
    ],
)
@pytest.mark.parametrize("action", [MARK, TAINT], ids=["mark", "taint"])
def test_what_waited_for_its_turn_is_judged_anew(
    action: Action, status: str, late_s: int, sent: bool
) -> None:
    """Behind hundreds of nodes a write may wait for longer than a node takes to come back."""
    lab = Lab()
    lab.cache.apply(ready(status), NOW)

    def wait() -> None:
        lab.now_ns = NOW + late_s * SECOND_NS
        lab.view = replace(lab.view, kill_switch_absent_ns=lab.now_ns)

    lab.play(action, then=wait)
    assert ("sent" in lab.log) is sent
    assert lab.outcomes == [(type(action).__name__, 200 if sent else NOT_SENT)], "looked at again"


def test_a_mark_that_waited_stands_though_the_watch_is_behind_our_own_write() -> None:
    """The watch still shows the node as Ready, which our own write has just called lost."""
    shown, called_lost, back = (
        replace(ready(status).obj, metadata=replace(NODE.metadata, resource_version=version))
        for status, version in (("True", "5"), ("Unknown", "6"), ("True", "7"))
    )
    for last_shown, sent in ((shown, True), (called_lost, True), (back, False)):
        lab = Lab(
            lambda call: Answer(200, called_lost if call.kind == "Node" else pod("p")),
        )
        lab.cache.apply(Put("Node", shown), NOW)

        async def late(number: int, lab: Lab = lab, node: KubeObject = last_shown) -> None:
            lab.cache.apply(Put("Node", node), NOW)
            lab.now_ns = NOW + 6 * SECOND_NS
            lab.view = replace(lab.view, kill_switch_absent_ns=lab.now_ns)

        lab.on_intent = lambda late=late: asyncio.get_running_loop().create_task(late(0))
        lab.play(LOST, MARK, TAINT)
        assert ("Patch p" in lab.log) is sent, last_shown
        assert (lab.log.count("Patch n") == 2) is sent, "nor is its taint left out"


def test_what_the_watch_has_never_shown_is_not_taken_for_gone() -> None:
    lab = Lab()
    lab.now_ns = NOW + 6 * SECOND_NS
    lab.view = replace(lab.view, kill_switch_absent_ns=lab.now_ns)
    made_just_now = replace(DELETE, pod="r", pod_uid="uid-r")
    lab.play(made_just_now)
    assert "Delete r" in lab.log


@pytest.mark.parametrize(("code", "told"), [(404, False), (409, True), (503, True), (200, True)])
def test_a_mark_is_told_of_unless_its_pod_is_gone(code: int, told: bool) -> None:
    gone = Answer(404, reason="NotFound")
    lab = Lab(lambda call: gone if code == 404 else Answer(code, pod("p")))
    lab.play(MARK, NOT_READY)
    assert ("event p" in lab.log) is told


@pytest.mark.parametrize("later_ns", [0, 100 * MILLISECOND_NS])
def test_no_taint_for_a_node_that_could_not_be_called_lost(later_ns: int) -> None:
    """The loop of 100 ms has taken a token meanwhile: it is told, and puts the node back."""
    lab = Lab(lambda call: Answer(409) if not isinstance(call, Get) else Answer(200, NODE))
    lab.now_ns = NOW + later_ns

    def taint() -> None:
        lab.executor.start(TAINT, NOW + later_ns)

    lab.play(LOST, MARK, then=taint)
    assert lab.outcomes == [("SetNodeConditions", 409), ("AddTaints", 409)]
    assert lab.log.count("Patch n") == 1 and "Patch p" not in lab.log


def test_of_a_taint_that_fails_only_the_exchange_hangs() -> None:
    """The loop of 100 ms may decide at the instant of a pass: the pass marks pods all the same."""
    off = on_node(RemoveTaints, "n", taints=TAINT.taints)
    lab = Lab(lambda call: Answer(500, message="no") if call.kind == "Node" else Answer(200))
    lab.play(TAINT, off, MARK, NOT_READY)
    assert "Patch p" in lab.log and "event p" in lab.log
    assert lab.outcomes == [("AddTaints", 500), ("MarkPodNotReady", 200)]


def test_a_newer_renewal_withdraws_the_decision() -> None:
    lab = Lab()
    lab.evidence = Result(NOT_SENT, "its Lease was renewed 1s ago")
    lab.play(LOST, MARK)
    assert lab.log == [] and lab.outcomes == [("SetNodeConditions", NOT_SENT)]
    assert lab.ends[0] == ("SetNodeConditions", NOT_SENT, "its Lease was renewed 1s ago")


def of(version: str, status: str, posted_s: int = 0) -> Node:
    """The node as it is in that version."""
    ready = NodeCondition("Ready", status, last_heartbeat_time=Time(NOW + posted_s * SECOND_NS))
    meta = replace(NODE.metadata, resource_version=version)
    return replace(NODE, metadata=meta, status=NodeStatus(conditions=(ready,)))


def renewal(at_s: int) -> Put:
    return put(lease("n", NOW + at_s * SECOND_NS))


HEARD: dict[str, Put] = {"renewed": renewal(1), "posted": Put("Node", of("6", "True", 1))}


@pytest.mark.parametrize("news", HEARD.values(), ids=HEARD.keys())
@pytest.mark.parametrize("when", ["while-the-lease-is-read", "while-the-intent-goes-to-the-disk"])
def test_a_kubelet_that_is_heard_meanwhile_withdraws_the_decision(when: str, news: Put) -> None:
    """Its node is not called lost, and its pods are not marked; one that stays silent is."""
    lost = replace(LOST, conditions=of("5", "Unknown").status.conditions)
    for hears in (False, True):
        lab = Lab()
        lab.cache.apply(Put("Node", of("5", "True")), NOW)
        lab.cache.apply(renewal(-40), NOW - 40 * SECOND_NS)

        def hear(lab: Lab = lab, hears: bool = hears) -> None:
            lab.cache.apply(news if hears else renewal(-40), NOW + SECOND_NS)

        if when == "while-the-lease-is-read":
            lab.on_evidence = hear
        else:
            lab.on_intent = hear
        lab.play(lost, MARK)
        assert ("Patch n" in lab.log) is not hears
        assert ("Patch p" in lab.log) is not hears
        if not hears:
            continue
        assert lab.outcomes == [("SetNodeConditions", NOT_SENT)], "it is decided anew"
        assert ("intent n" in lab.log) is (when == "while-the-intent-goes-to-the-disk")
        assert lab.log in ([], ["intent n", "failed"])
        because = lab.ends[0][2]
        assert because in ("its Lease was renewed after that was decided", POSTED)


@pytest.mark.parametrize(
    ("read", "sent"),
    [
        pytest.param(of("5", "True"), True, id="as-it-was-decided-on"),
        pytest.param(of("7", "Unknown"), True, id="still-lost"),
        pytest.param(of("7", "True"), False, id="ready-again"),
        pytest.param(of("4", "True"), True, id="a-replica-that-is-behind"),
    ],
)
def test_no_taint_for_a_node_that_is_read_to_be_ready_again(read: Node, sent: bool) -> None:
    """A taint is written after a read of its node, which may know more than the watch."""
    lab = Lab(lambda call: Answer(200, read) if isinstance(call, Get) else Answer(200, NODE))
    lab.cache.apply(Put("Node", of("5", "Unknown")), NOW)
    lab.play(TAINT)
    assert ("Patch n" in lab.log) is sent
    assert sent or ("intent n" not in lab.log and "Ready again" in lab.ends[0][2])


def test_a_pod_whose_condition_could_not_be_set_is_not_deleted() -> None:
    lab = Lab(lambda call: Answer(503) if not isinstance(call, Get) else Answer(200, pod("p")))
    lab.play(TARGET, DELETE)
    assert "Delete p" not in lab.log
    assert lab.outcomes == [("SetPodCondition", 503), ("DeletePod", 503)]


@pytest.mark.parametrize(
    "actions, at_once",
    [
        pytest.param((DELETE, OTHER), 2, id="two-objects-side-by-side"),
        pytest.param((DELETE, DELETE), 1, id="one-object-one-at-a-time"),
    ],
)
def test_concurrency(actions: tuple[Action, ...], at_once: int) -> None:
    lab = Lab()
    lab.play(*actions)
    assert lab.most == at_once and len(lab.outcomes) == 2


def test_a_cancelled_eviction_is_not_sent() -> None:
    lab = Lab()
    cancel = on_pod(CancelEviction, due_ns=NOW)
    lab.play(DELETE, replace(DELETE), cancel)
    assert lab.log.count("Delete p") <= 1


def test_while_held_nothing_is_sent_and_it_goes_when_the_gate_opens() -> None:
    lab = Lab()
    lab.view = replace(lab.view, paused_because="paused")

    def resume() -> None:
        asyncio.get_running_loop().call_later(
            0.1, lambda: setattr(lab, "view", replace(lab.view, paused_because=""))
        )

    lab.play(DELETE, then=resume)
    assert lab.log == ["intent p", "sent", "Delete p", "applied"]


def test_an_answer_that_was_lost_is_looked_for_and_unknown_where_nothing_tells() -> None:
    found = Lab(lambda call: Answer(404, reason="NotFound") if isinstance(call, Get) else Answer(0))
    found.play(DELETE)
    assert found.log[-2:] == ["Get p", "applied"], "it is gone: that was it"
    lost = Lab(lambda call: Answer(0))
    lost.play(DELETE)
    assert lost.log[-1] == "unknown" and lost.outcomes == [("DeletePod", 0)]
    assert lost.log.count("Delete p") == 1, "never sent again"


@pytest.mark.parametrize("over", [False, True], ids=["the-lease-lasts", "the-lease-is-over"])
async def test_a_write_that_is_open_when_the_lease_ends_is_given_up(over: bool) -> None:
    lab = Lab()
    lab.executor.start(DELETE, NOW)
    while "sent" not in lab.log:
        await asyncio.sleep(0)
    await lab.executor.stop(lambda: over)
    assert lab.log[-1] == ("unknown" if over else "applied"), "a read tells later what became of it"


def test_a_bug_while_carrying_out_is_told_and_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its action may hold a whole pod, and its text a value of it."""

    def fails(*_: Any) -> Any:
        raise KeyError("s3cr3t")

    lab = Lab()
    bugs: list[Bug] = []
    lab.executor._port.on_bug = bugs.append
    monkeypatch.setattr(action_sender.calls, "converse", fails)
    lab.play(DELETE)
    assert lab.outcomes == [("DeletePod", NOT_SENT)], "nothing was sent"
    assert [(bug.controller, bug.about) for bug in bugs] == [("taint-eviction", DELETE.target)]
    assert "s3cr3t" not in caplog.text + str(lab.events)


def test_a_bug_on_either_side_of_carrying_out_leaves_no_action_without_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab()
    bugs: list[Bug] = []
    lab.executor._port.on_bug = bugs.append
    real = lab.executor._sender._admitted

    async def fails(item: Any, **more: Any) -> Any:
        if item.action is DELETE:
            raise KeyError
        return await real(item, **more)

    monkeypatch.setattr(lab.executor._sender, "_admitted", fails)
    lab.play(TARGET, DELETE, OTHER)
    ends = [("DeletePod", 200), ("DeletePod", NOT_SENT), ("SetPodCondition", 200)]
    assert sorted(lab.outcomes) == ends
    assert len(bugs) == 1


@pytest.mark.parametrize("taken_off", [True, False], ids=["taken-off", "the-removal-fails"])
def test_a_deletion_waits_for_the_removal_of_its_taint_that_is_on_its_way(taken_off: bool) -> None:
    """The watch of a slow server still shows the taint that we have just taken off."""
    taint = Taint(UNREACHABLE, "NoExecute")
    meta = replace(NODE.metadata, resource_version="6")
    tainted, bare = replace(NODE, spec=NodeSpec(taints=(taint,))), replace(NODE, metadata=meta)

    def answer(call: Any) -> Answer:
        if call.kind == "Pod":
            return Answer(200, pod("p"))
        if isinstance(call, Get):
            return Answer(200, tainted)
        return Answer(200, bare) if taken_off else Answer(422)

    lab = Lab(answer)
    lab.cache.apply(Put("Node", tainted), NOW)
    off = on_node(RemoveTaints, "n", taints=(taint,))
    due = replace(DELETE, taints=(taint,))

    async def later() -> None:
        while "Patch n" not in lab.log:
            await asyncio.sleep(0)
        lab.executor.start(due, NOW)

    lab.play(off, then=lambda: lab.tasks.append(asyncio.get_running_loop().create_task(later())))
    assert ("Delete p" in lab.log) is not taken_off
    assert ("DeletePod", NOT_SENT if taken_off else 200) in lab.outcomes
