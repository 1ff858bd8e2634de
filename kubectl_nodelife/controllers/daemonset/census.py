"""What each node is to one set: its verdict, its part of the status, its place in a rolling update.

Upstream walks all nodes in every sync. Here a node is looked at again only when it, or a pod of the
set on it, changed, or when a pod there becomes available by the passing of time; sums and lists are
kept besides. The full walk lives in the tests, as the judge.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kubectl_nodelife.controllers.daemonset.availability import (
    available_from,
    is_past,
    is_pod_updated,
)
from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.daemon_pods import DaemonPods
from kubectl_nodelife.controllers.daemonset.placement import Placement
from kubectl_nodelife.controllers.daemonset.pods_on_node import pod_age_key
from kubectl_nodelife.controllers.daemonset.rolling_update import NodePods, Wave
from kubectl_nodelife.controllers.daemonset.status import Tally, tally_of_node
from kubectl_nodelife.controllers.daemonset.verdict import Verdict
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod

_NOTHING = Tally()
_WAVES_BY_NODE = frozenset(Wave) - {Wave.NEW_AVAILABLE}


class Yardstick(NamedTuple):
    """What besides node and pods a node's facts depend on."""

    revision_hash: str
    generation: int | None
    min_ready_seconds: int
    surge_allowed: bool


class NodeFacts(NamedTuple):
    """What one node is to the set. Equal facts are one object."""

    verdict: Verdict | None
    """None: the node does not exist, a pod of the set is there all the same."""
    tally: Tally
    wave: Wave | None
    """None: neither should the node run a pod nor has it one."""
    busy: bool
    """A sync must decide about the node; else there is nothing to do there."""
    lacks_available: bool
    """A pod is wanted and none is available and not terminating."""
    has_old: bool


class Census:
    """The facts of all nodes for one set, with their sums."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        pods: DaemonPods,
        placement: Placement,
        pods_bound_to: Callable[[str], Iterable[Pod]],
    ) -> None:
        self._nodes = nodes
        self._pods = pods
        self.placement = placement
        self._bound_to = pods_bound_to
        self._rules: Behaviour = placement.template.rules
        self._yardstick: Yardstick | None = None
        self._facts: dict[str, NodeFacts] = {}
        self._equal: dict[NodeFacts, NodeFacts] = {}
        self._dirty: set[str] = set()
        self._due: list[tuple[int, str]] = []
        self._sums = [0] * len(_NOTHING)
        self.waves: dict[Wave, int] = dict.fromkeys(Wave, 0)
        self.nodes_by_wave: dict[Wave, set[str]] = {wave: set() for wave in _WAVES_BY_NODE}
        # Names of nodes, each set the answer to one question of a sync:
        self.busy: set[str] = set()  # a decision is to be made
        self.strays: set[str] = set()  # the node does not exist, a pod for it does
        self.unfit: set[str] = set()  # a pod is there, and none should be made
        self.failing: set[str] = set()  # FailedPlacement is to be told
        self.suspended: set[str] = set()  # wanted, but there is no room
        self.with_old: set[str] = set()  # a pod of another revision is there
        self.lacking_available = 0

    def mark(self, node: str) -> None:
        """The node, or a pod of the set there, changed."""
        self._dirty.add(node)

    def mark_all(self) -> None:
        """Everything may have changed."""
        self._dirty.update(self._nodes)
        self._dirty.update(self._facts)
        self._dirty.update(self._pods.by_node)

    def replace_placement(self, placement: Placement) -> None:
        """The template changed; all nodes are judged again."""
        self.placement = placement
        self.mark_all()

    def refresh(self, now: int, yardstick: Yardstick) -> None:
        """Look again at what changed, or at everything if the yardstick did."""
        if yardstick != self._yardstick:
            self._yardstick = yardstick
            self._due.clear()
            self.mark_all()
        inclusive = self._rules.available_at_the_instant
        while self._due and is_past(self._due[0][0], now, inclusive):
            self._dirty.add(heapq.heappop(self._due)[1])
        for name in self._dirty:
            self._look_at(name, now, yardstick)
        self._dirty.clear()

    def facts(self, node: str) -> NodeFacts | None:
        """The facts of a node as of the last refresh, None for one that is nothing to the set."""
        return self._facts.get(node)

    def verdict(self, node: Node) -> Verdict:
        """The verdict for a node as given, whether or not it is the one in the cache."""
        return self.placement.judge(node, lambda: self._bound_to(node.name))

    @property
    def tally(self) -> Tally:
        """The sums over all nodes."""
        return Tally(*self._sums)

    def _look_at(self, name: str, now: int, yardstick: Yardstick) -> None:
        node = self._nodes.get(name)
        entry = self._pods.by_node.get(name)
        pods: Sequence[Pod] = tuple(entry.values()) if entry else ()
        old = self._facts.get(name)
        if node is None and not pods:
            new = None
        else:
            verdict = None if node is None else self.verdict(node)
            new = self._assess(name, verdict, pods, now, yardstick)
            new = self._equal.setdefault(new, new)
        if new is old:
            return
        if old is not None:
            self._count(name, old, -1)
        if new is not None:
            self._count(name, new, 1)
            self._facts[name] = new
        else:
            del self._facts[name]

    def _assess(
        self,
        name: str,
        verdict: Verdict | None,
        pods: Sequence[Pod],
        now: int,
        yardstick: Yardstick,
    ) -> NodeFacts:
        wanted = verdict is not None and verdict.want_to_run
        if not pods:
            if verdict is None or not verdict.want_to_run:
                return NodeFacts(verdict, _NOTHING, None, False, False, False)
            return NodeFacts(verdict, Tally(desired=1), Wave.NONE, True, True, False)
        if len(pods) > 1:
            pods = sorted(pods, key=pod_age_key)
        new: list[tuple[Pod, bool]] = []
        old: list[tuple[Pod, bool]] = []
        oldest = (False, False, False)
        has_old = has_available = False
        for i, pod in enumerate(pods):
            ready, available, updated = self._pod_facts(name, pod, now, yardstick)
            if i == 0:
                oldest = (ready, available, updated)
            has_old = has_old or not updated
            if pod.metadata.deletion_timestamp is None:
                (new if updated else old).append((pod, available))
                has_available = has_available or available
        tally = _NOTHING if verdict is None else tally_of_node(verdict, pods, *oldest)
        wave = NodePods(tuple(new), tuple(old)).wave()
        busy = verdict is not None and self._may_act(verdict, pods, yardstick)
        return NodeFacts(verdict, tally, wave, busy, wanted and not has_available, has_old)

    def _pod_facts(
        self, name: str, pod: Pod, now: int, yardstick: Yardstick
    ) -> tuple[bool, bool, bool]:
        """(ready, available, updated); a pod that will be available later sets an alarm."""
        updated = is_pod_updated(
            pod.metadata.labels,
            yardstick.revision_hash,
            yardstick.generation,
            self._rules.generation_label_counts,
        )
        since = available_from(pod, yardstick.min_ready_seconds)
        if since is None:
            return pod.ready(), False, updated
        if is_past(since, now, self._rules.available_at_the_instant):
            return True, True, updated
        heapq.heappush(self._due, (since, name))
        return True, False, updated

    def _may_act(self, verdict: Verdict, pods: Sequence[Pod], yardstick: Yardstick) -> bool:
        """Whether the decision about the node could be anything but "nothing to do"."""
        if not verdict.should_continue_running or len(pods) != 1:
            return True
        if verdict.want_to_run and not verdict.should_run:
            return True
        pod = pods[0]
        if pod.metadata.deletion_timestamp is not None:
            return yardstick.surge_allowed
        return pod.status.phase in ("Failed", "Succeeded")

    def _count(self, name: str, facts: NodeFacts, sign: int) -> None:
        for i, value in enumerate(facts.tally):
            if value:
                self._sums[i] += sign * value
        verdict = facts.verdict
        if facts.wave is not None:
            self.waves[facts.wave] += sign
            members = self.nodes_by_wave.get(facts.wave)
            if members is not None:
                _put(members, name, sign)
        if facts.busy:
            _put(self.busy, name, sign)
        if facts.has_old:
            _put(self.with_old, name, sign)
        if facts.lacks_available:
            self.lacking_available += sign
        if verdict is None:
            _put(self.strays, name, sign)
            return
        if facts.wave is not None and not verdict.should_run:
            _put(self.unfit, name, sign)
        if verdict.want_to_run and not verdict.should_run:
            _put(self.suspended, name, sign)
        if verdict.failed_placements:
            _put(self.failing, name, sign)


def _put(members: set[str], name: str, sign: int) -> None:
    if sign > 0:
        members.add(name)
    else:
        members.discard(name)
