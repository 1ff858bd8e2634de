"""The parts of a deletion by taint: an event, a condition, a DELETE.

Follows `addConditionAndDeletePod`, `emitPodDeletionEvent` and `emitCancelPodDeletionEvent` of
pkg/controller/tainteviction/taint_eviction.go.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.tainteviction.timed_workers import Key
from kubectl_nodelife.engine.actions import Action, DeletePod, RecordEvent, SetPodCondition
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.pod_conditions import disruption_target
from kubectl_nodelife.kube.wellknown import DELETION_BY_TAINT_MANAGER

CONTROLLER: Final = "taint-eviction"
EVENT_REASON: Final = "TaintManagerEviction"
_CONDITION_MESSAGE = "Taint manager: deleting due to NoExecute taint"


def marking_event(key: Key, because: str, cause: Action) -> RecordEvent:
    """The event of a deletion, sent before the first try."""
    return _event(key, f"Marking for deletion Pod {key[0]}/{key[1]}", because, cause)


def cancelling_event(key: Key, because: str, cause: Action) -> RecordEvent:
    """The event of a timer that was stopped."""
    return _event(key, f"Cancelling deletion of Pod {key[0]}/{key[1]}", because, cause)


def mark_and_delete(
    pod: Pod, delete: DeletePod, now_ns: int, *, with_condition: bool
) -> list[Action]:
    """One try: the condition unless the pod has it, then the DELETE, which the executor leaves out
    where the patch fails (`engine/dependent_writes.py`).
    """
    uid = pod.metadata.uid
    if delete.pod_uid != uid:
        delete = replace(delete, pod_uid=uid)
    condition = None
    if with_condition:
        condition = disruption_target(
            pod.status, DELETION_BY_TAINT_MANAGER, _CONDITION_MESSAGE, now_ns
        )
    if condition is None:
        return [delete]
    mark = SetPodCondition(
        controller=CONTROLLER,
        because=delete.because,
        cause=delete.cause,
        namespace=delete.namespace,
        pod=delete.pod,
        pod_uid=uid,
        condition=condition,
    )
    return [mark, delete]


def _event(key: Key, message: str, because: str, cause: Action) -> RecordEvent:
    namespace, name = key
    return RecordEvent(
        controller=CONTROLLER,
        because=because,
        cause=cause,
        kind="Pod",
        name=name,
        namespace=namespace,
        reason=EVENT_REASON,
        message=message,
    )
