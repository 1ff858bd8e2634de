"""How long a pod may stay on a tainted node, and which taint and toleration say so.

Follows the first half of `processPodOnNode` in pkg/controller/tainteviction/taint_eviction.go: each
taint uses the first toleration in the pod's list that tolerates it, and the shortest of those used
counts. A second, longer or shorter, toleration for the same taint counts for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Toleration
from kubectl_nodelife.kube.taints import first_tolerating
from kubectl_nodelife.kube.times import SECOND_NS, format_time

# What Go's Duration holds; upstream multiplies beyond it and most often lands below 0: for ever.
_LONGEST_SECONDS: Final = (1 << 63) // SECOND_NS


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
        found = first_tolerating(tolerations, taint, comparison_operators=comparison_operators)
        if found is None:
            return ToleratedStay(0, (taint,))
        seconds = found.toleration_seconds
        if seconds is None or seconds > _LONGEST_SECONDS:
            continue
        seconds = max(0, seconds)
        if shortest is None or seconds < shortest:
            shortest, used, limiting = seconds, found, [taint]
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
