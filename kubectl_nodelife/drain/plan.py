"""The plan: three runs, put together into one answer.

`planned` is what commands call. Without wave options the plan is that of `kubectl drain NODE...`;
with them the nodes are drained in waves of our own (`waves`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubectl_nodelife.drain.admission import Admission
from kubectl_nodelife.drain.bounds import kubectl_bound, waves_bound
from kubectl_nodelife.drain.cordon import choose_cordon
from kubectl_nodelife.drain.estimate import estimate, set_wave_estimates
from kubectl_nodelife.drain.needs import Unread
from kubectl_nodelife.drain.notes import assumptions, if_late_were_slow, warnings_of
from kubectl_nodelife.drain.options import WaveOptions
from kubectl_nodelife.drain.outage import workload_plans
from kubectl_nodelife.drain.play import Play, play_kubectl
from kubectl_nodelife.drain.results import (
    KEPT,
    NEVER,
    READY,
    REFUSED,
    SLOW,
    UNKNOWN,
    Bound,
    BudgetPlan,
    BudgetPoint,
    DrainPlan,
    NodePlan,
    PodPlan,
    WavePlan,
    worst,
)
from kubectl_nodelife.drain.scope import Scope
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.drain.unblock import add_remedies
from kubectl_nodelife.drain.verdicts import Judge, seconds
from kubectl_nodelife.drain.waves import nodes_together, plan_waves, play_waves
from kubectl_nodelife.drain.webhooks import EvictionWebhook, eviction_webhooks
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.zones import zone_display, zone_key
from kubectl_nodelife.sim.collector import without_collector
from kubectl_nodelife.sim.kubectl.options import (
    FLAG_DELETE_EMPTYDIR_DATA,
    FLAG_FORCE,
    FLAG_IGNORE_DAEMONSETS,
    DrainOptions,
)
from kubectl_nodelife.sim.timing import FAST, MIDDLE, Timing
from kubectl_nodelife.sim.timing import SLOW as SLOW_TIMING
from kubectl_nodelife.workloads.budgets import rule_of

VARIANTS: Final = (
    FAST,
    SLOW_TIMING,
    MIDDLE._replace(name="quick to be ready", ready=0),
    MIDDLE._replace(name="slow to be ready", ready=2),
    MIDDLE._replace(name="quick to stop", grace_percent=0),
)
"""Assumptions beside the middle ones. Kubectl's 5 s grid makes the end a jumpy function of them, so
that the fastest pods do not always make the fastest drain: the ends are taken over all of these."""

FEW_NODES: Final = 20
SAMPLE_NODES: Final = 60
"""Of a larger plan only a part this size is run with the other assumptions, and its ends scaled."""

_FLAG_ORDER = (FLAG_IGNORE_DAEMONSETS, FLAG_DELETE_EMPTYDIR_DATA, FLAG_FORCE)
MOST_TOGETHER: Final = 300


def planned(
    snapshot: PlanSnapshot,
    names: Sequence[str],
    options: DrainOptions,
    waves: WaveOptions | None,
) -> DrainPlan:
    """The plan for those of the nodes that are there: `make_plan`'s, or `make_wave_plan`'s where
    there are wave options.

    Raises ValueError for a --pod-selector that cannot be read.
    """
    names = [name for name in names if name in snapshot.nodes]
    if waves is None:
        return make_plan(snapshot, names, options)
    return make_wave_plan(snapshot, names, options, waves)


@without_collector()
def make_plan(snapshot: PlanSnapshot, nodes: Sequence[str], options: DrainOptions) -> DrainPlan:
    """The plan of `kubectl drain NODE...` with these options.

    Raises ValueError for a --pod-selector that cannot be read, and KeyError for an unknown node.
    """
    for name in nodes:
        if name not in snapshot.nodes:
            raise KeyError(name)
    options = options.of_release(snapshot.settings.profile)
    scope = Scope(snapshot, nodes)
    admission = Admission(snapshot)
    middle = play_kubectl(scope, admission, options, MIDDLE)
    plan = assemble(middle, admission)
    plan.bound = Bound(*kubectl_bound(snapshot, nodes, options))
    if plan.verdict in (READY, SLOW, UNKNOWN):
        sample = scope
        if len(nodes) > SAMPLE_NODES:
            sample = scope.part(nodes[:SAMPLE_NODES])
        others = [play_kubectl(sample, admission, options, t, nodes) for t in _variants(nodes)]
        if snapshot.late:
            slow = play_kubectl(sample, admission, options, MIDDLE, nodes, late_renew=True)
            others.append(slow)
        plan.estimate = estimate(middle, [o.end_ns for o in others], plan, sample.nodes[-1])
        set_wave_estimates(plan.waves, middle, others)
    elif plan.verdict == NEVER and snapshot.late:
        slow = play_kubectl(scope, admission, options, MIDDLE, late_renew=True)
        plan.assumptions += if_late_were_slow(slow)
    plan.together = _together(scope, options, admission)
    if plan.verdict == REFUSED and plan.flags_needed:
        with_flags = options.with_flags(tuple(plan.flags_needed))
        plan.with_flags = make_plan(snapshot, nodes, with_flags)
        plan.not_evaluated = plan.with_flags.not_evaluated
    return plan


@without_collector()
def make_wave_plan(
    snapshot: PlanSnapshot, nodes: Sequence[str], options: DrainOptions, waves: WaveOptions
) -> DrainPlan:
    """The plan of our own waves: which nodes together, in which order, and when.

    Raises ValueError and KeyError as `make_plan`.
    """
    for name in nodes:
        if name not in snapshot.nodes:
            raise KeyError(name)
    options = options.of_release(snapshot.settings.profile)
    scope = Scope(snapshot, nodes)
    admission = Admission(snapshot)
    bound = Bound(*waves_bound(snapshot, nodes, options, waves))
    waves, cut, middle, cordon = choose_cordon(
        waves, lambda tried: _settle_waves(scope, admission, options, tried, bound.waves)
    )
    plan = assemble(middle, admission)
    plan.bound, plan.own_waves, plan.cordon = bound, True, cordon
    plan.maintenance = waves.maintenance_ns / SECOND_NS
    if middle.world.waiting and not waves.maintenance_ns:
        plan.warnings.append("drained nodes take no pods again here; --maintenance lets them")
    if plan.verdict in (READY, SLOW, UNKNOWN):
        sample, part = scope, cut
        if len(nodes) > SAMPLE_NODES:
            part = _first_waves(cut)
            sample = scope.part([name for wave in part for name in wave])
        others = [
            play_waves(sample, admission, options, waves, part, timing, nodes)
            for timing in _variants(nodes)
        ]
        plan.estimate = estimate(middle, [o.end_ns for o in others], plan, part[-1][-1])
        set_wave_estimates(plan.waves, middle, others)
    plan.together = _together(scope, options, admission)
    if plan.verdict == REFUSED and plan.flags_needed:
        with_flags = options.with_flags(tuple(plan.flags_needed))
        plan.with_flags = make_wave_plan(snapshot, nodes, with_flags, waves)
        plan.not_evaluated = plan.with_flags.not_evaluated
    return plan


def _together(scope: Scope, options: DrainOptions, admission: Admission) -> list[str] | None:
    """Looked for where there are nodes to choose among, and not too many."""
    if not 1 < len(scope.nodes) <= MOST_TOGETHER:
        return None
    return nodes_together(scope, options, admission)


def _settle_waves(
    scope: Scope,
    admission: Admission,
    options: DrainOptions,
    waves: WaveOptions,
    at_least: int,
) -> tuple[list[list[str]], Play]:
    """Cut waves and play them; nodes that turn out to hold up their wave for ever go last."""
    stuck: set[str] = set()
    while True:
        cut = plan_waves(scope, options, waves, admission, at_least, stuck)
        play = play_waves(scope, admission, options, waves, cut, MIDDLE)
        held_up = {run.name for run in play.runs.values() if run.end_ns is None} - stuck
        last = play.waves[-1] if play.waves else None
        if not held_up or last is None or last.start_ns is not None:
            return cut, play
        stuck |= held_up


def _variants(nodes: Sequence[str]) -> tuple[Timing, ...]:
    """Fewer of them for large plans, where single pods matter less."""
    return VARIANTS if len(nodes) <= FEW_NODES else VARIANTS[:2]


def _first_waves(cut: list[list[str]]) -> list[list[str]]:
    """As many of the first waves as make up a sample."""
    part: list[list[str]] = []
    for wave in cut:
        part.append(wave)
        if sum(map(len, part)) >= SAMPLE_NODES:
            break
    return part


def assemble(play: Play, admission: Admission) -> DrainPlan:
    """Everything but estimate and bound, from the middle run."""
    unread = Unread(play.scope.snapshot)
    judge = Judge(play, admission, unread)
    waves: list[WavePlan] = []
    nodes: list[NodePlan] = []
    flags: set[str] = set()
    doubts: list[str] = []
    for index, wave in enumerate(play.waves):
        pods: list[PodPlan] = []
        for name in wave.nodes:
            of_node = judge.pods(name)
            pods += of_node
            node = _node_plan(play, name, of_node)
            doubts += _add_doubts(node, unread)
            flags.update(fault.flag for fault in node.faults)
            nodes.append(node)
        waves.append(
            WavePlan(index, seconds(wave.start_ns), seconds(wave.end_ns), list(wave.nodes), pods)
        )
    add_remedies(play, (pod for wave in waves for pod in wave.pods))
    return DrainPlan(
        verdict=worst([node.verdict for node in nodes]),
        flags_needed=[flag for flag in _FLAG_ORDER if flag in flags],
        estimate=None,
        waves=waves,
        nodes=nodes,
        not_evaluated=unread.listed(),
        bound=Bound(0, 0.0),
        budgets=_budget_plans(play, [pod for wave in waves for pod in wave.pods]),
        workloads=workload_plans(play),
        assumptions=assumptions(play),
        warnings=[*doubts, *warnings_of(play)],
        webhooks=_webhooks(play, admission, waves),
    )


def _webhooks(play: Play, admission: Admission, waves: list[WavePlan]) -> list[EvictionWebhook]:
    if not admission.webhooks:
        return []
    going = {(p.namespace, p.name) for wave in waves for p in wave.pods if p.verdict != KEPT}
    pods = [pod for pod in play.scope.snapshot.pods if pod.key in going]
    return list(eviction_webhooks(admission, pods))


def _add_doubts(node: NodePlan, unread: Unread) -> list[str]:
    """`unknown` where pods may run on the node that were not read. What is to be said of that."""
    hidden = unread.unreadable_on(node.name)
    if (unread.pods() and node.verdict == READY) or (hidden and node.verdict in (READY, SLOW)):
        node.verdict = UNKNOWN
    if not hidden:
        return []
    return [f"whether node {node.name} is drained depends on {', '.join(hidden)}: cannot be read"]


def _node_plan(play: Play, name: str, pods: list[PodPlan]) -> NodePlan:
    node = play.scope.snapshot.nodes[name]
    faults = [fault for pod in pods for fault in pod.faults]
    run = play.runs.get(name)
    options = play.options.with_flags(tuple(fault.flag for fault in faults))
    verdicts = [pod.verdict for pod in pods if pod.verdict != KEPT]
    if run is None and not verdicts:
        verdicts = [NEVER]
    return NodePlan(
        name=name,
        zone=zone_display(zone_key(node.metadata.labels)),
        verdict=worst(verdicts),
        command=options.command(name),
        faults=faults,
        kept=[pod for pod in pods if pod.verdict == KEPT],
        start=seconds(run.start_ns) if run is not None else None,
        end=seconds(run.end_ns) if run is not None else None,
        pods=len(verdicts),
        attached_volumes=len(node.status.volumes_attached),
    )


def _budget_plans(play: Play, pods: Sequence[PodPlan]) -> list[BudgetPlan]:
    """Of the budgets that guard a pod of the plan, one that lands meanwhile included."""
    landed = {(pod.namespace, name) for pod in pods for name in pod.budgets}
    plans = []
    for key in sorted(play.scope.own_budgets | (landed & play.world.ledgers.keys())):
        status = play.scope.ledgers[key].budget.status
        ledger = play.world.ledgers[key]
        plans.append(
            BudgetPlan(
                *key,
                rule=rule_of(ledger.budget.spec),
                expected=status.expected_pods,
                desired=status.desired_healthy,
                healthy=status.current_healthy,
                allowed=status.disruptions_allowed,
                points=[
                    BudgetPoint(round(e.at_ns / SECOND_NS, 3), e.healthy, e.desired, e.allowed)
                    for e in ledger.entries
                ],
            )
        )
    return plans
