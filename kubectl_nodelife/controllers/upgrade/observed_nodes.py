"""The nodes of the cluster as one leader sees them, kept from one pass to the next.

A pass looks again at the nodes that may be others than at the pass before: those whose object is
another one, those on which a write is or was under way, those with a mark of an epoch that is not
ours, and those of which the leader remembers a state that they no longer bear. `forget` makes the
next pass look at all of them; that this decides nothing else is what the tests compare.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from kubectl_nodelife.controllers.upgrade.fleet_counts import FleetCounts, NodeReading
from kubectl_nodelife.controllers.upgrade.job_manifest import claims_of
from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    NodeMark,
    decode_mark,
    is_beyond_epoch,
    left_by_another,
)
from kubectl_nodelife.controllers.upgrade.memory import UpgradeMemory
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE

T = TypeVar("T")


class ObservedNodes:
    """Nodes, their readings, the run's marks and those of others, each in the order of names.

    `superseded`: why this leader must end, "" while it leads.
    """

    def __init__(self, memory: UpgradeMemory, epoch: int) -> None:
        self.superseded = ""
        self._memory, self._epoch = memory, epoch
        self.forget()

    def forget(self) -> None:
        """Look at every node in the next pass, and count them all anew."""
        self._nodes: dict[str, Node] = {}
        self._readings: dict[str, NodeReading] = {}
        self._marks: dict[str, NodeMark] = {}
        self._strangers: dict[str, str] = {}
        self._shown: dict[str, Node] = {}
        self._busy: set[str] = set()
        self._beyond: set[str] = set()
        self._is_in_order = True
        self._fleet: FleetCounts | None = None
        self._looked_for: tuple[Any, ...] = ()

    def look(self, p: UpgradePass, changed: Collection[str] | None = None) -> None:
        """Read nodes and marks for a pass, with the writes under way laid over them.

        `changed`: the nodes that may be other objects than at the last pass; None: any may, as at
        the first.
        """
        if self._looked_for != self._what_all_depend_on(p):
            self.forget()
        busy = self._memory.pending.names_of("Node")
        changed = self._changed(p, busy, changed)
        for name in sorted(changed):
            shown = p.cache.nodes.get(name)
            if shown is None:
                self._drop(name)
            else:
                self._look_at(p, shown, is_busy=name in busy)
        self._busy = busy
        self._looked_for = self._what_all_depend_on(p)
        self._put_in_order()
        p.nodes, p.readings = self._nodes, self._readings
        p.marks, p.strangers = self._marks, self._strangers
        self._count(p, changed)

    def _what_all_depend_on(self, p: UpgradePass) -> tuple[Any, ...]:
        """The facts that each node is judged by beside its own object."""
        return p.document.run, p.document.proof_only, dict(self._memory.hands_off)

    def _changed(
        self, p: UpgradePass, busy: set[str], may_have: Collection[str] | None
    ) -> set[str]:
        """The nodes that must be looked at, and those that are gone."""
        known, shown = self._shown, p.cache.nodes
        if may_have is None or not known:
            may_have = known.keys() | shown.keys()
        changed = {name for name in may_have if known.get(name) is not shown.get(name)}
        for name in changed:
            if (node := shown.get(name)) is None:
                del known[name]
            else:
                known[name] = node
        left = {name for name in self._memory.nodes if name not in self._marks}
        return changed | (busy | self._busy | self._beyond | left) & shown.keys()

    def _put_in_order(self) -> None:
        if not self._is_in_order:
            self._nodes, self._readings = _by_name(self._nodes), _by_name(self._readings)
            self._marks, self._strangers = _by_name(self._marks), _by_name(self._strangers)
            self._is_in_order = True

    def _count(self, p: UpgradePass, changed: set[str]) -> None:
        if self._fleet is None:
            self._fleet = p.fleet
        p.fleet = self._fleet
        self._memory.looked_at |= changed
        self._memory.looked_at |= p.fleet.look(
            self._readings, self._marks, changed, p.cache, p.now_ns
        )

    def _drop(self, name: str) -> None:
        """The node is gone."""
        for by_name in (self._nodes, self._readings, self._marks, self._strangers):
            by_name.pop(name, None)
        self._beyond.discard(name)

    def _look_at(self, p: UpgradePass, shown: Node, *, is_busy: bool) -> None:
        """Read one node anew: whose mark it bears, and what of it changed, and not by us."""
        memory, name = self._memory, shown.name
        node = self._laid_over(shown, p.now_ns) if is_busy else shown
        reading = memory.readings.of(node)
        self._put(self._nodes, name, node)
        self._put(self._readings, name, reading)
        if reading.is_readable and (memory.seen.get(name) is not shown or is_busy):
            memory.seen[name] = shown
            if shown.uid not in memory.claims:
                memory.claims[shown.uid] = claims_of(shown)
            self._note_edits(shown)
            self._note_taints(node, p.now_ns)
        self._beyond.discard(name)
        mark = reading.mark
        if mark is not None and is_beyond_epoch(mark, p.document.run, self._epoch):
            self._beyond.add(name)
            self._look_at_epoch(p, name, mark.epoch)
        stranger = self._why_strange(p, reading)
        is_another_run = mark is not None and mark.run != p.document.run
        ours = None if stranger or is_another_run else mark
        self._put(self._strangers, name, stranger or None)
        self._put(self._marks, name, ours)
        if ours is not None:
            memory.last_marks[name] = (node.uid, ours)
        elif mark is None and not stranger and name in memory.nodes and not is_busy:
            self._forget_marked(node)

    def _why_strange(self, p: UpgradePass, reading: NodeReading) -> str:
        """Why the node's mark is not ours to touch; "" where it is, or there is none."""
        mark, run, name = reading.mark, p.document.run, reading.node.name
        if not reading.is_readable:
            return f"annotation {ANNOTATION} cannot be read"
        if name in self._memory.hands_off:
            return self._memory.hands_off[name]
        if p.document.proof_only and left_by_another(reading.node, run) is not None:
            return ""  # of a run that is over: to be proven as it is
        return f"annotation {ANNOTATION} of run {mark.run}" if mark and mark.run != run else ""

    def _put(self, by_name: dict[str, T], name: str, value: T | None) -> None:
        """Keep the value under the node's name; None: keep none."""
        if value is None:
            by_name.pop(name, None)
        else:
            self._is_in_order &= name in by_name
            by_name[name] = value

    def _look_at_epoch(self, p: UpgradePass, name: str, epoch: int) -> None:
        """A mark of a greater epoch than ours: another leads, if the Lease knows of it."""
        led = max(self._epoch, p.lease.spec.lease_transitions or 0)
        if epoch <= led:
            self.superseded = f"node {name} has epoch {epoch}, ours is {self._epoch}"
        else:
            p.forged.append(name)
            self._memory.hands_off[name] = (
                f"annotation {ANNOTATION} has epoch {epoch}, and the run's Lease is at {led}: "
                "forged, or of another cluster"
            )

    def _laid_over(self, shown: Node, now_ns: int) -> Node:
        """The node with the write under way on it."""
        node = self._memory.pending.laid_over("Node", ("", shown.name), shown, now_ns)
        assert isinstance(node, Node)
        return node

    def _forget_marked(self, node: Node) -> None:
        """A node that has lost its mark is none of ours any more; one that went may come back."""
        uid, _ = self._memory.last_marks.get(node.name, ("", None))
        if uid == node.uid:
            self._memory.forget(node.name)

    def _note_edits(self, shown: Node) -> None:
        """An annotation that changed, and not by us: hands off from then on.

        A write of ours whose answer was lost may show late, and so may one of an earlier epoch.
        """
        memory, name = self._memory, shown.name
        text = (shown.metadata.annotations or {}).get(ANNOTATION)
        uid, known = memory.marks.get(name, (shown.uid, text))
        by_us = text in memory.sent_marks.get(name, ())
        if uid == shown.uid and text != known and not by_us and not self._is_older(text):
            what = "was removed" if text is None else "was edited"
            memory.hands_off[name] = f"annotation {ANNOTATION} {what} by somebody else"
        memory.marks[name] = (shown.uid, text)

    def _is_older(self, text: str | None) -> bool:
        """True if the annotation is of an earlier epoch."""
        return text is not None and decode_mark(text).epoch < self._epoch

    def _note_taints(self, node: Node, now_ns: int) -> None:
        """Which nodes lose the cordon's taint: the lifecycle controller acts (P2)."""
        tainted = self._memory.cordon_tainted
        if node.has_taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE):
            tainted.add(node.name)
        elif node.name in tainted:
            tainted.discard(node.name)
            self._memory.cordon_taint_lost_ns[node.name] = now_ns


def _by_name(found: dict[str, T]) -> dict[str, T]:
    """The same, in the order of names."""
    names = sorted(found)
    return found if names == list(found) else {name: found[name] for name in names}
