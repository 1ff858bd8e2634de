"""Drives one action's conversation with the API server: gate, intent, tokens, requests, result.

Each conversation (`engine/calls`) is driven call by call: a token of its controller's bucket, and
for a write the intent on disk and the gate looked at right before it is sent. On one object one
write is on its way at a time, whoever of the controllers sends it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    PodAction,
    SetNodeConditions,
    SetPodCondition,
)
from kubectl_nodelife.engine.calls import Answer, Get, Result, WaitUntil, Write, converse
from kubectl_nodelife.engine.calls.call import checked_by_server, request_of_call
from kubectl_nodelife.engine.guard import GO, Hold, Refuse
from kubectl_nodelife.engine.settlement import is_ready, lost_premise
from kubectl_nodelife.engine.write_risk import is_harm
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.executor_port import ControllerWriter, ExecutorPort
from kubectl_nodelife.live.worker_slots import WorkerSlots

HELD: Final = 425
"""The code of an outcome of what was not sent: a guard held it for too long, or refused it."""

NOT_WANTED: Final = Result(200, "it is not wanted any more")
IN_FLIGHT: Final = 32
NODE_LIFECYCLE: Final = "node-lifecycle"
TAINT_EVICTION: Final = "taint-eviction"
_AGAIN_S: Final = 0.1

Target = tuple[str, tuple[str, str]]


class QueuedAction(msgspec.Struct):
    """An action, the object as it was decided on, and when."""

    action: Action
    seen: KubeObject | None
    decided_ns: int


class ActionSender:
    """See the module. `sending`: the objects of which a write is on its way; `stopped`: nothing is
    sent any more. `writing`: how many writes are on their way.
    """

    def __init__(
        self, port: ExecutorPort, controllers: Mapping[str, ControllerWriter], slots: WorkerSlots
    ) -> None:
        self.sending: set[Target] = set()
        self.stopped = False
        self.writing = 0
        self._controllers = controllers
        self._port = port
        self._slots = slots
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._locks: dict[Target, tuple[asyncio.Lock, int]] = {}

    async def carry_out(self, item: QueuedAction) -> Result:
        """Wait until it may be sent, and converse with the API server.

        Where the gate closes meanwhile, or others use a cap up first, it waits once more.
        """
        waited = False
        while True:
            refused = await self._admitted(item, waited=waited)
            if refused is not None:
                return refused
            slots, key = self._slots.of(item.action)
            async with slots.taken(key, item.action.id):
                late = self._port.now_ns() - item.decided_ns > self._port.patience_ns
                if late and not self._stands(item.action):
                    return NOT_WANTED
                result = await self._converse(item)
            if result.code != HELD:
                return result
            waited = True
            await asyncio.sleep(_AGAIN_S)

    async def _converse(self, item: QueuedAction) -> Result:
        action = item.action
        if self._needs_evidence(action):
            lost = await self._port.evidence.is_lost(action.target[1][1])
            if not lost.ok:
                return lost
        conversation = converse(action, item.seen, item.decided_ns)
        intent, answer = 0, Answer(HELD)
        result: Result
        try:
            call = next(conversation)
            while True:
                if isinstance(call, WaitUntil):
                    if not self._port.waits(action):
                        conversation.close()
                        result = Result(answer.code, answer.message, answer.reason)
                        break
                    answer = await self._wait(call)
                elif isinstance(call, Get):
                    answer = await self._read(action.controller, call)
                else:
                    intent, answer = await self._write(item, call, intent)
                call = conversation.send(answer)
        except StopIteration as end:
            result = end.value
        except NotSent as error:
            conversation.close()
            result = Result(HELD, str(error))
        except GivenUp:
            raise
        except asyncio.CancelledError:  # while it waited for its next try
            if intent:
                state = "unknown" if answer.is_ambiguous else "failed"
                self._port.journal.note(intent, state, answer.code, "given up between two tries")
            raise
        except Exception as error:
            result = note_bug(self._port, action, error)
        if intent:
            state = "applied" if result.ok else "unknown" if result.code == 0 else "failed"
            version = result.fresh.metadata.resource_version if result.fresh else ""
            self._port.journal.note(intent, state, result.code, result.message, version)
        return result

    async def _admitted(self, item: QueuedAction, *, waited: bool) -> Result | None:
        """Wait while a guard holds the action; None where it may be sent. `waited`: it has already
        waited, so that it may not be wanted any more.
        """
        action, port = item.action, self._port
        told = ""
        while True:
            now_ns = port.now_ns()
            admission = port.guard.admit(action, port.view(), now_ns)
            if self.stopped:
                return Result(HELD, "enforcing has ended")
            if (told or waited) and not self._stands(action):
                return NOT_WANTED
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
        """Whether what has waited for a while would be decided again."""
        cache = self._port.cache
        obj = cache.get(*action.target)
        if action.uid and (obj is None or obj.uid != action.uid):
            return False
        if isinstance(action, PodAction) and isinstance(obj, Pod):
            node = cache.node(obj.spec.node_name)
            return node is None or not lost_premise(action, obj, node)
        if isinstance(action, AddTaints) and isinstance(obj, Node):
            return not (is_harm(action) and is_ready(obj))
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
        await self._token(controller)
        async with self._in_flight:
            return await self._controllers[controller].writer.call(call)

    async def _write(self, item: QueuedAction, call: Write, intent: int) -> tuple[int, Answer]:
        """Bring the intent to the disk, look at the gate, and send. Raises NotSent."""
        action, port = item.action, self._port
        first = not intent
        await self._token(action.controller)
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
                raise NotSent(f"the journal cannot be written: {error}") from None
        begun = False
        try:
            async with self._alone(action.target), self._in_flight:
                try:
                    self._check_gate(action)
                except NotSent as error:
                    port.journal.note(intent, "failed", HELD, f"not sent: {error}")
                    raise
                begun = True
                return intent, await self._send(action, call, intent)
        except asyncio.CancelledError:
            if first and not begun:  # of later tries `_converse` knows the intent
                port.journal.note(intent, "failed", HELD, "not sent: given up before its turn")
            raise

    async def _send(self, action: Action, call: Write, intent: int) -> Answer:
        """Send what may be sent at this instant, and tell of the answer."""
        port, now_ns = self._port, self._port.now_ns()
        port.guard.sending(action, now_ns)
        port.journal.note(intent, "sent")
        self.sending.add(action.target)
        self.writing += 1
        port.recorder.sending(action)
        try:
            answer = await self._controllers[action.controller].writer.call(
                call, may_resend=lambda: self._is_open_for(action)
            )
        except asyncio.CancelledError:
            because = "given up while it was on its way"
            port.journal.note(intent, "unknown", 0, because)
            raise GivenUp(because) from None
        finally:
            self.writing -= 1
            self.sending.discard(action.target)
        port.guard.ended(action, answer.code, answer.message, port.now_ns())
        port.recorder.answered(action, answer, (port.now_ns() - now_ns) / SECOND_NS)
        return answer

    @asynccontextmanager
    async def _alone(self, target: Target) -> AsyncIterator[None]:
        """While no other write of the object is on its way."""
        lock, users = self._locks.get(target, (asyncio.Lock(), 0))
        self._locks[target] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[target]
            if users == 1:
                del self._locks[target]
            else:
                self._locks[target] = (lock, users - 1)

    def _check_gate(self, action: Action) -> None:
        """Raises NotSent where the action may not be sent at this instant."""
        if self.stopped:
            raise NotSent("enforcing has ended")
        port = self._port
        admission = port.guard.admit(action, port.view(), port.now_ns())
        if admission != GO:
            raise NotSent(getattr(admission, "because", ""))

    def _is_open_for(self, action: Action) -> bool:
        """Whether the gate is still open for what the server wants to have a moment later."""
        try:
            self._check_gate(action)
        except NotSent:
            return False
        return True

    async def _token(self, controller: str) -> None:
        """Wait for a token of the controller's bucket."""
        now_ns = self._port.now_ns()
        at_ns = self._controllers[controller].bucket.reserve(now_ns)
        if at_ns > now_ns:
            await self._sleep_until(at_ns)

    async def _sleep_until(self, at_ns: int) -> None:
        await asyncio.sleep(max(0.0, (at_ns - self._port.now_ns()) / SECOND_NS))


def note_bug(port: ExecutorPort, action: Action, error: Exception) -> Result:
    """A bug of ours: nothing more of this action is sent. The error's text and the action may quote
    secrets, and are told to nobody.
    """
    failed = port.cache.quarantine.failed
    bug = failed(action.controller, action.target, error, port.now_ns())
    port.on_bug(bug)
    return Result(0, f"a bug of ours: {bug.what()}")


def _is_patient(action: Action) -> bool:
    """Whether it waits for as long as it takes: an eviction that is due is not decided anew."""
    return action.controller == TAINT_EVICTION and isinstance(action, (SetPodCondition, DeletePod))


class GivenUp(asyncio.CancelledError):
    """A write was on its way when its task was ended: nobody knows what becomes of it."""


class NotSent(Exception):
    """The gate closed, or the intent could not be kept."""
