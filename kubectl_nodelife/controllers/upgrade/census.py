"""How many nodes are available in each scope, and what a claim would do to its zone.

Nodes that the run has out of service are unavailable whatever they show, and count for their zone
as going down; claims of one pass lower the numbers one after another.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubectl_nodelife.controllers.upgrade.counts import (
    CountedNode,
    NodeCounts,
    NodeScope,
    limits_of,
    pool_scope,
)
from kubectl_nodelife.controllers.upgrade.marks import TAKEN, NodeMark, NodeState
from kubectl_nodelife.controllers.upgrade.node_readings import NodeReading
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.ports import UpgradePorts
from kubectl_nodelife.controllers.upgrade.zone_brake import ZoneCounts, zone_hold
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.token_bucket import as_float32

STALE = "its Lease is not renewed"
_GOING_DOWN = frozenset({NodeState.DRAINING, NodeState.WORKING, NodeState.SETTLING})


class Census:
    """The counts of one pass."""

    def __init__(
        self,
        readings: Mapping[str, NodeReading],
        marks: Mapping[str, NodeMark],
        policy: UpgradePolicy,
        ports: UpgradePorts,
        cache: Cache,
        now_ns: int,
    ) -> None:
        self._cache, self._now_ns, self._ports = cache, now_ns, ports
        self._policy = policy
        self._readings = readings
        self._zones: dict[str, list[str]] = {}
        self._down: set[str] = set()
        self._ours: set[str] = set()
        self.unavailable: dict[str, str] = {}
        counted = []
        for name, node in readings.items():
            if node.counts:
                self._zones.setdefault(node.zone_key, []).append(name)
            if node.is_down:
                self._down.add(name)
            why = node.unavailable
            if not node.is_down and not self.is_fresh(name):
                why = STALE
            if why:
                self.unavailable[name] = why
            mark = marks.get(name)
            is_taken = mark is not None and mark.state in TAKEN
            if mark is not None and mark.state in _GOING_DOWN:
                self._ours.add(name)
            counted.append(
                CountedNode(name, node.pool, node.zone, why, is_taken, node.is_control_plane)
            )
        self._counted = {node.name: node for node in counted}
        self.counts = NodeCounts.of(counted, limits_of(policy))

    def begin_from(self, base_counts: Mapping[str, int]) -> None:
        """Count from the numbers at the start of the run, by `NodeScope.key`."""
        self.counts.begin_from(base_counts)

    def base_counts(self) -> dict[str, int]:
        """The numbers now, for the document of a run that begins, or `--rebase`."""
        return {scope.key: n for scope, n in self.counts.totals().items()}

    def scopes_of(self, name: str) -> tuple[NodeScope, ...]:
        """The scopes in which the node counts."""
        return self._counted[name].scopes

    def is_fresh(self, name: str) -> bool:
        """Whether the node's Lease was renewed within the grace period, as we saw it."""
        beat = self._cache.heartbeat(name)
        seen = beat.renewal(self._now_ns) if beat is not None else None
        return seen is not None and self._now_ns - seen[1] <= self._ports.grace_period_ns

    def claim(self, name: str) -> None:
        """The node is taken out of service in this pass."""
        self.counts.claim(name)
        self.goes_down(name)

    def goes_down(self, name: str) -> None:
        """The node's zone loses it."""
        self._ours.add(name)

    def zone_hold(self, name: str) -> str:
        """Why the zone brake holds the node; "" where it does not."""
        zone = self._readings[name].zone_key
        members = self._zones.get(zone, [])
        if name not in members:
            return ""
        ours = sum(1 for other in members if other in self._ours)
        down = sum(1 for o in members if o in self._down and o not in self._ours and o != name)
        return zone_hold(
            ZoneCounts(len(members), down, ours),
            self._ports.zone_threshold,
            self._ports.zone_reserve,
            allow_dark=self._policy.allow_dark_zone,
        )

    def down_in(self, zone: str) -> str:
        """How many nodes of a zone are not Ready, and of how many."""
        members = self._zones.get(zone, [])
        down = sum(1 for name in members if name in self._down)
        return f"{down} of {len(members)} nodes are not Ready"

    def slots_of(self, name: str) -> int:
        """The least number of slots in any scope of the node."""
        scopes = self._counted[name].scopes
        return min((self.counts.budget(scope).slots for scope in scopes), default=1)

    def floor_holds_without(self, name: str) -> bool:
        """Whether every floor still holds once this node, which is available, no longer is."""
        node = self._counted[name]
        if not node.available:
            return True
        budgets = [self.counts.budget(scope) for scope in node.scopes]
        return all(budget.available - 1 >= budget.floor for budget in budgets)

    def most_unavailable(self, pool: str) -> int:
        """How many nodes of the pool may be unavailable at once."""
        return self.counts.budget(pool_scope(pool)).most_unavailable

    def broken_by_others(self, name: str, flying: Mapping[str, NodeMark]) -> bool:
        """Whether the node's zone is disrupted even if all of ours in flight are thought Ready."""
        members = self._zones.get(self._readings[name].zone_key, [])
        down = sum(1 for other in members if other in self._down and other not in flying)
        ready = len(members) - down
        if down and not ready:
            return True
        share = as_float32(as_float32(down) / as_float32(len(members))) if members else 0.0
        return down > 2 and share >= as_float32(self._ports.zone_threshold)
