"""Zones: which nodes count, what state a zone is in, and how fast its nodes may be tainted.

Follows `ComputeZoneState`, `setLimiterInZone`, `ReducedQPSFunc`, `addPodEvictorForNewZone` and
`isNodeExcludedFromDisruptionChecks` of pkg/controller/nodelifecycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from hashlib import blake2b

import msgspec

from kubectl_nodelife.copy_on_write import fork_dict, made_later
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import Never, RateLimitedTimedQueue, TokenBucket, as_float32
from kubectl_nodelife.kube.node import Node, NodeCondition, zone_key
from kubectl_nodelife.kube.wellknown import LABEL_EXCLUDE_DISRUPTION

INITIAL = "Initial"
NORMAL = "Normal"
PARTIAL = "PartialDisruption"
FULL = "FullDisruption"

_PARTIAL_NEEDS_MORE_THAN = 2  # not ready nodes
_MAP_SLOTS = 8
"""Slots of a small map of Go, which is walked from any of them on."""


def compute_zone_state(ready: int, not_ready: int, threshold: float) -> str:
    """The state of a zone with so many nodes.

    Follows `ComputeZoneState`: ratios are 32-bit floats.
    """
    if ready == 0 and not_ready > 0:
        return FULL
    if not_ready > _PARTIAL_NEEDS_MORE_THAN:
        ratio = as_float32(as_float32(not_ready) / as_float32(not_ready + ready))
        if ratio >= as_float32(threshold):
            return PARTIAL
    return NORMAL


_BY_NAME = "its name is a master's (LegacyNodeRoleBehavior)"
_BY_LABEL = f"its label {LABEL_EXCLUDE_DISRUPTION} leaves it out"


def eviction_rate(state: str, size: int, settings: Settings) -> float:
    """Nodes a second in a zone of that state and size, while not all zones are dark.

    Follows `setLimiterInZone` with `ReducedQPSFunc` and `HealthyQPSFunc`.
    """
    if state == PARTIAL:
        large = size > settings.large_cluster_size_threshold
        return settings.secondary_node_eviction_rate if large else 0.0
    return settings.node_eviction_rate


def is_excluded(node: Node, settings: Settings) -> bool:
    """True if the node is left out of the zone statistics."""
    return bool(why_excluded(node, settings))


def why_excluded(node: Node, settings: Settings) -> str:
    """Why the node is left out of the zone statistics, in a few words; "" where it counts.

    Follows `isNodeExcludedFromDisruptionChecks`; until 1.20 two gates decide.
    """
    labelled = LABEL_EXCLUDE_DISRUPTION in (node.metadata.labels or {})
    gates = settings.profile.has("exclusion_gates")
    if gates and settings.gate("LegacyNodeRoleBehavior") and is_master_name(node.name):
        return _BY_NAME
    return _BY_LABEL if labelled and (not gates or settings.gate("NodeDisruptionExclusion")) else ""


def is_master_name(name: str) -> bool:
    """True if the name is a master's by the old convention. Follows `system.IsMasterNode`."""
    return name.endswith("master") or (len(name) >= 10 and name[:-3].endswith("master-"))


class _Sample(msgspec.Struct, frozen=True):
    """One node's part in the statistics of its zone."""

    zone: str
    ready: bool


class _Place(msgspec.Struct, frozen=True):
    """Where a node is, and the labels that say so: the same map need not be read again."""

    zone: str
    labels: dict[str, str] | None


class Zones:
    """States, queues and counts of all zones, by zone key.

    `sizes` counts all nodes of a zone, `counted` and `ready` those that are not excluded. `remade`:
    how often a zone lost its state and got another queue.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.states: dict[str, str] = {}
        self.queues: dict[str, RateLimitedTimedQueue] = {}
        self.evictions: dict[str, int] = {}
        self.members: dict[str, int] = {}
        self.remade: dict[str, int] = {}
        self._short_lived: set[str] = set()
        self._slots: list[str | None] = []
        self._walks = 0
        self._beta_only = settings.profile.has("beta_zone_labels_only")
        self._places: dict[str, _Place] = {}
        self._samples: dict[str, _Sample] = {}
        self._counts: dict[str, list[int]] = {}

    def fork(self) -> Zones:
        """Others in the same states, with the same nodes in their queues."""
        other = copy(self)
        other.states, other.evictions = dict(self.states), dict(self.evictions)
        other.queues = {zone: queue.fork() for zone, queue in self.queues.items()}
        other.members, other.remade = dict(self.members), dict(self.remade)
        other._slots = list(self._slots)
        other._counts = {zone: list(counts) for zone, counts in self._counts.items()}
        self._places, other._places = fork_dict(self._places)
        self._samples, other._samples = fork_dict(self._samples)
        return other

    def key(self, node: Node) -> str:
        """The node's zone key."""
        return zone_key(node.metadata.labels, beta_only=self._beta_only)

    def place(self, node: Node) -> str:
        """Note in which zone the node is, and return its key."""
        labels, name = node.metadata.labels, node.metadata.name
        before = self._places.get(name)
        if before is not None and before.labels is labels:
            return before.zone
        zone = self.key(node)
        self._places[name] = _Place(zone, labels)
        if before is None or before.zone != zone:
            if before is not None:
                self._leave(before.zone)
            self.members[zone] = self.members.get(zone, 0) + 1
        return zone

    def take_over(self, at_rest: dict[str, tuple[str, Node]]) -> None:
        """Count these nodes, (zone, node) by name, all of which are Ready. What is kept of each
        is made when it is first asked for.
        """
        counted: dict[str, tuple[str, Node]] = {}
        for name, placed in at_rest.items():
            zone, node = placed
            self.members[zone] = self.members.get(zone, 0) + 1
            if not is_excluded(node, self._settings):
                counted[name] = placed
                self._counts.setdefault(zone, [0, 0])[0] += 1
        self._places = made_later(
            at_rest, lambda placed: _Place(placed[0], placed[1].metadata.labels), own=self._places
        )
        self._samples = made_later(
            counted, lambda placed: _Sample(placed[0], True), own=self._samples
        )

    def forget(self, name: str) -> None:
        """The node is gone."""
        place = self._places.pop(name, None)
        if place is not None:
            self._leave(place.zone)
        self._sample(name, None)

    def count(self, node: Node, ready: NodeCondition | None) -> str:
        """Take the node into the statistics of its zone, with this Ready condition and unless it is
        excluded; returns the zone's key.
        """
        zone = self.place(node)
        sample = None
        if not is_excluded(node, self._settings):
            sample = _Sample(zone, ready is not None and ready.status == "True")
        self._sample(node.metadata.name, sample)
        return zone

    def is_counted(self, name: str) -> bool:
        """True if the node takes part in the statistics of its zone."""
        return name in self._samples

    def leave_out(self, name: str) -> None:
        """The node does not count before it is looked at again: its status could not be written, or
        what was seen of its Lease is in doubt.
        """
        self._sample(name, None)

    def ensure(self, zone: str) -> None:
        """A zone without a state gets Initial and a new queue.

        Follows `addPodEvictorForNewZone`.
        """
        if zone not in self.states:
            self.states[zone] = INITIAL
            if zone in self.queues:
                self.remade[zone] = self.remade.get(zone, 0) + 1
            bucket = TokenBucket(self._settings.node_eviction_rate, 1)
            self.queues[zone] = RateLimitedTimedQueue(bucket)
            self.evictions.setdefault(zone, 0)

    def queued_earlier_ns(self, zone: str, node: str) -> int:
        """By how many ns before others of its pass the node comes into the queue: 0 as a rule.

        A zone all of whose nodes are excluded has no statistics, so it loses its state in each pass
        and gets a new queue, with a token, in the next. Upstream's eight workers fill that in an
        order of chance, so that each node has its turn; here the chance is drawn from the number of
        the queue. A queue that outlives the pass which made it is filled as any other.
        """
        times = self.remade.get(zone, 0)
        if not times or zone not in self._short_lived:
            return 0
        drawn = blake2b(f"{times}/{zone}/{node}".encode(), digest_size=2).digest()
        return int.from_bytes(drawn, "big")

    def change_settings(self, settings: Settings, now_ns: int) -> None:
        """Other rates and thresholds; a zone that is stopped because all are dark stays so."""
        self._settings = settings
        for zone, (ready, not_ready) in self.counts().items():
            state = self.states.get(zone, INITIAL)
            if zone in self.queues and not self._all_dark():
                rate = eviction_rate(state, ready + not_ready, settings)
                self.queues[zone].swap_limiter(rate, now_ns)

    def _all_dark(self) -> bool:
        return all(state == FULL for state in self.states.values())

    def stateless(self) -> list[str]:
        """Zones that have nodes but no state, in order."""
        return sorted(zone for zone in self.members if zone not in self.states)

    def ensure_stateless(self, nodes: Mapping[str, Node]) -> None:
        """A pass begins: each zone that has lost its state gets Initial and a new queue, for this
        pass alone where none of its nodes counts. `nodes`: all, by name.
        """
        made_anew = self.stateless()
        for zone in made_anew:
            self.ensure(zone)
        counting = {
            place.zone
            for name, place in (self._places.items() if made_anew else ())
            if name in nodes and not is_excluded(nodes[name], self._settings)
        }
        self._short_lived = set(made_anew) - counting

    def nodes_of_stateless(self) -> set[str]:
        """The nodes of zones that are about to get a new queue, which none of them is in."""
        zones = set(self.stateless())
        if not zones:
            return set()
        return {name for name, place in self._places.items() if place.zone in zones}

    def forget_uncounted(self, counted: Collection[str]) -> None:
        """Drop states of zones without a counted node: those that vanished, and those all of whose
        nodes are excluded, which get another state and an empty queue in the next pass.

        Follows the walk of `handleDisruption` over the old states. It ends at the first zone that
        was not fully disrupted, and begins anywhere, so most passes drop nothing while another zone
        is well. Zones without any node are dropped first, which is one of its orders: nothing but
        their metrics could show the difference.
        """
        for zone in [zone for zone in self.states if not self.members.get(zone)]:
            if zone not in counted:  # a node that was counted there may have moved since
                del self.states[zone]
        if all(zone in counted for zone in self.states):
            return
        for zone in self._walk():
            if zone not in counted:
                del self.states[zone]
            elif self.states[zone] != FULL:
                return

    def _walk(self) -> list[str]:
        """The zones with a state in the order of a map of Go: a zone takes the first free slot, and
        the slot to begin at is chance, here drawn from the number of the walk.
        """
        self._slots = [zone if zone in self.states else None for zone in self._slots]
        missing = [zone for zone in self.states if zone not in self._slots]
        for i, zone in enumerate(self._slots):
            if zone is None and missing:
                self._slots[i] = missing.pop(0)
        self._slots += missing
        self._slots += [None] * (_MAP_SLOTS - len(self._slots))
        self._walks += 1
        drawn = int.from_bytes(blake2b(str(self._walks).encode(), digest_size=8).digest(), "big")
        first = drawn % len(self._slots)
        return [zone for zone in self._slots[first:] + self._slots[:first] if zone is not None]

    def counts(self) -> dict[str, tuple[int, int]]:
        """(ready, not ready) nodes of each zone that has a counted node, in order."""
        return {zone: (c[0], c[1]) for zone, c in sorted(self._counts.items())}

    def counts_with(self, changed: Iterable[Node | None]) -> dict[str, tuple[int, int]]:
        """`counts`, with those of the nodes not ready that a pass saw ready."""
        counts = self.counts()
        for node in changed:
            sample = self._samples.get(node.name) if node is not None else None
            if node is not None and sample is not None and sample.ready and not node.is_ready:
                ready, lost = counts[sample.zone]
                counts[sample.zone] = ready - 1, lost + 1
        return counts

    def rate(self, zone: str) -> float:
        """The rate in force, in nodes a second; 0 for a stopped zone."""
        limiter = self.queues[zone].limiter
        return 0.0 if isinstance(limiter, Never) else round(limiter.qps, 6)

    def _leave(self, zone: str) -> None:
        self.members[zone] -= 1
        if not self.members[zone]:
            del self.members[zone]

    def _sample(self, name: str, sample: _Sample | None) -> None:
        """Count the node as in the sample; None: not at all."""
        before = self._samples.get(name)
        if before == sample:
            return
        if before is not None:
            counts = self._counts[before.zone]
            counts[not before.ready] -= 1
            if counts == [0, 0]:
                del self._counts[before.zone]
        if sample is None:
            del self._samples[name]
            return
        self._samples[name] = sample
        self._counts.setdefault(sample.zone, [0, 0])[not sample.ready] += 1
