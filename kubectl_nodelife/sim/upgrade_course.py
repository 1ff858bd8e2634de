"""What is read off a simulated upgrade: its course, which `upgrade plan` shows of the run that it
plays, and the document `final.upgrade`.

The least availability is measured while it runs, at each change of a node or a pod, and not taken
from the controller; turns, steps and the result of each node are read from the marks that its
leaders write, of which `sim/reading.py` knows nothing.

Instants of the course are nanoseconds since the leader has watched for one grace period, before
which it claims nothing; None: not reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from kubectl_nodelife.controllers.upgrade import claims, marks
from kubectl_nodelife.controllers.upgrade.claiming import SOAK
from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    NodeScope,
    why_unavailable,
)
from kubectl_nodelife.controllers.upgrade.document import OVER, RunPhase
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.report import TimeLeft
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
from kubectl_nodelife.sim.api import MakePod
from kubectl_nodelife.sim.world import World

Entries = Sequence[tuple[int, Action]]
"""What happened and was not refused."""


INSTANTS: Final = {
    marks.NodeState.DRAINING: "claimed",
    marks.NodeState.WORKING: "drained",
    marks.NodeState.SETTLING: "worked",
    marks.NodeState.PROVING: "settled",
    marks.NodeState.SOAKING: "released",
    marks.NodeState.DONE: "done",
}
"""What has come to a node that enters each state."""


@dataclass(slots=True)
class PlayedNode:
    """One node of a run. One that is replaced goes on as its newcomer, by whose name it is known
    `now`.

    `entered`: each of its states, and when; "": it bears no mark any more. `at`: when what
    INSTANTS says came to it since it was claimed last; `done` is its end, however it ended.
    `restored`: why it was given back without the work; `failed`: why it is not proven. `""`: none.
    `tried_ns`: when it was claimed first in its step; later claims follow drains that did not end.
    """

    name: str
    now: str
    step: int = -1
    tried_ns: int = 0
    entered: list[tuple[int, str]] = field(default_factory=list)
    at: dict[str, int] = field(default_factory=dict)
    restored: str = ""
    failed: str = ""

    @property
    def claimed_ns(self) -> int:
        """When it was claimed last."""
        return self.at["claimed"]

    @property
    def fate(self) -> str:
        """The state in which it ended, though its marks may have gone since."""
        return next((state for _, state in reversed(self.entered) if state), "")


@dataclass(slots=True)
class PlayedStep:
    """Nodes that belong together: a growth step of `width` nodes, or, with width 0, a zone (or
    several) once growth is over. `soak_ns`: how long the run waits after it.
    """

    pool: str
    width: int
    start_ns: int
    names: list[str] = field(default_factory=list)
    zones: list[str] = field(default_factory=list)
    end_ns: int | None = None
    soak_ns: int = 0


class LowPoint(NamedTuple):
    """The fewest nodes of a scope that are available at once, and when."""

    available: int
    at_ns: int


@dataclass(slots=True)
class PlayedRun:
    """A run to its end, from `origin_ns` on, when its first leader may claim.

    `phases`: of the run; `gates`: when each began to hold it (True), or no longer did.
    `available`: how many nodes of the run's pools are available, from each instant on. `held`: the
    nodes that are never claimed, and what holds them. `free_share`: the least free share of cpu and
    memory. `moves`: how often a pod that moves is moved, as (mean, most); `waiting`: pods that
    would stay Pending, and why. `decided`: what its leaders decided, each with its instant in ns
    since the epoch. `foretold`: how long it takes, as its leader saw it before the first claim.
    `by_chance`: a pod got one of several nodes of the same score.
    """

    origin_ns: int = 0
    turns: dict[str, PlayedNode] = field(default_factory=dict)
    steps: list[PlayedStep] = field(default_factory=list)
    phases: list[tuple[int, str]] = field(default_factory=list)
    gates: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    held: dict[str, claims.ClaimHold] = field(default_factory=dict)
    available: list[tuple[int, int]] = field(default_factory=list)
    lowest: dict[NodeScope, LowPoint] = field(default_factory=dict)
    free_share: dict[str, float] = field(default_factory=dict)
    evictions: int = 0
    moves: tuple[float, int] = (0.0, 0)
    zone_states: dict[str, list[str]] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    decided: list[tuple[int, Action]] = field(default_factory=list)
    foretold: TimeLeft | None = None
    by_chance: bool = False

    @property
    def phase(self) -> str:
        """The run's, at the end."""
        return self.phases[-1][1] if self.phases else str(RunPhase.RUNNING)

    @property
    def over_ns(self) -> int | None:
        """When the run was over; None: never."""
        return next((at_ns for at_ns, phase in reversed(self.phases) if phase in OVER), None)

    @property
    def end_ns(self) -> int:
        """When the run was over, else when the last node came to its end."""
        ends = (turn.at.get("done") or turn.claimed_ns for turn in self.turns.values())
        return self.over_ns or max(ends, default=0)

    def does(self, name: str) -> bool:
        """True if the node is claimed and neither given back nor failed."""
        turn = self.turns.get(name)
        return turn is not None and not (turn.restored or turn.failed)

    def why_not(self, name: str) -> str:
        """Why the node is not done, "" where nothing says it."""
        turn, held = self.turns.get(name), self.held.get(name)
        if turn is not None:
            return turn.restored or turn.failed
        return held.because if held is not None else ""


@dataclass(slots=True)
class _Reader:
    """Reads nodes, steps, phases and gates from what happened and was not refused.

    `nodes`: as they were when they were seen first. `soaks_ns`: when the run began to soak.
    `open`: nodes of the step that have not come to their end; `was`: of a newcomer, the node that
    was claimed.
    """

    course: PlayedRun
    nodes: Mapping[str, Node]
    policy: UpgradePolicy
    soaks_ns: Sequence[int]
    width: int = 0
    open: set[str] = field(default_factory=set)
    was: dict[str, str] = field(default_factory=dict)

    def read(self, entries: Entries) -> None:
        course = self.course
        for at_ns, action in entries:
            at_ns -= course.origin_ns
            match action:
                case UpdateRun(window=window, phase=phase):
                    self.width = self.width if window is None else max(0, window)
                    course.phases += [(at_ns, phase)] if phase else []
                case SetGate(gate=gate, holds=holds):
                    course.gates.setdefault(gate, []).append((at_ns, holds))
                case NodeMarkPatch() if action.from_ != action.to:
                    self._mark(action, at_ns)
                case FailWithoutMark(node=node, because=because):
                    if turn := course.turns.get(self.was.get(node, node)):
                        self._enter(turn, marks.NodeState.FAILED, at_ns, because)
                case EvictPod():
                    course.evictions += 1

    def _mark(self, action: NodeMarkPatch, at_ns: int) -> None:
        text = action.annotations.get(marks.ANNOTATION)
        if text and (before := marks.decode_mark(text).for_):  # the node whose place it takes
            self.was[action.node] = self.was.get(before, before)
        name = self.was.get(action.node, action.node)
        if action.to == marks.NodeState.DRAINING:
            self._claim(name, at_ns)
        if turn := self.course.turns.get(name):
            turn.now = action.node
            self._enter(turn, action.to, at_ns, action.because)

    def _enter(self, turn: PlayedNode, state: str, at_ns: int, because: str) -> None:
        before = turn.entered[-1][1] if turn.entered else ""
        turn.entered.append((at_ns, state))
        if state in INSTANTS:
            turn.at[INSTANTS[marks.NodeState(state)]] = at_ns
        elif before == marks.NodeState.DRAINING:
            turn.restored, turn.at["done"] = because, at_ns
        elif state in (marks.NodeState.FAILED, marks.NodeState.HELD):
            turn.failed, turn.at["done"] = because, at_ns
        if "done" in turn.at and turn.name in self.open:  # marks go once more, at the run's end
            self.open.discard(turn.name)
            if not self.open:
                self.course.steps[turn.step].end_ns = at_ns

    def _claim(self, name: str, at_ns: int) -> None:
        node, steps = self.nodes[name], self.course.steps
        zone, pool = claims.zone_name(node), claims.turn_of(node, self.policy)
        turn = self.course.turns.setdefault(name, PlayedNode(name, name))
        if not steps or self._is_another(steps[-1], pool, at_ns):
            steps.append(PlayedStep(pool, self.width, at_ns))
        step, number = steps[-1], len(steps) - 1
        step.names.append(name)
        step.end_ns = None
        if zone not in step.zones:
            step.zones.append(zone)
        self.open.add(name)
        if turn.step != number:
            turn.step, turn.tried_ns = number, at_ns
        turn.at.clear()
        turn.restored = turn.failed = ""

    def _is_another(self, step: PlayedStep, pool: str, at_ns: int) -> bool:
        """True if a claim now begins a new step: another pool or window, or after a soak."""
        differs = (step.pool, step.width) != (pool, self.width)
        if step.end_ns is None:
            return differs
        soaked = any(step.end_ns <= soak_ns <= at_ns for soak_ns in self.soaks_ns)
        if soaked:
            step.soak_ns = int(self.policy.soak_ns)
        return soaked or differs


def moves_of_pods(actions: Iterable[Action]) -> tuple[float, int]:
    """How often a pod and its successors were evicted: mean over evicted pods, and most."""
    moves: Counter[str] = Counter()
    ended: dict[str, int] = {}
    for action in actions:
        if isinstance(action, EvictPod):
            moves[action.pod_uid] += 1
        elif isinstance(action, MakePod):
            cause = action.cause
            while cause is not None and not isinstance(cause, EvictPod):
                cause = cause.cause
            if isinstance(cause, EvictPod):
                moves[action.pod_uid] = moves[cause.pod_uid]
                ended.pop(cause.pod_uid, None)
                ended[action.pod_uid] = moves[action.pod_uid]
    counts = list(ended.values())
    return (sum(counts) / len(counts) if counts else 0.0), max(counts, default=0)


_SHARES: Final = ("cpu", "memory")
_ZONES: Final = "zones"
"""The kind of scope of a zone's nodes in all pools."""


class _Integral:
    """Object-seconds: how many members counted, summed over time."""

    def __init__(self, now_ns: int) -> None:
        self._members: set[object] = set()
        self._since_ns, self._total_ns = now_ns, 0

    def put(self, member: object, holds: bool, now_ns: int) -> None:
        """The member counts from now on, or no longer does."""
        self.seconds(now_ns)
        (self._members.add if holds else self._members.discard)(member)

    def seconds(self, now_ns: int) -> float:
        """The sum up to now."""
        self._total_ns += len(self._members) * (now_ns - self._since_ns)
        self._since_ns = now_ns
        return _seconds(self._total_ns)


class UpgradeWatch:
    """Watches the cluster from the run's start on."""

    def __init__(self, world: World, policy: UpgradePolicy) -> None:
        self._world, self._api, self._policy = world, world.api, policy
        self.began_ns = began_ns = world.api.now_ns
        self._nodes = dict(world.api.store.nodes)
        nodes = [n for n in self._nodes.values() if not claims.is_control_plane(n)]
        selected = [n for n in nodes if claims.is_selected(n, policy)]
        self.selected = [n.name for n in selected]
        self._own_pools = {claims.pool_name(n, policy) for n in selected}
        self._available: dict[str, tuple[str, str]] = {}
        self._ready_nodes: set[str] = set()
        self._lowest_ready = 0
        self._scopes: Counter[NodeScope] = Counter()
        self._lows: dict[NodeScope, LowPoint] = {}
        self._available_in_own: list[tuple[int, int]] = []
        self._soaks_ns: list[int] = []
        self._shares = dict.fromkeys(_SHARES, 1.0)
        for node in nodes:
            self._count(node.name, node)
        self._lowest_ready = len(self._ready_nodes)
        self._lows = {s: LowPoint(n, began_ns) for s, n in self._scopes.items()}
        self._held: tuple[int, set[str]] = (began_ns, set())
        self._held_ns: Counter[str] = Counter()
        self._pending, self._at_zero = _Integral(began_ns), _Integral(began_ns)
        for ledger in world.disruption.ledgers.values():
            self._budget_changed("PodDisruptionBudget", None, ledger.budget)
        self._measure_room()
        world.api.on_node(self._node_changed)
        world.api.on_pod(self._pod_changed)
        world.api.on_object(self._budget_changed)

    def held(self, by: set[str]) -> None:
        """Take in the holds on candidates other than gates: slots, zone, room, a budget, a soak."""
        (since_ns, before), now_ns = self._held, self._api.now_ns
        if SOAK in by - before:
            self._soaks_ns.append(now_ns)
        self._held_ns.update(dict.fromkeys(before, now_ns - since_ns))
        self._held = (now_ns, by)

    def _node_changed(self, old: Node | None, new: Node | None, cause: Action | None) -> None:
        node = new or old
        assert node is not None
        self._nodes.setdefault(node.name, node)
        if claims.is_control_plane(node):
            return
        before = self._scopes[CLUSTER]
        self._count(node.name, new)
        if self._scopes[CLUSTER] < before:
            self._measure_room()

    def _count(self, name: str, node: Node | None) -> None:
        """Count the node as it is now."""
        if node is not None and node.is_ready:
            self._ready_nodes.add(name)
        else:
            self._ready_nodes.discard(name)
            self._lowest_ready = min(self._lowest_ready, len(self._ready_nodes))
        is_there = node is not None and not why_unavailable(node)
        if is_there == (name in self._available):
            return
        by = 1 if is_there else -1
        if node is not None and is_there:
            self._available[name] = (claims.pool_name(node, self._policy), claims.zone_name(node))
        pool, zone = self._available[name]
        if not is_there:
            del self._available[name]
        everywhere = NodeScope(_ZONES, "", zone)
        for scope in (CLUSTER, NodeScope("pool", pool), NodeScope("zone", pool, zone), everywhere):
            self._scopes[scope] += by
            low = self._lows.get(scope)
            if low is not None and self._scopes[scope] < low.available:
                self._lows[scope] = LowPoint(self._scopes[scope], self._api.now_ns)
        count = sum(self._scopes[NodeScope("pool", pool)] for pool in self._own_pools)
        series, now_ns = self._available_in_own, self._api.now_ns  # of the run's pools
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

    def document(self, course: PlayedRun) -> dict[str, Any]:
        """The contract's `final.upgrade`."""
        now_ns, began_ns = self._api.now_ns, self.began_ns
        end_ns = now_ns if course.over_ns is None else course.over_ns + course.origin_ns
        turns = course.turns.values()
        mean, most = course.moves
        lowest = self._lows.get(CLUSTER, LowPoint(0, began_ns))
        fates = {state: sorted(t.now for t in turns if t.fate == state) for state in _FATES}
        touched = {name for names in fates.values() for name in names}
        touched |= {turn.name for turn in turns if turn.now != turn.name}
        return {
            **{state.lower(): names for state, names in fates.items()},
            "skipped": sorted(set(self.selected) - touched),
            "seconds": _seconds(end_ns - began_ns),
            "lowestAvailable": {
                "all": lowest.available,
                "byPool": self._lowest_by("pool"),
                "byZone": self._lowest_by(_ZONES),
                "at": _seconds(lowest.at_ns - began_ns),
            },
            "lowestReady": self._lowest_ready,
            "lowestFreeShare": {key: round(share, 4) for key, share in self._shares.items()},
            "zoneStates": course.zone_states,
            "evictions": course.evictions,
            "movesOfAPod": {"mean": round(mean, 2), "max": most},
            "pendingPodSeconds": self._pending.seconds(now_ns),
            "budgetZeroSeconds": self._at_zero.seconds(now_ns),
            "waitSeconds": self._waited(course, now_ns),
            "longestState": _longest(turns, now_ns - course.origin_ns),
        }

    def course(self, entries: Entries, failures: Iterable[Outcome], cold_ns: int) -> PlayedRun:
        """The run's course. `cold_ns`: how long its leader watched before it claimed anything."""
        refused = {outcome.action.id for outcome in failures}
        done = [(at, a) for at, a in entries if at >= self.began_ns and a.id not in refused]
        origin_ns = self.began_ns + cold_ns
        course = PlayedRun(origin_ns, free_share=dict(self._shares))
        soaks_ns = [soak_ns - origin_ns for soak_ns in self._soaks_ns]
        _Reader(course, self._nodes, self._policy, soaks_ns).read(done)
        course.decided = [entry for entry in done if entry[1].controller == marks.CONTROLLER]
        course.moves = moves_of_pods(a for _, a in done)
        course.zone_states = _zone_states(done)
        course.lowest = {
            scope: LowPoint(low.available, max(0, low.at_ns - origin_ns))
            for scope, low in self._lows.items()
            if scope.kind != _ZONES
        }
        for at_ns, count in self._available_in_own:
            if course.available and at_ns <= origin_ns:
                course.available.pop()
            course.available.append((max(0, at_ns - origin_ns), count))
        return course

    def _lowest_by(self, kind: str) -> dict[str, int]:
        """The lowest of each pool, or zone; 0 of one that came later."""
        none, scopes = LowPoint(0, 0), sorted(s for s in self._scopes if s.kind == kind)
        return {s.pool or s.zone: self._lows.get(s, none).available for s in scopes}

    def _waited(self, course: PlayedRun, now_ns: int) -> dict[str, dict[str, float]]:
        """For how long gates held the run, and what else held a candidate."""
        end_ns = now_ns - course.origin_ns
        gates = {
            gate: _seconds(sum(until - at for at, until, holds in spans(changes, end_ns) if holds))
            for gate, changes in sorted(course.gates.items())
        }
        self.held(self._held[1])
        held = sorted(self._held_ns.items())
        return {
            "byGate": gates,
            "byScope": {by: _seconds(held_ns) for by, held_ns in held if by not in gates},
        }


_FATES: Final = (marks.NodeState.DONE, marks.NodeState.FAILED, marks.NodeState.HELD)
_Says = TypeVar("_Says")


def spans(changes: Sequence[tuple[int, _Says]], end_ns: int) -> Iterator[tuple[int, int, _Says]]:
    """From when to when each of these is so, the last one until `end_ns`."""
    ends = [at_ns for at_ns, _ in changes[1:]]
    for (at_ns, says), until_ns in zip(changes, [*ends, end_ns], strict=True):
        yield at_ns, until_ns, says


def _longest(turns: Iterable[PlayedNode], end_ns: int) -> dict[str, float]:
    """The longest time (s) that a node was in each of the states in flight."""
    longest: dict[str, float] = {}
    for turn in turns:
        for at_ns, until_ns, state in spans(turn.entered, end_ns):
            if state in marks.IN_FLIGHT:
                longest[state] = max(_seconds(until_ns - at_ns), longest.get(state, 0.0))
    return longest


def _zone_states(entries: Entries) -> dict[str, list[str]]:
    """Each zone's states other than Normal, in the order in which they came."""
    states: dict[str, dict[str, None]] = {}
    for _, action in entries:
        if isinstance(action, SetZoneState) and action.to not in ("Normal", "Initial"):
            states.setdefault(zone_display(action.zone), {})[action.to] = None
    return {zone: list(seen) for zone, seen in sorted(states.items())}


def _seconds(span_ns: int) -> float:
    return span_ns // MILLISECOND_NS * MILLISECOND_NS / SECOND_NS
