"""How much less or more time a run may take than it was played with.

It was played once, with what is expected. The ends are found by the same run without its pods
(`rehearsal.py`): as much shorter and longer as that is with the least and the longest times, and at
least as short as that itself: a quick cluster need not wait for what was played.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubectl_nodelife.controllers.upgrade.expected import PhaseTimes
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.upgrade_course import Course
from kubectl_nodelife.upgrade.plan_values import UpgradeEstimate
from kubectl_nodelife.upgrade.rehearsal import RehearsedRun, rehearse

SLACK: Final = 1.05
"""What passes between the phases: the leader's looks, its requests, their answers."""


def estimate(
    run: Callable[[], RehearsedRun],
    played: Course,
    times: tuple[PhaseTimes, PhaseTimes, PhaseTimes],
    verdicts: Mapping[str, DrainVerdict],
    options: DrainOptions,
    cold_ns: int,
) -> UpgradeEstimate:
    """The ends of what was played. `times`: of a node's phases at least, as expected, at most.

    `run`: makes it, of the nodes that could be drained. `cold_ns`: what passes before it begins.
    """
    drains = {
        turn.name: turn.drained_ns - turn.claimed_ns
        for turn in played.turns.values()
        if turn.drained_ns is not None
    }
    shorter = {name: _shorter(ns, verdicts[name]) for name, ns in drains.items()}
    longer = {name: _longer(ns, verdicts[name], options) for name, ns in drains.items()}
    least_times, expected_times, most_times = times
    phases_of = (least_times, _as_played(played, expected_times), most_times)
    low, middle, high = (
        rehearse(run(), lengths, phases).end_ns
        for lengths, phases in zip((shorter, drains, longer), phases_of, strict=True)
    )
    cold, end = cold_ns / SECOND_NS, played.end_ns / SECOND_NS
    least, most = (end * share / middle if middle else end for share in (low, high))
    least = min(least, low / SECOND_NS)
    return UpgradeEstimate(cold + min(least, end), (cold + max(most, end)) * SLACK, cold)


def _as_played(played: Course, expected: PhaseTimes) -> PhaseTimes:
    """What is expected of each phase, or what it took in the play where that was longer: daemon
    pods may come back later than a node with short Leases is found to be Ready.
    """
    turns = played.turns.values()
    settled = [t.settled_ns - t.worked_ns for t in turns if t.settled_ns and t.worked_ns]
    proven = [t.released_ns - t.settled_ns for t in turns if t.released_ns and t.settled_ns]
    return PhaseTimes(
        expected.work_ns,
        max(expected.settle_ns, min(settled, default=0)),
        max(expected.prove_ns, min(proven, default=0)),
    )


def _shorter(played_ns: int, verdict: DrainVerdict) -> int:
    """The least that a drain takes which took so long when it was played."""
    return min(played_ns, int((verdict.low_seconds + 1.0) * SECOND_NS))


def _longer(played_ns: int, verdict: DrainVerdict, options: DrainOptions) -> int:
    """The most that it takes, within the drain's time limit."""
    high_ns = max(int(1.1 * played_ns) + 10 * SECOND_NS, int(verdict.high_seconds * SECOND_NS))
    return min(high_ns, options.timeout_ns or high_ns)
