"""How long a run takes at least and at most: it is rehearsed again with other lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubectl_nodelife.controllers.upgrade.expected import PhaseTimes
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.upgrade.course import Course
from kubectl_nodelife.upgrade.drain_driver import PlayedDrains
from kubectl_nodelife.upgrade.plan_values import UpgradeEstimate
from kubectl_nodelife.upgrade.rehearsal import RehearsedRun, rehearse

SLACK: Final = 1.05
"""What passes between the phases: the leader's looks, its requests, their answers."""


def estimate(
    run: RehearsedRun,
    middle: tuple[Course, PlayedDrains],
    times: tuple[PhaseTimes, PhaseTimes],
    verdicts: Mapping[str, DrainVerdict],
    options: DrainOptions,
    cold_ns: int,
) -> UpgradeEstimate:
    """The ends of what was rehearsed as `middle`, with the least and the longest `times`.

    `run`: the same, of the nodes that could be drained. `cold_ns`: what passes before it begins.
    """
    course, played = middle
    lengths = course.drain_lengths_ns
    ends = [course.end_ns]
    for phases, scale in zip(times, (_shorter, _longer), strict=True):
        scaled = {name: scale(ns, verdicts[name], options) for name, ns in lengths.items()}
        ends.append(rehearse(run, played.timed(scaled), phases).end_ns)
    cold = cold_ns / SECOND_NS
    low, high = (cold + end / SECOND_NS for end in (min(ends), max(ends)))
    return UpgradeEstimate(low, high * SLACK, cold)


def _shorter(played_ns: int, verdict: DrainVerdict, options: DrainOptions) -> int:
    """The least that a drain takes which took so long when it was played."""
    return min(played_ns, int((verdict.low_seconds + 1.0) * SECOND_NS))


def _longer(played_ns: int, verdict: DrainVerdict, options: DrainOptions) -> int:
    """The most that it takes, within the drain's time limit."""
    high_ns = max(int(1.1 * played_ns) + 10 * SECOND_NS, int(verdict.high_seconds * SECOND_NS))
    return min(high_ns, options.timeout_ns or high_ns)
