"""Which writes follow one another, and which are not sent where one before them failed.

Upstream's code goes from one call to the next and returns with the first error: a pod whose
condition could not be patched is not deleted (`addConditionAndDeletePod`,
`markFailedAndDeletePod`), a node whose status could not be written is left out of the pass
(`monitorNodeHealth`), of two taints that change places the second stays if the first was refused
(`SwapNodeControllerTaint`). A controller here decides all of it at once, so that an executor, live
or simulated, asks here before it sends what comes next.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import msgspec

from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    MarkPodNotReady,
    RecordEvent,
    RemoveTaints,
    SetNodeConditions,
    SetNodeLabels,
    SetPodCondition,
    SetPodPhase,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Result
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE

NODE_LIFECYCLE: Final = "node-lifecycle"

QueueKey = tuple[str, str, Hashable]
"""The key of writes that go one after another: (controller, which part of it, what about)."""

_FIRST_OF_MORE: Final = (SetNodeConditions, AddTaints, SetPodCondition, SetPodPhase)


class FailedWrite(msgspec.Struct, frozen=True):
    """A write that failed: when it was decided, what came of it, and when that was known."""

    action: Action
    decided_ns: int
    result: Result
    at_ns: int


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
    """True if others of the same decision may not be carried out where this one fails so."""
    if isinstance(action, MarkPodNotReady):
        return result.code == NOT_FOUND
    return isinstance(action, _FIRST_OF_MORE)


def depends_on(action: Action, decided_ns: int, failed: FailedWrite) -> bool:
    """True if the action, of the same queue, is not to be carried out either: of a pod that could
    not be patched everything, of one that was gone its event, of an exchange of taints the second
    half; of a node that could not be called lost everything, and the NoExecute taint that was
    decided before that was known.
    """
    first = failed.action
    if isinstance(first, SetNodeConditions) and is_of_taint_loop(action):
        return decided_ns <= failed.at_ns
    if decided_ns != failed.decided_ns:
        return False
    if isinstance(first, MarkPodNotReady):
        return isinstance(action, RecordEvent) and action.target == first.target
    return not isinstance(first, AddTaints) or isinstance(action, RemoveTaints)


def learns_of_failure(action: Action, failed: FailedWrite) -> bool:
    """True if the controller learns that the action was not carried out: where a node could not be
    written it is decided anew, with all that depends on it.
    """
    if isinstance(action, RecordEvent):
        return False
    return failed.action.target[0] != "Node" or is_of_taint_loop(action)


def is_of_node_queue(action: Action) -> bool:
    """True if it is a node worker's, not the pass's: taints that mirror conditions, and labels."""
    if isinstance(action, (AddTaints, RemoveTaints)):
        return any(taint.effect == NO_SCHEDULE for taint in action.taints)
    return isinstance(action, SetNodeLabels)


def is_of_pod_queue(action: Action) -> bool:
    """True if a pod worker marks a pod that came to a lost node."""
    return isinstance(action, MarkPodNotReady) and action.by_pod_worker


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
