"""How long a plan and each of its waves take, at least and at most: the ends of several plays.

Every set of assumptions is played, and the range covers the ends of all plays that emptied their
nodes, with a margin for what a real API server adds to the work.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from kubectl_nodelife.drain.actors import PlannedPod
from kubectl_nodelife.drain.play import Play, WaveInPlay
from kubectl_nodelife.drain.results import DrainPlan, Estimate, WavePlan
from kubectl_nodelife.engine.calls.pod_calls import EVICTION_RETRY_NS
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.cluster import BURST, QPS
from kubectl_nodelife.sim.kubectl.conversation import NodeRun
from kubectl_nodelife.sim.timing import FAST, MIDDLE, SLOW, Timing

VARIANTS: Final = (
    FAST,
    SLOW,
    MIDDLE._replace(name="quick to be ready", ready=0),
    MIDDLE._replace(name="slow to be ready", ready=2),
    MIDDLE._replace(name="quick to stop", grace_percent=0),
)
"""Assumptions beside the middle ones. Kubectl's 5 s grid makes the end a jumpy function of them, so
that the fastest pods do not always make the fastest drain: the ends are taken over all of these."""

FEW_NODES: Final = 20
SAMPLE_NODES: Final = 60
"""Of a larger plan only a part this size is run with the other assumptions, and its ends scaled."""


def variants(nodes: Sequence[str]) -> tuple[Timing, ...]:
    """Fewer of them for large plans, where single pods matter less."""
    return VARIANTS if len(nodes) <= FEW_NODES else VARIANTS[:2]


def estimate(told: Play, others: Sequence[Play], plan: DrainPlan) -> Estimate | None:
    """How long it takes, at least and at most, or None where the run that is told does not end.

    The ends of all runs, with a margin for what a real API server adds to the work, and none for
    the maintenance; `others` may be runs of the first nodes, and are then scaled to the whole.
    """
    if told.end_ns is None:
        return None
    scaled = [
        play.end_ns * _scale(told, play.waves[-1].nodes[-1]) / SECOND_NS
        for play in others
        if play.end_ns is not None
    ]
    fixed = plan.maintenance * (len(plan.waves) - 1)
    ends = [max(0.0, end - fixed) for end in (told.end_ns / SECOND_NS, *scaled)]
    low, high = _with_margins(min(ends), max(ends), told.runs.values())
    low, high = max(fixed + low, plan.bound.seconds), fixed + high
    return Estimate(round(low, 1), round(max(low, high), 1))


def _scale(told: Play, last_node: str) -> float:
    """How many times longer all of it takes than what ends with that node."""
    assert told.end_ns is not None
    part_ns = next(w.end_ns for w in told.waves if last_node in w.nodes) or told.end_ns
    return told.end_ns / max(1, part_ns)


def set_wave_estimates(waves: Sequence[WavePlan], middle: Play, others: Sequence[Play]) -> None:
    """Fill in each wave's estimate, to which `drain` is held; None stays where it does not end.

    `others` may be plays of the first waves only: those behind are scaled like these.
    """
    took = {wave.nodes: _seconds(wave) for wave in middle.waves}
    shares = [1.0]
    for wave in waves:
        middle_s = took.get(tuple(wave.nodes))
        if middle_s is None:
            continue
        found = [
            seconds
            for play in others
            for other in play.waves
            if other.nodes == tuple(wave.nodes) and (seconds := _seconds(other)) is not None
        ]
        if found and middle_s:
            shares += [min(found) / middle_s, max(found) / middle_s]
        found = found or [middle_s * min(shares), middle_s * max(shares)]
        low, high = min(middle_s, *found), max(middle_s, *found)
        runs = [middle.runs[name] for name in wave.nodes if name in middle.runs]
        low, high = _with_margins(low, high, runs)
        wave.estimate = Estimate(round(low, 1), round(high, 1))


def least_seconds(name: str, plays: Sequence[Play]) -> float | None:
    """How long kubectl is at the node at least, in plays that empty it; None where none does."""
    runs = [play.runs[name] for play in plays if play.empties(name)]
    took = [(run.end_ns - run.start_ns) / SECOND_NS for run in runs if run.end_ns is not None]
    return _with_margins(min(took), max(took), runs[:1])[0] if took else None


def _seconds(wave: WaveInPlay) -> float | None:
    if wave.start_ns is None or wave.end_ns is None:
        return None
    return (wave.end_ns - wave.start_ns) / SECOND_NS


def _with_margins(
    low: float, high: float, runs: Collection[NodeRun[PlannedPod]]
) -> tuple[float, float]:
    """Seconds, from the first to the last end that was played, with what a real API server adds.

    Whether a budget has room just before kubectl asks again or just after, and which pod then takes
    it, is chance that a few plays do not span (tests/claims/test_drain_widths.py): half a round
    more where pods are refused or nodes go in turn, and up to a tenth of the whole where many pods
    are refused. Looks at many pods stand in line, and one that comes a moment too early costs a
    whole round of them, where kubectl's limit slows it.
    """
    most, waits = 0, 0
    for run in runs:
        most = max(most, len(run.targets))
        waits += sum(1 for target in run.targets if target.refused)
    round_s = EVICTION_RETRY_NS / SECOND_NS
    least = round_s / 2 if waits or len(runs) > 1 else 1.0
    earlier = max(least, 0.05 * low, min(0.1 * low, waits * round_s))
    later = max(least, 1.5, 0.05 * high, min(0.1 * high, waits * round_s))
    return max(0.0, low - earlier), high + later + (most / QPS if most > BURST else 0.0)
