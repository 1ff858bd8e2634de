"""How many nodes are available in each scope, and what a claim would do to its zone.

Nodes that the run has out of service are unavailable whatever they show, and count for their zone
as going down; claims of one pass lower the numbers one after another. What a pass reads off a node
is kept for as long as the node is the same object: most have not changed since the last pass, and
cost it one look-up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.claims import (
    is_control_plane,
    is_selected,
    pool_name,
    why_skipped,
    zone_name,
)
from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    CountedNode,
    NodeCounts,
    NodeScope,
    ZoneCounts,
    is_deleted_by_others,
    limits_of,
    pool_scope,
    why_unavailable,
    zone_hold,
    zone_scope,
)
from kubectl_nodelife.controllers.upgrade.marks import (
    TAINT_OUTDATED,
    TAKEN,
    NodeMark,
    NodeState,
    UnreadableMark,
    mark_of,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.controllers.upgrade.ports import UpgradePorts
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.workqueue import as_float32
from kubectl_nodelife.kube.node import Node, zone_key
from kubectl_nodelife.kube.wellknown import PREFER_NO_SCHEDULE

STALE: Final = "its Lease is not renewed"


class NodeReading(NamedTuple):
    """A node's own account of itself. `zone` is as shown, `zone_key` the lifecycle controller's.

    `mark`: its annotation, None where it has none; `is_readable`: whether that could be read.
    `counted`: how it counts while its Lease is renewed. `skipped`: why it is left out then, ""
    where it is not. `is_down`: it is not Ready. `counts`: it counts in its zone.
    """

    node: Node
    pool: str
    zone: str
    zone_key: str
    is_control_plane: bool
    is_selected: bool
    is_down: bool
    counts: bool
    counted: CountedNode
    mark: NodeMark | None
    is_readable: bool
    skipped: str
    is_outdated: bool
    is_leaving: bool

    def counted_now(self, *, is_fresh: bool) -> CountedNode:
        """How it counts. `is_fresh`: its Lease is renewed; where it is not Ready it counts less."""
        if is_fresh or self.is_down:
            return self.counted
        return self.counted._replace(unavailable=STALE)


class NodeReadings:
    """The readings of all nodes, for one policy."""

    def __init__(self, policy: UpgradePolicy, counts: Callable[[Node], bool]) -> None:
        self.fresh_until_ns: dict[str, int] = {}
        """Until when the Lease of each node is fresh, as far as its renewals were looked at."""
        self._policy = policy
        self._counts = counts
        self._known: dict[str, NodeReading] = {}

    def of(self, node: Node) -> NodeReading:
        """The node's account of itself, read anew only where it has changed."""
        known = self._known.get(node.name)
        if known is None or known.node is not node:
            known = self._known[node.name] = self._read(node)
        return known

    def is_fresh(self, cache: Cache, name: str, now_ns: int, grace_ns: int) -> bool:
        """True if the node's Lease was renewed within the grace period, as we saw it."""
        if now_ns <= self.fresh_until_ns.get(name, -1):
            return True
        beat = cache.heartbeat(name)
        seen = beat.renewal(now_ns) if beat is not None else None
        if seen is None:
            return False
        until_ns = self.fresh_until_ns[name] = seen[1] + grace_ns
        return now_ns <= until_ns

    def _read(self, node: Node) -> NodeReading:
        policy = self._policy
        pool, zone = pool_name(node, policy), zone_name(node)
        on_control_plane = is_control_plane(node)
        why = why_unavailable(node)
        try:
            mark, is_readable = mark_of(node), True
        except UnreadableMark:
            mark, is_readable = None, False
        return NodeReading(
            node,
            pool,
            zone,
            zone_key(node.metadata.labels),
            on_control_plane,
            is_selected(node, policy),
            not node.is_ready,
            self._counts(node),
            CountedNode(node.name, pool, zone, why, control_plane=on_control_plane),
            mark,
            is_readable,
            why_skipped(node, policy),
            node.has_taint(TAINT_OUTDATED, PREFER_NO_SCHEDULE),
            is_deleted_by_others(node),
        )


_GOING_DOWN = frozenset({NodeState.DRAINING, NodeState.WORKING, NodeState.SETTLING})


class FleetCounts:
    """The counts of a run's nodes, kept from one pass to the next.

    `unavailable`: why a node is not available, by name. `down`: nodes that are not Ready.
    """

    def __init__(
        self,
        known: NodeReadings,
        policy: UpgradePolicy,
        ports: UpgradePorts,
        cache: Cache,
        now_ns: int,
    ) -> None:
        self.counts = NodeCounts(limits_of(policy))
        self._cache, self._now_ns = cache, now_ns
        self.unavailable: dict[str, str] = {}
        self.down: set[str] = set()
        self._known, self._policy, self._ports = known, policy, ports
        self._readings: dict[str, NodeReading] = {}
        self._size: Counter[str] = Counter()
        self._ours: set[str] = set()
        self._stale: set[str] = set()
        self._claimed: set[str] = set()
        """Nodes that the last pass counted as claimed, or as going down."""
        self._fresh_until_ns = -1
        """Until then no Lease that is fresh can become stale."""

    def look(
        self,
        readings: Mapping[str, NodeReading],
        marks: Mapping[str, NodeMark],
        changed: Collection[str],
        cache: Cache,
        now_ns: int,
    ) -> set[str]:
        """Count anew the nodes that changed, and those whose Lease may have become fresh or stale.
        Returns their names.
        """
        self._cache, self._now_ns = cache, now_ns
        until_ns = self._known.fresh_until_ns
        anew = {*changed, *self._claimed, *self._stale}
        if now_ns > self._fresh_until_ns:
            due = [n for n in self._readings if until_ns.get(n, -1) < now_ns]
            anew.update(n for n in due if n in self.down or not self.is_fresh(n))
        self._claimed.clear()
        for name in sorted(anew):
            self._forget(name)
            reading = readings.get(name)
            if reading is None:
                self.counts.remove(name)
            else:
                self._count(name, reading, marks.get(name))
        if now_ns > self._fresh_until_ns:
            fresh = self._readings.keys() - self.down - self._stale
            self._fresh_until_ns = min((until_ns[n] for n in fresh), default=now_ns)
        return anew

    def _forget(self, name: str) -> None:
        """The node is not counted as it was."""
        old = self._readings.pop(name, None)
        if old is not None:
            self._size[old.zone_key] -= old.counts
        for names in (self.down, self._ours, self._stale):
            names.discard(name)
        self.unavailable.pop(name, None)

    def _count(self, name: str, reading: NodeReading, mark: NodeMark | None) -> None:
        """The node counts as it is now."""
        self._readings[name] = reading
        self._size[reading.zone_key] += reading.counts
        is_fresh = reading.is_down or self.is_fresh(name)
        counted = reading.counted_now(is_fresh=is_fresh)
        if reading.is_down:
            self.down.add(name)
        elif not is_fresh:
            self._stale.add(name)
        else:
            until_ns = self._known.fresh_until_ns[name]
            self._fresh_until_ns = min(self._fresh_until_ns, until_ns)
        if counted.unavailable:
            self.unavailable[name] = counted.unavailable
        if mark is not None and mark.state in TAKEN:
            counted = counted._replace(claimed=True)
            if mark.state in _GOING_DOWN:
                self._ours.add(name)
        self.counts.put(counted)

    def begin_from(self, base_counts: Mapping[str, int]) -> None:
        """Count from the numbers at the start of the run, by `NodeScope.key`."""
        self.counts.begin_from(base_counts)

    def base_counts(self) -> dict[str, int]:
        """The numbers now, for the document of a run that begins, or `--rebase`.

        The cluster is always among them, also where all its nodes are of the control plane.
        """
        totals = {scope.key: n for scope, n in self.counts.totals().items()}
        return {CLUSTER.key: 0, **totals}

    def scopes_of(self, name: str) -> tuple[NodeScope, ...]:
        """The scopes in which the node counts."""
        return self.counts.node(name).scopes

    def is_fresh(self, name: str) -> bool:
        """True if the node's Lease was renewed within the grace period, as we saw it."""
        grace_ns = self._ports.grace_period_ns
        return self._known.is_fresh(self._cache, name, self._now_ns, grace_ns)

    def claim(self, name: str) -> None:
        """The node is taken out of service in this pass."""
        self.counts.claim(name)
        self.goes_down(name)

    def goes_down(self, name: str) -> None:
        """The node's zone loses it in this pass."""
        self._ours.add(name)
        self._claimed.add(name)

    def zone_hold(self, name: str) -> str:
        """Why the zone brake holds the node; "" where it does not."""
        node = self._readings[name]
        if not node.counts:
            return ""
        ours = self._in_zone(node.zone_key, self._ours)
        down = self._in_zone(node.zone_key, self.down - self._ours - {name})
        return zone_hold(
            ZoneCounts(self._size[node.zone_key], down, ours),
            self._ports.zone_threshold,
            self._ports.zone_reserve,
            allow_dark=self._policy.allow_dark_zone,
        )

    def zone_states(self) -> dict[str, str]:
        """The state of each zone of counted nodes, by the node lifecycle controller's rule."""
        readings = (self._readings[name] for name in self.down)
        down = Counter(reading.zone_key for reading in readings if reading.counts)
        state = self._ports.zone_state
        return {z: state(z, size - down[z], down[z]) for z, size in self._size.items() if size}

    def down_in(self, zone: str) -> str:
        """How many nodes of a zone are not Ready, and of how many."""
        return f"{self._in_zone(zone, self.down)} of {self._size[zone]} nodes are not Ready"

    def _in_zone(self, zone: str, names: Iterable[str]) -> int:
        """How many of the nodes count in the zone."""
        readings = (self._readings[name] for name in names if name in self._readings)
        return sum(node.counts and node.zone_key == zone for node in readings)

    def slots_of(self, name: str) -> int:
        """The least number of slots in any scope of the node."""
        scopes = self.scopes_of(name)
        return min((self.counts.budget(scope).slots for scope in scopes), default=1)

    def floor_holds_without(self, name: str) -> bool:
        """True if every floor still holds once this node, which is available, no longer is."""
        node = self.counts.node(name)
        if not node.available:
            return True
        budgets = [self.counts.budget(scope) for scope in node.scopes]
        return all(budget.available - 1 >= budget.floor for budget in budgets)

    def most_unavailable(self, pool: str) -> int:
        """How many nodes of the pool may be unavailable at once."""
        return self.counts.budget(pool_scope(pool)).most_unavailable

    def most_out(self, scope: NodeScope) -> int:
        """How many nodes of the scope may be unavailable at once, by both of its limits."""
        budget = self.counts.budget(scope)
        return min(budget.most_unavailable, budget.base - budget.floor)

    def most_out_of_zone(self, name: str) -> int:
        """How many nodes of the node's zone may be out at once, by its limits and the zone brake
        while all others are well. What is replaced goes, and counts in its zone no more.
        """
        node, policy = self._readings[name], self._policy
        most = self.most_out(zone_scope(node.pool, node.zone))
        threshold, reserve = self._ports.zone_threshold, self._ports.zone_reserve
        size = self._size[node.zone_key]
        brakes = node.counts and policy.work.mode is not WorkMode.REPLACE
        for ours in range(min(most, size) if brakes else 0):
            counts = ZoneCounts(size, 0, ours)
            if zone_hold(counts, threshold, reserve, allow_dark=policy.allow_dark_zone):
                return ours
        return most

    def broken_by_others(self, name: str, flying: Mapping[str, NodeMark]) -> bool:
        """True if the node's zone is disrupted even if all of ours in flight are thought Ready."""
        zone = self._readings[name].zone_key
        size, down = self._size[zone], self._in_zone(zone, self.down - flying.keys())
        if down and down == size:
            return True
        share = as_float32(as_float32(down) / as_float32(size)) if size else 0.0
        return down > 2 and share >= as_float32(self._ports.zone_threshold)


def claims_of(node: Node) -> tuple[str, str]:
    """(InternalIP, provider id), as the node reports them now; "" for none."""
    addresses = {a.type: a.address for a in reversed(node.status.addresses)}
    return addresses.get("InternalIP", ""), node.spec.provider_id
