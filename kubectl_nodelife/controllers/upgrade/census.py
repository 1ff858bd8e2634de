"""How many nodes are available in each scope, and what a claim would do to its zone.

Nodes that the run has out of service are unavailable whatever they show, and count for their zone
as going down; claims of one pass lower the numbers one after another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    NodeScope,
    pool_scope,
)
from kubectl_nodelife.controllers.upgrade.marks import TAKEN, NodeMark, NodeState
from kubectl_nodelife.controllers.upgrade.node_readings import NodeReading, NodeReadings
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
        known: NodeReadings,
        readings: Mapping[str, NodeReading],
        marks: Mapping[str, NodeMark],
        policy: UpgradePolicy,
        ports: UpgradePorts,
        cache: Cache,
        now_ns: int,
    ) -> None:
        self._cache, self._now_ns, self._ports = cache, now_ns, ports
        self._policy = policy
        self._known, self._readings = known, readings
        self._size: Counter[str] = Counter()
        self._down: set[str] = set()
        self._ours: set[str] = set()
        self.unavailable: dict[str, str] = {}
        self.counts = known.counts
        self.counts.keep(readings.keys())
        grace_ns = ports.grace_period_ns
        for name, node in readings.items():
            self._size[node.zone_key] += node.counts
            counted, mark = node.counted, marks.get(name)
            if node.is_down:
                self._down.add(name)
            elif not known.is_fresh(cache, name, now_ns, grace_ns):
                counted = counted._replace(unavailable=STALE)
            if counted.unavailable:
                self.unavailable[name] = counted.unavailable
            if mark is not None and mark.state in TAKEN:
                counted = counted._replace(claimed=True)
                if mark.state in _GOING_DOWN:
                    self._ours.add(name)
            self.counts.put(counted)
        self.counts.begin_from({})

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
        """Whether the node's Lease was renewed within the grace period, as we saw it."""
        grace_ns = self._ports.grace_period_ns
        return self._known.is_fresh(self._cache, name, self._now_ns, grace_ns)

    def claim(self, name: str) -> None:
        """The node is taken out of service in this pass."""
        self.counts.claim(name)
        self.goes_down(name)

    def goes_down(self, name: str) -> None:
        """The node's zone loses it."""
        self._ours.add(name)

    def zone_hold(self, name: str) -> str:
        """Why the zone brake holds the node; "" where it does not."""
        node = self._readings[name]
        if not node.counts:
            return ""
        ours = self._in_zone(node.zone_key, self._ours)
        down = self._in_zone(node.zone_key, self._down - self._ours - {name})
        return zone_hold(
            ZoneCounts(self._size[node.zone_key], down, ours),
            self._ports.zone_threshold,
            self._ports.zone_reserve,
            allow_dark=self._policy.allow_dark_zone,
        )

    def down_in(self, zone: str) -> str:
        """How many nodes of a zone are not Ready, and of how many."""
        return f"{self._in_zone(zone, self._down)} of {self._size[zone]} nodes are not Ready"

    def _in_zone(self, zone: str, names: Iterable[str]) -> int:
        """How many of the nodes count in the zone."""
        readings = (self._readings[name] for name in names if name in self._readings)
        return sum(node.counts and node.zone_key == zone for node in readings)

    def slots_of(self, name: str) -> int:
        """The least number of slots in any scope of the node."""
        scopes = self.scopes_of(name)
        return min((self.counts.budget(scope).slots for scope in scopes), default=1)

    def floor_holds_without(self, name: str) -> bool:
        """Whether every floor still holds once this node, which is available, no longer is."""
        node = self.counts.node(name)
        if not node.available:
            return True
        budgets = [self.counts.budget(scope) for scope in node.scopes]
        return all(budget.available - 1 >= budget.floor for budget in budgets)

    def most_unavailable(self, pool: str) -> int:
        """How many nodes of the pool may be unavailable at once."""
        return self.counts.budget(pool_scope(pool)).most_unavailable

    def broken_by_others(self, name: str, flying: Mapping[str, NodeMark]) -> bool:
        """Whether the node's zone is disrupted even if all of ours in flight are thought Ready."""
        zone = self._readings[name].zone_key
        size, down = self._size[zone], self._in_zone(zone, self._down - flying.keys())
        if down and down == size:
            return True
        share = as_float32(as_float32(down) / as_float32(size)) if size else 0.0
        return down > 2 and share >= as_float32(self._ports.zone_threshold)
