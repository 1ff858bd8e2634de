"""How long a plan and each of its waves take, at least and at most.

The range covers every set of assumptions that was played, with a margin for what a real API server
adds to the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kubectl_nodelife.drain.actors import PlannedPod
from kubectl_nodelife.drain.play import Play, WaveInPlay
from kubectl_nodelife.drain.results import DrainPlan, Estimate, WavePlan
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.client import BURST, QPS
from kubectl_nodelife.sim.kubectl.conversation import NodeRun

LEAST_WIDTH_S: Final = 15.0


def estimate(
    middle: Play, others: list[int | None], plan: DrainPlan, last_node: str
) -> Estimate | None:
    """How long it takes, at least and at most, or None where the middle run does not end.

    The ends of all runs, with a margin for what a real API server adds to the work, and none for
    the maintenance; `others` are those of runs
    up to `last_node`, and are scaled to the whole. The estimate is kept as narrow as the contract
    wants, at the cost of the low end: kubelets that let pods stop early are the rule, and by how
    much is seldom known.
    """
    if middle.end_ns is None:
        return None
    part_ns = next(w.end_ns for w in middle.waves if last_node in w.nodes) or middle.end_ns
    scale = middle.end_ns / max(1, part_ns)
    scaled = [end * scale / SECOND_NS for end in others if end is not None]
    fixed = plan.maintenance * (len(plan.waves) - 1)
    ends = [max(0.0, end - fixed) for end in (middle.end_ns / SECOND_NS, *scaled)]
    low, high = min(ends), max(ends)
    low = fixed + max(0.0, low - max(1.0, 0.05 * low))
    high = fixed + high + max(1.5, 0.05 * high) + _another_round(middle.runs.values())
    graces = [pod.grace for pod in plan.pods() if pod.grace and pod.start is not None]
    grace = float(max(graces, default=0))
    low = max(narrowed(low, high, grace), plan.bound.seconds)
    return Estimate(round(low, 1), round(max(low, high), 1))


def set_wave_estimates(waves: Sequence[WavePlan], middle: Play, others: Sequence[Play]) -> None:
    """Fill in each wave's estimate, to which `drain` is held; None stays where it does not end.

    The low end is not raised as the whole plan's: a wave that ends early is no breach of promise.
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
        high += max(1.5, 0.05 * high) + _another_round(runs)
        wave.estimate = Estimate(round(max(0.0, low - max(1.0, 0.05 * low)), 1), round(high, 1))


def _seconds(wave: WaveInPlay) -> float | None:
    if wave.start_ns is None or wave.end_ns is None:
        return None
    return (wave.end_ns - wave.start_ns) / SECOND_NS


def _another_round(runs: Iterable[NodeRun[PlannedPod]]) -> float:
    """Seconds for one look more at each pod of the fullest node, where kubectl's limit slows it.

    Looks at many pods stand in line, and one that comes a moment too early costs a whole round.
    """
    most = max((len(run.targets) for run in runs), default=0)
    return most / QPS if most > BURST else 0.0


def narrowed(low: float, high: float, grace: float) -> float:
    """The low end, raised so far that high - low is at most max(15, low) + grace."""
    return max(low, min(high - LEAST_WIDTH_S - grace, (high - grace) / 2))
