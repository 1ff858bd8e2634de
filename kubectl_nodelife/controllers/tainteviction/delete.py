"""What a deletion by taint consists of: an event, a condition, a DELETE.

Follows `addConditionAndDeletePod`, `emitPodDeletionEvent` and `emitCancelPodDeletionEvent` of
pkg/controller/tainteviction/taint_eviction.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.tainteviction.timed_workers import Key
from kubectl_nodelife.engine.actions import Action, DeletePod, RecordEvent, SetPodCondition
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import DISRUPTION_TARGET, TRUE

CONTROLLER: Final = "taint-eviction"
EVENT_REASON: Final = "TaintManagerEviction"
CONDITION_REASON: Final = "DeletionByTaintManager"
_CONDITION_MESSAGE = "Taint manager: deleting due to NoExecute taint"


def marking_event(key: Key, because: str, cause: Action) -> RecordEvent:
    """The event of a deletion, sent before the first try."""
    return _event(key, f"Marking for deletion Pod {key[0]}/{key[1]}", because, cause)


def cancelling_event(key: Key, because: str, cause: Action) -> RecordEvent:
    """The event of a timer that was stopped."""
    return _event(key, f"Cancelling deletion of Pod {key[0]}/{key[1]}", because, cause)


def mark_and_delete(
    pod: Pod, delete: DeletePod, now_ns: int, *, with_condition: bool
) -> Iterator[Action]:
    """One try: the condition unless the pod has it, then the DELETE.

    Upstream gives up a try whose patch fails; here its DELETE is sent all the same, since what
    comes of the patch is known only later.
    """
    condition = disruption_target(pod, now_ns) if with_condition else None
    if condition is not None:
        yield SetPodCondition(
            controller=CONTROLLER,
            because=delete.because,
            cause=delete.cause,
            namespace=delete.namespace,
            pod=delete.pod,
            pod_uid=pod.metadata.uid,
            condition=condition,
        )
    same = delete.pod_uid == pod.metadata.uid
    yield delete if same else replace(delete, pod_uid=pod.metadata.uid)


def disruption_target(pod: Pod, now_ns: int) -> PodCondition | None:
    """The condition to set, or None where that changes nothing. Follows `UpdatePodCondition`."""
    old = pod.status.condition(DISRUPTION_TARGET)
    since = Time(now_ns // SECOND_NS * SECOND_NS)
    if old is not None and old.status == TRUE:
        if old.reason == CONDITION_REASON and old.message == _CONDITION_MESSAGE:
            return None
        since = old.last_transition_time or since
    return PodCondition(
        type=DISRUPTION_TARGET,
        status=TRUE,
        reason=CONDITION_REASON,
        message=_CONDITION_MESSAGE,
        last_transition_time=since,
    )


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
