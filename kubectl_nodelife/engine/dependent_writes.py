"""Which writes follow one another, and which are not sent where one before them failed.

Upstream's code goes from one call to the next and returns with the first error: a pod whose
condition could not be patched is not deleted (`addConditionAndDeletePod`,
`markFailedAndDeletePod`), a DELETE that fails ends the eviction without taints (`DeletePods`), a
node whose status could not be written is left out of the pass (`monitorNodeHealth`), of two taints
that change places the second stays if the first was refused (`SwapNodeControllerTaint`). A
controller here decides all of it at once, so that an executor, live or simulated, asks here before
it sends what comes next. A write counts as failed however it came to nothing: refused by the API
server, held back by a guard, withdrawn, dropped, or ended by a bug.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

import msgspec

from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    MarkPodNotReady,
    NodeMarkPatch,
    RecordEvent,
    RemoveTaints,
    SetNodeConditions,
    SetNodeLabels,
    SetPodCondition,
    SetPodPhase,
    SetPodReason,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Result
from kubectl_nodelife.engine.calls.call import CONFLICT, NOT_FOUND
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE

NODE_LIFECYCLE: Final = "node-lifecycle"

QueueKey = tuple[str, str, Hashable]
"""The key of writes that go one after another: (controller, which part of it, what about)."""

_FIRST_OF_MORE: Final = (SetNodeConditions, AddTaints, SetPodCondition, SetPodPhase)
"""Where one of these fails, what follows it in its queue, of the same decision, may not go out."""

_KEPT_NS: Final = 60 * SECOND_NS
"""So long a failure is remembered; its controller has been notified long before."""


class FailedWrite(msgspec.Struct, frozen=True):
    """A write that was not applied: when it was decided, what came of it, and when it was known."""

    action: Action
    decided_ns: int
    result: Result
    at_ns: int


class FailedWrites:
    """The writes that were not applied lately, for what depends on them.

    A failure outlives the queue in which it happened: an executor may have sent or withdrawn the
    first write of a decision before it is given the second one.
    """

    def __init__(self) -> None:
        self._by_queue: dict[QueueKey, list[FailedWrite]] = {}
        self._by_action: dict[int, FailedWrite] = {}  # by identity; the value holds the action
        self._in_order: deque[tuple[QueueKey, FailedWrite]] = deque()

    def __bool__(self) -> bool:
        return bool(self._by_action)

    def copy(self) -> FailedWrites:
        """The same failures, for a world that goes on apart."""
        other = FailedWrites()
        other._by_queue = {key: list(failed) for key, failed in self._by_queue.items()}
        other._by_action = dict(self._by_action)
        other._in_order = deque(self._in_order)
        return other

    def note(self, key: QueueKey, failed: FailedWrite) -> None:
        """Remember a write of that queue that was not applied, if others may depend on it."""
        if others_depend_on(failed.action, failed.result):
            self._by_queue.setdefault(key, []).append(failed)
            self._by_action[id(failed.action)] = failed
            self._in_order.append((key, failed))

    def before(self, key: QueueKey, action: Action, decided_ns: int) -> FailedWrite | None:
        """The failure for which the action, of that queue, may not go out; None where it may."""
        if not self._by_action:
            return None
        for failed in self._by_queue.get(key, ()):
            if depends_on(action, decided_ns, failed):
                return failed
        for cause in action.causes():
            led = self._by_action.get(id(cause))
            if led is not None and depends_on(action, decided_ns, led):
                return led
        return None

    def forget_before(self, now_ns: int) -> None:
        """Forget those of which each controller has been notified long since."""
        while self._in_order and self._in_order[0][1].at_ns < now_ns - _KEPT_NS:
            key, failed = self._in_order.popleft()
            self._by_action.pop(id(failed.action), None)  # one may have been noted twice
            self._by_queue[key].remove(failed)
            if not self._by_queue[key]:
                del self._by_queue[key]


def queue_key(action: Action, cache: Cache) -> QueueKey:
    """Where the action has its turn."""
    controller = action.controller
    if controller != NODE_LIFECYCLE:
        return controller, "", action.target
    if is_of_node_queue(action):
        return controller, "nodes", action.target[1]
    if is_of_pod_queue(action):
        return controller, "pods", action.target[1]
    return controller, "pass", _node(action, cache)


def others_depend_on(action: Action, result: Result) -> bool:
    """True if others may not be carried out where this one ends so.

    Upstream records the Event of a pod's mark though the API server has refused the mark, unless
    the pod is gone. A mark that was never sent is none.
    """
    if result.ok and not result.moot:
        return False
    if isinstance(action, MarkPodNotReady):
        return result.moot or result.code in (NOT_FOUND, NOT_SENT)
    if isinstance(action, SetPodReason) or _is_of_eviction(action):
        return not result.moot and fails_deletion(action, result.code)
    return not isinstance(action, RecordEvent)


def depends_on(action: Action, decided_ns: int, failed: FailedWrite) -> bool:
    """True if the action is not to be carried out either, for it was decided before the failure
    was known, and

    - the write that failed led to it (`cause`): a pod's mark is led to by the condition of its
      node, an upgrade's Event by the change of state that it reports; or
    - they are of one decision and one queue: of a node that could not be called lost everything, of
      a pod that could not be patched everything, of an exchange of taints the second half, of the
      eviction without taints a pod whose status met a conflict, and all after a failed DELETE; or
    - it is the NoExecute taint of a node that could not be called lost.
    """
    first = failed.action
    if decided_ns > max(failed.at_ns, failed.decided_ns):  # a clock may have been set back
        return False
    if any(cause is first for cause in action.causes()):
        if _is_of_eviction(first):  # its Event is recorded before it is sent
            return failed.result.code == NOT_SENT
        return not isinstance(action, RecordEvent) or _is_reported_after(first)
    if isinstance(first, SetNodeConditions) and is_of_taint_loop(action):
        return True
    if decided_ns != failed.decided_ns:
        return False
    if isinstance(first, MarkPodNotReady):
        return isinstance(action, RecordEvent) and action.target == first.target
    if isinstance(first, SetPodReason) or _is_of_eviction(first):
        return _is_left_out_of_eviction(action, failed)
    if isinstance(first, AddTaints):
        return isinstance(action, RemoveTaints) and not failed.result.moot
    if isinstance(action, RecordEvent):  # that of an eviction is recorded before the first try
        return isinstance(first, SetNodeConditions)
    return isinstance(first, _FIRST_OF_MORE)


def fails_deletion(action: Action, code: int) -> bool:
    """True if `DeletePods` ends with an error where a write of it has failed with this code. Of a
    pod's status only a conflict counts, which skips the pod; a pod that is gone is no error.
    """
    if isinstance(action, SetPodReason):
        return code in (CONFLICT, NOT_SENT)
    return code != NOT_FOUND


def _is_of_eviction(action: Action) -> bool:
    return isinstance(action, DeletePod) and action.controller == NODE_LIFECYCLE


def _is_left_out_of_eviction(action: Action, failed: FailedWrite) -> bool:
    """True if the action, decided with the failed one, is of the same `DeletePods` and comes to
    nothing with it; or is the mark by a pod worker, which returns with the error.
    """
    first = failed.action
    if isinstance(action, MarkPodNotReady):
        return action.by_pod_worker
    if isinstance(first, SetPodReason):
        return isinstance(action, DeletePod) and action.target == first.target
    return failed.result.code != NOT_SENT and isinstance(action, (SetPodReason, DeletePod))


def _is_reported_after(action: Action) -> bool:
    """True if an Event that it leads to reports that it was done. An Event of a DaemonSet's sync
    may report that it failed.
    """
    return isinstance(action, (SetNodeConditions, MarkPodNotReady, NodeMarkPatch))


def learns_of_failure(action: Action, failed: FailedWrite) -> bool:
    """True if the controller learns that the action was not carried out. Where a node could not be
    written its pass decides that anew, with all that depends on it; a pod's queue and the loop of
    100 ms learn of each of theirs.
    """
    if isinstance(action, RecordEvent):
        return False
    if isinstance(failed.action, SetPodReason) or _is_of_eviction(failed.action):
        return False
    if not isinstance(failed.action, (SetNodeConditions, AddTaints)):
        return True
    return is_of_taint_loop(action) or is_of_pod_queue(action)


def is_of_node_queue(action: Action) -> bool:
    """True if it is a node worker's, not the pass's: taints that mirror conditions, and labels."""
    if isinstance(action, (AddTaints, RemoveTaints)):
        return any(taint.effect == NO_SCHEDULE for taint in action.taints)
    return isinstance(action, SetNodeLabels)


def is_of_pod_queue(action: Action) -> bool:
    """True if a pod worker marks, or deletes, a pod that came to a lost node."""
    of_pods = (MarkPodNotReady, SetPodReason, DeletePod)
    return isinstance(action, of_pods) and action.by_pod_worker


def is_of_taint_loop(action: Action) -> bool:
    """True if it adds a NoExecute taint, as the loop of 100 ms does."""
    return isinstance(action, AddTaints) and any(t.effect == NO_EXECUTE for t in action.taints)


def is_of_pass(action: Action) -> bool:
    """True if the pass of its controller ends only after it: node-lifecycle's begins anew one
    period after that, pod-gc's run as well.
    """
    if action.controller == "pod-gc":
        return True
    if action.controller != NODE_LIFECYCLE or isinstance(action, AddTaints):
        return False  # of the loop of 100 ms, or of the node workers
    return not is_of_node_queue(action) and not is_of_pod_queue(action)


def _node(action: Action, cache: Cache) -> Hashable:
    """The node that the action is about, or on which its pod is."""
    kind, key = action.target
    if kind == "Pod":
        pod = cache.pods.get(key)
        return ("", pod.spec.node_name) if pod is not None else key
    return key
