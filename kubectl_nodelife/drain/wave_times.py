"""How long each wave of a plan takes, at least and at most: what `drain` is held to.

The range covers every set of assumptions that was played, with the margin of the whole plan's
estimate (`plan.estimate`). Unlike there, the low end is not raised: a wave that ends early is no
breach of promise.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubectl_nodelife.drain.play import Play, WaveInPlay
from kubectl_nodelife.drain.results import Estimate, WavePlan
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.client import BURST, QPS


def set_wave_estimates(waves: Sequence[WavePlan], middle: Play, others: Sequence[Play]) -> None:
    """Fill in each wave's estimate; None stays where the wave does not end.

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
        high += max(1.5, 0.05 * high) + _another_round(middle, wave)
        wave.estimate = Estimate(round(max(0.0, low - max(1.0, 0.05 * low)), 1), round(high, 1))


def _seconds(wave: WaveInPlay) -> float | None:
    if wave.start_ns is None or wave.end_ns is None:
        return None
    return (wave.end_ns - wave.start_ns) / SECOND_NS


def _another_round(play: Play, wave: WavePlan) -> float:
    """One look more at each pod, where kubectl's rate limit slows it (as `plan._another_round`)."""
    runs = [play.runs[name] for name in wave.nodes if name in play.runs]
    most = max((len(run.targets) for run in runs), default=0)
    return most / QPS if most > BURST else 0.0
