"""One pass of the upgrade controller: what it sees, and what it has decided so far. A change of a
node's state is one PATCH, and an Event that says why.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.claims import ClaimHold, PodKey, UpgradeCandidate
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    DOCUMENT_LIMIT,
    NOT_BEGUN,
    RunPhase,
    StepNode,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.fleet import Fleet
from kubectl_nodelife.controllers.upgrade.memory import HostState, NodeProgress
from kubectl_nodelife.engine import actions
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import format_time

PROOF: Final = "proof"


def deletion(obj: KubeObject, because: str, node: str = "") -> actions.DeleteForNode:
    """The DELETE of a canary, or a Job."""
    namespace, name = obj.key
    return actions.DeleteForNode(
        controller=marks.CONTROLLER,
        because=because,
        kind=type(obj).__name__,
        namespace=namespace,
        name=name,
        node=node,
        object_uid=obj.uid,
    )


class UpgradePass:
    """`clock_ns`: the API server's time. `next`: the document as it shall be. `gone`: nodes whose
    object went and whose newcomer is waited for, as the document names them. `yet_to_move`: the
    pods that have yet to leave nodes Draining, or claimed in this pass, as far as asked. `to_list`:
    nodes whose pods are to be listed, for a watch may be behind. `tried_last`: nodes whose budgets
    refill, or whose pods find no room: they wait until the others are done.
    """

    def __init__(self, fleet: Fleet, host: HostState) -> None:
        self.fleet, self.epoch, self.cache, self.host = fleet, fleet.epoch, fleet.cache, host
        self.now_ns, self.clock_ns = fleet.now_ns, fleet.now_ns + host.clock_ahead_ns
        self.policy, self.ports, self.memory = fleet.policy, fleet.ports, fleet.memory
        self.nodes, self.readings = fleet.nodes, fleet.readings
        self.marks, self.foreign = fleet.marks, fleet.foreign
        self.lease, self.document = fleet.lease, fleet.document
        self.next = self.document
        self.strikes_request = False
        self.actions: list[actions.Action] = []
        self.gates: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.holds: dict[str, ClaimHold] = {}
        self.gone: dict[str, StepNode] = {}
        self.claimed: list[str] = []
        self.yet_to_move: dict[str, tuple[PodKey, ...]] = {}
        self.to_list: set[str] = set()
        self.tried_last: list[UpgradeCandidate] = []
        self.wake_ns: int | None = None

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
        released = self.names_in(marks.NodeState.SOAKING, marks.NodeState.DONE)
        return bool(self.memory.proven or released)

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
    def in_flight(self) -> dict[str, marks.NodeMark]:
        """The nodes in flight, by name."""
        return {name: mark for name, mark in self.marks.items() if mark.state in marks.IN_FLIGHT}

    def names_in(self, *states: marks.NodeState) -> list[str]:
        """The nodes of the run in any of these states."""
        names = [name for state in states for name in self._by_state.get(state, ())]
        return names if len(states) == 1 else sorted(names)

    @cached_property
    def _by_state(self) -> dict[marks.NodeState, list[str]]:
        by_state: dict[marks.NodeState, list[str]] = {}
        for name, mark in self.marks.items():
            by_state.setdefault(mark.state, []).append(name)
        return by_state

    def note_foreign(self, name: str, because: str) -> None:
        """From now on the node's mark is not ours to touch, and says nothing."""
        self.memory.foreign[name] = self.foreign[name] = because
        self.memory.looked_at.add(name)
        del self.marks[name]
        for of_marks in ("in_flight", "_by_state"):
            self.__dict__.pop(of_marks, None)

    def is_busy(self, name: str) -> bool:
        """True if a write on the node is under way, or was refused less than a minute ago."""
        return self.is_under_way("Node", ("", name))

    @property
    def is_lease_busy(self) -> bool:
        """The same of the run's Lease."""
        return self.is_under_way("Lease", self.policy.lease_key)

    def is_under_way(self, kind: str, key: tuple[str, str]) -> bool:
        """True if a write on the object is under way, or was refused less than a minute ago."""
        if self.memory.pending.holds(kind, key):
            return True
        refused = self.memory.refused.get((kind, key))
        return refused is not None and not self.is_over(refused[0], 0)

    def progress(self, name: str, mark: marks.NodeMark) -> NodeProgress:
        """The changes that were seen of the node in its present state."""
        return self.memory.progress(name, mark, self.now_ns)

    def clock_stands(self, name: str, mark: marks.NodeMark) -> bool:
        """True if the node's clock stands and nothing of it fails, for what it waits for is not its
        own fault: its zone was broken by others, or the proof shows another's.
        """
        in_proof = mark.state is marks.NodeState.PROVING and PROOF in self.gates
        return not self.is_aborting and (
            in_proof or self.fleet.broken_by_others(name, self.in_flight)
        )

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

    def emit(self, action: actions.Action) -> None:
        """Decide the action. On its object nothing more is decided until its outcome is known."""
        self.actions.append(action)
        self.memory.pending.sent(action)

    def decide(self, word: type[actions.Action], because: str, **fields: Any) -> None:
        """Decide an action of that class."""
        self.emit(word(controller=marks.CONTROLLER, because=because, **fields))

    def create(
        self, kind: str, key: tuple[str, str], node: Node, manifest: dict[str, Any], because: str
    ) -> None:
        """POST what is made for the node: its canary, or the Job of a try."""
        namespace, name = key
        for_node = {"namespace": namespace, "name": name, "node": node.name, "manifest": manifest}
        self.decide(actions.CreateForNode, because, kind=kind, **for_node)

    def delete(self, obj: KubeObject, because: str, node: str = "") -> None:
        """DELETE a canary, or a Job of a node, where no write on it is under way."""
        kind = type(obj).__name__
        if not self.is_under_way(kind, obj.key):
            self.emit(deletion(obj, because, node))

    def take_out(self, name: str) -> None:
        """The node is claimed in this pass: what comes after it is judged by that."""
        self.fleet.claim(name)
        self.claimed.append(name)

    def edit(self, **fields: Any) -> None:
        """Change the document; it is written at the end of the pass."""
        self.next = replace(self.next, **fields)

    def name_nodes(self, nodes: dict[str, StepNode]) -> None:
        """The document names these nodes, and no others; the write of each follows its name."""
        self.edit(step=replace(self.next.step, nodes=nodes))

    def note_given_back(self, reasons: dict[str, str]) -> None:
        """The document says why each of these nodes is not taken again before a retry."""
        self.edit(given_back={**self.next.given_back, **reasons})

    def advance(
        self, node: Node, mark: marks.NodeMark, event: marks.NodeEvent, because: str, **patch: Any
    ) -> None:
        """Take the node to the state that the event leads to, from that of its mark.

        `mark`: what it bears, or, at a claim, what it is to bear, but for state and clocks. A node
        that is left to a person again bears its earlier mark as it was. `patch`: what else the
        PATCH changes, as `patch_marks` takes it. Raises KeyError where the event cannot take place.
        """
        row = marks.transition(None if event in marks.CLAIMS else mark.state, event)
        reason = "" if row.to in marks.IN_FLIGHT else because
        after = self.entered(mark, row.to, reason) if row.to else None
        if event in (marks.NodeEvent.FAILED_AGAIN, marks.NodeEvent.HELD_AGAIN):
            after = mark.earlier
        change = marks.patch_marks(node, because, row, mark=after, **patch)
        self._write_mark(node, after, change)
        self.actions.append(  # sent once that change was applied
            actions.RecordEvent(
                controller=marks.CONTROLLER,
                because=because,
                cause=change,
                kind="Node",
                name=node.name,
                object_uid=node.uid,
                type="Warning" if row.to in marks.LEFT_TO_A_PERSON else "Normal",
                reason=row.reason,
                message=because,
            )
        )

    def update_mark(self, node: Node, mark: marks.NodeMark, because: str) -> None:
        """A change of what the mark says, in the same state: without an Event."""
        change = marks.patch_marks(node, because, mark=mark)
        self._write_mark(node, mark, change)

    def _write_mark(
        self, node: Node, mark: marks.NodeMark | None, change: actions.NodeMarkPatch
    ) -> None:
        text = change.annotations[marks.ANNOTATION]
        self.memory.sent_marks.setdefault(node.name, set()).add(text)
        if mark is not None:
            self.memory.written_marks[node.name] = (node.uid, mark)
        self.emit(change)

    def entered(
        self, mark: marks.NodeMark, state: marks.NodeState, reason: str = ""
    ) -> marks.NodeMark:
        """The mark in that state, from now on until that state's deadline."""
        length = self.deadline_ns(state)
        deadline = format_time(self.clock_ns + length) if length else ""
        return replace(
            mark, state=state, epoch=self.epoch, since=self.stamp, deadline=deadline, reason=reason
        )

    def deadline_ns(self, state: marks.NodeState) -> int:
        """How long a node may be in the state; 0: without end."""
        return int(getattr(self.policy, marks.LIMITS[state])) if state in marks.LIMITS else 0

    def note_failed(self, name: str, because: str) -> None:
        """The document names the node as failed; more failures than are tolerated pause the run."""
        if name in self.next.failed:
            return
        self.edit(failed=(*self.next.failed, name))
        failures, tolerated = len(self.next.failed), self.policy.max_failures
        may_pause = self.phase is RunPhase.RUNNING and not self.document.proof_only
        if may_pause and failures > tolerated:
            reason = f"{failures} failed, {tolerated} tolerated; the last: {name}: {because}"
            self.edit(phase=RunPhase.PAUSED, because=reason)

    def fail_without_mark(self, name: str, uid: str, because: str) -> None:
        """Report that a node failed that bears no mark of the run; the document names it."""
        self.decide(actions.FailWithoutMark, because, node=name, node_uid=uid)

    def decisions(self) -> list[actions.Action]:
        """The decisions, that about the document first."""
        if self.next != self.document or self.strikes_request:
            update = None if self.is_lease_busy else self._update()
            # a document that is full, and says so, stays as it is
            if update is not None and update.effect(self.lease, self.now_ns) is not self.lease:
                self.memory.pending.sent(update)
                self.actions.insert(0, update)
        return self.actions

    def _update(self) -> actions.UpdateRun:
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
        changes: dict[str, Any] = {}
        if old.phase != new.phase:
            changes = {"phase_from": str(old.phase), "phase": str(new.phase)}
        stepped = replace(old.step, nodes={}) != replace(new.step, nodes={})
        if stepped and new.step.window != NOT_BEGUN:
            changes |= {"step": new.step.k, "window": new.step.window}
        return actions.UpdateRun(
            controller=marks.CONTROLLER,
            because=new.because or "the run goes on",
            namespace=namespace,
            name=name,
            annotations=annotations,
            **changes,
        )
