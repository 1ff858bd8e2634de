"""Indexes what each node is to one set: placement, its part of the status, its place in an update.

Upstream walks all nodes in every sync. Here a node is evaluated again only when it, or a pod of the
set on it, changed, or when a pod there becomes available by the passing of time; sums and sets of
names are kept. A full walk in the tests checks the index.

The status is six counts summed over the nodes. Follows `updateDaemonSetStatus` and
`storeDaemonSetStatus` (`pkg/controller/daemon/daemon_controller.go`).

The place in an update follows `findUpdatedPodsOnNode` (`pkg/controller/daemon/update.go`), and the
budget that some of the places use `UnavailableCount` and `SurgeCount`
(`pkg/controller/daemon/util/daemonset_util.go`).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Final, NamedTuple, cast

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.placement import Placement, PlacementDecision
from kubectl_nodelife.controllers.daemonset.pods_on_node import (
    DaemonPods,
    available_from,
    is_past,
    is_pod_updated,
    pod_age_key,
)
from kubectl_nodelife.copy_on_write import fork_dict, unchanging
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.workload import (
    DaemonSet,
    DaemonSetStatus,
    IntOrString,
    NotAPercentage,
    RollingUpdateDaemonSet,
    scaled_value,
)

ROLLING_UPDATE = "RollingUpdate"


class NodeUpdateState(Enum):
    """The state of a node's pods in a rolling update; terminating pods are not looked at."""

    NONE = "no pod that stays"
    EXCESS = "too many pods of one version"
    NEW_AVAILABLE = "new pod available"
    NEW_UNAVAILABLE = "new pod not available"
    OLD_AVAILABLE = "old pod available"
    OLD_UNAVAILABLE = "old pod not available"
    BOTH_OLD_AVAILABLE = "both, new pod not available, old one available"
    BOTH_NEW_AVAILABLE = "both, new pod available, old one not"
    BOTH_AVAILABLE = "both available"
    BOTH_UNAVAILABLE = "both, neither available"


EATS_MAX_UNAVAILABLE = frozenset(NodeUpdateState) - {
    NodeUpdateState.NEW_AVAILABLE,
    NodeUpdateState.OLD_AVAILABLE,
}
"""States that count against maxUnavailable without surge (below 1.30 OLD_UNAVAILABLE did not)."""

EATS_MAX_SURGE = frozenset(
    {NodeUpdateState.EXCESS, NodeUpdateState.BOTH_OLD_AVAILABLE, NodeUpdateState.BOTH_UNAVAILABLE}
)
"""States that count against maxSurge."""

AVAILABLE_WITH_SURGE = frozenset(
    {
        NodeUpdateState.NEW_AVAILABLE,
        NodeUpdateState.OLD_AVAILABLE,
        NodeUpdateState.BOTH_OLD_AVAILABLE,
        NodeUpdateState.BOTH_AVAILABLE,
    }
)
"""Nodes with an available pod; where both versions stand, it is the old one that is asked."""

_BOTH = {
    (False, False): NodeUpdateState.BOTH_UNAVAILABLE,
    (False, True): NodeUpdateState.BOTH_OLD_AVAILABLE,
    (True, False): NodeUpdateState.BOTH_NEW_AVAILABLE,
    (True, True): NodeUpdateState.BOTH_AVAILABLE,
}


def node_update_state(new: Sequence[bool], old: Sequence[bool]) -> NodeUpdateState:
    """The state of a node; `new` and `old` have for each pod of that version if it is available.

    Terminating pods are left out by the caller. Follows `findUpdatedPodsOnNode`.
    """
    if len(new) > 1 or len(old) > 1:
        return NodeUpdateState.EXCESS
    if new and old:
        return _BOTH[new[0], old[0]]
    if new:
        return NodeUpdateState.NEW_AVAILABLE if new[0] else NodeUpdateState.NEW_UNAVAILABLE
    if old:
        return NodeUpdateState.OLD_AVAILABLE if old[0] else NodeUpdateState.OLD_UNAVAILABLE
    return NodeUpdateState.NONE


@dataclass(frozen=True)
class UpdateBudget:
    """maxUnavailable and maxSurge in nodes, and the number of nodes that should run a pod."""

    desired: int
    max_unavailable: int
    max_surge: int

    @property
    def limit(self) -> tuple[int, str]:
        """To how many nodes at once the update goes, and the name of what says so: maxSurge where
        it is above zero."""
        if self.max_surge:
            return self.max_surge, "maxSurge"
        return self.max_unavailable, "maxUnavailable"


class Tally(NamedTuple):
    """The counts that one node, or all of them, add to the status."""

    desired: int = 0
    current: int = 0
    misscheduled: int = 0
    ready: int = 0
    updated: int = 0
    available: int = 0


_NOTHING = Tally()
_TALLIES = len(_NOTHING)
_WAVE_COUNTER = {
    node_update_state: _TALLIES + i for i, node_update_state in enumerate(NodeUpdateState)
}
_LACKING_AVAILABLE = _TALLIES + len(NodeUpdateState)
_WAVE_LIST = {
    node_update_state: i
    for i, node_update_state in enumerate(NodeUpdateState)
    if node_update_state is not NodeUpdateState.NEW_AVAILABLE
}
_BUSY, _STRAYS, _UNFIT, _FAILING, _SUSPENDED, _WITH_OLD = range(
    len(NodeUpdateState), len(NodeUpdateState) + 6
)
_LISTS = _WITH_OLD + 1
_FEW: Final = 64

WORDS: Final = {
    "desired_number_scheduled": "desired",
    "current_number_scheduled": "current",
    "number_misscheduled": "misscheduled",
    "number_ready": "ready",
    "updated_number_scheduled": "up to date",
    "number_available": "available",
}
"""The counts that people look at, and what they call them."""
_shown_counts = attrgetter(*WORDS)


class IndexedBy(NamedTuple):
    """The values besides node and pods that a node's facts depend on."""

    revision_hash: str
    generation: int | None
    min_ready_seconds: int
    surge_allowed: bool


class PodFacts(NamedTuple):
    """The facts about a pod that the node status index holds."""

    ready: bool
    available: bool
    updated: bool
    terminating: bool
    finished: bool


@dataclass(slots=True, eq=False)
class NodeFacts:
    """One node's part in the counts of a set. Nodes with equal facts share one object.

    `counted` are the counters in which such a node counts, `listed` the sets of names in which it
    stands, by their number. `verdict` None: the node does not exist, a pod of the set is there all
    the same.
    """

    verdict: PlacementDecision | None
    counted: tuple[int, ...]
    listed: tuple[int, ...]


class NodeStatusIndex:
    """The facts of all nodes for one set, with their sums."""

    def __init__(
        self,
        cache: Cache,
        pods: DaemonPods,
        placement: Placement,
    ) -> None:
        self._cache = cache
        self._pods = pods
        self.placement = placement
        self._rules: Behaviour = placement.template.rules
        self._yardstick: IndexedBy | None = None
        self._facts: dict[str, NodeFacts] = {}
        self._equal: dict[tuple[object, ...], NodeFacts] = {}
        self._dirty: set[str] = set()
        self._due: list[tuple[int, str]] = []
        self._counters = [0] * (_LACKING_AVAILABLE + 1)
        waves = len(NodeUpdateState)
        self._name_lists([OrderedNames() if i < waves else set() for i in range(_LISTS)])
        self.mark_all()

    def _name_lists(self, lists: list[set[str]]) -> None:
        """Names of nodes, each set the answer to one question of a sync."""
        self._lists = lists
        self.nodes_by_wave = {
            state: cast(OrderedNames, lists[i]) for state, i in _WAVE_LIST.items()
        }
        self.busy = lists[_BUSY]  # a decision is to be made
        self.strays = lists[_STRAYS]  # the node does not exist, a pod for it does
        self.unfit = lists[_UNFIT]  # a pod is there, and none should be made
        self.failing = lists[_FAILING]  # FailedPlacement is to be reported
        self.suspended = lists[_SUSPENDED]  # wanted, but there is no room
        self.with_old = lists[_WITH_OLD]  # a pod of another revision is there

    def fork(self, cache: Cache, pods: DaemonPods) -> NodeStatusIndex:
        """Another index of the same, over forks of cache and pods.

        What a node may be to the set is shared; sets of names are copied, and are small in a set
        that is as it should be.
        """
        other = copy(self)
        other._cache, other._pods = cache, pods
        self._facts, other._facts = fork_dict(self._facts)
        self._equal, other._equal = fork_dict(self._equal)
        other._dirty, other._due = set(self._dirty), list(self._due)
        other._counters = list(self._counters)
        other._name_lists([names.copy() for names in self._lists])
        return other

    def mark_others(self, nodes: Mapping[str, Node]) -> None:
        """The nodes that are not those of the last look, which these are, may be anything."""
        present = unchanging(self._cache.nodes)
        self._dirty.update(n for n, node in present.items() if nodes.get(n) is not node)
        self._dirty.update(nodes.keys() - present.keys())

    def mark(self, node: str) -> None:
        """The node, or a pod of the set there, changed."""
        self._dirty.add(node)

    def mark_all(self) -> None:
        """Everything may have changed."""
        self._dirty.update(self._cache.nodes)
        self._dirty.update(self._facts)
        self._dirty.update(self._pods.by_node)

    def replace_placement(self, placement: Placement) -> None:
        """The template changed; all nodes are judged again."""
        self.placement = placement
        self._equal.clear()
        self.mark_all()

    def refresh(self, now: int, yardstick: IndexedBy) -> None:
        """Look again at what changed, or at everything if the yardstick did."""
        if yardstick != self._yardstick:
            self._yardstick = yardstick
            self._due.clear()
            self._equal.clear()
            self.mark_all()
        inclusive = self._rules.available_at_the_instant
        while self._due and is_past(self._due[0][0], now, inclusive):
            self._dirty.add(heapq.heappop(self._due)[1])
        if not self._dirty:
            return
        few = len(self._dirty) < _FEW
        nodes = self._cache.nodes if few else unchanging(self._cache.nodes)
        for name in self._dirty:
            self._look_at(name, nodes.get(name), now, yardstick)
        self._dirty.clear()

    def facts(self, node: str) -> NodeFacts | None:
        """The facts of a node as of the last refresh, None for one that is nothing to the set."""
        return self._facts.get(node)

    def verdict(self, node: Node) -> PlacementDecision:
        """The verdict for a node as given, whether or not it is the one in the cache."""
        return self.placement.judge(node, self._cache.pods_on)

    @property
    def tally(self) -> Tally:
        """The sums over all nodes."""
        return Tally(*self._counters[:_TALLIES])

    def count(self, waves: Iterable[NodeUpdateState]) -> int:
        """How many nodes count as one of these."""
        return sum(self._counters[_WAVE_COUNTER[node_update_state]] for node_update_state in waves)

    @property
    def lacking_available(self) -> int:
        """How many nodes want a pod and have none that is available and not terminating."""
        return self._counters[_LACKING_AVAILABLE]

    def _look_at(self, name: str, node: Node | None, now: int, yardstick: IndexedBy) -> None:
        pods = self._pods.by_node.get(name)
        old = self._facts.get(name)
        new: NodeFacts | None = None
        if node is not None or pods:
            verdict = None if node is None else self.verdict(node)
            seen = tuple(
                self._see(name, pod, now, yardstick)
                for pod in (_by_age(pods.values()) if pods else ())
            )
            key = (id(verdict), seen)
            new = self._equal.get(key)
            if new is None:
                new = self._equal[key] = self._assess(verdict, seen, yardstick)
        if new is not old:
            self._replace(name, old, new)

    def _replace(self, name: str, old: NodeFacts | None, new: NodeFacts | None) -> None:
        counters = self._counters
        if old is not None:
            for i in old.counted:
                counters[i] -= 1
            for i in old.listed:
                self._lists[i].discard(name)
        if new is None:
            del self._facts[name]
            return
        for i in new.counted:
            counters[i] += 1
        for i in new.listed:
            self._lists[i].add(name)
        self._facts[name] = new

    def _see(self, name: str, pod: Pod, now: int, yardstick: IndexedBy) -> PodFacts:
        """One pod; if it will become available later, the node is looked at again then."""
        updated = is_pod_updated(
            pod.metadata.labels,
            yardstick.revision_hash,
            yardstick.generation,
            self._rules.generation_label_counts,
        )
        terminating = pod.metadata.deletion_timestamp is not None
        finished = pod.status.phase in TERMINAL_PHASES
        since = available_from(pod, yardstick.min_ready_seconds)
        if since is None:
            return PodFacts(pod.ready(), False, updated, terminating, finished)
        available = is_past(since, now, self._rules.available_at_the_instant)
        if not available:
            heapq.heappush(self._due, (since, name))
        return PodFacts(True, available, updated, terminating, finished)

    def _assess(
        self, verdict: PlacementDecision | None, pods: tuple[PodFacts, ...], yardstick: IndexedBy
    ) -> NodeFacts:
        """The facts of a node with that verdict and these pods, the oldest first."""
        counted: list[int] = []
        listed: list[int] = []
        wanted = verdict is not None and verdict.want_to_run
        live = [pod for pod in pods if not pod.terminating]
        if pods or wanted:
            node_update_state = update_state_of(live)
            counted.append(_WAVE_COUNTER[node_update_state])
            if node_update_state in _WAVE_LIST:
                listed.append(_WAVE_LIST[node_update_state])
        if any(not pod.updated for pod in pods):
            listed.append(_WITH_OLD)
        if wanted and not any(pod.available for pod in live):
            counted.append(_LACKING_AVAILABLE)
        if verdict is None:
            return NodeFacts(None, tuple(counted), (*listed, _STRAYS))
        tally = tally_of_node(verdict, pods)
        counted += [i for i, value in enumerate(tally) if value]
        if may_act(verdict, pods, yardstick.surge_allowed):
            listed.append(_BUSY)
        if (pods or wanted) and not verdict.should_run:
            listed.append(_UNFIT)
        if verdict.want_to_run and not verdict.should_run:
            listed.append(_SUSPENDED)
        if verdict.failed_placements:
            listed.append(_FAILING)
        return NodeFacts(verdict, tuple(counted), tuple(listed))


def may_act(verdict: PlacementDecision, pods: Sequence[PodFacts], surge_allowed: bool) -> bool:
    """True if the decision about a node could be anything but "nothing to do"."""
    if verdict.want_to_run and not verdict.should_run:
        return True
    if not pods:
        return verdict.should_run
    if not verdict.should_continue_running or len(pods) > 1:
        return True
    return surge_allowed if pods[0].terminating else pods[0].finished


def update_state_of(live: Sequence[PodFacts]) -> NodeUpdateState:
    """The state of a node in a rolling update, by its pods that do not terminate."""
    new = [pod.available for pod in live if pod.updated]
    old = [pod.available for pod in live if not pod.updated]
    return node_update_state(new, old)


def _by_age(pods: Collection[Pod]) -> Iterable[Pod]:
    return pods if len(pods) == 1 else sorted(pods, key=pod_age_key)


class OrderedNames(set[str]):
    """A set that gives its first names without looking at all of them.

    From the first question on a heap stands beside the set. Names that have left the set are
    dropped from the heap when they come up. Change it by `add` and `discard` only.
    """

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[str] | None = None

    def copy(self) -> OrderedNames:
        """Another set of the same names."""
        other = OrderedNames()
        other.update(self)
        other._heap = None if self._heap is None else list(self._heap)
        return other

    def add(self, name: str) -> None:
        """Take a name in."""
        if self._heap is not None and name not in self:
            heapq.heappush(self._heap, name)
        super().add(name)

    def first(self, count: int, without: Set[str] = frozenset()) -> list[str]:
        """The first names in order that are not among `without`, at most `count`."""
        if self._heap is None:
            self._heap = sorted(self)
        names: list[str] = []
        passed: list[str] = []
        while self._heap and len(names) < count:
            name = heapq.heappop(self._heap)
            if name not in self or (passed and passed[-1] == name):
                continue  # it left, or came back and stands here twice
            passed.append(name)
            if name not in without:
                names.append(name)
        for name in passed:
            heapq.heappush(self._heap, name)
        return names


def tally_of_node(verdict: PlacementDecision, pods: Sequence[PodFacts]) -> Tally:
    """One node's part; of its pods, the oldest of which is first, that one alone is asked."""
    if not verdict.want_to_run:
        return Tally(misscheduled=1) if pods else Tally()
    if not pods:
        return Tally(desired=1)
    oldest = pods[0]
    available = oldest.ready and oldest.available
    return Tally(1, 1, 0, int(oldest.ready), int(oldest.updated), int(available))


def status_from_tally(daemon_set: DaemonSet, tally: Tally, observe: bool) -> DaemonSetStatus:
    """The status to store; collision count and conditions stay as they are.

    `observe`: this sync may raise observedGeneration to the set's generation.
    """
    old = daemon_set.status
    return replace(
        old,
        **dict(zip(WORDS, tally, strict=True)),
        number_unavailable=tally.desired - tally.available,
        observed_generation=(
            daemon_set.metadata.generation if observe else old.observed_generation
        ),
    )


def status_differs(daemon_set: DaemonSet, tally: Tally, observe: bool) -> bool:
    """True if the stored status is another one than `status_from_tally` would give.

    Upstream writes besides while the set's generation is not observed and this sync may not observe
    it; such a write changes nothing and is left out.
    """
    old = daemon_set.status
    unavailable = tally.desired - tally.available
    if _shown_counts(old) != tally or old.number_unavailable != unavailable:
        return True
    return observe and old.observed_generation < daemon_set.metadata.generation


def differences(reported: DaemonSetStatus, counted: DaemonSetStatus) -> list[str]:
    """Where the two differ, in words; `desired 3, counted 4`."""
    both = zip(WORDS.values(), _shown_counts(reported), _shown_counts(counted), strict=True)
    return [f"{word} {was}, counted {now}" for word, was, now in both if was != now]


def unavailable_count(daemon_set: DaemonSet, desired: int) -> int:
    """maxUnavailable for `desired` nodes; 0 unless the strategy is a rolling update.

    Raises NotAPercentage.
    """
    return _scaled(_rolling_update(daemon_set).max_unavailable, desired)


def surge_count(daemon_set: DaemonSet, desired: int) -> int:
    """maxSurge for `desired` nodes; 0 unless the strategy is a rolling update.

    Raises NotAPercentage.
    """
    return _scaled(_rolling_update(daemon_set).max_surge, desired)


def allows_surge(daemon_set: DaemonSet) -> bool:
    """True if maxSurge is above zero for a single node. Follows `AllowsSurge`.

    A value that is neither a number nor a percentage allows none.
    """
    try:
        return surge_count(daemon_set, 1) > 0
    except NotAPercentage:
        return False


def _rolling_update(daemon_set: DaemonSet) -> RollingUpdateDaemonSet:
    strategy = daemon_set.spec.update_strategy
    rolling = strategy.rolling_update if strategy.type == ROLLING_UPDATE else None
    return rolling or RollingUpdateDaemonSet()


def _scaled(value: IntOrString | None, desired: int) -> int:
    return 0 if value is None else scaled_value(value, desired)
