"""`replay --drain`: a drain looked back on, as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubectl_nodelife.answers import document
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.outlook.replay.drain_review import DrainReview, MovedPod


def drain_review_document(
    review: DrainReview,
    source: dict[str, Any],
    promised: Mapping[str, float] | None,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The DrainReview document. `promised`: the estimate of a plan that was kept."""
    cordoned, begin_ns, end_ns = review.cordoned, review.begin_ns, review.end_ns
    took_s = None if begin_ns is None or end_ns is None else (end_ns - begin_ns) / SECOND_NS
    return document(
        "DrainReview",
        source=source,
        node=review.node,
        cordoned=None
        if cordoned is None
        else {"time": format_time(cordoned.time_ns), "by": cordoned.actor.name},
        begin=_time(begin_ns),
        end=_time(end_ns),
        seconds=took_s,
        promised=None if promised is None else dict(promised),
        pods=[_pod(pod) for pod in review.pods],
        workloads=[
            {
                "namespace": workload.namespace,
                "owner": workload.owner,
                "moved": workload.moved,
                "shortSeconds": workload.short_s,
                "zeroSeconds": workload.zero_s,
            }
            for workload in review.workloads
        ],
        budgets=[
            {
                "namespace": budget.namespace,
                "name": budget.name,
                "desired": budget.desired,
                "zeroSeconds": budget.zero_s,
            }
            for budget in review.budgets
        ],
        refused=review.refused,
        warnings=list(warnings),
    )


def _pod(pod: MovedPod) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "owner": pod.owner,
        "left": _time(pod.left_ns),
        "by": pod.by or None,
        "replacement": pod.replacement or None,
        "node": pod.node or None,
        "ready": _time(pod.ready_ns),
        "gapSeconds": pod.gap_s,
    }


def _time(instant_ns: int | None) -> str | None:
    return None if instant_ns is None else format_time(instant_ns)
