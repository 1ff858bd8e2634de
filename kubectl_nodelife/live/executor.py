"""Carries actions out on a real cluster: lanes, tokens, intents, the gate, and what came of it.

Actions on one object (for the node lifecycle controller: on one node and its pods) go through one
lane, one after another; lanes run beside one another, as upstream's workers do. Each conversation
(`engine/calls`) is driven call by call: a token of its controller's bucket, and for a write the
intent on disk and the gate looked at right before it is sent. What came of it is delivered as an
`Outcome`, and where the answer showed a newer object, that first. Where an action fails, those of
the same decision that hang on it are not sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import msgspec

from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    CancelEviction,
    DeletePod,
    PodAction,
    RecordEvent,
    SetNodeConditions,
    SetPodCondition,
    SetPodPhase,
)
from kubectl_nodelife.engine.calls import Answer, Get, Result, WaitUntil, Write, converse
from kubectl_nodelife.engine.calls.call import checked_by_server, request_of_call
from kubectl_nodelife.engine.events import Outcome, Put
from kubectl_nodelife.engine.guard import GO, Hold, Refuse
from kubectl_nodelife.engine.settlement import lost_premise
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.executor_port import ControllerWriter as ControllerWriter
from kubectl_nodelife.live.executor_port import Port as Port

HELD: Final = 425
"""The code of an outcome of what was not sent: a guard held it for too long, or refused it."""

IN_FLIGHT: Final = 32
_AGAIN_S: Final = 0.1
NODE_LANES: Final = 16
NODE_LIFECYCLE: Final = "node-lifecycle"
TAINT_EVICTION: Final = "taint-eviction"


class _Item(msgspec.Struct):
    action: Action
    seen: KubeObject | None
    decided_ns: int


class _Lane(msgspec.Struct):
    items: deque[_Item]
    failed_ns: int = -1
    failed: Result | None = None
    lost: bool = False


class LiveExecutor:
    """See the module. `sending`: the objects of which a write is on its way."""

    def __init__(self, port: Port, controllers: Mapping[str, ControllerWriter]) -> None:
        self.sending: set[tuple[str, tuple[str, str]]] = set()
        self.controllers = dict(controllers)
        self._port = port
        self._lanes: dict[tuple[str, Any], _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._node_lanes = asyncio.Semaphore(NODE_LANES)
        self._writing = 0
        self._stopped = False

    @property
    def busy(self) -> int:
        """How many actions wait or are on their way."""
        return sum(len(lane.items) + 1 for lane in self._lanes.values())

    def is_busy(self, controller: str) -> bool:
        """Whether the controller has writes that wait or are on their way."""
        return any(name == controller for name, _ in self._lanes)

    def start(self, action: Action, now_ns: int) -> None:
        """Begin one action; what is not a write, or not ours, is none."""
        if isinstance(action, CancelEviction):
            self._cancel(action)
        if not action.writes or action.controller not in self.controllers or self._stopped:
            return
        seen = self._port.cache.get(*action.target)
        if not isinstance(action, RecordEvent):
            self._port.recorder.planned(action, seen, now_ns)
        key = (action.controller, self._lane_of(action))
        lane = self._lanes.get(key)
        item = _Item(action, seen, now_ns)
        if lane is not None:
            lane.items.append(item)
            return
        self._lanes[key] = _Lane(deque([item]))
        self._spawn(self._work(key))

    async def stop(self) -> None:
        """Send nothing more, and wait for what is on its way."""
        self._stopped = True
        self.drop()
        while self._writing:
            await asyncio.sleep(0.01)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop(self) -> None:
        """Forget what waits: it is decided anew."""
        for lane in self._lanes.values():
            lane.items.clear()

    # Lanes

    def _lane_of(self, action: Action) -> Any:
        if action.controller == NODE_LIFECYCLE:
            kind, key = action.target
            if kind == "Pod":
                pod = self._port.cache.pods.get(key)
                return ("", pod.spec.node_name) if pod is not None else key
            return key
        return action.target

    def _cancel(self, action: CancelEviction) -> None:
        lane = self._lanes.get((action.controller, action.target))
        if lane is not None:
            lane.items.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, key: tuple[str, Any]) -> None:
        lane = self._lanes[key]
        several = self._node_lanes if key[0] == NODE_LIFECYCLE else contextlib.nullcontext()
        try:
            async with several:
                while lane.items and not self._stopped:
                    item = lane.items.popleft()
                    try:
                        await self._take(lane, item)
                    except Exception as error:
                        result = self._note_bug(item.action, error)
                        self._port.deliver(Outcome(item.action, HELD, result.message))
        finally:
            del self._lanes[key]

    def _note_bug(self, action: Action, error: Exception) -> Result:
        """A bug of ours: nothing more of this action is sent. The error's text and the action may
        quote secrets, and are told to nobody.
        """
        now_ns = self._port.now_ns()
        failed = self._port.cache.quarantine.failed
        bug = failed(action.controller, action.target, error, now_ns)
        self._port.on_bug(bug)
        return Result(0, f"a bug of ours: {bug.what()}")

    async def _take(self, lane: _Lane, item: _Item) -> None:
        action = item.action
        if lane.failed_ns == item.decided_ns and lane.failed is not None:
            if lane.lost:
                return  # its node is decided anew, with all that hung on it
            self._end(action, lane.failed)
            return
        if isinstance(action, RecordEvent):
            self.controllers[action.controller].events.put(action)
            return
        result = await self._carry_out(item)
        self._end(action, result)
        if result.ok:
            return
        if isinstance(action, (SetNodeConditions, AddTaints)):
            lane.failed_ns, lane.failed, lane.lost = item.decided_ns, result, True
        elif isinstance(action, (SetPodCondition, SetPodPhase)):
            lane.failed_ns, lane.failed, lane.lost = item.decided_ns, result, False

    def _end(self, action: Action, result: Result) -> None:
        port = self._port
        now_ns = port.now_ns()
        port.recorder.ended(action, result, now_ns)
        if not result.ok and result.fresh is not None and self._is_newer(result.fresh):
            port.deliver(Put(type(result.fresh).__name__, result.fresh))
        code = result.code if result.code or not result.ok else 200
        port.deliver(Outcome(action, code, result.message, result.fresh))

    def _is_newer(self, obj: KubeObject) -> bool:
        known = self._port.cache.get(type(obj).__name__, obj.key)
        if known is None:
            return True
        one, other = obj.metadata.resource_version, known.metadata.resource_version
        return one.isdecimal() and other.isdecimal() and int(one) > int(other)

    # One action

    async def _carry_out(self, item: _Item) -> Result:
        """Wait until it may be sent, and converse with the API server.

        Where the gate closes meanwhile, or others use a cap up first, it waits once more.
        """
        waited = False
        while True:
            refused = await self._admitted(item, waited=waited)
            if refused is not None:
                return refused
            result = await self._converse(item)
            if result.code != HELD:
                return result
            waited = True
            await asyncio.sleep(_AGAIN_S)

    async def _converse(self, item: _Item) -> Result:
        action = item.action
        if self._needs_evidence(action):
            lost = await self._port.evidence.is_lost(action.target[1][1])
            if not lost.ok:
                return lost
        conversation = converse(action, item.seen, item.decided_ns)
        intent, answer = 0, Answer(HELD)
        try:
            call = next(conversation)
            while True:
                if isinstance(call, WaitUntil):
                    answer = await self._wait(call)
                elif isinstance(call, Get):
                    answer = await self._read(action.controller, call)
                else:
                    intent, answer = await self._write(item, call, intent)
                call = conversation.send(answer)
        except StopIteration as end:
            result: Result = end.value
        except _NotSent as error:
            conversation.close()
            result = Result(HELD, str(error))
        except asyncio.CancelledError:  # while it waited for its next try
            if intent:
                state = "unknown" if answer.is_ambiguous else "failed"
                self._port.journal.note(intent, state, answer.code, "given up between two tries")
            raise
        except Exception as error:
            result = self._note_bug(action, error)
        if intent:
            state = "applied" if result.ok else "unknown" if result.code == 0 else "failed"
            version = result.fresh.metadata.resource_version if result.fresh else ""
            self._port.journal.note(intent, state, result.code, result.message, version)
        return result

    async def _admitted(self, item: _Item, *, waited: bool) -> Result | None:
        """Wait while a guard holds the action; None where it may be sent. `waited`: it has already
        waited, so that it may not be wanted any more.
        """
        action, port = item.action, self._port
        told = ""
        while True:
            now_ns = port.now_ns()
            admission = port.guard.admit(action, port.view(), now_ns)
            if self._stopped:
                return Result(HELD, "enforcing has ended")
            if (told or waited) and not self._stands(action):
                return Result(200, "it is not wanted any more")
            if admission == GO:
                return None
            if isinstance(admission, Refuse):
                port.recorder.held(action, admission.because, 0)
                return Result(HELD, admission.because)
            assert isinstance(admission, Hold)
            if admission.because != told:
                told = admission.because
                port.recorder.held(action, told, admission.until_ns)
            if now_ns - item.decided_ns > port.patience_ns and not _is_patient(action):
                return Result(HELD, told)
            await asyncio.sleep(min(0.5, max(0.01, (admission.until_ns - now_ns) / SECOND_NS)))

    def _stands(self, action: Action) -> bool:
        """Whether what was held for a while would be decided again."""
        cache = self._port.cache
        obj = cache.get(*action.target)
        if action.uid and (obj is None or obj.uid != action.uid):
            return False
        if isinstance(action, PodAction) and isinstance(obj, Pod):
            node = cache.node(obj.spec.node_name)
            return node is None or not lost_premise(action, obj, node)
        return True

    def _needs_evidence(self, action: Action) -> bool:
        return action.controller == NODE_LIFECYCLE and isinstance(action, SetNodeConditions)

    # One call

    async def _wait(self, call: WaitUntil) -> Answer:
        until_ns = call.at_ns
        if call.latest_ns > call.at_ns:
            until_ns = random.randint(call.at_ns, call.latest_ns)
        await self._sleep_until(until_ns)
        return Answer(200, now_ns=self._port.now_ns())

    async def _read(self, controller: str, call: Get) -> Answer:
        await self.token(controller)
        async with self._in_flight:
            return await self.controllers[controller].writer.call(call)

    async def _write(self, item: _Item, call: Write, intent: int) -> tuple[int, Answer]:
        """Bring the intent to the disk, look at the gate, and send. Raises _NotSent."""
        action, port = item.action, self._port
        first = not intent
        await self.token(action.controller)
        if first:
            self._check_gate(action)
            version = checked_by_server(call.preconditions).get("resourceVersion", "")
            request = request_of_call(call)
            digest = hashlib.sha256(
                f"{request.method} {request.path}\n".encode() + request.content()
            ).hexdigest()
            try:
                intent = await port.journal.begin(action, version, digest)
            except OSError as error:
                raise _NotSent(f"the journal cannot be written: {error}") from None
        async with self._in_flight:
            try:
                self._check_gate(action)
            except _NotSent as error:
                port.journal.note(intent, "failed", HELD, f"not sent: {error}")
                raise
            now_ns = port.now_ns()
            port.guard.sending(action, now_ns)
            port.journal.note(intent, "sent")
            self.sending.add(action.target)
            self._writing += 1
            port.recorder.sending(action)
            try:
                answer = await self.controllers[action.controller].writer.call(
                    call, may_resend=lambda: self._is_open_for(action)
                )
            finally:
                self._writing -= 1
                self.sending.discard(action.target)
            port.guard.ended(action, answer.code, answer.message, port.now_ns())
            port.recorder.answered(action, answer, (port.now_ns() - now_ns) / SECOND_NS)
            return intent, answer

    def _check_gate(self, action: Action) -> None:
        """Raises _NotSent where the action may not be sent at this instant."""
        if self._stopped:
            raise _NotSent("enforcing has ended")
        port = self._port
        admission = port.guard.admit(action, port.view(), port.now_ns())
        if admission != GO:
            raise _NotSent(getattr(admission, "because", ""))

    def _is_open_for(self, action: Action) -> bool:
        """Whether the gate is still open for what the server wants to have a moment later."""
        try:
            self._check_gate(action)
        except _NotSent:
            return False
        return True

    async def token(self, controller: str) -> None:
        """Wait for a token of the controller's bucket."""
        now_ns = self._port.now_ns()
        at_ns = self.controllers[controller].bucket.reserve(now_ns)
        if at_ns > now_ns:
            await self._sleep_until(at_ns)

    async def _sleep_until(self, at_ns: int) -> None:
        await asyncio.sleep(max(0.0, (at_ns - self._port.now_ns()) / SECOND_NS))


def _is_patient(action: Action) -> bool:
    """Whether it waits for as long as it takes: an eviction that is due is not decided anew."""
    return action.controller == TAINT_EVICTION and isinstance(action, (SetPodCondition, DeletePod))


class _NotSent(Exception):
    """The gate closed, or the intent could not be kept."""
