"""When to cordon the nodes of waves: all first, or each wave's when it begins. Both are played.

With all nodes cordoned first no pod moves twice, and replacements must find room on what is left.
Where that is scarce and nodes come back after their maintenance, they wait for the first node to
return; cordoned wave by wave, they land on nodes that are drained later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from kubectl_nodelife.drain.options import CORDON_BY_WAVE, CORDON_FIRST, WaveOptions
from kubectl_nodelife.drain.outage import FULL, workload_plans
from kubectl_nodelife.drain.play import Play
from kubectl_nodelife.drain.results import Cordon
from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.enumeration import counted
from kubectl_nodelife.kube.times import SECOND_NS

Cut = list[list[str]]
NO_END_S = float("inf")


class _Cost(NamedTuple):
    """The costs of a way to cordon; the first difference decides.

    `stuck`: nodes whose drain does not end. `homeless`: replacements that find no node. `dark_s`:
    seconds at which workloads have no Ready pod, over all. `moves`: evictions.
    """

    stuck: int
    homeless: int
    dark_s: float
    end_ns: float
    moves: int


def choose_cordon(
    waves: WaveOptions, settle: Callable[[WaveOptions], tuple[Cut, Play]]
) -> tuple[WaveOptions, Cut, Play, Cordon]:
    """The options with the way to cordon that is better, its waves and play, and why.

    `settle` cuts waves and plays them. Only one way is tried where it was asked for, or where no
    node comes back.
    """
    if waves.cordon is not None or not waves.maintenance_ns:
        given = replace(waves, cordon=waves.cordon or CORDON_FIRST)
        because = "as --cordon says" if waves.cordon else "so that no pod moves twice"
        return (given, *settle(given), Cordon(given.cordon or "", because))
    first = replace(waves, cordon=CORDON_FIRST)
    cut, play = settle(first)
    if len(cut) < 2 or not _is_scarce(play):
        return first, cut, play, Cordon(CORDON_FIRST, "so that no pod moves twice")
    by_wave = replace(waves, cordon=CORDON_BY_WAVE)
    other_cut, other_play = settle(by_wave)
    cost, other = _cost(play), _cost(other_play)
    if cost <= other:
        other_play.end()
        because = "room is scarce, and wave by wave would "
        because += "change nothing" if cost == other else f"be no better: {_told(other, cost)}"
        return first, cut, play, Cordon(CORDON_FIRST, because)
    play.end()
    because = f"with all nodes cordoned first, {_told(cost, other)}"
    return by_wave, other_cut, other_play, Cordon(CORDON_BY_WAVE, because)


def _is_scarce(play: Play) -> bool:
    """True if a replacement had to wait for a node."""
    return any(
        actor.created_ns is not None and actor.placed_ns != actor.created_ns
        for actor in play.world.actors.values()
    )


def _cost(play: Play) -> _Cost:
    outages = [plan.seconds for plan in workload_plans(play) if plan.outage == FULL]
    return _Cost(
        stuck=sum(run.end_ns is None for run in play.runs.values()),
        homeless=len(play.world.waiting),
        dark_s=sum(NO_END_S if took is None else took for took in outages),
        end_ns=NO_END_S if play.end_ns is None else play.end_ns,
        moves=sum(len(run.targets) for run in play.runs.values()),
    )


def _told(worse: _Cost, better: _Cost) -> str:
    """The way in which it is worse, in a clause."""
    if worse.stuck != better.stuck:
        return f"{counted(worse.stuck, 'node')} would not be drained, not {better.stuck}"
    if worse.homeless != better.homeless:
        return f"{worse.homeless} replacements would stay Pending, not {better.homeless}"
    if worse.dark_s != better.dark_s:
        told = [_seconds(cost.dark_s) for cost in (worse, better)]
        return f"workloads would have no Ready pod for {told[0]} in all, not {told[1]}"
    if worse.end_ns != better.end_ns:
        told = [_seconds(cost.end_ns / SECOND_NS) for cost in (worse, better)]
        return f"it would take {told[0]}, not {told[1]}"
    return f"{counted(worse.moves, 'pod')} would be evicted, not {better.moves}"


def _seconds(amount: float) -> str:
    return "ever" if amount == NO_END_S else format_duration(round(amount) * SECOND_NS)
