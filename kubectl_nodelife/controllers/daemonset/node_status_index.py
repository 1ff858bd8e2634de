"""Indexes what each node is to one set: placement, its part of the status, its place in an update.

Upstream walks all nodes in every sync. Here a node is evaluated again only when it, or a pod of the
set on it, changed, or when a pod there becomes available by the passing of time; sums and sets of
names are kept. A full walk in the tests checks the index.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from typing import NamedTuple, cast

from kubectl_nodelife.controllers.daemonset.availability import (
    available_from,
    is_past,
    is_pod_updated,
)
from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.daemon_pods import DaemonPods
from kubectl_nodelife.controllers.daemonset.ordered_names import OrderedNames
from kubectl_nodelife.controllers.daemonset.placement import Placement
from kubectl_nodelife.controllers.daemonset.placement_decision import PlacementDecision
from kubectl_nodelife.controllers.daemonset.pods_on_node import pod_age_key
from kubectl_nodelife.controllers.daemonset.rolling_update import NodeUpdateState, node_update_state
from kubectl_nodelife.controllers.daemonset.status import Tally, tally_of_node
from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod

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
_FINISHED = ("Failed", "Succeeded")


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


class NodeFacts:
    """One node's part in the counts of a set. Nodes with equal facts share one object.

    `counted` are the counters in which such a node counts, `listed` the sets of names in which it
    stands, by their number. `verdict` None: the node does not exist, a pod of the set is there all
    the same.
    """

    __slots__ = ("counted", "listed", "verdict")

    def __init__(
        self,
        verdict: PlacementDecision | None,
        counted: tuple[int, ...],
        listed: tuple[int, ...],
    ) -> None:
        self.verdict = verdict
        self.counted = counted
        self.listed = listed


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
        self.failing = lists[_FAILING]  # FailedPlacement is to be told
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
        for name in self._dirty:
            self._look_at(name, now, yardstick)
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

    def _look_at(self, name: str, now: int, yardstick: IndexedBy) -> None:
        node = self._cache.nodes.get(name)
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
        finished = pod.status.phase in _FINISHED
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
