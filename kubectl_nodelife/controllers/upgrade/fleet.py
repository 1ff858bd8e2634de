"""The nodes of the cluster as one leader sees them: read, counted, and kept from one pass to the
next.

A pass looks again at the nodes that may be others than at the pass before: those whose object is
another one, those on which a write is or was under way, those with a mark of an epoch that is not
ours, those that the last pass claimed, and those whose Lease ran out or may be renewed again. The
tests compare that with passes that look at all of them (`forget`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kubectl_nodelife.controllers.upgrade import claims, marks
from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    CountedNode,
    NodeCounts,
    NodeScope,
    is_deleted_by_others,
    limits_of,
    why_unavailable,
    zone_hold,
)
from kubectl_nodelife.controllers.upgrade.document import RunDocument
from kubectl_nodelife.controllers.upgrade.memory import UpgradeMemory, UpgradePorts
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Lease, Node, zone_key
from kubectl_nodelife.kube.wellknown import (
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    TAINT_NODE_UNSCHEDULABLE,
)

STALE: Final = "its Lease is not renewed"
NORMAL: Final = "Normal"

Names = Collection[str]
T = TypeVar("T")


class NodeReading(NamedTuple):
    """A node's own account of itself. `zone` is as shown, `zone_key` the lifecycle controller's.
    `is_down`: it is not Ready; `counts`: it counts in its zone. `counted`: how it counts while its
    Lease is renewed; `skipped`: why it is left out then, "" where it is not.
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
    mark: marks.NodeMark | None
    is_readable: bool
    skipped: str
    is_outdated: bool
    is_being_deleted: bool

    @property
    def turn(self) -> str:
        """The pool in whose turn it goes."""
        return claims.CONTROL_PLANE if self.is_control_plane else self.pool

    def counted_now(self, *, is_fresh: bool) -> CountedNode:
        """How it counts. `is_fresh`: its Lease is renewed; where it is not Ready it counts less."""
        if is_fresh or self.is_down:
            return self.counted
        return self.counted._replace(unavailable=STALE)


def read_node(node: Node, policy: UpgradePolicy, *, counts: bool) -> NodeReading:
    """What the node says of itself. `counts`: it counts in its zone."""
    pool, zone = claims.pool_name(node, policy), claims.zone_name(node)
    on_control_plane, why = claims.is_control_plane(node), why_unavailable(node)
    try:
        mark, is_readable = marks.mark_of(node), True
    except marks.UnreadableMark:
        mark, is_readable = None, False
    return NodeReading(
        node,
        pool,
        zone,
        zone_key(node.metadata.labels),
        on_control_plane,
        claims.is_selected(node, policy),
        not node.is_ready,
        counts,
        CountedNode(node.name, pool, zone, why, control_plane=on_control_plane),
        mark,
        is_readable,
        claims.why_skipped(node, policy),
        node.has_taint(marks.TAINT_OUTDATED, PREFER_NO_SCHEDULE),
        is_deleted_by_others(node),
    )


class Fleet:
    """`nodes`, their `readings`, the run's `marks`, and `foreign`: the nodes with marks that are
    not ours to touch, and why, among them `epochs_ahead`, with an epoch that has had no leader;
    each in the order of names. All show writes that are under way as done, and `counts` has nodes
    that the run takes as unavailable. `superseded`: why this leader must end, "" while it leads.
    """

    def __init__(
        self, policy: UpgradePolicy, ports: UpgradePorts, memory: UpgradeMemory, epoch: int
    ) -> None:
        self.superseded = ""
        self.epochs_ahead: list[str] = []
        self.policy, self.ports, self.memory, self.epoch = policy, ports, memory, epoch
        self.cache, self.lease, self.document = Cache(), Lease(), RunDocument("")
        self.now_ns = 0
        self._fresh_until_ns: dict[str, int] = {}
        """Until when the Lease of each node is fresh, as far as its renewals were looked at."""
        self.forget()

    def forget(self) -> None:
        """Look at every node in the next pass, and count them all anew."""
        self.nodes: dict[str, Node] = {}
        self.readings: dict[str, NodeReading] = {}
        self.marks: dict[str, marks.NodeMark] = {}
        self.foreign: dict[str, str] = {}
        self.counts = NodeCounts(limits_of(self.policy))
        self._down: set[str] = set()
        self._ours: set[str] = set()
        self._size: Counter[str] = Counter()
        self._again: set[str] = set()
        """Nodes that the next pass looks at in any case."""
        self._is_in_order = True
        self._soonest_ns = -1
        """Until then no Lease that is fresh can become stale."""
        self._looked_for: tuple[Any, ...] = ()

    # Looking

    def look(
        self, cache: Cache, lease: Lease, document: RunDocument, now_ns: int, changed: Names | None
    ) -> None:
        """Read nodes and marks for a pass, with the writes under way laid over them. `changed`: the
        nodes that may be other objects than at the last pass; None: any may.
        """
        self.cache, self.lease, self.document, self.now_ns = cache, lease, document, now_ns
        self.epochs_ahead = []
        if self._looked_for != self._what_all_depend_on():
            self.forget()
        busy = self.memory.pending.names_of("Node")
        anew = self._may_differ(busy, changed)
        self._again = set(busy)
        for name in sorted(anew):
            self._uncount(name)
            shown = self.cache.nodes.get(name)
            if shown is not None:
                self._look_at(shown, is_busy=name in busy)
            else:
                self._drop(name)
        self.memory.looked_at |= anew
        self._looked_for = self._what_all_depend_on()
        if not self._is_in_order:
            self.nodes, self.readings = _by_name(self.nodes), _by_name(self.readings)
            self.marks, self.foreign = _by_name(self.marks), _by_name(self.foreign)
            self._is_in_order = True
        if self.now_ns > self._soonest_ns:
            fresh = self.readings.keys() - self._down - self._again
            self._soonest_ns = min((self._fresh_until_ns[n] for n in fresh), default=self.now_ns)

    def _what_all_depend_on(self) -> tuple[Any, ...]:
        """The facts that each node is judged by beside its own object."""
        return self.document.run, self.document.proof_only, dict(self.memory.foreign)

    def _may_differ(self, busy: set[str], changed: Names | None) -> set[str]:
        """The nodes that must be looked at, and those that are gone."""
        known, shown = self.nodes, self.cache.nodes
        if changed is None or not known:
            changed = known.keys() | shown.keys()
        anew = {name for name in changed if known.get(name) is not shown.get(name)}
        again = busy | self._again
        if self.now_ns > self._soonest_ns:
            again |= {name for name in known.keys() - self._down if not self.is_fresh(name)}
        return anew | again & shown.keys()

    def _drop(self, name: str) -> None:
        for by_name in (self.nodes, self.readings, self.marks, self.foreign):
            by_name.pop(name, None)
        self.counts.remove(name)
        self.memory.candidates.pop(name, None)

    def _look_at(self, shown: Node, *, is_busy: bool) -> None:
        """Read one node anew: whose mark it bears, what others changed of it, and how it counts."""
        memory, name, node = self.memory, shown.name, shown
        if is_busy:
            laid_over = memory.pending.laid_over("Node", ("", name), shown, self.now_ns)
            assert isinstance(laid_over, Node)
            node = laid_over
        reading = self.readings.get(name)
        if reading is None or reading.node is not node:
            reading = read_node(node, self.policy, counts=self.ports.counts_in_zone(node))
        self._put(self.nodes, name, node)
        self._put(self.readings, name, reading)
        if reading.is_readable:
            if shown.uid not in memory.addresses:
                memory.addresses[shown.uid] = reported_addresses(shown)
            self._note_edits(shown)
            self._note_taints(node)
        mark, run = reading.mark, self.document.run
        if mark is not None and marks.is_beyond_epoch(mark, run, self.epoch):
            self._again.add(name)
            self._look_at_epoch(name, mark.epoch)
        foreign = self._why_foreign(reading)
        ours = mark if mark is not None and not foreign and mark.run == run else None
        self._put(self.foreign, name, foreign or None)
        self._put(self.marks, name, ours)
        if ours is not None:
            memory.last_marks[name] = (node.uid, ours)
        elif mark is None and not foreign and memory.progress_of(name) and not is_busy:
            uid, _ = memory.last_marks.get(name, ("", None))
            if uid == node.uid:  # it has lost its mark; one that went may come back
                memory.forget(name)
        self._count(name, reading, ours)

    def _why_foreign(self, reading: NodeReading) -> str:
        """Why the node's mark is not ours to touch; "" where it is, or there is none."""
        mark, node, run = reading.mark, reading.node, self.document.run
        if not reading.is_readable:
            return f"annotation {marks.ANNOTATION} cannot be read"
        if node.name in self.memory.foreign:
            return self.memory.foreign[node.name]
        if mark is None or mark.run == run:
            return ""
        if self.document.proof_only and marks.left_by_another(node, run) is not None:
            return ""  # of a run that is over: to be proven as it is
        return f"annotation {marks.ANNOTATION} of run {mark.run}"

    def _put(self, by_name: dict[str, T], name: str, value: T | None) -> None:
        """Keep the value under the node's name; None: keep none."""
        if value is None:
            by_name.pop(name, None)
        else:
            self._is_in_order &= name in by_name
            by_name[name] = value

    def _look_at_epoch(self, name: str, epoch: int) -> None:
        """A mark of a greater epoch than ours: another leads, if the Lease knows of it."""
        led = max(self.epoch, self.lease.spec.lease_transitions or 0)
        if epoch <= led:
            self.superseded = f"node {name} has epoch {epoch}, ours is {self.epoch}"
            return
        self.epochs_ahead.append(name)
        is_at = f"has epoch {epoch}, and the run's Lease is at {led}: forged, or of another cluster"
        self.memory.foreign[name] = f"annotation {marks.ANNOTATION} {is_at}"

    def _note_edits(self, shown: Node) -> None:
        """An annotation that changed, and not by us: the run leaves the node alone from then on. A
        write of ours whose answer was lost may show late, and so may one of an earlier epoch.
        """
        memory, name = self.memory, shown.name
        text = (shown.metadata.annotations or {}).get(marks.ANNOTATION)
        uid, text_before = memory.marks.get(name, (shown.uid, text))
        by_us = text in memory.sent_marks.get(name, ())
        is_older = text is not None and marks.decode_mark(text).epoch < self.epoch
        if uid == shown.uid and text != text_before and not (by_us or is_older):
            what = "was removed" if text is None else "was edited"
            memory.foreign[name] = f"annotation {marks.ANNOTATION} {what} by another client"
        memory.marks[name] = (shown.uid, text)

    def _note_taints(self, node: Node) -> None:
        """Which nodes lose the cordon's taint: the lifecycle controller acts (P2)."""
        tainted = self.memory.cordon_tainted
        if node.has_taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE):
            tainted.add(node.name)
        elif node.name in tainted:
            tainted.discard(node.name)
            self.memory.cordon_taint_lost_ns[node.name] = self.now_ns

    # Counting

    def _uncount(self, name: str) -> None:
        if (old := self.readings.get(name)) is not None:
            self._size[old.zone_key] -= old.counts
        for names in (self._down, self._ours):
            names.discard(name)

    def _count(self, name: str, reading: NodeReading, mark: marks.NodeMark | None) -> None:
        """The node counts as it is now."""
        self._size[reading.zone_key] += reading.counts
        is_fresh = reading.is_down or self.is_fresh(name)
        counted = reading.counted_now(is_fresh=is_fresh)
        if reading.is_down:
            self._down.add(name)
        elif not is_fresh:
            self._again.add(name)  # it may be renewed again
        else:
            self._soonest_ns = min(self._soonest_ns, self._fresh_until_ns[name])
        if mark is not None and mark.state in marks.TAKEN:
            counted = counted._replace(claimed=True)
            if mark.state in marks.GOING_DOWN:
                self._ours.add(name)
        self.counts.put(counted)

    def base_counts(self) -> dict[str, int]:
        """The numbers now, for the document of a run that begins, or `--rebase`. The cluster is
        always among them, also where all its nodes are of the control plane.
        """
        return {CLUSTER.key: 0, **{s.key: n for s, n in self.counts.totals().items()}}

    def is_fresh(self, name: str) -> bool:
        """True if the node's Lease was renewed within the grace period, as we saw it."""
        if self.now_ns > self._fresh_until_ns.get(name, -1):
            beat = self.cache.heartbeat(name)
            seen = beat.renewal(self.now_ns) if beat is not None else None
            if seen is None:
                return False
            self._fresh_until_ns[name] = seen[1] + self.ports.grace_period_ns
        return self.now_ns <= self._fresh_until_ns[name]

    def claim(self, name: str) -> None:
        """The node is taken out of service in this pass, and its zone loses it."""
        self.counts.claim(name)
        self._ours.add(name)
        self._again.add(name)

    # Zones

    def zone_hold(self, name: str) -> str:
        """Why the zone brake holds the node; "" where it does not."""
        node = self.readings[name]
        if not node.counts:
            return ""
        down = self._in_zone(node.zone_key, self._down - self._ours - {name})
        ours = self._in_zone(node.zone_key, self._ours)
        return self._zone_hold(self._size[node.zone_key], down, ours)

    def _zone_hold(self, nodes: int, not_ready: int, ours: int) -> str:
        threshold, allow_dark = self.ports.zone_threshold, self.policy.allow_dark_zone
        return zone_hold(nodes, not_ready, ours, threshold, allow_dark=allow_dark)

    def zone_states(self) -> dict[str, str]:
        """The state of each zone of counted nodes, by the node lifecycle controller's rule."""
        readings = (self.readings[name] for name in self._down)
        down = Counter(reading.zone_key for reading in readings if reading.counts)
        state = self.ports.zone_state
        return {z: state(size - down[z], down[z]) for z, size in self._size.items() if size}

    def down_in(self, zone: str) -> str:
        """How many nodes of a zone are not Ready, and of how many."""
        return f"{self._in_zone(zone, self._down)} of {self._size[zone]} nodes are not Ready"

    def broken_by_others(self, name: str, in_flight: Mapping[str, marks.NodeMark]) -> bool:
        """True if the node's zone is disrupted even if all of ours in flight are thought Ready."""
        zone = self.readings[name].zone_key
        size, down = self._size[zone], self._in_zone(zone, self._down - in_flight.keys())
        return self.ports.zone_state(size - down, down) != NORMAL

    def _in_zone(self, zone: str, names: Iterable[str]) -> int:
        """How many of the nodes count in the zone."""
        readings = (self.readings[name] for name in names if name in self.readings)
        return sum(node.counts and node.zone_key == zone for node in readings)

    # Budgets

    def slots_of(self, name: str) -> int:
        """The least number of slots in any scope of the node."""
        scopes = self.counts.node(name).scopes
        return min((self.counts.budget(scope).slots for scope in scopes), default=1)

    def floor_holds_without(self, name: str) -> bool:
        """True if every floor still holds once this node, which is available, no longer is."""
        node = self.counts.node(name)
        budgets = map(self.counts.budget, node.scopes)
        return not node.available or all(b.available - 1 >= b.floor for b in budgets)

    def most_unavailable(self, pool: str) -> int:
        """How many nodes of the pool may be unavailable at once."""
        return self.counts.budget(NodeScope("pool", pool)).most_unavailable

    def most_out(self, scope: NodeScope) -> int:
        """How many nodes of the scope may be unavailable at once, by both of its limits."""
        budget = self.counts.budget(scope)
        return min(budget.most_unavailable, budget.base - budget.floor)

    def most_out_of_zone(self, name: str) -> tuple[int, int]:
        """How many nodes of the node's zone may be out at once, by its limits; and how many going
        down, by the zone brake too while all others are well. What is replaced counts no more.
        """
        node = self.readings[name]
        scope, size = NodeScope("zone", node.pool, node.zone), self._size[node.zone_key]
        most = self.most_out(scope)
        brakes = node.counts and self.policy.work.mode is not WorkMode.REPLACE
        held = (n for n in range(min(most, size)) if self._zone_hold(size, 0, n))
        return most, next(held, most) if brakes else most


def reported_addresses(node: Node) -> tuple[str, str]:
    """(InternalIP, provider id), as the node reports them now; "" for none."""
    addresses = {a.type: a.address for a in reversed(node.status.addresses)}
    return addresses.get("InternalIP", ""), node.spec.provider_id


def _by_name(named: dict[str, T]) -> dict[str, T]:
    names = sorted(named)
    return named if names == list(named) else {name: named[name] for name in names}
