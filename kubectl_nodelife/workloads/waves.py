"""Which nodes can be drained together: waves within limits of budgets, zones, room and numbers.

A wave holds at most so many nodes, so many of a zone, no more pods of a budget than it can spare at
once (a node that alone needs more is the only one of its wave under that budget), and no more than
there is room for. Greedy, in several orders; the shortest result counts.

`CapacityLeft` is the room for replacements, added up over nodes: a necessary condition, quick to
ask while packing. Only sums of cpu, memory and pod slots; whether each pod finds a node of its own
is for the simulated scheduler to decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.quantity import Amounts, amounts
from kubectl_nodelife.workloads.scheduling import PODS

COUNTED: Final = ("cpu", "memory")


_NOTHING: Final[tuple[Amounts, Amounts]] = ({}, {})


class CapacityLeft:
    """Free amounts over the nodes that take pods. `keep`: the share of each that stays free."""

    def __init__(self, keep: float = 0.0) -> None:
        self._keep = keep
        self._free: Counter[str] = Counter()
        self._total: Counter[str] = Counter()
        self._lost: dict[str, tuple[Amounts, Amounts]] = {}
        """(free, total) of the nodes whose room is lost when they are drained, by name."""

    def copy(self) -> Self:
        """Another one with as much left."""
        other = copy(self)
        other._free, other._total = Counter(self._free), Counter(self._total)
        other._lost = dict(self._lost)
        return other

    def add(self, node: Node, used: Mapping[str, int], *, until_drained: bool = False) -> None:
        """A node takes pods; `used` of it (by resource, and `pods`) is taken.

        `until_drained`: no more once it is drained itself.
        """
        allocatable = amounts(node.status.allocatable)
        total = {resource: allocatable.get(resource, 0) for resource in (*COUNTED, PODS)}
        free = {resource: amount - used.get(resource, 0) for resource, amount in total.items()}
        if until_drained:
            self._lost[node.name] = (free, total)
        self._total.update(total)
        self._free.update(free)

    def holds(self, moving: Mapping[str, int], pods: int, node: str = "") -> bool:
        """True if so much for so many pods finds room without the node that they leave.

        The share to keep stays free.
        """
        free, total = self._lost.get(node, _NOTHING)
        for resource in COUNTED:
            wanted = moving.get(resource, 0)
            rest = self._free[resource] - free.get(resource, 0) - wanted
            keep = self._keep * (self._total[resource] - total.get(resource, 0))
            if wanted and rest < keep:
                return False
        return not pods or self._free[PODS] - free.get(PODS, 0) >= pods

    def take(self, moving: Mapping[str, int], pods: int, node: str = "") -> None:
        """They have moved away from the node."""
        free, total = self._lost.pop(node, _NOTHING)
        for resource in COUNTED:
            self._free[resource] -= moving.get(resource, 0) + free.get(resource, 0)
            self._total[resource] -= total.get(resource, 0)
        self._free[PODS] -= pods + free.get(PODS, 0)

    def next_wave(self, drained: list[str]) -> None:
        """These nodes are drained and their change is done. They may take pods again."""


def takes_pods(node: Node) -> bool:
    """True if an ordinary pod may go there: not cordoned, Ready, and without taints against it."""
    ready = node.ready()
    if node.spec.unschedulable or (ready is not None and ready.status != "True"):
        return False
    return not any(taint.effect in ("NoSchedule", "NoExecute") for taint in node.spec.taints)


BudgetKey = tuple[str, str]
"""Namespace and name of a budget."""


class WaveLimits(NamedTuple):
    """How many nodes go at once, and how many of a zone; None: any number."""

    max_parallel: int
    max_per_zone: int | None = None


@dataclass(slots=True)
class NodeLoad:
    """One node. `budgets`: how many of its pods need each. `moving`: what the replacements request.

    `pods`: how many are replaced. `blocked`: why its drain cannot end, by what is known before any
    run; "" where it may. `refused`: because kubectl touches nothing there.
    """

    name: str
    zone: str
    budgets: Counter[BudgetKey] = field(default_factory=Counter)
    moving: Counter[str] = field(default_factory=Counter)
    pods: int = 0
    blocked: str = ""
    refused: bool = False


def cut_waves(
    loads: Sequence[NodeLoad],
    caps: Mapping[BudgetKey, int],
    limits: WaveLimits,
    capacity: Callable[[], CapacityLeft],
    at_least: int = 0,
) -> list[list[str]]:
    """The nodes of each wave.

    `caps`: how many pods each budget can spare at once. `capacity` makes the room that is left at
    the beginning. `at_least`: no result is shorter, so the search may stop there.
    """
    best: list[list[str]] | None = None
    for rank in RANKS:
        waves = _cut(loads, caps, limits, capacity(), rank)
        if best is None or len(waves) < len(best):
            best = waves
        if len(best) <= at_least:
            break
    return best or []


def largest_wave(
    loads: Sequence[NodeLoad],
    caps: Mapping[BudgetKey, int],
    capacity: Callable[[], CapacityLeft],
) -> list[str]:
    """The most nodes that were found to fit in one wave, whatever their number.

    Those that need least come first, of budgets, of room, or of both.
    """
    best: list[str] = []
    for order in (_by_budgets, _by_room, lambda load, caps: (len(load.budgets), load.pods)):
        wave = _Filling(caps, WaveLimits(len(loads)), capacity())
        waiting = sorted(loads, key=lambda load: (*order(load, caps), load.name))
        names = [load.name for load in waiting if wave.take(load)]
        best = max(best, names, key=len)
    return sorted(best)


def _by_budgets(load: NodeLoad, caps: Mapping[BudgetKey, int]) -> tuple[float, ...]:
    return (_share(load, caps), sum(count / caps[key] for key, count in load.budgets.items()))


def _by_room(load: NodeLoad, caps: Mapping[BudgetKey, int]) -> tuple[float, ...]:
    return (load.moving.get("cpu", 0), load.moving.get("memory", 0), load.pods)


Rank = Callable[[list[float], float], tuple[float, ...]]
"""From the needs of a node's limits, and the largest share of a budget that it takes, to a key by
which nodes are sorted; the smallest goes first."""

RANKS: Final[tuple[Rank, ...]] = (
    lambda needs, share: (-max(needs, default=0), -share, -sum(needs)),
    lambda needs, share: (-sum(needs), -max(needs, default=0)),
    lambda needs, share: (-share, -max(needs, default=0), -sum(needs)),
    lambda needs, share: (-len(needs), -sum(needs)),
)


def _needed_waves(
    waiting: Iterable[NodeLoad], caps: Mapping[BudgetKey, int], limits: WaveLimits
) -> dict[object, float]:
    """The waves that each limit still needs for these nodes, by budget and by zone."""
    budgets, zones = Counter[BudgetKey](), Counter[str]()
    for load in waiting:
        zones[load.zone] += 1
        for key, count in load.budgets.items():
            budgets[key] += min(count, caps[key])
    needed: dict[object, float] = {key: count / caps[key] for key, count in budgets.items()}
    if limits.max_per_zone is not None:
        needed |= {zone: count / limits.max_per_zone for zone, count in zones.items()}
    return needed


def _cut(
    loads: Sequence[NodeLoad],
    caps: Mapping[BudgetKey, int],
    limits: WaveLimits,
    room: CapacityLeft,
    rank: Rank,
) -> list[list[str]]:
    """Cut wave after wave, the nodes that are hardest to place first."""
    shares = {load.name: _share(load, caps) for load in loads}
    waiting = list(loads)
    result: list[list[str]] = []
    while waiting:
        needs = _needed_waves(waiting, caps, limits)
        keys = {
            load.name: (*rank(_needs_of(load, needs), shares[load.name]), load.name)
            for load in waiting
        }
        waiting.sort(key=lambda load: keys[load.name])
        wave = _Filling(caps, limits, room)
        taken = [load for load in waiting if wave.take(load)]
        if not taken:  # no room even for one: it is tried, and the run shows the result
            taken = waiting[:1]
            wave.force(taken[0])
        names = {load.name for load in taken}
        waiting = [load for load in waiting if load.name not in names]
        room.next_wave([load.name for load in taken])
        result.append([load.name for load in taken])
    return result


def _share(load: NodeLoad, caps: Mapping[BudgetKey, int]) -> float:
    return max((count / caps[key] for key, count in load.budgets.items()), default=0.0)


def _needs_of(load: NodeLoad, needs: dict[object, float]) -> list[float]:
    loads = [needs[key] for key in load.budgets]
    if load.zone in needs:
        loads.append(needs[load.zone])
    return loads


@dataclass
class _Filling:
    """One wave while it is filled."""

    caps: Mapping[BudgetKey, int]
    limits: WaveLimits
    room: CapacityLeft
    zones: Counter[str] = field(default_factory=Counter)
    budgets: Counter[BudgetKey] = field(default_factory=Counter)

    def take(self, load: NodeLoad) -> bool:
        """Add the node if every limit allows it."""
        limit = self.limits.max_per_zone
        if self.zones.total() >= self.limits.max_parallel:
            return False
        if limit is not None and self.zones[load.zone] >= limit:
            return False
        for key, count in load.budgets.items():
            used = self.budgets[key]
            if used and used + count > self.caps[key]:
                return False
        if not self.room.holds(load.moving, load.pods, load.name):
            return False
        self.force(load)
        return True

    def force(self, load: NodeLoad) -> None:
        """Add the node."""
        self.zones[load.zone] += 1
        self.budgets.update(load.budgets)
        self.room.take(load.moving, load.pods, load.name)
