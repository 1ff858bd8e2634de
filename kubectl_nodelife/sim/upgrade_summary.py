"""The result of a simulated upgrade: the document `final.upgrade`.

The least availability is measured while it runs, at each change of a node or a pod, and not taken
from the controller; the result of each node is read from the records' actions at the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

from kubectl_nodelife.controllers.upgrade.claiming import SOAK
from kubectl_nodelife.controllers.upgrade.claims import (
    is_control_plane,
    is_selected,
    pool_name,
    zone_name,
)
from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    NodeScope,
    pool_scope,
    why_unavailable,
    zone_scope,
)
from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    CONTROLLER,
    TAKEN,
    NodeState,
    decode_mark,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.engine.actions import (
    Action,
    EvictPod,
    FailWithoutMark,
    NodeMarkPatch,
    SetGate,
    SetZoneState,
    UpdateRun,
)
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, zone_display
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sim.upgrade_course import Course, CourseReader, LowPoint, moves_of_pods
from kubectl_nodelife.sim.world import World

_SHARES: Final = ("cpu", "memory")
Entries = list[tuple[int, Action]]


class _Level:
    """A number that goes up and down, and the lowest that it was."""

    def __init__(self, value: int = 0) -> None:
        self.value = self.lowest = value

    def add(self, by: int) -> None:
        self.value += by
        self.lowest = min(self.lowest, self.value)


class _Integral:
    """Object-seconds: how many members counted, summed over time."""

    def __init__(self, now_ns: int) -> None:
        self._members: set[object] = set()
        self._since_ns = now_ns
        self._total_ns = 0

    def put(self, member: object, holds: bool, now_ns: int) -> None:
        """The member counts from now on, or no longer does."""
        if holds != (member in self._members):
            self.seconds(now_ns)
            (self._members.add if holds else self._members.discard)(member)

    def holds(self, member: object) -> bool:
        """True if the member counts now."""
        return member in self._members

    def seconds(self, now_ns: int) -> float:
        """The sum up to now."""
        self._total_ns += len(self._members) * (now_ns - self._since_ns)
        self._since_ns = now_ns
        return _seconds(self._total_ns)


class UpgradeWatch:
    """Watches the cluster from the run's start on."""

    def __init__(self, world: World, policy: UpgradePolicy) -> None:
        self._world = world
        self._api = world.api
        self._policy = policy
        self.began_ns = world.api.now_ns
        nodes = [n for n in world.api.store.nodes.values() if not is_control_plane(n)]
        self.selected = [n.name for n in nodes if is_selected(n, policy)]
        self._available: dict[str, tuple[str, str]] = {}
        self._all, self._ready = _Level(), _Level()
        self._pools: dict[str, _Level] = defaultdict(_Level)
        self._zones: dict[str, _Level] = defaultdict(_Level)
        self._ready_nodes: set[str] = set()
        self._lowest_at_ns = self.began_ns
        self._nodes = dict(world.api.store.nodes)
        self._own_pools = {pool_name(self._nodes[name], policy) for name in self.selected}
        self._scopes: Counter[NodeScope] = Counter()
        self._lows: dict[NodeScope, LowPoint] = {}
        self._available_in_own: list[tuple[int, int]] = []
        self._soaks_ns: list[int] = []
        self._shares = dict.fromkeys(_SHARES, 1.0)
        for node in nodes:
            self._count(node.name, node)
        for level in (self._all, self._ready, *self._pools.values(), *self._zones.values()):
            level.lowest = level.value
        self._lows = {s: LowPoint(n, self.began_ns) for s, n in self._scopes.items()}
        self._waits: dict[str, _Integral] = {}
        self._pending, self._at_zero = _Integral(self.began_ns), _Integral(self.began_ns)
        for budget in world.api.store.all("PodDisruptionBudget"):
            self._budget_changed("PodDisruptionBudget", None, budget)
        self._measure_room()
        world.api.on_node(self._node_changed)
        world.api.on_pod(self._pod_changed)
        world.api.on_object(self._budget_changed)

    def held(self, by: set[str]) -> None:
        """Take in the holds on candidates other than gates: slots, zone, room, a budget, a soak."""
        if SOAK in by and not (SOAK in self._waits and self._waits[SOAK].holds(SOAK)):
            self._soaks_ns.append(self._api.now_ns)
        for scope in by | self._waits.keys():
            waits = self._waits.setdefault(scope, _Integral(self._api.now_ns))
            waits.put(scope, scope in by, self._api.now_ns)

    def _node_changed(self, old: Node | None, new: Node | None, cause: Action | None) -> None:
        node = new or old
        assert node is not None
        if is_control_plane(node):
            return
        before = self._all.value
        self._count(node.name, new)
        if self._all.value < before:
            self._measure_room()
            if self._all.value == self._all.lowest and before == self._all.lowest + 1:
                self._lowest_at_ns = self._api.now_ns

    def _count(self, name: str, node: Node | None) -> None:
        """Count the node as it is now."""
        if (node is not None and node.is_ready) != (name in self._ready_nodes):
            was = name in self._ready_nodes
            (self._ready_nodes.discard if was else self._ready_nodes.add)(name)
            self._ready.add(-1 if was else 1)
        is_there = node is not None and not why_unavailable(node)
        if is_there == (name in self._available):
            return
        by = 1 if is_there else -1
        if node is not None and is_there:
            self._available[name] = (pool_name(node, self._policy), zone_name(node))
        pool, zone = self._available[name]
        if not is_there:
            del self._available[name]
        for level in (self._all, self._pools[pool], self._zones[zone]):
            level.add(by)
        for scope in (CLUSTER, pool_scope(pool), zone_scope(pool, zone)):
            self._scopes[scope] += by
            low = self._lows.get(scope)
            if low is not None and self._scopes[scope] < low.available:
                self._lows[scope] = LowPoint(self._scopes[scope], self._api.now_ns)
        self._note_own()

    def _note_own(self) -> None:
        """How many nodes of the run's pools are available from now on."""
        count = sum(self._scopes[pool_scope(pool)] for pool in self._own_pools)
        series, now_ns = self._available_in_own, self._api.now_ns
        if series and series[-1][0] == now_ns:
            series.pop()
        series.append((now_ns, count))

    def _measure_room(self) -> None:
        """The share of requestable cpu and memory that the available nodes have left."""
        info = self._world.scheduler.placement.info
        infos = [(i.allocatable, i.requested) for i in map(info, self._available)]
        for key in _SHARES:
            whole = sum([allocatable.get(key, 0) for allocatable, _ in infos])
            if whole:
                taken = sum([requested.get(key, 0) for _, requested in infos])
                self._shares[key] = min(self._shares[key], 1 - taken / whole)

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        pod = new or old
        assert pod is not None
        waits = new is not None and not new.spec.node_name and new.status.phase == "Pending"
        self._pending.put(pod.uid, waits, self._api.now_ns)

    def _budget_changed(self, kind: str, old: KubeObject | None, new: KubeObject | None) -> None:
        if kind == "PodDisruptionBudget":
            budget = new or old
            assert budget is not None
            at_zero = isinstance(new, PodDisruptionBudget) and not new.status.disruptions_allowed
            self._at_zero.put(budget.key, at_zero, self._api.now_ns)

    def document(
        self, entries: Entries, failures: Iterable[Outcome], now_ns: int
    ) -> dict[str, Any]:
        """The contract's `final.upgrade`."""
        refused = {outcome.action.id for outcome in failures}
        done = [(at, a) for at, a in entries if at >= self.began_ns and a.id not in refused]
        states = _States(done, now_ns)
        ended = [at for at, a in done if isinstance(a, UpdateRun) and a.phase in _OVER]
        fates = states.fates
        mean, most = moves_of_pods(a for _, a in done)
        touched = {name for names in fates.values() for name in names} | states.replaced
        return {
            **{state: sorted(fates[state]) for state in ("done", "failed", "held")},
            "skipped": sorted(set(self.selected) - touched),
            "seconds": _seconds((ended[-1] if ended else now_ns) - self.began_ns),
            "lowestAvailable": {
                "all": self._all.lowest,
                "byPool": {key: level.lowest for key, level in sorted(self._pools.items())},
                "byZone": {key: level.lowest for key, level in sorted(self._zones.items())},
                "at": _seconds(self._lowest_at_ns - self.began_ns),
            },
            "lowestReady": self._ready.lowest,
            "lowestFreeShare": {key: round(share, 4) for key, share in self._shares.items()},
            "zoneStates": _zone_states(done),
            "evictions": sum(isinstance(a, EvictPod) for _, a in done),
            "movesOfAPod": {"mean": round(mean, 2), "max": most},
            "pendingPodSeconds": self._pending.seconds(now_ns),
            "budgetZeroSeconds": self._at_zero.seconds(now_ns),
            "waitSeconds": self._waited(done, now_ns),
            "longestState": states.longest,
        }

    def course(self, entries: Entries, failures: Iterable[Outcome], cold_ns: int) -> Course:
        """The run's course. `cold_ns`: how long its leader watched before it claimed anything."""
        refused = {outcome.action.id for outcome in failures}
        done = [(at, a) for at, a in entries if at >= self.began_ns and a.id not in refused]
        origin_ns = self.began_ns + cold_ns
        course = CourseReader(self._nodes, self._policy, origin_ns, self._soaks_ns).read(done)
        course.decided = [entry for entry in done if entry[1].controller == CONTROLLER]
        course.moves = moves_of_pods(a for _, a in done)
        course.free_share = dict(self._shares)
        course.lowest = {
            scope: LowPoint(low.available, max(0, low.at_ns - origin_ns))
            for scope, low in self._lows.items()
        }
        for at_ns, count in self._available_in_own:
            if course.available and at_ns <= origin_ns:
                course.available.pop()
            course.available.append((max(0, at_ns - origin_ns), count))
        return course

    def _waited(self, done: Entries, now_ns: int) -> dict[str, dict[str, float]]:
        """For how long gates held the run, and what else held a candidate."""
        gates = _gates(done, now_ns)
        scopes = {by: waits.seconds(now_ns) for by, waits in sorted(self._waits.items())}
        return {"byGate": gates, "byScope": {k: v for k, v in scopes.items() if k not in gates}}


_OVER: Final = ("Finished", "Aborted")
_FATES: Final = {NodeState.DONE: "done", NodeState.FAILED: "failed", NodeState.HELD: "held"}


class _States:
    """The nodes that are done, failed, held or replaced, and of each state the longest time (s)
    that a node was in it.
    """

    def __init__(self, entries: Entries, now_ns: int) -> None:
        self.longest: dict[str, float] = {}
        self.fates: dict[str, set[str]] = defaultdict(set)
        self.replaced: set[str] = set()
        since: dict[str, tuple[str, int]] = {}
        fate: dict[str, str] = {}
        for at_ns, action in entries:
            if isinstance(action, NodeMarkPatch) and action.from_ != action.to:
                before = _replaced_by(action) or action.node
                if before != action.node:
                    self.replaced.add(before)
                    fate.pop(before, None)
                self._left(since.pop(before, since.pop(action.node, None)), at_ns)
                if action.to:
                    since[action.node] = (action.to, at_ns)
                if action.to in _FATES:
                    fate[action.node] = _FATES[NodeState(action.to)]
                elif action.to:
                    fate.pop(action.node, None)
            elif isinstance(action, FailWithoutMark):
                self._left(since.pop(action.node, None), at_ns)
                fate[action.node] = "failed"
        for entered in since.values():
            self._left(entered, now_ns)
        for name, word in fate.items():
            self.fates[word].add(name)

    def _left(self, entered: tuple[str, int] | None, at_ns: int) -> None:
        if entered is not None and entered[0] in {*TAKEN, NodeState.SOAKING}:
            seconds = _seconds(at_ns - entered[1])
            self.longest[entered[0]] = max(seconds, self.longest.get(entered[0], 0.0))


def _replaced_by(action: NodeMarkPatch) -> str:
    """The node whose place this one takes, "" for none."""
    text = action.annotations.get(ANNOTATION)
    return decode_mark(text).for_ if text else ""


def _zone_states(entries: Entries) -> dict[str, list[str]]:
    """Each zone's states other than Normal, in the order in which they came."""
    states: dict[str, dict[str, None]] = {}
    for _, action in entries:
        if isinstance(action, SetZoneState) and action.to not in ("Normal", "Initial"):
            states.setdefault(zone_display(action.zone), {})[action.to] = None
    return {zone: list(found) for zone, found in sorted(states.items())}


def _gates(entries: Entries, now_ns: int) -> dict[str, float]:
    """Gate -> for how many seconds it held."""
    since: dict[str, int] = {}
    held: Counter[str] = Counter()
    for at_ns, action in entries:
        if isinstance(action, SetGate):
            if action.holds:
                since.setdefault(action.gate, at_ns)
            elif action.gate in since:
                held[action.gate] += at_ns - since.pop(action.gate)
    for gate, at_ns in since.items():
        held[gate] += now_ns - at_ns
    return {gate: _seconds(ns) for gate, ns in sorted(held.items())}


def _seconds(span_ns: int) -> float:
    return span_ns // MILLISECOND_NS * MILLISECOND_NS / SECOND_NS
