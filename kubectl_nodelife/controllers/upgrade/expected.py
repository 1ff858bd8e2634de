"""How long a node is out of service, at least, as expected, and at most: for windows and plans."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.marks import NodeMark
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, parse_time

DEFAULT_WORK_NS: Final = 10 * MINUTE_NS
"""Where no duration of the work is given."""
RENEWAL_NS: Final = 10 * SECOND_NS
"""How often kubelets renew their Leases by default: four times in its 40 s."""
SETTLE_EXTRA_NS: Final = 2 * SECOND_NS
"""Beside `--ready-for`: the checks are looked at every few seconds."""
DAEMON_PODS_NS: Final = 30 * SECOND_NS
"""How much longer the pods of DaemonSets may take until they are Ready."""
CANARY_NS: Final = (11 * SECOND_NS, 14 * SECOND_NS, 30 * SECOND_NS)
"""Scheduled, started, 10 s without a restart, deleted; at most its image is pulled."""
_WORK_RANGE: Final = {True: (0.8, 1.25), False: (0.5, 2.0)}
"""The work's length at least and at most, as shares; True: its duration is given."""


SLACK: Final = 1.05
"""The time that passes between the phases: the leader's looks, its requests, their answers."""


class PhaseTimes(NamedTuple):
    """How long a node's phases take, in nanoseconds: the work, Settling, Proving."""

    work_ns: int
    settle_ns: int
    prove_ns: int


def expected_work_ns(policy: UpgradePolicy) -> int:
    """How long the work on a node is expected to take."""
    if policy.work.mode is WorkMode.NOTHING:
        return 0
    return DEFAULT_WORK_NS if policy.expect_work_ns is None else policy.expect_work_ns


def phase_times(
    policy: UpgradePolicy, renewal_ns: int | None = None
) -> tuple[PhaseTimes, PhaseTimes, PhaseTimes]:
    """The phases at least, as expected, and at most.

    `renewal_ns`: how often the nodes' Leases are renewed, None where it is not known. Check S2 sees
    three renewals, the first of them at once, if need be.
    """
    work = expected_work_ns(policy)
    least, most = _WORK_RANGE[policy.expect_work_ns is not None]
    soonest = max(policy.ready_for_ns, 2 * (renewal_ns or 0))
    settle = max(policy.ready_for_ns, 3 * (renewal_ns or RENEWAL_NS)) + SETTLE_EXTRA_NS
    longest = settle + max(DAEMON_PODS_NS, settle // 2)
    return (
        PhaseTimes(int(work * least), soonest, CANARY_NS[0]),
        PhaseTimes(work, settle, CANARY_NS[1]),
        PhaseTimes(
            min(int(work * most), policy.work_timeout_ns),
            min(longest, policy.return_timeout_ns),
            min(CANARY_NS[2], policy.prove_timeout_ns),
        ),
    )


def high_estimate_ns(policy: UpgradePolicy, drain_seconds: float) -> int:
    """The high estimate of one node: drain, work, return and proof, each at its longest."""
    return int(drain_seconds * SECOND_NS) + sum(phase_times(policy)[2])


class MeasuredTimes(NamedTuple):
    """Medians over the nodes of a run whose work has ended, ns; None where there is none yet."""

    nodes: int = 0
    drain_ns: int | None = None
    work_ns: int | None = None


def measured(marks: Iterable[NodeMark]) -> MeasuredTimes:
    """The times that drains and work took so far, by the marks' own instants; first tries alone."""
    done = [mark for mark in marks if mark.work.ended and mark.try_ == 1 and not mark.for_]
    drains = [_between(m.claimed, m.work.started) for m in done if m.claimed and m.work.started]
    works = [_between(m.work.started, m.work.ended) for m in done if m.work.started]
    return MeasuredTimes(
        len(works), median_low(drains) if drains else None, median_low(works) if works else None
    )


def _between(earlier: str, later: str) -> int:
    return max(0, parse_time(later) - parse_time(earlier))
