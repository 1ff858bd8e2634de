"""The answers that the upgrade controller receives, from the cache that it looks at: of the drain
planner, the virtual scheduler, the DaemonSet controller's placement and the zones of the node
lifecycle controller. An answer is kept while the objects that it is made from are the same ones,
and for `MEMORY_NS` at most where looking would cost as much as answering.

Room for what leaves a node is found pod by pod, by the virtual scheduler (`workloads/placement.py`)
over the nodes that stay. What still leaves the nodes that are out of service already is placed
first, so that two nodes are never promised the same room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.behaviour import behaviour_of
from kubectl_nodelife.controllers.daemonset.placement import Placement
from kubectl_nodelife.controllers.daemonset.template import PodTemplate
from kubectl_nodelife.controllers.nodelifecycle.zones import compute_zone_state, is_excluded
from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict, PodKey
from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.counts import why_unavailable
from kubectl_nodelife.controllers.upgrade.memory import Leaving, UpgradePorts
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.drain.play import new_pod
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.names import did_you_mean
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import pod_requests
from kubectl_nodelife.kube.selectors import parse_selector
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetSpec, PodDisruptionBudget
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.scheduler import Scheduler
from kubectl_nodelife.sim.timeline import Agenda
from kubectl_nodelife.sim.upgrade_run import MakeDecider
from kubectl_nodelife.upgrade.drain_answers import (
    DrainFacts,
    LeavingPods,
    drain_answer,
    node_drain,
    pods_taken,
)
from kubectl_nodelife.workloads.force_advice import Release
from kubectl_nodelife.workloads.owners import NEVER, replacement_of
from kubectl_nodelife.workloads.scoring import HighestScore
from kubectl_nodelife.workloads.waves import COUNTED, BudgetKey

MEMORY_NS: Final = 10 * SECOND_NS

DRAIN_FLAGS: Final[dict[str, tuple[str, type]]] = {
    "force": ("force", bool),
    "ignoreDaemonsets": ("ignore_daemonsets", bool),
    "deleteEmptydirData": ("delete_emptydir_data", bool),
    "gracePeriod": ("grace_period_seconds", int),
    "podSelector": ("pod_selector", str),
    "skipWaitForDeleteTimeout": ("skip_wait_seconds", int),
}
"""kubectl drain's flags in a file of kind Upgrade: the field of `DrainOptions`, and its type."""


def drain_options(policy: UpgradePolicy) -> DrainOptions:
    """kubectl drain's flags as the policy has them. Raises BadInput for one that is unknown."""
    given: dict[str, Any] = {}
    for name, value in policy.drain.items():
        if name not in DRAIN_FLAGS:
            raise BadInput(
                f"{name!r} is not a flag of kubectl drain that an upgrade takes",
                remedy=did_you_mean(name, DRAIN_FLAGS),
            )
        option, type_ = DRAIN_FLAGS[name]
        if type(value) is not type_:  # "false" is no False
            raise BadInput(f"drain.{name} is {value!r}; it must be of type {type_.__name__}")
        given[option] = value
    try:
        parse_selector(given.get("pod_selector", ""))
    except ValueError as error:
        raise BadInput(str(error), on="--pod-selector") from None
    # Daemon pods stay unless set otherwise: the node comes back to them.
    flags = {"ignore_daemonsets": True, **given, "timeout_ns": policy.drain_timeout_ns}
    return DrainOptions(**flags)


class DrainAnswers:
    """Drain verdicts by `drain_answer`. `kinds_read`: None for all kinds."""

    def __init__(
        self, options: DrainOptions, kinds_read: Collection[str] | None, release: Release
    ) -> None:
        self._options = options
        self._kinds_read = kinds_read
        self._release = release
        self._facts: DrainFacts | None = None
        self._of: Cache | None = None
        self._until_ns = 0
        self._budgets: list[PodDisruptionBudget] = []
        self._taken_by: tuple[Collection[str], int] | None = None
        """By which nodes Draining, and when, `facts.taken` was counted."""
        self._drains: dict[str, tuple[list[Pod], LeavingPods]] = {}
        self._taken_of: dict[str, tuple[LeavingPods, Mapping[BudgetKey, int]]] = {}
        self._answers: dict[str, tuple[LeavingPods, DrainVerdict]] = {}

    def verdict(
        self, cache: Cache, node: str, draining: Collection[str], now_ns: int
    ) -> DrainVerdict:
        """The answer for the node as it is now."""
        facts = self._look(cache, now_ns)
        if node not in draining:
            self._take(facts, cache, frozenset(draining), now_ns)
        drain, answer = self._drain(cache, node, facts), self._answers.get(node)
        if answer is None or answer[0] is not drain:
            answer = self._answers[node] = (drain, drain_answer(drain, facts))
        return answer[1]

    def _drain(self, cache: Cache, node: str, facts: DrainFacts) -> LeavingPods:
        """The pods that leave the node, the same object while they are the same."""
        pods, before = cache.pods_on(node), self._drains.get(node)
        if before is None or not _are_same(before[0], pods):
            before = self._drains[node] = (pods, node_drain(node, pods, facts))
        return before[1]

    def _take(self, facts: DrainFacts, cache: Cache, draining: frozenset[str], now_ns: int) -> None:
        """Note what the nodes Draining still take of the budgets."""
        if self._taken_by == (draining, now_ns):
            return
        self._taken_by = (draining, now_ns)
        taken: Counter[BudgetKey] = Counter()
        for name in draining:
            drain, counted = self._drain(cache, name, facts), self._taken_of.get(name)
            if counted is None or counted[0] is not drain:
                counted = self._taken_of[name] = (drain, pods_taken(drain, facts))
            taken.update(counted[1])
        if taken != facts.taken:
            facts.taken = taken
            self._answers.clear()

    def _look(self, cache: Cache, now_ns: int) -> DrainFacts:
        """The facts of all but pods; made anew when they are old, or budgets match other pods."""
        known = cache.all("PodDisruptionBudget")
        budgets = [budget for budget in known if isinstance(budget, PodDisruptionBudget)]
        facts, is_old = self._facts, cache is not self._of or now_ns >= self._until_ns
        if facts is not None and not is_old and _are_same(self._budgets, budgets):
            return facts
        self._answers.clear()
        self._taken_of.clear()
        self._taken_by = None
        selected, select = ([(b.key, b.spec) for b in each] for each in (self._budgets, budgets))
        select_the_same = selected == select
        if facts is None or is_old or not select_the_same:
            objects = _without_pods(cache)
            snapshot = PlanSnapshot(objects, now_ns, self._kinds_read, (), self._release)
            before, facts = facts, DrainFacts.of(snapshot, self._options)
            self._facts, self._of, self._until_ns = facts, cache, now_ns + MEMORY_NS
            if before is None or not (select_the_same and facts.asks_the_same(before)):
                self._drains.clear()
            self._drains = {n: drain for n, drain in self._drains.items() if n in cache.nodes}
        facts.budgets, facts.taken = {budget.key: budget for budget in budgets}, {}
        self._budgets = budgets
        return facts


def _are_same(before: Sequence[KubeObject], now: Sequence[KubeObject]) -> bool:
    """True if these are the very objects that are known, in the same order."""
    return len(before) == len(now) and all(map(is_, before, now))


class RoomElsewhere:
    """The room of one snapshot, with pods. `low_water`: percent of cpu and memory to keep free."""

    def __init__(self, snapshot: PlanSnapshot, low_water: float) -> None:
        self._snapshot = snapshot
        self._low_water = low_water
        cache = snapshot.cache.copy()
        cache.kinds_read = snapshot.present_kinds
        self._api = Api(None, snapshot.now_ns, cache)
        self._api.profile = snapshot.settings.profile
        self._scheduler = Scheduler(self._api, Agenda(), HighestScore())
        self._scheduler.begin()
        self._made = 0
        self._gone: dict[str, tuple[PodKey, ...]] = {}
        self._moved: dict[str, list[Pod]] = {}
        """Pods that have left nodes out of service, by the node on which they stand now."""
        self._pods = {pod.key: pod for pod in snapshot.pods}
        self._staying = {name for name, node in snapshot.nodes.items() if not why_unavailable(node)}
        infos = [self._scheduler.placement.info(name) for name in self._staying]
        self._total = {r: sum(i.allocatable.get(r, 0) for i in infos) for r in COUNTED}
        """The cpu and memory of the nodes that stay."""
        self._used = {r: sum(i.requested.get(r, 0) for i in infos) for r in COUNTED}

    def shortage(
        self, node: str, moving: Collection[PodKey], leaving: Mapping[str, Collection[PodKey]]
    ) -> str:
        """Why what leaves the node finds no room, or too little stays free; "" where it fits."""
        for name, keys in leaving.items():
            self._take_away(name, tuple(keys))
        nodes = self._api.store.nodes
        if node not in nodes or node in self._gone:
            return ""
        was_cordoned = nodes[node].spec.unschedulable
        self._cordon(node)
        placed: list[Pod] = []
        try:
            again = map(self._new, self._moved.get(node, ()))
            for pod in [*self._replacements(moving), *again]:
                if self._place(pod) is None:
                    why = self._scheduler.placement.no_room(pod)
                    return f"pod {pod.namespace}/{pod.name} finds no node: {why}"
                placed.append(pod)
            return self._low(node)
        finally:
            for pod in placed:
                self._api.drop("Pod", pod.key)
                self._count(pod, -1)
            self._cordon(node, cordoned=was_cordoned)

    def _take_away(self, name: str, keys: tuple[PodKey, ...]) -> None:
        """The node is out of service, and what leaves it stands elsewhere from now on."""
        if self._gone.get(name) == keys:
            return
        first = name not in self._gone
        self._gone[name] = keys
        if name in self._staying:
            self._staying.remove(name)
            for resource, (total, used) in self._of_node(name).items():
                self._total[resource] -= total
                self._used[resource] -= used
        if first and name in self._api.store.nodes:
            self._cordon(name)
            again = list(map(self._new, self._moved.pop(name, ())))  # they stand here, and go too
            for pod in [*self._replacements(keys), *again]:
                where = self._place(pod)
                if where is not None:
                    self._moved.setdefault(where, []).append(pod)

    def _replacements(self, keys: Iterable[PodKey]) -> Iterable[Pod]:
        """The pods that owners make for those that leave."""
        for key in keys:
            pod = self._pods.get(key)
            if pod is not None and replacement_of(pod, self._snapshot).when != NEVER:
                yield self._new(pod)

    def _new(self, pod: Pod) -> Pod:
        self._made += 1
        return new_pod(pod, self._made, self._snapshot.now_ns)

    def _place(self, pod: Pod) -> str | None:
        """Bind a new pod to the node that the scheduler would take; None where none fits."""
        name = self._scheduler.placement.place(pod)
        if name is not None:
            self._api.put("Pod", replace(pod, spec=replace(pod.spec, node_name=name)))
            self._count(pod, 1)
        return name

    def _cordon(self, name: str, *, cordoned: bool = True) -> None:
        """The node takes no more pods; or, `cordoned` False, takes them again."""
        node = self._api.store.nodes[name]
        self._api.put("Node", replace(node, spec=replace(node.spec, unschedulable=cordoned)))

    def _count(self, pod: Pod, sign: int) -> None:
        """The pod has come to a node that stays, or has left it."""
        for resource, amount in pod_requests(pod).items():
            if resource in self._used:
                self._used[resource] += sign * amount

    def _of_node(self, name: str) -> dict[str, tuple[int, int]]:
        """The node's cpu and memory, and how much of it is requested."""
        info = self._scheduler.placement.info(name)
        return {r: (info.allocatable.get(r, 0), info.requested.get(r, 0)) for r in COUNTED}

    def _low(self, node: str) -> str:
        """Which resource has less free than the low-water mark without the node; else empty."""
        of_node = self._of_node(node) if node in self._staying else {}
        for resource, total in self._total.items():
            own, requested = of_node.get(resource, (0, 0))
            total, used = total - own, self._used[resource] - requested
            free = total - used
            if free * 100 < self._low_water * total:
                share = 100 * free / total if total else 0.0
                asks = f"--low-water asks for {self._low_water:g} %"
                return f"{share:.0f} % of {resource} would stay free, {asks}"
        return ""


class RoomByScheduler:
    """Room by `RoomElsewhere`, on a snapshot that is at most `MEMORY_NS` old. A node that is held
    is asked for again and again, and has the answer of before where the same leaves all nodes.
    """

    def __init__(self, low_water: float, kinds_read: Collection[str] | None) -> None:
        self._low_water = low_water
        self._kinds_read = kinds_read
        self._room: RoomElsewhere | None = None
        self._of: Cache | None = None
        self._leaving: dict[str, tuple[PodKey, ...]] = {}
        self._until_ns = 0
        self._answers: dict[str, tuple[Collection[PodKey], Leaving, str]] = {}

    def shortage(
        self, cache: Cache, node: str, moving: Collection[PodKey], leaving: Leaving, now_ns: int
    ) -> str:
        """Why what leaves the node finds no room; "" where it does."""
        out = {name: tuple(keys) for name, keys in leaving.items()}
        if cache is not self._of or now_ns >= self._until_ns:
            self._of, self._until_ns, self._room = cache, now_ns + MEMORY_NS, None
            self._answers.clear()
        before = self._answers.get(node)
        if before is not None and before[:2] == (moving, out):
            return before[2]
        if self._room is None or not self._leaving.keys() <= out.keys():
            snapshot = PlanSnapshot(cache.copy(), now_ns, self._kinds_read)
            self._room = RoomElsewhere(snapshot, self._low_water)
        self._leaving = out
        short = self._room.shortage(node, moving, out)
        self._answers[node] = (moving, out, short)
        return short


class DaemonSetPlacement:
    """Placement by the DaemonSet controller's own rule."""

    def __init__(self, settings: Settings) -> None:
        self._rules = behaviour_of((1, settings.profile.minor), settings.gates)
        self._known: dict[str, tuple[DaemonSetSpec, Placement]] = {}

    def sets_for(self, cache: Cache, node: Node) -> Collection[DaemonSet]:
        """The DaemonSets whose pod should run on the node."""
        return [
            daemon_set
            for daemon_set in cache.all("DaemonSet")
            if isinstance(daemon_set, DaemonSet)
            and self._placement(daemon_set).judge(node, cache.pods_on).should_run
        ]

    def _placement(self, daemon_set: DaemonSet) -> Placement:
        known, placement = self._known.get(daemon_set.uid, (None, None))
        if placement is None or known is not daemon_set.spec:
            placement = Placement(PodTemplate(daemon_set, self._rules))
            self._known[daemon_set.uid] = (daemon_set.spec, placement)
        return placement


def make_ports(
    policy: UpgradePolicy,
    settings: Settings,
    kinds_read: Collection[str] | None = None,
    release: Release | None = None,
) -> UpgradePorts:
    """All answers for a run with this policy. Raises BadInput."""
    release = release or Release(heartbeat_ns=settings.node_monitor_grace_period_ns)
    options = drain_options(policy).of_release(settings.profile)
    threshold = settings.unhealthy_zone_threshold
    return UpgradePorts(
        drain=DrainAnswers(options, kinds_read, release).verdict,
        room=RoomByScheduler(policy.low_water, kinds_read).shortage,
        daemon_sets=DaemonSetPlacement(settings).sets_for,
        zone_state=lambda ready, down: compute_zone_state(ready, down, threshold),
        counts_in_zone=lambda node: not is_excluded(node, settings),
        grace_period_ns=settings.node_monitor_grace_period_ns,
        zone_threshold=threshold,
    )


def _without_pods(cache: Cache) -> Iterable[KubeObject]:
    """The objects of the cache but its pods and Leases."""
    yield from cache.nodes.values()
    for kind, store in cache.objects.items():
        if kind != "Lease":
            yield from store.values()


def decider_for(
    settings: Settings, kinds_read: Collection[str] | None = None, release: Release | None = None
) -> MakeDecider:
    """Makes upgrade controllers. `kinds_read`: those that the cache has all of, None: all kinds."""

    def make(policy: UpgradePolicy, epoch: int, began_ns: int) -> UpgradeController:
        ports = make_ports(policy, settings, kinds_read, release)
        return UpgradeController(policy, ports, epoch, began_ns)

    return make
