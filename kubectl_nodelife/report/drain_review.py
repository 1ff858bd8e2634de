"""The page of `replay --drain`: the drain in one line, then pods, workloads, budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.outlook.replay.drains import DrainReview, drain_review_document
from kubectl_nodelife.report.ages import clock
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.table import Table, columns

_POD_COLUMNS: Final = columns("namespace | pod | left | by | replacement | on | ready | after")
_WORKLOAD_COLUMNS: Final = columns("namespace | owner | moved | fewer ready for | none ready for")
_BUDGET_COLUMNS: Final = columns("namespace | budget | needs | at zero for")
UNKNOWN: Final = "<unknown>"


class DrainReviewPage:
    """A drain looked back on, as an answer. `promised`: the estimate of the plan that was kept."""

    def __init__(
        self,
        review: DrainReview,
        source: dict[str, Any],
        promised: Mapping[str, float] | None,
        warnings: Sequence[str],
    ) -> None:
        self._review = review
        self._source = source
        self._promised = promised
        self._warnings = warnings

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """The sentence, then what moved."""
        review = self._review
        yield self._headline()
        if review.pods:
            yield Table(_POD_COLUMNS, [self._pod_row(i) for i in range(len(review.pods))])
        if review.workloads:
            rows = [
                [w.namespace, w.owner, w.moved, _seconds(w.short_s), _seconds(w.zero_s)]
                for w in review.workloads
            ]
            yield Table(_WORKLOAD_COLUMNS, rows)
        if review.budgets:
            spent = [[b.namespace, b.name, b.desired, _seconds(b.zero_s)] for b in review.budgets]
            yield Table(_BUDGET_COLUMNS, spent)
        refused = review.refused
        refusals = "\n".join(f"refused: {one}" for one in refused)
        yield refusals or "refused evictions: not known; the API server keeps no trace of them"

    def document(self) -> object:
        """The DrainReview document."""
        return drain_review_document(self._review, self._source, self._promised, self._warnings)

    def names(self) -> Iterable[str]:
        """pod/NAMESPACE/NAME of each that left."""
        return (f"pod/{pod.namespace}/{pod.name}" for pod in self._review.pods)

    def _headline(self) -> str:
        review = self._review
        cordoned = review.cordoned
        if cordoned is None and not review.pods:
            return _no_drain(review)
        by = "an unknown actor" if cordoned is None else cordoned.actor.name
        at = "at an unknown time" if cordoned is None else _clock(cordoned.time_ns)
        count = f"{len(review.pods)} pod{'' if len(review.pods) == 1 else 's'}"
        text = f"{review.node} was cordoned {at}, by {by}; {count} left"
        begin_ns, end_ns = review.begin_ns, review.end_ns
        if begin_ns is None or end_ns is None:
            return text
        took_s = (end_ns - begin_ns) / SECOND_NS
        is_ready = any(pod.ready_ns is not None for pod in review.pods)
        last = "the last replacement was Ready" if is_ready else "the last went"
        text += f", {last} {clock(took_s)} later"
        if self._promised is None:
            return text
        if not all(pod.ready_ns is not None for pod in review.pods):
            return f"{text}: not every replacement is known, so no promise is judged"
        low, high = self._promised["lowSeconds"], self._promised["highSeconds"]
        verdict = "as promised" if took_s <= high else "later than promised"
        return f"{text}: {verdict} ({clock(low)} to {clock(high)})"

    def _pod_row(self, index: int) -> list[object]:
        pod = self._review.pods[index]
        return [
            pod.namespace,
            pod.name,
            _clock(pod.left_ns),
            pod.by or UNKNOWN,
            pod.replacement or "<none>",
            pod.node or (UNKNOWN if pod.replacement else "-"),
            _clock(pod.ready_ns),
            _seconds(pod.gap_s),
        ]


def _no_drain(review: DrainReview) -> str:
    there = f"{counted(review.still_there, 'pod')} that a drain takes"
    on_it = f"{there} {'is' if review.still_there == 1 else 'are'} on it"
    if review.is_closed:
        seen = "since when and by whom nothing shows; no pod is seen to have left it"
        return f"{review.node} is cordoned, {seen}, and {on_it}"
    return (
        f"nothing shows a drain of {review.node}: no cordon, and no pod that left it; "
        f"it takes new pods, and {on_it}"
    )


def _clock(instant_ns: int | None) -> str:
    return UNKNOWN if instant_ns is None else format_time(instant_ns)


def _seconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else clock(seconds)
