"""When a pod has to go from a tainted node, why, and by which actions.

Follows pkg/controller/tainteviction/taint_eviction.go. `tolerated_stay` is the first half of
`processPodOnNode`: each taint uses the first toleration in the pod's list that tolerates it, and
the shortest of those used counts; a second, longer or shorter, toleration for the same taint counts
for nothing. `EvictionTerms` are the stay with its sentences, made once for all pods of a node that
have the same tolerations. `mark_and_delete` and the events are `addConditionAndDeletePod`,
`emitPodDeletionEvent` and `emitCancelPodDeletionEvent`.

The timer that a running controller must have set for a pod (`timer_of_running`, for join) has no
upstream to follow. A timer starts when the pod meets its node's taints: at the taint's timeAdded,
or when the pod was bound, if that was later. Taints that came one after another are played through
in that order by the rules of `process_pod`. What cannot be seen from outside is given as a range:
timeAdded is cut to whole seconds, and a taint set by hand often has none, so that its timer ends at
the latest a full period from now, and may end at any moment before. Not visible at all: a taint
that was exchanged for another one while the timer ran, which keeps the timer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.tainteviction.timed_workers import Key, Work
from kubectl_nodelife.engine.actions import (
    Action,
    DeletePod,
    RecordEvent,
    ScheduleEviction,
    SetPodCondition,
)
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod, Toleration, disruption_target
from kubectl_nodelife.kube.taints import first_tolerating
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import DELETION_BY_TAINT_MANAGER, TRUE

# What Go's Duration holds; upstream multiplies beyond it and most often lands below 0: for ever.
_LONGEST_SECONDS: Final = (1 << 63) // SECOND_NS

CONTROLLER: Final = "taint-eviction"
EVENT_REASON: Final = "TaintManagerEviction"
_CONDITION_MESSAGE = "Taint manager: deleting due to NoExecute taint"


class EvictionTerms(msgspec.Struct, frozen=True, gc=False):
    """The stay that a list of tolerations allows on one node now, with its sentences made once."""

    stay: ToleratedStay
    because: str
    because_deleted: str

    def schedule(self, pod: Pod, due_ns: int, cause: Action | None) -> ScheduleEviction:
        """The pod will be deleted then."""
        return ScheduleEviction(
            controller=CONTROLLER,
            because=self.because,
            cause=cause,
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            pod_uid=pod.metadata.uid,
            due_ns=due_ns,
            toleration_seconds=self.stay.seconds or 0,
            taints=self.stay.taints,
        )


def terms_of_stay(stay: ToleratedStay, node: str, since_ns: int) -> EvictionTerms:
    """The stay with its sentences, counted from that instant."""
    if stay.seconds is None:
        return EvictionTerms(stay, "", "")
    because = why_scheduled(stay, node, since_ns)
    return EvictionTerms(stay, because, why_deleted(stay, node, since_ns))


def work_of_timer(pod: Pod, timer: RunningTimer) -> Work:
    """The work that a running controller has for the pod."""
    node = pod.spec.node_name
    terms = terms_of_stay(timer.stay, node, timer.created_ns)
    return Work(
        pod.key,
        node,
        timer.created_ns,
        timer.due_ns,
        terms.schedule(pod, timer.due_ns, None),
        terms.because_deleted,
        timer.earliest_ns,
        timer.latest_ns,
        timer.doubt,
    )


class ToleratedStay(msgspec.Struct, frozen=True, gc=False):
    """The answer for one list of tolerations: `seconds` None is for ever, 0 is not at all.

    `taints` are those that set the limit: the first untolerated one, or those tolerated for the
    shortest time. `toleration` is the one used, None where there is none.
    """

    seconds: int | None
    taints: tuple[Taint, ...] = ()
    toleration: Toleration | None = None

    @property
    def is_tolerated(self) -> bool:
        """True if every taint is tolerated, for however long."""
        return self.seconds is None or self.toleration is not None


FOR_EVER: Final = ToleratedStay(None)


def tolerated_stay(
    tolerations: Sequence[Toleration], taints: Sequence[Taint], *, comparison_operators: bool
) -> ToleratedStay:
    """How long pods with these tolerations may stay under these NoExecute taints.

    Follows `GetMatchingTolerations` and `getMinTolerationTime`.
    """
    shortest: int | None = None
    used: Toleration | None = None
    limiting: list[Taint] = []
    for taint in taints:
        toleration = first_tolerating(tolerations, taint, comparison_operators=comparison_operators)
        if toleration is None:
            return ToleratedStay(0, (taint,))
        seconds = toleration.toleration_seconds
        if seconds is None or seconds > _LONGEST_SECONDS:
            continue
        seconds = max(0, seconds)
        if shortest is None or seconds < shortest:
            shortest, used, limiting = seconds, toleration, [taint]
        elif seconds == shortest:
            limiting.append(taint)
    return FOR_EVER if shortest is None else ToleratedStay(shortest, tuple(limiting), used)


def why_scheduled(stay: ToleratedStay, node: str, since_ns: int) -> str:
    """The sentence of a ScheduleEviction."""
    taint = f"{stay.taints[0]} on node {node}"
    if stay.toleration is None:
        return f"the pod does not tolerate {taint}"
    if stay.seconds == 0:
        return f"the first toleration that matches {taint} ends at once (tolerationSeconds 0)"
    others = len(stay.taints) - 1
    more = f" (and {others} more)" if others else ""
    return (
        f"the first toleration that matches {taint}{more} ends after {stay.seconds} s, "
        f"counted from {format_time(since_ns)}"
    )


def why_deleted(stay: ToleratedStay, node: str, since_ns: int) -> str:
    """The sentence of a DeletePod."""
    if not stay.seconds:
        return why_scheduled(stay, node, since_ns)
    return (
        f"the {stay.seconds} s for which the pod tolerates {stay.taints[0]} on node {node} "
        f"are over, counted from {format_time(since_ns)}"
    )


Judge = Callable[[Sequence[Taint]], ToleratedStay]


class RunningTimer(msgspec.Struct, frozen=True):
    """A timer as it was most likely set, and the range in which it may end (ns)."""

    created_ns: int
    due_ns: int
    stay: ToleratedStay
    earliest_ns: int
    latest_ns: int
    doubt: str


def timer_of_running(
    pod: Pod, taints: Sequence[Taint], judge: Judge, now_ns: int, counted_from_ns: int = 0
) -> RunningTimer | None:
    """The timer of a controller that saw these NoExecute taints come, or None. No time counts from
    before `counted_from_ns`.

    A timer that is over already is returned too: the pod should be terminating.
    """
    bound_ns = min(max(_bound_ns(pod), counted_from_ns), now_ns)
    met = [max(bound_ns, min(_added_ns(taint, now_ns), now_ns)) for taint in taints]
    begun: tuple[int, ToleratedStay] | None = None
    for at_ns in sorted(set(met)):
        if begun is not None and _end_ns(*begun) <= at_ns:
            break
        stay = judge([taint for taint, met_ns in zip(taints, met, strict=True) if met_ns <= at_ns])
        if not stay.is_tolerated:
            begun = (at_ns, stay)
            break
        if begun is None and stay.seconds is not None:
            begun = (at_ns, stay)
    if begun is None:
        return None
    undated = [taint for taint in taints if taint.time_added is None]
    return _timer(*begun, undated, judge, bound_ns, now_ns)


def _timer(
    created_ns: int,
    stay: ToleratedStay,
    undated: Sequence[Taint],
    judge: Judge,
    bound_ns: int,
    now_ns: int,
) -> RunningTimer:
    """The timer with its range. A taint without a date may be as old as the pod on its node."""
    due_ns = _end_ns(created_ns, stay)
    doubt = "the API keeps whole seconds"
    earliest_ns, latest_ns = due_ns, due_ns + SECOND_NS
    for taint in undated:
        alone = judge([taint])
        if alone.seconds is not None and _end_ns(bound_ns, alone) < earliest_ns:
            earliest_ns = max(_end_ns(bound_ns, alone), min(now_ns, due_ns))
            latest_ns = due_ns
            doubt = f"since when {taint} is there is unknown"
    return RunningTimer(created_ns, due_ns, stay, earliest_ns, latest_ns, doubt)


def _end_ns(created_ns: int, stay: ToleratedStay) -> int:
    return created_ns + (stay.seconds or 0) * SECOND_NS


def _added_ns(taint: Taint, now_ns: int) -> int:
    return now_ns if taint.time_added is None else taint.time_added


def _bound_ns(pod: Pod) -> int:
    """When the pod was bound, as far as it shows; 0 where it does not."""
    scheduled = pod.status.condition("PodScheduled")
    if scheduled is not None and scheduled.status == TRUE and scheduled.last_transition_time:
        return scheduled.last_transition_time
    return pod.metadata.creation_timestamp or 0


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
