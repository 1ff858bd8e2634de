"""Carries actions out on a real cluster: in which order, how many at once, and what came of them.

Actions on one object (for a pass of the node lifecycle controller: on one node and its pods) go
through one queue, one after another; queues run beside one another, as many as upstream has
workers (`worker_slots.py`). How one action becomes requests is `action_sender.py`. What came of it
is delivered as an `Outcome`, and where the answer showed a newer object, that first. An action
waits in the queue of the one that led to it while the end of that one is not known, and is not sent
where it came to nothing (`engine/dependent_writes.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from kubectl_nodelife.engine.actions import Action, CancelEviction, MarkPodNotReady, RecordEvent
from kubectl_nodelife.engine.calls import Result
from kubectl_nodelife.engine.calls.call import NO_ANSWER
from kubectl_nodelife.engine.dependent_writes import (
    FailedWrite,
    FailedWrites,
    QueueKey,
    is_of_pass,
    is_of_taint_loop,
    learns_of_failure,
    queue_key,
)
from kubectl_nodelife.engine.events import NOT_SENT, Outcome, Put
from kubectl_nodelife.engine.settlement import is_newer
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.live.action_sender import (
    ActionSender,
    GivenUp,
    QueuedAction,
    Target,
    note_bug,
)
from kubectl_nodelife.live.executor_port import ControllerWriter, ExecutorPort
from kubectl_nodelife.live.worker_slots import WorkerSlots

_Queue = deque[QueuedAction]


class LiveExecutor:
    """Carries actions out on a real cluster."""

    def __init__(
        self,
        port: ExecutorPort,
        controllers: Mapping[str, ControllerWriter],
        slots: WorkerSlots | None = None,
    ) -> None:
        """`slots`: how much goes on at once, upstream's defaults if None."""
        self.controllers = dict(controllers)
        self._port = port
        self._slots = slots or WorkerSlots(port.cache)
        self._sender = ActionSender(port, self.controllers, self._slots)
        self._queues: dict[QueueKey, _Queue] = {}
        self._queue_of: dict[int, QueueKey] = {}  # of actions without an end, by identity
        self._failed = FailedWrites()
        self._decided_ns = 0
        self._of_passes: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def sending(self) -> Collection[Target]:
        """The objects of which a write is on its way."""
        return self._sender.sending

    @property
    def busy(self) -> int:
        """How many actions wait or are on their way."""
        return sum(len(queue) + 1 for queue in self._queues.values())

    def is_in_pass(self, controller: str) -> bool:
        """True if writes of the controller's last pass wait or are on their way."""
        return self._of_passes[controller] > 0

    def start(self, action: Action, now_ns: int) -> None:
        """Begin one action; what is not a write, or not ours, is none."""
        if isinstance(action, CancelEviction):
            self._cancel(action)
        if not action.writes or action.controller not in self.controllers or self._sender.stopped:
            return
        seen = self._port.cache.get(*action.target)
        if not isinstance(action, RecordEvent):
            self._port.recorder.planned(action, seen, now_ns)
        if now_ns != self._decided_ns:
            self._decided_ns = now_ns
            self._failed.forget_before(now_ns)
        key = self._key(action)
        queue = self._queues.get(key)
        item = QueuedAction(action, seen, now_ns, self._port.monotonic_ns())
        self._queue_of[id(action)] = key
        self._of_passes[action.controller] += is_of_pass(action)
        if queue is not None:
            queue.insert(_place_of(item, queue), item)
            return
        self._queues[key] = deque([item])
        self._spawn(self._work(key))

    def refuse(self, action: Action, now_ns: int, because: str) -> None:
        """Take note of an action that could not be begun: nothing that depends on it is sent."""
        failed = FailedWrite(action, now_ns, Result(NOT_SENT, because), self._port.now_ns())
        self._failed.note(self._key(action), failed)

    async def stop(self, gives_up: Callable[[], bool] = lambda: False) -> None:
        """Send nothing more, and wait for what is on its way, until `gives_up`: its outcome is
        then unknown.
        """
        self._sender.stopped = True
        self.drop()
        while self._sender.writing and not gives_up():
            await asyncio.sleep(0.01)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop(self) -> None:
        """Forget what waits: it is decided anew."""
        for queue in self._queues.values():
            self._clear(queue, "it is decided anew")

    # Queues

    def _key(self, action: Action) -> QueueKey:
        """The queue of the action that led to it, as long as that one has no end; else its own."""
        for cause in action.causes():
            key = self._queue_of.get(id(cause))
            if key is not None and cause.controller == action.controller:
                return key
        return queue_key(action, self._port.cache)

    def _clear(self, queue: _Queue, because: str) -> None:
        while queue:
            self._leave(queue.popleft(), because)

    def _leave(self, item: QueuedAction, because: str) -> None:
        """It is not carried out; nothing waits for its outcome."""
        self._note_end(item, Result(NOT_SENT, because))

    def _note_end(self, item: QueuedAction, result: Result) -> None:
        action, now_ns = item.action, self._port.now_ns()
        key = self._queue_of.pop(id(action), None)
        if key is not None:
            self._failed.note(key, FailedWrite(action, item.decided_ns, result, now_ns))
        self._of_passes[action.controller] -= is_of_pass(action)
        self._sender.end(item)
        if not isinstance(action, RecordEvent):
            self._port.recorder.ended(action, result, now_ns)

    def _cancel(self, action: CancelEviction) -> None:
        queue = self._queues.get(queue_key(action, self._port.cache))
        if queue is not None:
            self._clear(queue, action.because)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, key: QueueKey) -> None:
        queue = self._queues[key]
        try:
            while queue and not self._sender.stopped:
                item = queue.popleft()
                try:
                    await self._take(key, item)
                except GivenUp as error:
                    self._note_end(item, Result(NO_ANSWER, str(error)))
                    raise
                except asyncio.CancelledError:
                    self._leave(item, "enforcing has ended")
                    raise
                except Exception as error:
                    result = note_bug(self._port, item.action, error)
                    self._leave(item, result.message)
                    self._port.deliver(Outcome(item.action, NOT_SENT, result.message))
        finally:
            del self._queues[key]

    async def _take(self, key: QueueKey, item: QueuedAction) -> None:
        action = item.action
        failed = self._failed.before(key, action, item.decided_ns)
        if failed is not None:
            if learns_of_failure(action, failed):
                self._end(item, failed.result)
            else:
                self._leave(item, "it is decided anew with what it depends on")
            return
        if isinstance(action, RecordEvent):
            events = self.controllers[action.controller].events
            if events is not None:
                events.put(action)
            self._leave(item, "")
            return
        item.following = self._queues[key]
        self._end(item, await self._sender.carry_out(item))

    def _end(self, item: QueuedAction, result: Result) -> None:
        port, action = self._port, item.action
        self._note_end(item, result)
        if not result.ok and result.fresh is not None and self._is_newer(result.fresh):
            port.deliver(Put(type(result.fresh).__name__, result.fresh))
        code = result.code if result.code or not result.ok else 200
        port.deliver(Outcome(action, code, result.message, result.fresh))

    def _is_newer(self, obj: KubeObject) -> bool:
        held = self._port.cache.get(type(obj).__name__, obj.key)
        return held is None or is_newer(obj, held.metadata.resource_version)


def _place_of(item: QueuedAction, waiting: Sequence[QueuedAction]) -> int:
    """Behind all that waits; a NoExecute taint goes ahead of the node's pods that are to be marked
    last, since upstream's loop of 100 ms does not wait for them. It does so once: a taint that a
    guard holds is decided again and again, and the marks would never have their turn.
    """
    place = len(waiting)
    if is_of_taint_loop(item.action):
        while place and _lets_taints_pass(waiting[place - 1]):
            place -= 1
            waiting[place].overtaken = True
    return place


def _lets_taints_pass(item: QueuedAction) -> bool:
    return isinstance(item.action, (MarkPodNotReady, RecordEvent)) and not item.overtaken
