"""Drives one action's conversation with the API server: gate, intent, tokens, requests, result.

Each conversation (`engine/calls`) is driven call by call: a token of its controller's bucket, and
for a write the intent on disk and the gate looked at right before it is sent. On one object one
write is on its way at a time, whichever controller sends it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final

import msgspec

from kubectl_nodelife.engine import actions, calls
from kubectl_nodelife.engine.calls.call import NO_ANSWER, NOT_FOUND, request_of_call
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.engine.guard import GO, Hold, Refuse, is_harm
from kubectl_nodelife.engine.settlement import is_newer, lost_premise
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.executor_port import ControllerWriter, ExecutorPort
from kubectl_nodelife.live.worker_slots import WorkerSlots

NOT_WANTED: Final = calls.Result(200, "it is not wanted any more", moot=True)
"""Its object is gone."""

IN_FLIGHT: Final = 32
AHEAD: Final = 64
"""So many of the actions that wait for one are looked at, Events among them: the marks of most
nodes' pods come to the disk together.
"""

NODE_LIFECYCLE: Final = "node-lifecycle"
TAINT_EVICTION: Final = "taint-eviction"
_AGAIN_S: Final = 0.1
_LOOK_S: Final = 0.01
_NO_EVIDENCE: Final = "nothing is known of the last sign of life of the kubelet"

Target = tuple[str, tuple[str, str]]


class QueuedAction(msgspec.Struct):
    """An action, the object as it was decided on, and when. `since_ns`: since when it waits, by the
    clock that nobody can set.

    `intent`: on its way to the disk, until the write takes it. `following`: what waits for it.
    `overtaken`: what came later has gone ahead of it.
    """

    action: actions.Action
    seen: KubeObject | None
    decided_ns: int
    since_ns: int
    intent: asyncio.Future[int] | None = None
    following: Iterable[QueuedAction] = ()
    overtaken: bool = False


class ActionSender:
    """Carries one action at a time out: gate, intent, tokens, requests, result.

    `sending`: the objects of which a write is on its way; `stopped`: nothing is
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
        self._untainting: Counter[str] = Counter()  # removals of taints on their way, by node
        self._own_nodes: dict[str, Node] = {}  # as answers to our own requests showed them

    async def carry_out(self, item: QueuedAction) -> calls.Result:
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
                late = self._port.monotonic_ns() - item.since_ns > self._port.patience_ns
                if late and (moot := self._why_moot(item)) is not None:
                    return moot
                try:
                    result = await self._converse(item)
                except Superseded as error:
                    return calls.Result(NOT_SENT, str(error))
            if result.code != NOT_SENT or result.moot:
                if result.ok and isinstance(result.fresh, Node):
                    self._note_node(result.fresh)
                return result
            waited = True
            await asyncio.sleep(_AGAIN_S)

    def end(self, item: QueuedAction) -> None:
        """Where an intent was brought to the disk for nothing, note that nothing was sent."""
        intent, item.intent = item.intent, None
        if intent is not None:
            intent.add_done_callback(self._note_unsent)

    def _note_unsent(self, intent: asyncio.Future[int]) -> None:
        if not intent.cancelled() and intent.exception() is None:
            because = "not sent: given up before its turn"
            self._port.journal.note(intent.result(), "failed", NOT_SENT, because)

    def _prepare(self, item: QueuedAction) -> None:
        """Begin to bring an intent to the disk while what it waits for is sent, or it would wait
        for that first and for the disk then. Only of what is written as it was decided, and may be
        sent as things are. The gate is looked at again when it is sent.
        """
        action, guard = item.action, self._port.guard
        if (
            item.intent is not None
            or not isinstance(action, actions.MarkPodNotReady)
            or guard.breakers
        ):
            return
        if guard.admit(action, self._port.view(), self._port.monotonic_ns()) != GO:
            return
        conversation = calls.converse(action, item.seen, item.decided_ns)
        call = next(conversation)
        conversation.close()
        if not isinstance(call, (calls.Get, calls.ListObjects, calls.WaitUntil)):
            item.intent = asyncio.ensure_future(self._begin(action, call))

    async def _begin(self, action: actions.Action, call: calls.Write) -> int:
        """Bring an intent to the disk. Raises OSError."""
        checked = {} if isinstance(call, (calls.Post, calls.Replace)) else call.preconditions
        request = request_of_call(call)
        content = f"{request.method} {request.path}\n".encode() + request.content()
        digest = hashlib.sha256(content).hexdigest()
        version = checked.get("resourceVersion", "")
        return await self._port.journal.begin(action, version, digest)

    async def _converse(self, item: QueuedAction) -> calls.Result:
        action = item.action
        if (unproven := await self._lacks_evidence(action)) is not None:
            return unproven
        conversation = calls.converse(action, item.seen, item.decided_ns)
        intent, answer, doubtful = (
            0,
            calls.Answer(NOT_SENT),
            False,
        )  # of what became of the last write
        result: calls.Result
        try:
            call = next(conversation)
            while True:
                if isinstance(call, calls.WaitUntil):
                    if not self._port.waits(action):
                        conversation.close()
                        result = calls.Result(answer.code, answer.message, answer.reason)
                        break
                    answer = await self._wait(call)
                elif isinstance(call, (calls.Get, calls.ListObjects)):
                    answer = await self._read(action.controller, call)
                    doubtful = doubtful and not (answer.ok or answer.code == NOT_FOUND)
                else:
                    intent, answer = await self._write(item, call, intent)
                    doubtful = answer.is_ambiguous
                call = conversation.send(answer)
        except StopIteration as end:
            result = end.value
        except NotSent as error:
            result = calls.Result(NOT_SENT, str(error))
        except Moot as error:
            result = error.result
        except (GivenUp, Superseded):
            raise
        except asyncio.CancelledError:  # while it waited for its next try
            if intent:
                state = "unknown" if doubtful else "failed"
                self._port.journal.note(intent, state, answer.code, "given up between two tries")
            raise
        except Exception as error:
            result = note_bug(self._port, action, error)
        if intent:
            applied = result.ok and not result.moot
            unknown = doubtful or result.code == NO_ANSWER
            state = "applied" if applied else "unknown" if unknown else "failed"
            version = result.fresh.metadata.resource_version if result.fresh else ""
            self._port.journal.note(intent, state, result.code, result.recorded, version)
        return result

    async def _admitted(self, item: QueuedAction, *, waited: bool) -> calls.Result | None:
        """Wait while a guard holds the action; None where it may be sent. `waited`: it has already
        waited, so that it may not be wanted any more.
        """
        action, port = item.action, self._port
        reported = ""
        while True:
            now_ns = port.monotonic_ns()
            admission = port.guard.admit(action, port.view(), now_ns)
            if self.stopped:
                return calls.Result(NOT_SENT, "enforcing has ended")
            if (reported or waited) and (moot := self._why_moot(item)) is not None:
                return moot
            if admission == GO:
                return None
            if isinstance(admission, Refuse):
                port.recorder.held(action, admission.because, 0)
                return calls.Result(NOT_SENT, admission.because)
            assert isinstance(admission, Hold)
            if admission.because != reported:
                reported = admission.because
                port.recorder.held(action, reported, admission.until_ns)
            if now_ns - item.since_ns > port.patience_ns and not _is_patient(action):
                return calls.Result(NOT_SENT, reported)
            await asyncio.sleep(min(0.5, max(0.01, (admission.until_ns - now_ns) / SECOND_NS)))

    def _why_moot(self, item: QueuedAction) -> calls.Result | None:
        """The end of what has waited for a while, and would not be decided again; None where it
        would.

        Only news make it moot: that its object is gone, or that a node is Ready or without
        NoExecute taints in a later version than our own writes have left it in. The watch may be
        far behind those, and shows a node that we have just called lost as Ready. Its controller
        is notified, unless the object is gone, and looks again.
        """
        action, seen, cache = item.action, item.seen, self._port.cache
        obj = cache.get(*action.target)
        was_shown = seen is not None and seen.uid == action.uid
        if action.uid and was_shown and (obj is None or obj.uid != action.uid):
            return NOT_WANTED
        if isinstance(action, actions.PodAction) and isinstance(obj, Pod):
            node = self._node(obj.spec.node_name)
            why = lost_premise(action, obj, node) if node is not None else ""
        elif isinstance(action, actions.AddTaints):
            node = self._node(action.node)
            recovered = node is not None and node.is_ready and is_harm(action)
            why = f"node {action.node} is Ready again" if recovered else ""
        else:
            return None
        return Moot(why, node).result if why else None

    def _node(self, name: str) -> Node | None:
        """The node as the watch shows it, or as the last answer to us did if that is newer."""
        shown, own = self._port.cache.node(name), self._own_nodes.get(name)
        if shown is None or own is None:
            return shown
        newer = shown.uid == own.uid and is_newer(own, shown.metadata.resource_version)
        return own if newer else shown

    def _note_node(self, node: Node) -> None:
        """Remember it, until the watch shows it."""
        cache = self._port.cache
        self._own_nodes[node.name] = node
        if len(self._own_nodes) > 2 * len(cache.nodes):
            self._own_nodes = {n: own for n, own in self._own_nodes.items() if n in cache.nodes}

    async def _lacks_evidence(self, action: actions.Action) -> calls.Result | None:
        """Why a node cannot be called lost. Raises Superseded where its kubelet has reported."""
        if action.controller != NODE_LIFECYCLE or not isinstance(action, actions.SetNodeConditions):
            return None
        evidence = self._port.evidence
        if evidence is None:
            raise Superseded(_NO_EVIDENCE)
        lost = await evidence.check_loss(action.node)
        if lost.code == NOT_SENT:
            raise Superseded(lost.message)
        return None if lost.ok else lost

    # One call

    async def _wait(self, call: calls.WaitUntil) -> calls.Answer:
        until_ns = call.at_ns
        if call.latest_ns > call.at_ns:
            until_ns = random.randint(call.at_ns, call.latest_ns)
        await self._sleep_until(until_ns)
        return calls.Answer(200, now_ns=self._port.monotonic_ns())

    async def _read(self, controller: str, call: calls.Read) -> calls.Answer:
        await self._token(controller)
        async with self._in_flight:
            answer = await self._controllers[controller].writer.call(call)
        if answer.ok and isinstance(answer.obj, Node):
            shown = self._own_nodes.get(answer.obj.name)
            if shown is None or shown.uid != answer.obj.uid or _is_news(answer.obj, shown):
                self._note_node(answer.obj)  # and not from a replica that is behind
        return answer

    async def _write(
        self, item: QueuedAction, call: calls.Write, intent: int
    ) -> tuple[int, calls.Answer]:
        """Bring the intent to the disk, look at the gate, and send. Raises NotSent."""
        action, port = item.action, self._port
        first = not intent
        await self._token(action.controller)
        if first:
            self._check_gate(action)
            self._check_premise(item)
            try:
                if item.intent is None:
                    intent = await self._begin(action, call)
                else:
                    intent = await asyncio.shield(item.intent)
            except OSError as error:
                item.intent = None
                raise NotSent(f"the journal cannot be written: {error}") from None
            item.intent = None
        begun = False
        try:
            async with self._alone(action.target), self._in_flight:
                try:
                    await self._check_taints(action)
                    self._check_gate(action)
                    self._check_premise(item)
                except (NotSent, Moot, Superseded) as error:
                    port.journal.note(intent, "failed", NOT_SENT, f"not sent: {error}")
                    raise
                begun = True
                for one in islice(item.following, AHEAD):
                    self._prepare(one)
                return intent, await self._send(action, call, intent)
        except asyncio.CancelledError:
            if first and not begun:  # of later tries `_converse` knows the intent
                port.journal.note(intent, "failed", NOT_SENT, "not sent: given up before its turn")
            raise

    async def _send(self, action: actions.Action, call: calls.Write, intent: int) -> calls.Answer:
        """Send what may be sent at this instant, and report the answer. Raises NotSent where the
        gate has closed, or a cap is used up, by the time that there are credentials.
        """
        port, began_ns, sent = self._port, self._port.monotonic_ns(), False

        def may_send() -> bool:
            nonlocal sent
            if sent:  # the caps count it
                held = port.guard.stopped(action, port.view(), port.monotonic_ns())
                return not self.stopped and held is None
            try:
                self._check_gate(action)
            except NotSent:
                return False
            sent = True
            port.guard.sending(action, port.monotonic_ns())
            port.journal.note(intent, "sent")
            port.recorder.sending(action)
            return True

        self.sending.add(action.target)
        untainted = action.node if isinstance(action, actions.RemoveTaints) else ""
        self._untainting[untainted] += bool(untainted)
        self.writing += 1
        try:
            writer = self._controllers[action.controller].writer
            answer = await writer.call(call, may_send=may_send)
        except asyncio.CancelledError:
            because = "given up while it was on its way"
            port.journal.note(intent, "unknown" if sent else "failed", 0, because)
            raise GivenUp(because) from None
        finally:
            self.writing -= 1
            self.sending.discard(action.target)
            self._untainting[untainted] -= bool(untainted)
        if answer.ok and isinstance(answer.obj, Node):
            self._note_node(answer.obj)
        if sent or answer.code != NOT_SENT:
            port.guard.ended(action, answer.code, answer.message, port.monotonic_ns())
        if answer.code == NOT_SENT:
            port.journal.note(intent, "failed", NOT_SENT, f"not sent: {answer.message}")
            raise NotSent(answer.message)
        port.recorder.answered(action, answer, (port.monotonic_ns() - began_ns) / SECOND_NS)
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

    def _check_gate(self, action: actions.Action) -> None:
        """Raises NotSent where the action may not be sent at this instant."""
        if self.stopped:
            raise NotSent("enforcing has ended")
        port = self._port
        admission = port.guard.admit(action, port.view(), port.monotonic_ns())
        if admission != GO:
            raise NotSent(getattr(admission, "because", ""))

    async def _check_taints(self, action: actions.Action) -> None:
        """Raises Moot where an eviction's taint is off by our own doing, though no watch shows it.

        What is on its way to take it off is waited for.
        """
        if action.controller != TAINT_EVICTION or not isinstance(action, actions.PodAction):
            return
        pod = self._port.cache.get(*action.target)
        if not isinstance(pod, Pod):
            return
        while self._untainting[pod.spec.node_name]:
            await asyncio.sleep(_LOOK_S)
        node = self._node(pod.spec.node_name)
        if node is not None and (why := lost_premise(action, pod, node)):
            raise Moot(why, node)

    def _check_premise(self, item: QueuedAction) -> None:
        """Raises Superseded where a node is no longer lost that is to be called so, Moot where it
        is to be tainted. Looked at before the intent, and again before it is sent: the kubelet may
        have reported while it waited for its turn, its token or the disk.

        Only news count, as in `_why_moot`. Upstream sends what it has decided.
        """
        action = item.action
        if not isinstance(action, actions.NodeAction) or not is_harm(action):
            return
        node = self._node(action.node)
        if isinstance(action, actions.SetNodeConditions):
            evidence = self._port.evidence
            if evidence is None:
                raise Superseded(_NO_EVIDENCE)
            if sign_of_life := evidence.reported_since(action, node, item.decided_ns):
                raise Superseded(sign_of_life)
        elif node is not None and node.is_ready and _is_news(node, item.seen):
            raise Moot(f"node {node.name} is Ready again", node)

    async def _token(self, controller: str) -> None:
        """Wait for a token of the controller's bucket."""
        now_ns = self._port.monotonic_ns()
        at_ns = self._controllers[controller].bucket.reserve(now_ns)
        if at_ns > now_ns:
            await self._sleep_until(at_ns)

    async def _sleep_until(self, at_ns: int) -> None:
        await asyncio.sleep(max(0.0, (at_ns - self._port.monotonic_ns()) / SECOND_NS))


def note_bug(port: ExecutorPort, action: actions.Action, error: Exception) -> calls.Result:
    """A bug of ours: nothing more of this action is sent. The error's text and the action may quote
    secrets, and are shown nowhere.
    """
    failed = port.cache.quarantine.failed
    bug = failed(action.controller, action.target, error, port.now_ns())
    port.on_bug(bug)
    return calls.Result(0, f"a bug of ours: {bug.what()}")


def _is_patient(action: actions.Action) -> bool:
    """True if it waits for as long as it takes: an eviction that is due is not decided anew."""
    return action.controller == TAINT_EVICTION and isinstance(
        action, (actions.SetPodCondition, actions.DeletePod)
    )


def _is_news(obj: KubeObject, seen: KubeObject | None) -> bool:
    """True if the object is of a later version than the one that was decided on."""
    return seen is not None and is_newer(obj, seen.metadata.resource_version)


class GivenUp(asyncio.CancelledError):
    """A write was on its way when its task was ended: its outcome is unknown."""


class Moot(Exception):
    """Nothing asks for it any more, as the node is now. `result`: what its controller learns."""

    def __init__(self, because: str, node: Node | None) -> None:
        super().__init__(because)
        message = f"{NOT_WANTED.message}: {because}"
        self.result = calls.Result(NOT_SENT, message, fresh=node, moot=True)


class Superseded(Exception):
    """The reason of the action is no longer true; its controller is notified, and decides anew."""


class NotSent(Exception):
    """The gate closed, or the intent could not be kept."""
