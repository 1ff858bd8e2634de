"""One pass of the upgrade controller: what it sees, and what it has decided so far.

The files of the states read from here and decide by `change`, `emit` and `edit`. A change of a
node's state is one PATCH, and an Event that says why.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.claims import UpgradeCandidate
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    DOCUMENT_LIMIT,
    NOT_BEGUN,
    RunDocument,
    RunPhase,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.fleet_counts import FleetCounts, NodeReading, claims_of
from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    CLAIMS,
    GIVES_ITS_REASON,
    IN_FLIGHT,
    TAKEN,
    NodeEvent,
    NodeMark,
    NodeState,
    Transition,
    decode_mark,
    is_beyond_epoch,
    left_by_another,
    patch_marks,
    transition,
)
from kubectl_nodelife.controllers.upgrade.memory import NodeProgress, ProofProgress, UpgradeMemory
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.ports import HostState, PodKey, UpgradePorts
from kubectl_nodelife.engine.actions import (
    Action,
    DeleteCanary,
    DeleteForNode,
    DeleteJob,
    FailWithoutMark,
    MarkNode,
    NodeMarkPatch,
    RecordEvent,
    UpdateRun,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE
from kubectl_nodelife.kube.workload import Job

NAME: Final = "upgrade"
PROOF: Final = "proof"
REFUSED_NS: Final = 60 * SECOND_NS
"""A write that was refused with other than 409 is tried again after so long."""
HELD_NS: Final = 5 * SECOND_NS
"""So long after a guard held a write back it is decided anew."""
PASS_NS: Final = 10 * SECOND_NS
"""A pass is made at least so often while a node is in flight."""

_WARNINGS: Final = frozenset({NodeState.FAILED, NodeState.HELD})


def deletion(obj: KubeObject, because: str, node: str = "") -> DeleteForNode:
    """The DELETE of a canary, or a Job."""
    word, (namespace, name) = DeleteJob if isinstance(obj, Job) else DeleteCanary, obj.key
    return word(
        controller=NAME,
        because=because,
        namespace=namespace,
        name=name,
        node=node,
        object_uid=obj.uid,
    )


class UpgradePass:
    """`nodes` and `marks` show writes that are under way as done. `strangers`: nodes with marks
    that are not ours to touch, and why; `forged`: those of them with an epoch that has had
    no leader. `leaving`: the pods that have yet to leave nodes Draining, or claimed in this pass,
    as far as asked. `clock_ns` is the API server's time. `next` is the document as it shall be.
    `to_list`: nodes whose pods are to be listed, for a watch may be behind.
    """

    def __init__(
        self,
        cache: Cache,
        host: HostState,
        now_ns: int,
        policy: UpgradePolicy,
        ports: UpgradePorts,
        memory: UpgradeMemory,
        lease: Lease,
        document: RunDocument,
        epoch: int,
    ) -> None:
        self.cache, self.host, self.now_ns = cache, host, now_ns
        self.clock_ns = now_ns + host.clock_ahead_ns
        self.policy, self.ports, self.memory = policy, ports, memory
        self.lease, self.document, self.epoch = lease, document, epoch
        self.next = document
        self.strikes_request = False
        self.actions: list[Action] = []
        self.gates: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.holds: dict[str, tuple[str, str]] = {}
        self.strangers: dict[str, str] = {}
        self.forged: list[str] = []
        self.awaited: dict[str, str] = {}
        self.claimed: list[str] = []
        self.leaving: dict[str, tuple[PodKey, ...]] = {}
        self.to_list: set[str] = set()
        self.passed_over: list[UpgradeCandidate] = []
        self.nodes: dict[str, Node] = {}
        self.readings: dict[str, NodeReading] = {}
        self.marks: dict[str, NodeMark] = {}
        self.wake_ns: int | None = None

    @cached_property
    def fleet(self) -> FleetCounts:
        """Counts of nodes and zones; claims of this pass lower them. Of no node before they were
        looked at.
        """
        return FleetCounts(self.memory.readings, self.policy, self.ports, self.cache, self.now_ns)

    @property
    def phase(self) -> RunPhase:
        """The run's phase, as the stored document has it."""
        return self.document.phase

    @property
    def is_aborting(self) -> bool:
        """True if the run is being aborted: then no clock stands."""
        return self.phase is RunPhase.ABORTING

    @property
    def has_proven(self) -> bool:
        """True if the canary of some node of this run was Ready."""
        released = (NodeState.SOAKING, NodeState.DONE)
        return bool(self.memory.proven) or any(m.state in released for m in self.marks.values())

    @property
    def stamp(self) -> str:
        """Now, for readers: the API server's time."""
        return format_time(self.clock_ns)

    @cached_property
    def selected(self) -> list[str]:
        """Names of the nodes that the run is about, in order."""
        return [name for name, node in self.readings.items() if node.is_selected]

    @cached_property
    def control_planes(self) -> int:
        """How many nodes of the control plane the cluster has."""
        return sum([node.is_control_plane for node in self.readings.values()])

    @cached_property
    def flying(self) -> dict[str, NodeMark]:
        """The nodes in flight, by name."""
        return {name: mark for name, mark in self.marks.items() if mark.state in IN_FLIGHT}

    def unavailable_after_claim(self) -> list[str]:
        """The nodes that are out of service by us, with those claimed in this pass."""
        return [*self.names_in(*TAKEN), *self.claimed]

    def names_in(self, *states: NodeState) -> list[str]:
        """The nodes of the run in any of these states."""
        found = [name for state in states for name in self._by_state.get(state, ())]
        return found if len(states) == 1 else sorted(found)

    @cached_property
    def _by_state(self) -> dict[NodeState, list[str]]:
        by_state: dict[NodeState, list[str]] = {}
        for name, mark in self.marks.items():
            by_state.setdefault(mark.state, []).append(name)
        return by_state

    def leave_alone(self, name: str, because: str) -> None:
        """From now on the node's mark is not ours to touch, and says nothing."""
        self.memory.hands_off[name] = self.strangers[name] = because
        self.memory.looked_at.add(name)
        del self.marks[name]
        for of_marks in ("flying", "_by_state"):
            self.__dict__.pop(of_marks, None)

    def is_busy(self, name: str) -> bool:
        """True if a write on the node is under way, or was refused less than a minute ago."""
        return self.is_under_way("Node", ("", name))

    def is_under_way(self, kind: str, key: tuple[str, str]) -> bool:
        """True if a write on the object is under way, or was refused less than a minute ago."""
        if self.memory.pending.holds(kind, key):
            return True
        refused = self.memory.refused.get((kind, key))
        return refused is not None and not self.is_over(refused[0], 0)

    def progress(self, name: str, mark: NodeMark) -> NodeProgress:
        """The changes that were seen of the node in its present state."""
        return self.memory.progress(name, (mark.state, mark.try_, mark.epoch), self.now_ns)

    def new_proof(self) -> ProofProgress:
        """The progress of a proof that begins now."""
        return ProofProgress(self.now_ns)

    def clock_stands(self, name: str, mark: NodeMark) -> bool:
        """True if the node's clock stands and nothing of it fails, for what it waits for is not its
        own fault: its zone was broken by others, or the proof shows another's.
        """
        if self.is_aborting:
            return False
        if mark.state is NodeState.PROVING and PROOF in self.gates:
            return True
        return self.fleet.broken_by_others(name, self.flying)

    def wake(self, at_ns: int) -> None:
        """Make a pass again at that instant at the latest."""
        if at_ns > self.now_ns and (self.wake_ns is None or at_ns < self.wake_ns):
            self.wake_ns = at_ns

    def is_over(self, since_ns: int, length_ns: int) -> bool:
        """True if that much time has passed; where not, a pass is asked for when it has."""
        if self.now_ns - since_ns >= length_ns:
            return True
        self.wake(since_ns + length_ns)
        return False

    def emit(self, action: Action) -> None:
        """Decide the action. On its object nothing more is decided until its outcome is known."""
        self.actions.append(action)
        self.memory.pending.sent(action)

    def delete(self, obj: KubeObject, because: str, node: str = "") -> None:
        """DELETE a canary, or a Job of a node, where no write on it is under way."""
        kind = type(obj).__name__
        if not self.is_under_way(kind, obj.key):
            self.emit(deletion(obj, because, node))

    def edit(self, **fields: Any) -> None:
        """Change the document; it is written at the end of the pass."""
        self.next = replace(self.next, **fields)

    def advance(
        self, node: Node, mark: NodeMark, event: NodeEvent, because: str, **patch: Any
    ) -> None:
        """Take the node to the state that the event leads to, from that of its mark.

        `mark`: what it bears, or, at a claim, what it is to bear; its fields but for state and
        clocks are kept. A node that is left to a person again bears its earlier mark as it was.
        `patch`: what else the PATCH changes, as `patch_marks` takes it.
        Raises KeyError where the event cannot take place in the mark's state.
        """
        state = None if event in CLAIMS else mark.state
        row = transition(state, event)
        reason = because if row.to in GIVES_ITS_REASON else ""
        after = self.entered(mark, row.to, reason) if row.to else None
        if event in (NodeEvent.FAILED_AGAIN, NodeEvent.HELD_AGAIN):
            after = mark.earlier
        change = patch_marks(row.patch, node, because, was=state or "", mark=after, **patch)
        self._write_mark(node, after, change)
        self._record_event(node, row, because, change)

    def update_mark(self, node: Node, mark: NodeMark, because: str) -> None:
        """A change of what the mark says, in the same state: without an Event."""
        change = patch_marks(MarkNode, node, because, was=mark.state, mark=mark)
        self._write_mark(node, mark, change)

    def _write_mark(self, node: Node, mark: NodeMark | None, change: NodeMarkPatch) -> None:
        text = change.annotations[ANNOTATION]
        self.memory.sent_marks.setdefault(node.name, set()).add(text)
        if mark is not None:
            self.memory.written_marks[node.name] = (node.uid, mark)
        self.emit(change)

    def _record_event(self, node: Node, row: Transition, because: str, change: Action) -> None:
        """The Event of a change of state, which is sent once that change was applied."""
        self.actions.append(
            RecordEvent(
                controller=NAME,
                because=because,
                cause=change,
                kind="Node",
                name=node.name,
                object_uid=node.uid,
                type="Warning" if row.to in _WARNINGS else "Normal",
                reason=row.reason,
                message=because,
            )
        )

    def entered(self, mark: NodeMark, state: NodeState, reason: str = "") -> NodeMark:
        """The mark in that state, from now on until that state's deadline."""
        length = self.deadline_ns(state)
        deadline = format_time(self.clock_ns + length) if length else ""
        return replace(
            mark, state=state, epoch=self.epoch, since=self.stamp, deadline=deadline, reason=reason
        )

    def deadline_ns(self, state: NodeState) -> int:
        """How long a node may be in the state; 0: without end."""
        policy = self.policy
        return {
            NodeState.DRAINING: int(policy.drain_timeout_ns),
            NodeState.WORKING: int(policy.work_timeout_ns),
            NodeState.SETTLING: int(policy.return_timeout_ns),
            NodeState.PROVING: int(policy.prove_timeout_ns),
            NodeState.SOAKING: int(policy.node_soak_ns),
        }.get(state, 0)

    def note_failed(self, name: str, because: str) -> None:
        """The document names the node as failed; more failures than are tolerated pause the run."""
        if name in self.next.failed:
            return
        self.edit(failed=(*self.next.failed, name))
        failures, tolerated = len(self.next.failed), self.policy.max_failures
        if self.phase is not RunPhase.RUNNING or self.document.proof_only:
            return
        if failures > tolerated:
            reason = f"{failures} failed, {tolerated} tolerated; the last: {name}: {because}"
            self.edit(phase=RunPhase.PAUSED, because=reason)

    def fail_without_mark(self, name: str, uid: str, because: str) -> None:
        """Report that a node failed that bears no mark of the run; the document names it."""
        action = FailWithoutMark(controller=NAME, because=because, node=name, node_uid=uid)
        self.actions.append(action)

    def finish(self) -> list[Action]:
        """The decisions, that about the document first."""
        if self.next != self.document or self.strikes_request:
            key = self.policy.lease_key
            update = None if self.is_under_way("Lease", key) else self._update()
            # a document that is full, and says so, stays as it is
            if update is not None and update.effect(self.lease, self.now_ns) is not self.lease:
                self.memory.pending.sent(update)
                self.actions.insert(0, update)
        return self.actions

    def _update(self) -> UpdateRun:
        old, new = self.document, self.next
        namespace, name = self.policy.lease_key
        text = encode_document(new)
        size = len(text.encode())
        if size > DOCUMENT_LIMIT:
            because = f"the run's document is full: {size} of {DOCUMENT_LIMIT} bytes"
            new = replace(old, phase=RunPhase.PAUSED, because=because)
            text = encode_document(new)
        annotations: dict[str, str | None] = {ANNOTATION_RUN: text}
        if self.strikes_request:
            annotations[ANNOTATION_REQUEST] = None
        stepped = new.step.window != NOT_BEGUN and (old.step.pool, old.step.k, old.step.window) != (
            new.step.pool,
            new.step.k,
            new.step.window,
        )
        return UpdateRun(
            controller=NAME,
            because=new.because or "the run goes on",
            namespace=namespace,
            name=name,
            annotations=annotations,
            phase_from=str(old.phase) if old.phase != new.phase else "",
            phase=str(new.phase) if old.phase != new.phase else "",
            step=new.step.k if stepped else None,
            window=new.step.window if stepped else None,
        )


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
        """An annotation that changed, and not by us: the run leaves the node alone from then on.

        A write of ours whose answer was lost may show late, and so may one of an earlier epoch.
        """
        memory, name = self._memory, shown.name
        text = (shown.metadata.annotations or {}).get(ANNOTATION)
        uid, known = memory.marks.get(name, (shown.uid, text))
        by_us = text in memory.sent_marks.get(name, ())
        if uid == shown.uid and text != known and not by_us and not self._is_older(text):
            what = "was removed" if text is None else "was edited"
            memory.hands_off[name] = f"annotation {ANNOTATION} {what} by another client"
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
