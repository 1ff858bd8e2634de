"""The plan: three runs, put together into one answer, with its estimate and its notes.

`planned` is what commands call. Without wave options the plan is that of `kubectl drain NODE...`;
with them the nodes are drained in waves of our own (`waves`). The range of an estimate covers every
set of assumptions that was played, with a margin for what a real API server adds to the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kubectl_nodelife.drain import estimates, results
from kubectl_nodelife.drain.bounds import kubectl_bound, waves_bound
from kubectl_nodelife.drain.notices import eviction_webhooks, passed_by
from kubectl_nodelife.drain.play import Play, play_kubectl
from kubectl_nodelife.drain.remedies import add_remedies
from kubectl_nodelife.drain.snapshot import PlanSnapshot, Scope, Unread
from kubectl_nodelife.drain.verdicts import Judge, workload_plans
from kubectl_nodelife.drain.waves import choose_cordon, nodes_together, plan_waves, play_waves
from kubectl_nodelife.engine.actions import RecordEvent
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.node import zone_display, zone_key
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS, human_duration, in_seconds
from kubectl_nodelife.sim.kubectl.options import (
    FLAG_DELETE_EMPTYDIR_DATA,
    FLAG_FORCE,
    FLAG_IGNORE_DAEMONSETS,
    DrainOptions,
)
from kubectl_nodelife.sim.timeline import without_collector
from kubectl_nodelife.sim.timing import MIDDLE, Timing
from kubectl_nodelife.workloads.budgets import rule_of

_FLAG_ORDER = (FLAG_IGNORE_DAEMONSETS, FLAG_DELETE_EMPTYDIR_DATA, FLAG_FORCE)
MOST_TOGETHER: Final = 300


def planned(
    snapshot: PlanSnapshot,
    names: Sequence[str],
    options: DrainOptions,
    waves: results.WaveOptions | None,
) -> results.DrainPlan:
    """The plan for those of the nodes that are there: `make_plan`'s, or `make_wave_plan`'s where
    there are wave options.

    Raises ValueError for a --pod-selector that cannot be read.
    """
    names = [name for name in names if name in snapshot.nodes]
    if waves is None:
        return make_plan(snapshot, names, options)
    return make_wave_plan(snapshot, names, options, waves)


@without_collector(stay=True)  # `Play.end` undoes the circles
def make_plan(
    snapshot: PlanSnapshot, nodes: Sequence[str], options: DrainOptions
) -> results.DrainPlan:
    """The plan of `kubectl drain NODE...` with these options.

    Raises ValueError for a --pod-selector that cannot be read, and KeyError for an unknown node.
    """
    options = options.of_release(snapshot.settings.profile)
    scope = _scope_of(snapshot, nodes)
    middle = play_kubectl(scope, options, MIDDLE)
    sample = scope
    if len(nodes) > estimates.SAMPLE_NODES and not estimates.is_open(middle):
        sample = Scope(snapshot, nodes[: estimates.SAMPLE_NODES])

    def again(timing: Timing, *, late_renew: bool = False) -> estimates.Again:
        return lambda given: play_kubectl(sample, given, timing, nodes, late_renew=late_renew)

    others = [again(timing) for timing in estimates.variants(nodes)]
    if snapshot.late:
        others.append(again(MIDDLE, late_renew=True))
    plan = _of_plays(middle, [again(MIDDLE), *others], kubectl_bound(snapshot, nodes, options))
    if plan.verdict == results.NEVER and snapshot.late:
        slow = play_kubectl(scope, options, MIDDLE, late_renew=True)
        plan.assumptions += if_late_were_slow(slow)
        slow.end()
    _complete(plan, scope, options, lambda given: make_plan(snapshot, nodes, given))
    return plan


@without_collector(stay=True)  # `Play.end` undoes the circles
def make_wave_plan(
    snapshot: PlanSnapshot, nodes: Sequence[str], options: DrainOptions, waves: results.WaveOptions
) -> results.DrainPlan:
    """The plan of our own waves: which nodes together, in which order, and when.

    Raises ValueError and KeyError as `make_plan`.
    """
    options = options.of_release(snapshot.settings.profile)
    scope = _scope_of(snapshot, nodes)
    bound = waves_bound(snapshot, nodes, options, waves)
    waves, cut, middle, cordon = choose_cordon(
        waves, lambda tried: _settle_waves(scope, options, tried, bound.waves)
    )
    sample, part = scope, cut
    if len(nodes) > estimates.SAMPLE_NODES and not estimates.is_open(middle):
        part = _first_waves(cut)
        sample = Scope(snapshot, [name for wave in part for name in wave])

    def again(timing: Timing) -> estimates.Again:
        return lambda given: play_waves(sample, given, waves, part, timing, nodes)

    homeless = bool(middle.world.waiting)
    maintenance = waves.maintenance_ns / SECOND_NS
    plays = [again(timing) for timing in (MIDDLE, *estimates.variants(nodes))]
    plan = _of_plays(middle, plays, bound, maintenance)
    plan.own_waves, plan.cordon = True, cordon
    if homeless and not maintenance:
        plan.warnings.append("drained nodes take no pods again here; --maintenance lets them")
    _complete(plan, scope, options, lambda given: make_wave_plan(snapshot, nodes, given, waves))
    return plan


def _scope_of(snapshot: PlanSnapshot, nodes: Sequence[str]) -> Scope:
    """Raises KeyError for an unknown node."""
    for name in nodes:
        if name not in snapshot.nodes:
            raise KeyError(name)
    return Scope(snapshot, nodes)


def _complete(
    plan: results.DrainPlan,
    scope: Scope,
    options: DrainOptions,
    anew: Callable[[DrainOptions], results.DrainPlan],
) -> None:
    """Add which nodes go together, looked for where there are nodes to choose among, and not too
    many; and where kubectl refuses, the plan with the flags that it asks for.
    """
    if 1 < len(scope.nodes) <= MOST_TOGETHER:
        plan.together = nodes_together(scope, options)
    if plan.verdict == results.REFUSED and plan.flags_needed:
        plan.with_flags = anew(options.with_flags(tuple(plan.flags_needed)))
        plan.not_evaluated = plan.with_flags.not_evaluated


def _of_plays(
    middle: Play, again: Sequence[estimates.Again], bound: results.Bound, maintenance: float = 0.0
) -> results.DrainPlan:
    """The plan and its estimates. `again` plays anew, with the middle assumptions first, perhaps
    only the first nodes. All plays are ended.
    """
    options, plays = middle.options, [middle]
    if estimates.is_open(middle):
        plays += [play(options) for play in again[1:]]
    told = estimates.emptying_most(plays)
    full: list[Play] = []
    in_time = None
    if estimates.is_open(middle) and not told.empties_all():
        full = [estimates.in_full(play, anew) for play, anew in zip(plays, again, strict=True)]
        in_time = estimates.in_time_by_margin(told, full)
    told = told if in_time is None else replace(in_time, options=options)
    plan = assemble(told)
    plan.bound, plan.maintenance = bound, maintenance
    if plan.verdict in _FINISHES and len(plays) == 1:
        plays += [play(options) for play in again[1:]]
    estimates.add_doubts(plan, told, plays if in_time is None else [*plays, told])
    if plan.verdict in _FINISHES:
        full = full or [
            estimates.in_full(play, anew) for play, anew in zip(plays, again, strict=True)
        ]
        told = in_time or full[plays.index(told)]
        others = [play for play in full if play.empties_all()]
        plan.estimate = estimates.estimate(told, others, plan)
        estimates.set_wave_estimates(plan.waves, told, others)
        estimates.add_doubts_of_margin(plan, options)
        plan.warnings += _late_nodes(plan)
    for play in (*plays, *(each for each in full if each not in plays)):
        play.end()
    return plan


_FINISHES: Final = (results.READY, results.SLOW, results.UNKNOWN)


def _late_nodes(plan: results.DrainPlan) -> list[str]:
    """The nodes that may not be drained, and how long each takes."""
    took = {name: wave.estimate for wave in plan.waves for name in wave.nodes}
    warned = []
    for node in plan.nodes:
        of_node = took[node.name]
        if node.may_fail and of_node is not None:
            span = f"{of_node.low:.1f}s to {of_node.high:.1f}s"
            warned.append(f"node {node.name} may not be drained {node.may_fail}: it takes {span}")
    return warned


@dataclass(frozen=True, slots=True)
class PodInDrain:
    """The plan's word on one pod (None: kubectl does not touch it), the objections of kubectl that
    flags must lift before, and the kinds that the plan lacks."""

    planned: results.PodPlan | None
    lifted: list[results.PodFault]
    lacking: list[str]


@without_collector(stay=True)  # `Play.end` undoes the circles
def plan_of_pod(snapshot: PlanSnapshot, pod: Pod, options: DrainOptions) -> PodInDrain:
    """What `make_plan` says of the pod in a drain of its node, with the flags that kubectl asks
    for: of the other pods no remedy is looked for, and no range of times.

    Raises ValueError for a --pod-selector that cannot be read, and KeyError for a pod on a node
    that is not there.
    """
    name = pod.spec.node_name
    options = options.of_release(snapshot.settings.profile)
    play = play_kubectl(_scope_of(snapshot, [name]), options, MIDDLE)
    unread = Unread(snapshot)
    pods = Judge(play, unread).pods(name)
    node = _node_plan(play, name, pods)
    _add_doubts(node, unread)
    planned = next((p for p in pods if (p.namespace, p.name) == pod.key), None)
    flags = tuple(flag for flag in _FLAG_ORDER if any(f.flag == flag for f in node.faults))
    if node.verdict == results.REFUSED and flags:
        play.end()
        with_flags = plan_of_pod(snapshot, pod, options.with_flags(flags))
        if planned is not None and planned.verdict == results.REFUSED:
            return replace(with_flags, lifted=planned.faults)
        return PodInDrain(planned, [], with_flags.lacking)
    if planned is not None:
        alike = (p for p in pods if (p.gate, p.reason) == (planned.gate, planned.reason))
        add_remedies(play, alike, [name])
    play.end()
    return PodInDrain(planned, [], [lack.kind for lack in unread.listed()])


def _settle_waves(
    scope: Scope,
    options: DrainOptions,
    waves: results.WaveOptions,
    at_least: int,
) -> tuple[list[list[str]], Play]:
    """Cut waves and play them; nodes that turn out to hold up their wave for ever go last."""
    stuck: set[str] = set()
    while True:
        cut = plan_waves(scope, options, waves, at_least, stuck)
        play = play_waves(scope, options, waves, cut, MIDDLE)
        held_up = {run.name for run in play.runs.values() if run.end_ns is None} - stuck
        last = play.waves[-1] if play.waves else None
        if not held_up or last is None or last.start_ns is not None:
            return cut, play
        play.end()
        stuck |= held_up


def _first_waves(cut: list[list[str]]) -> list[list[str]]:
    """As many of the first waves as make up a sample."""
    part: list[list[str]] = []
    for wave in cut:
        part.append(wave)
        if sum(map(len, part)) >= estimates.SAMPLE_NODES:
            break
    return part


def assemble(play: Play) -> results.DrainPlan:
    """Everything but estimate and bound, from the middle run."""
    unread = Unread(play.scope.snapshot)
    judge = Judge(play, unread)
    waves: list[results.WavePlan] = []
    nodes: list[results.NodePlan] = []
    flags: set[str] = set()
    doubts: list[str] = []
    for index, wave in enumerate(play.waves):
        pods: list[results.PodPlan] = []
        for name in wave.nodes:
            of_node = judge.pods(name)
            pods += of_node
            node = _node_plan(play, name, of_node)
            doubts += _add_doubts(node, unread)
            flags.update(fault.flag for fault in node.faults)
            nodes.append(node)
        start, end = in_seconds(wave.start_ns), in_seconds(wave.end_ns)
        waves.append(results.WavePlan(index, start, end, list(wave.nodes), pods))
    planned = [pod for wave in waves for pod in wave.pods]
    add_remedies(play, planned, play.scope.nodes)
    _look_behind(play, planned)
    return results.DrainPlan(
        verdict=results.worst([node.verdict for node in nodes]),
        flags_needed=[flag for flag in _FLAG_ORDER if flag in flags],
        estimate=None,
        waves=waves,
        nodes=nodes,
        not_evaluated=unread.listed(),
        bound=results.Bound(0, 0.0),
        budgets=_budget_plans(play, planned),
        workloads=workload_plans(play),
        assumptions=assumptions(play),
        warnings=[*doubts, *warnings_of(play)],
        webhooks=_webhooks(play, waves),
    )


MOST_BEHIND: Final = 10
"""So many of the nodes behind one that is not drained are judged by themselves."""


def _look_behind(play: Play, pods: Sequence[results.PodPlan]) -> None:
    """Say of nodes that kubectl never comes to what would stop each by itself, and what helps."""
    behind = [name for name in play.scope.nodes if name not in play.runs]
    for name in behind[:MOST_BEHIND]:
        snapshot = play.scope.snapshot
        alone = play_kubectl(Scope(snapshot, [name]), play.options, MIDDLE, play.scope.nodes)
        by_itself = Judge(alone, Unread(snapshot)).pods(name)
        add_remedies(alone, by_itself, play.scope.nodes)
        stuck = {(p.namespace, p.name): p for p in by_itself if p.verdict == results.NEVER}
        for pod in pods:
            own = stuck.get((pod.namespace, pod.name)) if pod.node == name else None
            if own is not None and own.gate != "none":
                pod.reason = f"{pod.reason}; by itself {own.verdict} ({own.gate}): {own.reason}"
                pod.remedy, pod.hint = own.remedy, own.hint
        alone.end()


def _webhooks(play: Play, waves: list[results.WavePlan]) -> list[results.EvictionWebhook]:
    admission = play.scope.admission
    if not admission.webhooks:
        return []
    going = {
        (p.namespace, p.name) for wave in waves for p in wave.pods if p.verdict != results.KEPT
    }
    pods = [pod for pod in play.scope.snapshot.pods if pod.key in going]
    return list(eviction_webhooks(admission, pods))


def _add_doubts(node: results.NodePlan, unread: Unread) -> list[str]:
    """`unknown` where pods may run on the node that were not read. What is to be said of that."""
    hidden = unread.unreadable_on(node.name)
    if (unread.pods() and node.verdict == results.READY) or (
        hidden and node.verdict in (results.READY, results.SLOW)
    ):
        node.verdict = results.UNKNOWN
    if not hidden:
        return []
    return [f"whether node {node.name} is drained depends on {', '.join(hidden)}: cannot be read"]


def _node_plan(play: Play, name: str, pods: list[results.PodPlan]) -> results.NodePlan:
    node = play.scope.snapshot.nodes[name]
    faults = [fault for pod in pods for fault in pod.faults]
    run = play.runs.get(name)
    options = play.options.with_flags(tuple(fault.flag for fault in faults))
    verdicts = [pod.verdict for pod in pods if pod.verdict != results.KEPT]
    if run is None and not verdicts:
        verdicts = [results.NEVER]
    return results.NodePlan(
        name=name,
        zone=zone_display(zone_key(node.metadata.labels)),
        verdict=results.worst(verdicts),
        command=options.command(name),
        faults=faults,
        kept=[
            results.KeptPod(pod.namespace, pod.name, pod.gate, pod.reason)
            for pod in pods
            if pod.verdict == results.KEPT
        ],
        start=in_seconds(run.start_ns) if run is not None else None,
        end=in_seconds(run.end_ns) if run is not None else None,
        pods=len(verdicts),
        attached_volumes=len(node.status.volumes_attached),
    )


def _budget_plans(play: Play, pods: Sequence[results.PodPlan]) -> list[results.BudgetPlan]:
    """Of the budgets that guard a pod of the plan, one that lands meanwhile included."""
    landed = {(pod.namespace, name) for pod in pods for name in pod.budgets}
    plans = []
    disruption = play.world.disruption
    for key in sorted(play.scope.own_budgets | {key for key in landed if key in disruption}):
        status = play.scope.ledger(key).budget.status
        ledger = disruption.ledger(key)
        plans.append(
            results.BudgetPlan(
                *key,
                rule=rule_of(ledger.budget.spec),
                expected=status.expected_pods,
                desired=status.desired_healthy,
                healthy=status.current_healthy,
                allowed=status.disruptions_allowed,
                points=list(map(results.BudgetPoint.of, ledger.entries)),
            )
        )
    return plans


LONG_WAIT_NS: Final = 30 * SECOND_NS


def assumptions(play: Play) -> list[str]:
    """The assumptions of the plan that nothing in the cluster shows."""
    created = [a for a in play.world.actors.values() if a.created_ns is not None]
    moved = {
        target.actor.workload
        for run in play.runs.values()
        for target in run.targets
        if target.actor.workload is not None
    }
    if not moved and not any(run.targets for run in play.runs.values()):
        return []
    sources: dict[str, str] = {}
    for actor in created:
        took = play.scope.times.time_to_ready(actor.pod)
        if took is not None and actor.workload is not None:
            name = f"{actor.workload.kind} {actor.workload.name}"
            if took.source != name:
                sources[name] = took.source
    lines = ["pods take their whole grace period to stop (the low end: none of it)"]
    lines += _late_kubelets(play)
    if sources:
        shown = first_names([f"{name}: {of}" for name, of in sorted(sources.items())], 5, "; ")
        lines.append(f"time to be Ready not learnt from the workload itself: {shown}")
    assumed = sorted({f"{w.kind} {w.name}" for w in moved if w.rule.assumed})
    if assumed:
        lines.append(f"owners that were not read replace their pods: {first_names(assumed, 5)}")
    guessed = sorted(play.world.disruption.guessed)
    lines += [f"{why}; the budget's recorded status stands in" for why in guessed[:5]]
    return lines


def _late_kubelets(play: Play) -> list[str]:
    """Kubelets that are taken for silent, where the drain takes long enough to feel it."""
    snapshot = play.scope.snapshot
    late = sorted(snapshot.late.items())
    if not late:
        return []
    kubelets = [f"{name} ({human_duration(snapshot.now_ns - at_ns)} ago)" for name, at_ns in late]
    return [f"kubelets that last reported too long ago stay silent: {first_names(kubelets, 5)}"]


def if_late_were_slow(slow: Play) -> list[str]:
    """A line on how a drain that does not finish goes, if kubelets that are late are only slow.

    `slow`: the run in which they are.
    """
    drained = all(run.drained for run in slow.runs.values())
    if slow.end_ns is None or not drained or len(slow.runs) < len(slow.scope.nodes):
        return []
    took = human_duration(slow.end_ns)
    return [f"if these kubelets are only slow and renew again, this drain finishes in {took}"]


def warnings_of(play: Play) -> list[str]:
    """Silent kubelets, replacements without room or late, pods that move twice."""
    warnings = []
    snapshot = play.scope.snapshot
    for name in play.scope.nodes:
        silent = snapshot.silent_kubelet(name)
        if silent is not None:
            warnings.append(f"{silent}: its pods are not ended")
    still_cordoned = {
        name for name in play.scope.nodes if play.world.nodes[name].spec.unschedulable
    }
    actors = play.world.actors.values()
    twice = sum(a.created_ns is not None and a.node in still_cordoned for a in actors)
    if twice:
        warnings.append(
            f"{counted(twice, 'replacement')} would land on a node of this plan:"
            " they tolerate its cordon"
        )
    waiting = play.world.waiting
    if waiting and snapshot.was_read("Node"):
        why = play.world.placement.no_room(waiting[0].pod)
        more = " (the first of them)" if len(waiting) > 1 else ""
        warnings.append(f"{counted(len(waiting), 'replacement')} would stay Pending: {why}{more}")
    moved = {name: [t.actor.pod for t in run.targets] for name, run in play.runs.items()}
    seen = passed_by(snapshot, moved)
    return [*warnings, *_preempted(play), *_waits_for_room(play), *_second_moves(play), *seen]


def _preempted(play: Play) -> list[str]:
    """Pods that the scheduler deletes to make room for replacements."""
    victims = [
        f"{event.namespace}/{event.name}"
        for _, event in play.world.branch.timeline.entries
        if isinstance(event, RecordEvent) and event.reason == "Preempted"
    ]
    named = f"{counted(len(victims), 'pod')} of a lower priority: {first_names(victims, 3)}"
    return [f"replacements would preempt {named}"] if victims else []


def _waits_for_room(play: Play) -> list[str]:
    """Replacements that found a node in the end, and when."""
    waited = [
        actor.placed_ns - actor.created_ns
        for actor in play.world.actors.values()
        if actor.created_ns is not None and actor.placed_ns is not None
    ]
    long = [wait_ns for wait_ns in waited if wait_ns > LONG_WAIT_NS]
    if not long:
        return []
    return [
        f"{counted(len(long), 'replacement')} would wait for room, up to"
        f" {max(long) // SECOND_NS}s: the nodes of the plan are cordoned, and come back later"
    ]


def _second_moves(play: Play) -> list[str]:
    """Replacements that landed on a node which is drained later."""
    again = sum(
        1
        for run in play.runs.values()
        for target in run.targets
        if target.actor.created_ns is not None and target.accepted_ns is not None
    )
    if not again:
        return []
    pods = "pod moves" if again == 1 else "pods move"
    return [f"{again} {pods} twice: to a node that is drained later"]
