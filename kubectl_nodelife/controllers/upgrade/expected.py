"""How long a node is expected to be out of service: what windows and plans reckon with."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.marks import NodeMark
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, parse_time

DEFAULT_WORK_NS: Final = 10 * MINUTE_NS
"""Where nobody has said how long the work takes."""


def expected_work_ns(policy: UpgradePolicy) -> int:
    """How long the work on a node is expected to take."""
    if policy.work.mode is WorkMode.NOTHING:
        return 0
    return policy.expect_work_ns or DEFAULT_WORK_NS


def high_estimate_ns(policy: UpgradePolicy, drain_seconds: float) -> int:
    """The high estimate of one node: drain, work, return and proof."""
    back_ns = policy.ready_for_ns + MINUTE_NS
    return int(drain_seconds * SECOND_NS) + expected_work_ns(policy) + back_ns


class MeasuredTimes(NamedTuple):
    """Medians over the nodes of a run whose work has ended, ns; None where there is none yet."""

    nodes: int = 0
    drain_ns: int | None = None
    work_ns: int | None = None


def measured(marks: Iterable[NodeMark]) -> MeasuredTimes:
    """What drains and work have taken so far, by the marks' own instants; first tries alone."""
    done = [mark for mark in marks if mark.work.ended and mark.try_ == 1 and not mark.for_]
    drains = [_between(m.claimed, m.work.started) for m in done if m.claimed and m.work.started]
    works = [_between(m.work.started, m.work.ended) for m in done if m.work.started]
    return MeasuredTimes(
        len(works),
        median_low(drains) if drains else None,
        median_low(works) if works else None,
    )


def _between(earlier: str, later: str) -> int:
    return max(0, parse_time(later) - parse_time(earlier))
