"""The eviction of a pod from a tainted node: when it is due and why, the timer that waits for that
instant, and the actions that carry it out.

Follows pkg/controller/tainteviction/taint_eviction.go. `tolerated_stay` is the first half of
`processPodOnNode`: each taint uses the first toleration in the pod's list that tolerates it, and
the shortest of those used counts; a second, longer or shorter, toleration for the same taint counts
for nothing. `EvictionTerms` are the stay with its sentences, made once for all pods of a node that
have the same tolerations. `mark_and_delete` and the events are `addConditionAndDeletePod`,
`emitPodDeletionEvent` and `emitCancelPodDeletionEvent`.

`TimedWorkers` follows pkg/controller/tainteviction/timed_workers.go. A key is free, has a worker
with a timer, or holds a marker: work that ran at once or, up to 1.32, any work that ran without an
error. The caller runs the handler: at once where the answer says so, else when `take_due` yields
the work. A run is taken for a success as soon as it began, since success is never reported; `fail`
takes that back. Left out on purpose: the races of real threads, which leave markers behind or
delete what was cancelled an instant before.

The timer that a running controller must have set for a pod (`work_of_running`, for join) has no
upstream to follow. A timer starts when the pod meets its node's taints: at the taint's timeAdded,
or when the pod was bound, if that was later. Taints that came one after another are played through
in that order by the rules of `process_pod`. What cannot be seen from outside: timeAdded is cut to
whole seconds, so that the timer ends up to a second later; a taint set by hand often has none, and
counts as added now, so that its timer may end at any moment before; a taint that was exchanged for
another one while the timer ran keeps the timer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.copy_on_write import copy_of_dict, fork_dict
from kubectl_nodelife.engine import actions
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod, Toleration, disruption_target
from kubectl_nodelife.kube.taints import first_tolerating
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import DELETION_BY_TAINT_MANAGER, TRUE

Key = tuple[str, str]

# What Go's Duration holds; upstream multiplies beyond it and most often lands below 0: for ever.
_LONGEST_SECONDS: Final = (1 << 63) // SECOND_NS

CONTROLLER: Final = "taint-eviction"
EVENT_REASON: Final = "TaintManagerEviction"
_CONDITION_MESSAGE = "Taint manager: deleting due to NoExecute taint"


class Work(msgspec.Struct, gc=False):
    """One deletion, whose timer ends at `due_ns`; `because` is the sentence of the deletion."""

    key: Key
    node: str
    due_ns: int
    schedule: actions.ScheduleEviction
    because: str


class TimedWorkers:
    """The workers by key, by node, and by the instant of their timers."""

    def __init__(self, *, sticky_keys: bool) -> None:
        """`sticky_keys`: up to 1.32 a run without an error leaves a marker."""
        self._sticky = sticky_keys
        self._workers: dict[Key, Work | None] = {}
        self._by_node: dict[str, dict[Key, Work]] = {}
        self._by_instant: dict[int, list[Work]] = {}

    def fork(self) -> TimedWorkers:
        """Others with the same timers."""
        other = copy(self)
        self._workers, other._workers = fork_dict(self._workers)
        self._by_node, other._by_node = fork_dict(self._by_node, copy_of_dict)
        self._by_instant, other._by_instant = fork_dict(self._by_instant, list)
        return other

    def __contains__(self, key: Key) -> bool:
        return key in self._workers

    def get(self, key: Key) -> Work | None:
        """The key's worker with a timer. Follows `GetWorkerUnsafe`."""
        return self._workers.get(key)

    def on(self, node: str) -> Collection[Work]:
        """The workers of the pods of a node."""
        return self._by_node.get(node, {}).values()

    def nodes(self) -> Collection[str]:
        """The nodes with a worker."""
        return self._by_node.keys()

    def add(self, work: Work, now_ns: int) -> bool:
        """Take the work unless its key is there. Follows `AddWork`.

        True: its timer is over at once, and the caller must run it.
        """
        if work.key in self._workers:
            return False
        if work.due_ns <= now_ns:
            self._workers[work.key] = None
            return True
        self._workers[work.key] = work
        self._by_node.setdefault(work.node, {})[work.key] = work
        self._by_instant.setdefault(work.due_ns, []).append(work)
        return False

    def is_first_at(self, work: Work) -> bool:
        """True if no work added before has its timer at the same instant."""
        return self._by_instant[work.due_ns][0] is work

    def any_at(self, at_ns: int) -> bool:
        """True if some timer ends at that very instant."""
        works = self._by_instant.get(at_ns, ())
        return any(self._workers.get(work.key) is work for work in works)

    def cancel(self, key: Key) -> Work | None:
        """Free the key; returns the worker if its timer still ran. Follows `CancelWork`."""
        work = self._workers.pop(key, None)
        if work is not None:
            self._leave_node(work)
        return work

    def take_due(self, at_ns: int) -> Iterator[Work]:
        """Take out, in the order of adding, the works whose timers end at that very instant."""
        for work in self._by_instant.pop(at_ns, ()):
            if self._workers.get(work.key) is work:
                self._workers[work.key] = None
                self._leave_node(work)
                yield work

    def finish(self, key: Key) -> None:
        """A run has ended, as far as is known without an error."""
        if not self._sticky:
            self.fail(key)

    def fail(self, key: Key) -> None:
        """A run has ended with an error: the key is free, unless it has a worker again."""
        if self._workers.get(key) is None:
            self._workers.pop(key, None)

    def _leave_node(self, work: Work) -> None:
        workers = self._by_node[work.node]
        del workers[work.key]
        if not workers:
            del self._by_node[work.node]


class EvictionTerms(msgspec.Struct, frozen=True, gc=False):
    """The stay that a list of tolerations allows on one node now, with its sentences made once."""

    stay: ToleratedStay
    because: str
    because_deleted: str

    def work(self, pod: Pod, due_ns: int, cause: actions.Action | None) -> Work:
        """The pod will be deleted then."""
        schedule = actions.ScheduleEviction(
            controller=CONTROLLER,
            because=self.because,
            cause=cause,
            **actions.of_pod(pod),
            due_ns=due_ns,
            toleration_seconds=self.stay.seconds or 0,
            taints=self.stay.taints,
        )
        return Work(pod.key, pod.spec.node_name, due_ns, schedule, self.because_deleted)


def terms_of_stay(stay: ToleratedStay, node: str, since_ns: int) -> EvictionTerms:
    """The stay with its sentences, counted from that instant."""
    if stay.seconds is None:
        return EvictionTerms(stay, "", "")
    because = why_scheduled(stay, node, since_ns)
    return EvictionTerms(stay, because, why_deleted(stay, node, since_ns))


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


def work_of_running(
    pod: Pod, taints: Sequence[Taint], judge: Judge, now_ns: int, counted_from_ns: int = 0
) -> Work | None:
    """The work of a controller that saw these NoExecute taints come, or None. No time counts from
    before `counted_from_ns`.

    One whose timer is over already is returned too: the pod should be terminating.
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
    created_ns, stay = begun
    return terms_of_stay(stay, pod.spec.node_name, created_ns).work(pod, _end_ns(*begun), None)


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


def marking_event(key: Key, because: str, cause: actions.Action) -> actions.RecordEvent:
    """The event of a deletion, sent before the first try."""
    return _event(key, f"Marking for deletion Pod {key[0]}/{key[1]}", because, cause)


def cancelling_event(key: Key, because: str, cause: actions.Action) -> actions.RecordEvent:
    """The event of a timer that was stopped."""
    return _event(key, f"Cancelling deletion of Pod {key[0]}/{key[1]}", because, cause)


def mark_and_delete(
    pod: Pod, delete: actions.DeletePod, now_ns: int, *, with_condition: bool
) -> list[actions.Action]:
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
    mark = actions.SetPodCondition(
        controller=CONTROLLER,
        because=delete.because,
        cause=delete.cause,
        namespace=delete.namespace,
        pod=delete.pod,
        pod_uid=uid,
        condition=condition,
    )
    return [mark, delete]


def _event(key: Key, message: str, because: str, cause: actions.Action) -> actions.RecordEvent:
    namespace, name = key
    return actions.RecordEvent(
        controller=CONTROLLER,
        because=because,
        cause=cause,
        kind="Pod",
        name=name,
        namespace=namespace,
        reason=EVENT_REASON,
        message=message,
    )
