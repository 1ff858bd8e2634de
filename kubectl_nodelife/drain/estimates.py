"""What the plays of a plan under other assumptions say: how long it and its waves take, and what
may not be done by then.

Every set of assumptions is played, and the range covers the ends of all plays that emptied their
nodes, with a margin for what a real API server adds to the work.

How much of its grace a pod uses, when a replacement is Ready and which of several nodes of the same
score it gets is not known. A node that is emptied in all plays is drained, one that is emptied in
none never is, and one that is emptied in some, near `--timeout` or by the scheduler's chance, waits
and may fail: its pods are told by the play that empties most, and `slow` at best.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from kubectl_nodelife.drain.play import PlannedPod, Play, WaveInPlay, went
from kubectl_nodelife.drain.results import (
    NEVER,
    READY,
    SLOW,
    UNKNOWN,
    DrainPlan,
    Estimate,
    NodePlan,
    PodPlan,
    WavePlan,
    worst,
)
from kubectl_nodelife.engine.calls.pod_calls import EVICTION_RETRY_NS
from kubectl_nodelife.kube.times import SECOND_NS, format_duration
from kubectl_nodelife.sim import timing
from kubectl_nodelife.sim.kubectl.conversation import (
    BURST,
    LOOK_NS,
    QPS,
    TIMED_OUT,
    NodeRun,
    PodDeletion,
)
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.timing import Timing

VARIANTS: Final = (
    timing.FAST,
    timing.SLOW,
    timing.MIDDLE._replace(name="quick to be ready", ready=0),
    timing.MIDDLE._replace(name="slow to be ready", ready=2),
    timing.MIDDLE._replace(name="quick to stop", grace_percent=0),
)
"""Assumptions beside the middle ones. Kubectl's 5 s grid makes the end a jumpy function of them, so
that the fastest pods do not always make the fastest drain: the ends are taken over all of these."""

FEW_NODES: Final = 20
SAMPLE_NODES: Final = 60
"""Of a larger plan only a part this size is run with the other assumptions, and its ends scaled."""

Again = Callable[[DrainOptions], Play]
"""Plays the drain once more, with assumptions of its own and these options."""

_PodOfNode = tuple[str, str, str]

_PART: Final = 3
"""A node that takes a third of --timeout may take all of it with slower pods."""


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
        played = [
            seconds
            for play in others
            for other in play.waves
            if other.nodes == tuple(wave.nodes) and (seconds := _seconds(other)) is not None
        ]
        if played and middle_s:
            shares += [min(played) / middle_s, max(played) / middle_s]
        played = played or [middle_s * min(shares), middle_s * max(shares)]
        low, high = min(middle_s, *played), max(middle_s, *played)
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


def is_open(play: Play) -> bool:
    """True if other assumptions may decide whether a node is emptied: within --timeout, or as a
    replacement has no node where another one has taken it by chance.
    """
    return _may_time_out(play) or play.world.hangs_on_luck


def _may_time_out(play: Play) -> bool:
    return bool(play.options.timeout_ns) and any(map(_is_near, play.runs.values()))


def _is_near(run: NodeRun[PlannedPod]) -> bool:
    if run.deadline_ns is None or run.end_ns is None:
        return False
    if any(not went(t) and (t.outcome != TIMED_OUT or _is_held(t)) for t in run.targets):
        return False
    return (run.end_ns - run.start_ns) * _PART > run.deadline_ns - run.start_ns


def _is_held(target: PodDeletion[PlannedPod]) -> bool:
    return target.actor.held is not None and not target.actor.gone


def emptying_most(plays: Sequence[Play]) -> Play:
    """The first of the plays in which the most nodes of all are emptied."""
    return max(plays, key=lambda play: sum(map(play.empties, play.runs)))


def in_time_by_margin(told: Play, full: Sequence[Play]) -> Play | None:
    """Of plays without --timeout the first that empties the most nodes, where the margin of the
    estimate alone brings each node within --timeout that is not emptied in `told`; else None.
    """
    best = emptying_most(full)
    more = [name for name in told.scope.nodes if best.empties(name) and not told.empties(name)]
    limit = told.options.timeout_ns / SECOND_NS
    for name in more:
        least = least_seconds(name, full)
        if least is None or least >= limit:
            return None
    return best if more else None


def in_full(play: Play, again: Again) -> Play:
    """The play, or where a node is given up in it, the same one without --timeout."""
    if play.empties_all() or not play.options.timeout_ns:
        return play
    return again(play.options.without_timeout())


def add_doubts(plan: DrainPlan, told: Play, plays: Sequence[Play]) -> None:
    """Say of the plan, told by `told`, which pods go in some of the plays and not in others."""
    pods = {(pod.node, pod.namespace, pod.name): pod for pod in plan.pods()}
    gone, remaining = set[_PodOfNode](), dict[_PodOfNode, PodDeletion[PlannedPod]]()
    for play in plays if len(plays) > 1 else ():
        for run in play.runs.values():
            for target in run.targets:
                pod_of_node = (run.name, *target.actor.pod.key)
                if went(target):
                    gone.add(pod_of_node)
                else:
                    remaining.setdefault(pod_of_node, target)
    for node in plan.nodes:
        doubtful = [key for key in remaining if key[0] == node.name and key in gone and key in pods]
        for key in doubtful:
            _add_doubt(pods[key], remaining[key], told.options)
        if doubtful:
            of_node = [pod.verdict for pod in plan.pods() if pod.node == node.name]
            node.verdict = node.verdict if node.verdict == UNKNOWN else worst(of_node)
            if node.verdict != NEVER:
                node.may_fail = _way(remaining[doubtful[0]], told.options)
    _add_doubts_behind(plan, told, plays)
    plan.verdict = worst([node.verdict for node in plan.nodes])


def _add_doubts_behind(plan: DrainPlan, told: Play, plays: Sequence[Play]) -> None:
    """Say it also of nodes that kubectl does not come to where one before them is not emptied."""
    way = next((node.may_fail for node in plan.nodes if node.may_fail), "")
    for node in plan.nodes if way else ():
        if node.verdict == NEVER or node.may_fail or not told.empties(node.name):
            continue
        if not all(play.empties(node.name) for play in plays):
            _doubt(node, way)


def _add_doubt(pod: PodPlan, target: PodDeletion[PlannedPod], options: DrainOptions) -> None:
    """A pod that goes in another play only is told by the one in which it is left."""
    if pod.verdict == NEVER and pod.start is None:
        return
    if pod.verdict == NEVER:
        pod.verdict, pod.reason, pod.remedy, pod.hint = SLOW, "its eviction is accepted", None, None
    _doubt_pod(pod, _way(target, options))


def _doubt_pod(pod: PodPlan, way: str) -> None:
    pod.verdict = SLOW if pod.verdict == READY else pod.verdict
    pod.reason += f"; it may not be gone {way}"


def _doubt(node: NodePlan, way: str) -> None:
    node.verdict = SLOW if node.verdict == READY else node.verdict
    node.may_fail = way


def _way(target: PodDeletion[PlannedPod], options: DrainOptions) -> str:
    if target.outcome == TIMED_OUT:
        return _within(options)
    if target.outcome is None:
        return "if replacements land on other nodes of the same score"
    return f"as kubectl may give up: {target.message}"


def _within(options: DrainOptions) -> str:
    return f"within --timeout={format_duration(options.timeout_ns)}"


def add_doubts_of_margin(plan: DrainPlan, options: DrainOptions) -> None:
    """Say which nodes may take longer than --timeout by the margin of the estimate alone."""
    for wave in plan.waves if options.timeout_ns else ():
        if wave.estimate is None or wave.start is None or wave.end is None:
            continue
        took = wave.end - wave.start
        later = wave.estimate.high - took
        for node in plan.nodes:
            if node.name in wave.nodes and not node.may_fail:
                _add_margin(node, wave.pods, took, later, options)
    plan.verdict = worst([node.verdict for node in plan.nodes])


def _add_margin(
    node: NodePlan, pods: Sequence[PodPlan], took: float, later: float, options: DrainOptions
) -> None:
    limit = options.timeout_ns / SECOND_NS
    for pod in pods:
        if pod.node != node.name or pod.verdict not in (READY, SLOW) or pod.gone is None:
            continue
        seen = min(pod.gone - (node.start or 0.0) + LOOK_NS / SECOND_NS, took)
        if seen + later > limit:
            _doubt_pod(pod, _within(options))
            _doubt(node, _within(options))
