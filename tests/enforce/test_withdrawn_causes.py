"""A write that is withdrawn takes with it all that follows it, whenever it is withdrawn."""

import asyncio
import random
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, NodeMarkPatch, RecordEvent, RemoveTaints
from kubectl_nodelife.engine.calls import Answer, Get, Result
from kubectl_nodelife.engine.dependent_writes import FailedWrite, FailedWrites
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from tests.enforce.test_executor import (
    DELETE,
    LOST,
    MARK,
    NODE,
    NOT_READY,
    NOW,
    TAINT,
    TARGET,
    Lab,
    pod,
)
from tests.enforce.withdrawn_causes import WithdrawnCauses
from tests.planned import on_node

RENEWED = Result(NOT_SENT, "its Lease was renewed 0s ago: the watch had not shown it")


def play(lab: Lab, *steps: Action | int) -> list[str]:
    """Begin the actions, with so many turns of the loop between them as the numbers say."""

    async def run() -> None:
        for step in steps:
            if isinstance(step, int):
                for _ in range(step):
                    await asyncio.sleep(0)
            else:
                lab.executor.start(step, NOW)
        async with asyncio.timeout(5):
            while lab.executor.busy:
                await asyncio.sleep(0)

    asyncio.run(run())
    return lab.log


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 50])
def test_no_pod_is_marked_where_its_node_was_withdrawn_however_late_the_mark_is_begun(
    turns: int,
) -> None:
    """A decision is begun in slices: its first write may have its end before the next is begun."""
    lab = Lab()
    lab.evidence = RENEWED
    assert play(lab, LOST, turns, MARK, NOT_READY) == []


@pytest.mark.parametrize("turns", [0, 1, 50])
def test_no_taint_either(turns: int) -> None:
    lab = Lab()
    lab.evidence = RENEWED
    assert play(lab, LOST, turns, TAINT) == []
    assert ("AddTaints", NOT_SENT) in lab.outcomes, "the loop of 100 ms learns of it"


async def test_what_is_dropped_takes_the_rest_of_its_decision_with_it() -> None:
    lab = Lab()
    lab.executor.start(LOST, NOW)
    lab.executor.drop()
    lab.executor.start(MARK, NOW)
    while lab.executor.busy:
        await asyncio.sleep(0)
    assert lab.log == []


@pytest.mark.parametrize("turns", [0, 1, 50])
def test_a_pod_queue_waits_for_the_condition_that_it_goes_by(turns: int) -> None:
    """A pod that comes to a node whose loss is not written yet: its mark has a queue of its own."""
    mark = replace(MARK, cause=LOST, by_pod_worker=True)
    lab = Lab()
    lab.evidence = RENEWED
    assert play(lab, LOST, turns, mark) == []
    assert ("MarkPodNotReady", NOT_SENT) in lab.outcomes, "its queue tries again"
    lost = Lab()
    play(lost, LOST, turns, mark)
    order = [line for line in lost.log if line.startswith("Patch")]
    assert order == ["Patch n", "Patch p"]


def test_a_bug_at_the_first_write_sends_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab()

    async def fails(*_: Any, **__: Any) -> Any:
        raise KeyError

    monkeypatch.setattr(lab.executor._sender, "carry_out", fails)
    play(lab, LOST, 3, MARK)
    assert lab.log == []
    monkeypatch.undo()
    other = Lab()
    other.executor.refuse(TARGET, NOW, "a bug of ours")
    assert play(other, DELETE) == []


def test_a_taint_that_a_guard_holds_again_and_again_lets_marks_have_their_turn() -> None:
    """It goes ahead of the marks of its node, as upstream's loop of 100 ms does, but only once."""
    lab = Lab()

    async def held() -> Result:
        await asyncio.sleep(0.02)  # for as long as a guard's patience; then it is decided anew
        return Result(NOT_SENT, "1 of 3 nodes are tainted by us")

    real = lab.executor._sender._admitted

    async def admitted(item: Any, **more: Any) -> Any:
        taints = type(item.action) is type(TAINT)
        return await (held() if taints else real(item, **more))

    lab.executor._sender._admitted = admitted  # type: ignore[method-assign]

    async def run() -> None:
        lab.executor.start(LOST, NOW)
        lab.executor.start(MARK, NOW)
        for _ in range(30):
            lab.executor.start(replace(TAINT), lab.now_ns)
            await asyncio.sleep(0.01)
            if "Patch p" in lab.log:
                return

    asyncio.run(run())
    assert "Patch p" in lab.log


CHANGE = on_node(NodeMarkPatch, "n", annotations={"a": "b"})
REPORT = RecordEvent(
    controller="node-lifecycle", because="b", cause=CHANGE, kind="Node", name="n", reason="Upgrade"
)


@pytest.mark.parametrize(
    ("code", "reported"),
    [(200, True), (403, False), (409, False), (500, False)],
)
@pytest.mark.parametrize("turns", [0, 100])
def test_an_event_of_a_change_of_state_is_sent_where_the_change_was_applied(
    code: int, reported: bool, turns: int
) -> None:
    lab = Lab(lambda call: Answer(200, NODE) if isinstance(call, Get) else Answer(code, NODE))
    play(lab, CHANGE, turns, REPORT)
    assert ("event n" in lab.log) is reported


def test_what_is_decided_after_a_failure_was_known_goes_out() -> None:
    """The node was kept once, and is called lost by the next pass."""
    lab = Lab()
    lab.evidence = RENEWED
    play(lab, LOST, MARK)
    lab.evidence = Result(200)
    later = NOW + MILLISECOND_NS
    lab.now_ns = later
    again = replace(LOST, because="again")

    async def run() -> None:
        for action in (again, replace(MARK, cause=again), replace(TAINT, cause=LOST)):
            lab.executor.start(action, later)
        while lab.executor.busy:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert "Patch p" in lab.log and lab.log.count("Patch n") == 2


def test_failures_are_forgotten_once_each_controller_knows_of_them() -> None:
    """One that was noted twice, by its refusal and by its end, is forgotten as any other."""
    failures, key = FailedWrites(), ("node-lifecycle", "pass", "n")
    failed = FailedWrite(LOST, NOW, RENEWED, NOW)
    failures.note(key, failed)
    failures.note(key, failed)
    failures.forget_before(NOW + 60 * SECOND_NS)
    assert failures.before(key, MARK, NOW) is failed
    failures.forget_before(NOW + 61 * SECOND_NS)
    assert not failures and failures.before(key, MARK, NOW) is None


def decision(dice: random.Random) -> list[Action]:
    """What one pass may decide about a node, in its order, with marks by the pods' queue."""
    lost = replace(LOST)
    marked = [replace(MARK, cause=lost), replace(MARK, pod="q", pod_uid="uid-q", cause=lost)]
    if dice.random() < 0.3:
        marked[1] = replace(marked[1], by_pod_worker=True)
    target = replace(TARGET, pod="q", pod_uid="uid-q")
    actions: list[Action] = [lost]
    if dice.random() < 0.5:
        actions.append(replace(TAINT, cause=lost))
    if dice.random() < 0.3:
        off = replace(TAINT.taints[0], key="node.kubernetes.io/not-ready")
        actions.append(on_node(RemoveTaints, "n", taints=(off,)))
    actions += marked
    if dice.random() < 0.5:
        actions += [target, replace(DELETE, pod="q", pod_uid="uid-q")]
    if dice.random() < 0.5:
        actions.append(replace(NOT_READY, cause=marked[0]))
    return actions


def withdrawals(lab: Lab, dice: random.Random) -> list[Any]:
    """One of each way in which a write comes to nothing, at a point drawn by chance."""

    def keep() -> None:
        lab.evidence = RENEWED

    def close() -> None:
        lab.view = replace(lab.view, paused_because="paused")
        asyncio.get_running_loop().call_later(0.05, open_again)

    def open_again() -> None:
        lab.view = replace(lab.view, paused_because="")

    return [keep, close, lab.executor.drop, lambda: None]


def broken_under(seed: int) -> list[str]:
    dice = random.Random(seed)

    def answer(call: Any) -> Answer:
        if isinstance(call, Get) or dice.random() < 0.7:
            return Answer(200, NODE if call.kind == "Node" else pod(call.key[1]))
        return Answer(dice.choice((0, 403, 404, 409, 500)), reason="NotFound")

    lab = Lab(answer)
    lab.evidence = dice.choice((Result(200), Result(200), RENEWED, Result(503, "no answer")))
    judge = WithdrawnCauses(lab.executor._port.recorder)
    actions = decision(dice)
    at, withdraw = dice.randrange(len(actions) + 1), dice.choice(withdrawals(lab, dice))

    async def run() -> None:
        for number, action in enumerate(actions):
            if number == at:
                withdraw()
            lab.executor.start(action, NOW)
            for _ in range(dice.choice((0, 0, 1, 2, 5, 40))):
                await asyncio.sleep(0)
        async with asyncio.timeout(10):
            while lab.executor.busy:
                await asyncio.sleep(0.001)

    asyncio.run(run())
    return list(judge.broken())


def test_no_seed_applies_what_follows_a_withdrawn_write(
    pytestconfig: pytest.Config,
) -> None:
    """By hand: `--seeds 10000`."""
    for seed in range(2 * pytestconfig.getoption("--seeds")):
        assert broken_under(seed) == [], f"seed {seed}"


def test_the_judge_finds_planted_faults() -> None:
    judge = WithdrawnCauses()
    marked = replace(MARK, because="node n is not Ready")
    for action, code in ((LOST, NOT_SENT), (marked, 200), (TARGET, 500), (DELETE, 200)):
        judge.planned(action, NOW)
        judge.ended(action, Result(code, changed=code == 200))
    assert len(list(judge.broken())) == 2
    late = WithdrawnCauses()
    lost, mark = replace(LOST), replace(MARK, cause=LOST, because="another word")
    mark = replace(mark, cause=lost)
    late.planned(lost, NOW - 1)
    late.planned(mark, NOW)
    late.ended(mark, Result(200, changed=True))
    late.ended(lost, Result(NOT_SENT))
    assert len(list(late.broken())) == 1, "decided on a write that had no end yet"
