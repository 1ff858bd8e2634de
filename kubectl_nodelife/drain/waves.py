"""Waves of our own: which nodes go together, and in which order.

The whole set is cordoned first, so that no replacement lands on a node that is still to be drained,
or, where nodes come back and room is scarce, the nodes of a wave when it begins (`choose_cordon`).
`workloads.waves` cuts the waves by what draining a node asks of the cluster: which budgets it
needs, and how much room on nodes that are not cordoned when the wave begins. `bounds` says how few
waves there could be. Nodes whose drain cannot end come last, each for itself. The next wave begins
when the replacements of the one before are Ready and its maintenance is over; with a maintenance,
the nodes take pods again then.

Both ways to cordon are played. With all nodes cordoned first no pod moves twice, and replacements
must find room on what is left. Where that is scarce and nodes come back after their maintenance,
they wait for the first node to return; cordoned wave by wave, they land on nodes that are drained
later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kubectl_nodelife.drain.play import DrainedBranch, PlannedPod, Play, WaveInPlay
from kubectl_nodelife.drain.results import CORDON_BY_WAVE, CORDON_FIRST, FULL, Cordon, WaveOptions
from kubectl_nodelife.drain.snapshot import Scope
from kubectl_nodelife.drain.verdicts import workload_plans
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import zone_key
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, stays_on_its_node
from kubectl_nodelife.kube.quantity import pod_requests
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import SECOND_NS, format_duration
from kubectl_nodelife.sim.kubectl.drain import KubectlDrain
from kubectl_nodelife.sim.kubectl.options import DELETE, REFUSE, DrainOptions, decide
from kubectl_nodelife.sim.scheduler import MAX_BACKOFF_NS
from kubectl_nodelife.sim.timing import MIDDLE, Timing
from kubectl_nodelife.workloads.budgets import ALWAYS_ALLOW, can_ignore_budgets
from kubectl_nodelife.workloads.force_advice import finalizers_that_hold
from kubectl_nodelife.workloads.owners import NEVER
from kubectl_nodelife.workloads.scheduling import PODS
from kubectl_nodelife.workloads.waves import (
    BudgetKey,
    CapacityLeft,
    NodeLoad,
    WaveLimits,
    cut_waves,
    largest_wave,
    takes_pods,
)

WAIT_STEP_NS: Final = SECOND_NS
LONGEST_WAIT_NS: Final = 3600 * SECOND_NS
"""A wave waits no longer than so for replacements that were expected to become Ready."""

_MOST_SINGLES: Final = 20
"""So many nodes are tried by themselves where no set was found that goes together."""


def plan_waves(
    scope: Scope,
    options: DrainOptions,
    waves: WaveOptions,
    at_least: int,
    stuck: Collection[str] = (),
) -> list[list[str]]:
    """The nodes of each wave, those whose drain cannot end last, each for itself.

    `at_least`: no result is shorter, so the search may stop there. `stuck`: nodes that a run has
    shown to hold up their wave.
    """
    loads = node_loads(scope, options)
    good = [load for load in loads if not load.blocked and load.name not in stuck]
    # A node that kubectl refuses ends at once; one that never ends is tried behind those.
    last = [load for load in loads if load.blocked or load.name in stuck]
    blocked = [[load.name] for load in sorted(last, key=lambda load: not load.refused)]
    caps = {key: max(1, cap_of(scope, key)) for load in good for key in load.budgets}
    limits = WaveLimits(waves.max_parallel, waves.max_per_zone)
    capacity = PlanCapacity(scope, waves)
    return cut_waves(good, caps, limits, capacity.copy, at_least - len(blocked)) + blocked


def nodes_together(scope: Scope, options: DrainOptions) -> list[str]:
    """The largest set of the nodes that was found to go at once; the others are not cordoned.

    Played to the end, so that none is named whose drain does not finish in that company. Where the
    play of a set ends for none of it, half of it is tried, last each node by itself.
    """
    good = [load for load in node_loads(scope, options) if not load.blocked]
    caps = {key: max(1, cap_of(scope, key)) for load in good for key in load.budgets}
    waves = WaveOptions(max_parallel=max(1, len(good)), cordon=CORDON_BY_WAVE)
    names = largest_wave(good, caps, PlanCapacity(scope, waves).copy)
    while names:
        ended = _ended_together(names, scope, options, waves)
        if len(ended) == len(names):
            return names
        names = ended or names[: len(names) // 2]
    singles = ([load.name] for load in good[:_MOST_SINGLES])
    return next((one for one in singles if _ended_together(one, scope, options, waves)), [])


def _ended_together(
    names: list[str], scope: Scope, options: DrainOptions, waves: WaveOptions
) -> list[str]:
    """Those of the nodes that are emptied where all of them are drained at once."""
    play = play_waves(Scope(scope.snapshot, names), options, waves, [names], MIDDLE)
    play.end()
    return [name for name in names if play.empties(name)]


# --- playing them --------------------------------------------------------------------------------


def play_waves(
    scope: Scope,
    options: DrainOptions,
    waves: WaveOptions,
    cut: list[list[str]],
    timing: Timing,
    cordoned: Iterable[str] = (),
) -> Play:
    """The waves on the virtual clock: a kubectl process for each node of a wave, at once.

    `cordoned`: nodes that are part of the plan besides, where only some waves are played.
    """
    world = DrainedBranch(scope, timing)
    if waves.cordon != CORDON_BY_WAVE:
        world.cordon(*cordoned)
    starter = _WaveStarter(world, options, waves, cut)
    starter.begin()
    world.run(starter)
    play = Play(scope, options, world, end_ns=starter.ended_ns)
    play.runs = {run.name: run for process in starter.processes for run in process.runs}
    play.waves = starter.result()
    starter.end()
    return play


@dataclass(eq=False)
class _WaveStarter:
    """Starts wave after wave."""

    world: DrainedBranch
    options: DrainOptions
    waves: WaveOptions
    cut: list[list[str]]
    processes: list[KubectlDrain[PlannedPod]] = field(default_factory=list)
    ended_ns: int | None = None
    _running: list[KubectlDrain[PlannedPod]] = field(default_factory=list)
    _left: int = 0
    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)

    def begin(self) -> None:
        """All nodes are cordoned, unless each wave does that; then the first wave starts."""
        if self.waves.cordon != CORDON_BY_WAVE:
            self.world.cordon(*(name for wave in self.cut for name in wave))
        self._next()

    def _next(self) -> None:
        now_ns = self.world.now_ns
        if len(self._starts) == len(self.cut):
            self.ended_ns = self._ends[-1] if self._ends else now_ns
            return
        names = self.cut[len(self._starts)]
        self._starts.append(now_ns)
        self._left = len(names)
        self.world.cordon(*names)
        self._running = [
            KubectlDrain(
                self.world,
                self.options,
                (name,),
                self.world.timing.requests,
                on_end=self._one_ended,
            )
            for name in names
        ]
        self.processes += self._running
        for process in self._running:
            process.start(now_ns, cordon=False)

    def _one_ended(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._await_replacements(self._drained)

    def _await_replacements(self, then: Callable[[], None], until_ns: int | None = None) -> None:
        """Go on when every replacement that will be Ready at all is Ready."""
        now_ns = self.world.now_ns
        until_ns = now_ns + LONGEST_WAIT_NS if until_ns is None else until_ns
        if now_ns < until_ns and any(self._will_be_ready(actor) for actor in self._evicted()):
            self.world.at(now_ns + WAIT_STEP_NS, self._await_replacements, then, until_ns)
        else:
            then()

    def _drained(self) -> None:
        now_ns = self.world.now_ns
        self._ends.append(now_ns)
        self.world.at(now_ns + self.waves.maintenance_ns, self._maintained)

    def _evicted(self) -> list[PlannedPod]:
        return [
            target.actor
            for process in self._running
            for run in process.runs
            for target in run.targets
        ]

    def _will_be_ready(self, actor: PlannedPod) -> bool:
        replacement = actor.replacement
        if replacement is None or replacement.ready or replacement.going or not replacement.node:
            return False
        return self.world.scope.times.time_to_ready(replacement.pod) is not None

    def _maintained(self) -> None:
        if not self.waves.maintenance_ns:
            self._next()
            return
        self.world.uncordon(*self.cut[len(self._starts) - 1])
        # Replacements that find room only on the nodes that come back become Ready.
        if self.world.waiting:
            tried_ns = self.world.now_ns + MAX_BACKOFF_NS + WAIT_STEP_NS
            self.world.at(tried_ns, self._await_replacements, self._next)
        else:
            self._await_replacements(self._next)

    def settled(self) -> bool:
        """Nothing moves: whether every process of the wave is done for."""
        if self.ended_ns is not None:
            return True
        done = True
        for process in self._running:
            # Each is asked: one with a deadline is brought to its end by the question.
            done = process.settled() and done
        return done

    def answered(self) -> bool:
        """True if every process of the wave only asks what was answered before."""
        return all(process.answered() for process in self._running)

    def end(self) -> None:
        """Forget the processes, which report their end here."""
        self._running, self.processes = [], []

    def result(self) -> list[WaveInPlay]:
        """The waves with their instants."""
        return [
            WaveInPlay(
                tuple(names),
                self._starts[i] if i < len(self._starts) else None,
                self._ends[i] if i < len(self._ends) else None,
            )
            for i, names in enumerate(self.cut)
        ]


class PlanCapacity(CapacityLeft):
    """Nodes of the plan give no room from their cordon to the end of their maintenance."""

    def __init__(self, scope: Scope, waves: WaveOptions) -> None:
        super().__init__((waves.low_water_percent or 0.0) / 100)
        self._snapshot = scope.snapshot
        placement = scope.world.scheduler.placement
        self._returns = waves.maintenance_ns > 0
        planned = frozenset(scope.nodes)
        by_wave = waves.cordon == CORDON_BY_WAVE
        for name, node in self._snapshot.nodes.items():
            if (by_wave or name not in planned) and takes_pods(node):
                info = placement.info(name)
                used = {**info.requested, PODS: info.pod_count}
                self.add(node, used, until_drained=name in planned)

    def next_wave(self, drained: list[str]) -> None:
        """The wave's maintenance is over: its nodes take pods again."""
        for name in drained if self._returns else ():
            stays = [pod for pod in self._snapshot.cache.pods_on(name) if stays_on_its_node(pod)]
            used = Counter({PODS: len(stays)})
            for pod in stays:
                used.update(pod_requests(pod))
            self.add(self._snapshot.nodes[name], used)


def node_loads(scope: Scope, options: DrainOptions) -> list[NodeLoad]:
    """The load of every planned node, in their order."""
    return [_load(name, scope, options) for name in scope.nodes]


def _load(name: str, scope: Scope, options: DrainOptions) -> NodeLoad:
    snapshot = scope.snapshot
    load = NodeLoad(name, zone_key(snapshot.nodes[name].metadata.labels))
    selector = options.selector() if options.pod_selector else None
    silent = snapshot.silent_kubelet(name) is not None and not snapshot.out_of_service(name)
    for pod in scope.pods[name]:
        if selector is not None and not matches(selector, pod.metadata.labels):
            continue
        decision = decide(pod, options, snapshot, snapshot.now_ns)
        if decision.verb == REFUSE:
            load.blocked, load.refused = f"kubectl refuses it: {decision.message}", True
            return load
        if decision.verb != DELETE:
            continue
        load.blocked = load.blocked or _blocked(pod, silent, scope, options)
        _add_pod(load, pod, scope, options)
    return load


def _add_pod(load: NodeLoad, pod: Pod, scope: Scope, options: DrainOptions) -> None:
    load.budgets.update(budgets_asked(pod, scope, options))
    if scope.rule_of(pod).when != NEVER:
        load.pods += 1
        load.moving.update(pod_requests(pod))


def budgets_asked(pod: Pod, scope: Scope, options: DrainOptions) -> tuple[BudgetKey, ...]:
    """The budgets that the pod's eviction will be held against."""
    if options.disable_eviction or can_ignore_budgets(pod):
        return ()
    keys = scope.budgets_of(pod)
    if len(keys) == 1 and not pod.ready():
        policy = scope.ledger(keys[0]).budget.spec.unhealthy_pod_eviction_policy
        if policy == ALWAYS_ALLOW:
            return ()
    return keys


def cap_of(scope: Scope, key: BudgetKey) -> int:
    """How many disruptions the budget allows at once when all that it expects are healthy."""
    status = scope.ledger(key).budget.status
    return max(status.disruptions_allowed, status.expected_pods - status.desired_healthy, 0)


def _blocked(pod: Pod, silent: bool, scope: Scope, options: DrainOptions) -> str:
    """Why the pod can never go, where no run is needed to know; "" otherwise."""
    if silent and pod.status.phase not in TERMINAL_PHASES:
        return "its kubelet does not report"
    if finalizers_that_hold(pod):
        return f"a finalizer holds {pod.namespace}/{pod.name}"
    if options.disable_eviction:
        return "a deletion is refused" if scope.admission.refuses_deletion(pod) is not None else ""
    if scope.admission.refuses_eviction(pod) is not None:
        return "an eviction is refused in admission"
    keys = budgets_asked(pod, scope, options)
    if len(keys) > 1:
        return f"two budgets match {pod.namespace}/{pod.name}"
    if keys and (cap_of(scope, keys[0]) == 0 or scope.ledger(keys[0]).is_stale()):
        return f"budget {keys[0][1]} allows no eviction"
    return ""


Cut = list[list[str]]
NO_END_S = float("inf")


class _CordonCost(NamedTuple):
    """The costs of a way to cordon; the first difference decides.

    `stuck`: nodes that are not emptied. `homeless`: replacements that find no node. `dark_s`:
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
        because += "change nothing" if cost == other else f"be no better: {_why_worse(other, cost)}"
        return first, cut, play, Cordon(CORDON_FIRST, because)
    play.end()
    because = f"with all nodes cordoned first, {_why_worse(cost, other)}"
    return by_wave, other_cut, other_play, Cordon(CORDON_BY_WAVE, because)


def _is_scarce(play: Play) -> bool:
    """True if a replacement had to wait for a node."""
    return any(
        actor.created_ns is not None and actor.placed_ns != actor.created_ns
        for actor in play.world.actors.values()
    )


def _cost(play: Play) -> _CordonCost:
    outages = [plan.seconds for plan in workload_plans(play) if plan.outage == FULL]
    return _CordonCost(
        stuck=sum(not play.empties(name) for name in play.scope.nodes),
        homeless=len(play.world.waiting),
        dark_s=sum(NO_END_S if took is None else took for took in outages),
        end_ns=NO_END_S if play.end_ns is None else play.end_ns,
        moves=sum(len(run.targets) for run in play.runs.values()),
    )


def _why_worse(worse: _CordonCost, better: _CordonCost) -> str:
    """The way in which it is worse, in a clause."""
    if worse.stuck != better.stuck:
        return f"{counted(worse.stuck, 'node')} would not be drained, not {better.stuck}"
    if worse.homeless != better.homeless:
        return f"{worse.homeless} replacements would stay Pending, not {better.homeless}"
    if worse.dark_s != better.dark_s:
        times = [_seconds(cost.dark_s) for cost in (worse, better)]
        return f"workloads would have no Ready pod for {times[0]} in all, not {times[1]}"
    if worse.end_ns != better.end_ns:
        times = [_seconds(cost.end_ns / SECOND_NS) for cost in (worse, better)]
        return f"it would take {times[0]}, not {times[1]}"
    return f"{counted(worse.moves, 'pod')} would be evicted, not {better.moves}"


def _seconds(amount: float) -> str:
    return "ever" if amount == NO_END_S else format_duration(round(amount) * SECOND_NS)
