"""Computes the timer that a running taint-eviction controller must have set for a pod (join).

There is no upstream to follow. A timer starts when the pod meets its node's taints: at the taint's
timeAdded, or when the pod was bound, if that was later. Taints that came one after another are
played through in that order by the rules of `process_pod`. What cannot be seen from outside is
given as a range: timeAdded is cut to whole seconds, and a taint set by hand often has none, so that
its timer ends at the latest a full period from now, and may end at any moment before. Not visible
at all: a taint that was exchanged for another one while the timer ran, which keeps the timer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kubectl_nodelife.controllers.tainteviction.tolerance import ToleratedStay
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import TRUE

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
    pod: Pod, taints: Sequence[Taint], judge: Judge, now_ns: int
) -> RunningTimer | None:
    """The timer of a controller that saw these NoExecute taints come, or None.

    A timer that is over already is returned too: the pod should be terminating.
    """
    bound_ns = min(_bound_ns(pod), now_ns)
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
    """When the pod was bound, as far as it tells; 0 where it does not."""
    scheduled = pod.status.condition("PodScheduled")
    if scheduled is not None and scheduled.status == TRUE and scheduled.last_transition_time:
        return scheduled.last_transition_time
    return pod.metadata.creation_timestamp or 0
