"""The states of a node in an upgrade: the marks by which they stand on the Node, and the table of
which follows which, at what event, by what PATCH.

The annotation is the truth of a node's state; the label repeats it for people and selectors and is
never read. A taint of ours without our annotation, or an annotation that cannot be read, is
not taken for ours: nothing is done on such a node. `UpgradePass.advance` and `leaving` make no
transitions but those of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import CLAIM_NODE, NodeMarkPatch, of_node
from kubectl_nodelife.kube.field_managers import UNSCHEDULABLE
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import parse_time
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, PREFER_NO_SCHEDULE

ANNOTATION: Final = "nodelife.dev/upgrade"
LABEL_STATE: Final = "nodelife.dev/upgrade-state"
LABEL_HOLD: Final = "nodelife.dev/upgrade-hold"
LABEL_RUN: Final = "nodelife.dev/run"
TAINT_UNPROVEN: Final = "nodelife.dev/unproven"
TAINT_OUTDATED: Final = "nodelife.dev/outdated"
ANNOTATION_LIMIT: Final = 4096
FIELD_MANAGER: Final = "kubectl-nodelife-upgrade"
"""As which the API server knows our writes."""

SHIELD_ANNOTATIONS: Final[Mapping[str, str]] = {
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
    "karpenter.sh/do-not-disrupt": "true",
}
SHIELD_LABELS: Final[Mapping[str, str]] = {
    "remediation.medik8s.io/exclude-from-remediation": "true"
}


class Notes(NamedTuple):
    """Annotations and labels that a PATCH sets, or, where the value is None, takes away."""

    annotations: Mapping[str, str | None] = {}
    labels: Mapping[str, str | None] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """All of their keys."""
        return (*self.annotations, *self.labels)


NO_NOTES: Final = Notes()


class NodeState(StrEnum):
    """The states that are written. Restoring and Skipped are not."""

    DRAINING = "Draining"
    WORKING = "Working"
    SETTLING = "Settling"
    PROVING = "Proving"
    SOAKING = "Soaking"
    DONE = "Done"
    FAILED = "Failed"
    HELD = "Held"


TAKEN: Final = frozenset(
    {NodeState.DRAINING, NodeState.WORKING, NodeState.SETTLING, NodeState.PROVING}
)
"""Out of service by us: these are unavailable, whatever the node shows."""
IN_FLIGHT: Final = TAKEN | {NodeState.SOAKING}
"""A growth step waits for these; in the others a mark says why the node came into them."""
GOING_DOWN: Final = frozenset({NodeState.DRAINING, NodeState.WORKING, NodeState.SETTLING})
"""The node counts for its zone as one that is not Ready, for it may be so at any moment."""
CHECKED: Final = frozenset({NodeState.SETTLING, NodeState.PROVING, NodeState.SOAKING})
"""What the node waits for has to be seen: while nothing is, its clock stands."""
LIMITS: Final[Mapping[NodeState, str]] = {
    NodeState.DRAINING: "drain_timeout_ns",
    NodeState.WORKING: "work_timeout_ns",
    NodeState.SETTLING: "return_timeout_ns",
    NodeState.PROVING: "prove_timeout_ns",
    NodeState.SOAKING: "node_soak_ns",
}
"""The field of the policy that says how long a node may be in the state; in others without end."""


class CordonOwner(StrEnum):
    """Whose cordon a node has: `ours` only where our own PATCH turned `unschedulable` on."""

    OURS = "ours"
    THEIRS = "theirs"
    NONE = "none"


def _name(field: str) -> str:
    first, *rest = field.rstrip("_").split("_")
    return {"boot_id": "bootID"}.get(field) or first + "".join(w.capitalize() for w in rest)


class _Mark(msgspec.Struct, frozen=True, rename=_name, omit_defaults=True):
    pass


class NodeBefore(_Mark, frozen=True):
    """The node as it was at the claim. `taints`: key, value and effect, without ours and the
    cordon's; `csi`: its drivers, None where they could not be read.
    """

    uid: str = ""
    boot_id: str = ""
    node_info: dict[str, str] = {}
    allocatable: dict[str, str | int | float] = {}
    taints: tuple[Taint, ...] = ()
    csi: tuple[str, ...] | None = None


class WorkMark(_Mark, frozen=True):
    """The work of one try. `started`, `ended`: RFC 3339, the API server's clock."""

    started: str = ""
    ended: str = ""


class NodeMark(_Mark, frozen=True, kw_only=True):
    """The annotation `nodelife.dev/upgrade`. `claimed`, `since`, `deadline`: RFC 3339, for readers
    alone. `for_`: the node whose place this newcomer takes. `earlier`: the mark by which a run
    before left the node to a person, and which stands again should the node not be proven now.
    """

    run: str
    state: NodeState
    epoch: int = 0
    claimed: str = ""
    since: str = ""
    deadline: str = ""
    try_: int = 1
    cordon: CordonOwner = CordonOwner.NONE
    shield: tuple[str, ...] = ()
    before: NodeBefore = NodeBefore()
    work: WorkMark = WorkMark()
    reason: str = ""
    for_: str = ""
    earlier: NodeMark | None = None


class UnreadableMark(ValueError):
    """The annotation is there and is not what we write."""


def mark_of(node: Node) -> NodeMark | None:
    """The node's mark, None where it has none. Raises UnreadableMark. A kubelet may write its own
    Node, so that a cordon is ours only where the API server, too, names no other manager of it
    (`metadata.managedFields`).
    """
    text = (node.metadata.annotations or {}).get(ANNOTATION)
    if text is None:
        return None
    mark = decode_mark(text)
    return _without_our_cordon(mark) if cordoned_by(node) else mark


def readable_mark(node: Node) -> NodeMark | None:
    """The node's mark, None also where one is there that cannot be read."""
    try:
        return mark_of(node)
    except UnreadableMark:
        return None


def cordoned_by(node: Node) -> str:
    """The other manager that put the node's cordon on; "" where it was us, or is unknown."""
    writer = node.managers.writer_of(UNSCHEDULABLE) if node.spec.unschedulable else None
    return "" if writer is None or writer.name == FIELD_MANAGER else writer.name


def _without_our_cordon(mark: NodeMark) -> NodeMark:
    if mark.earlier is not None:
        mark = replace(mark, earlier=_without_our_cordon(mark.earlier))
    return replace(mark, cordon=CordonOwner.THEIRS) if mark.cordon is CordonOwner.OURS else mark


@lru_cache(maxsize=1 << 14)
def decode_mark(text: str) -> NodeMark:
    """The mark that the annotation's text says. Raises UnreadableMark."""
    try:
        mark = _decoder.decode(text)
        for stamp in (mark.since, mark.deadline, mark.work.started):
            if stamp:
                parse_time(stamp)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnreadableMark(str(error)) from None
    return mark


def encode_mark(mark: NodeMark) -> str:
    """The annotation's text. A reason too long for `ANNOTATION_LIMIT` is cut."""
    text = msgspec.json.encode(mark).decode()
    excess = len(text.encode()) - ANNOTATION_LIMIT
    if excess <= 0 or not mark.reason:
        return text
    reason = mark.reason.encode()[: -excess - 3].decode(errors="ignore") + "..."
    return msgspec.json.encode(replace(mark, reason=reason)).decode()


def unproven(run: str) -> Taint:
    """The taint of a node that is being proven."""
    return Taint(TAINT_UNPROVEN, NO_SCHEDULE, run)


def outdated(run: str) -> Taint:
    """The taint of a node that is still to be done."""
    return Taint(TAINT_OUTDATED, PREFER_NO_SCHEDULE, run)


def left_by_another(node: Node, run: str) -> NodeMark | None:
    """The mark by which another run left the node, Failed or Held, to a person; None for none."""
    mark = readable_mark(node)
    return mark if mark and mark.run != run and mark.state in LEFT_TO_A_PERSON else None


def is_beyond_epoch(mark: NodeMark, run: str, epoch: int) -> bool:
    """True if the mark is of the run and of an epoch in which no leader has led it yet: above the
    Lease's `leaseTransitions` it is forged by a kubelet, or another cluster's.
    """
    return mark.run == run and mark.epoch > epoch


def is_uncordoned(node: Node, mark: NodeMark) -> bool:
    """True if a cordon that the node had at its claim was taken off by another."""
    return mark.cordon is not CordonOwner.NONE and not node.spec.unschedulable


def is_cordoned_meanwhile(node: Node, mark: NodeMark) -> bool:
    """True if another put a cordon on a node that had none."""
    return node.spec.unschedulable and mark.cordon is CordonOwner.NONE


def absent_shield(node: Node, *, is_wanted: bool) -> Notes:
    """The part of the shield that the node does not have yet; nothing where none is wanted."""
    if not is_wanted:
        return NO_NOTES
    annotations, labels = node.metadata.annotations or {}, node.metadata.labels or {}
    return Notes(
        {key: value for key, value in SHIELD_ANNOTATIONS.items() if key not in annotations},
        {key: value for key, value in SHIELD_LABELS.items() if key not in labels},
    )


def shield_off(mark: NodeMark) -> Notes:
    """What takes our part of the shield away."""
    return Notes(
        {key: None for key in SHIELD_ANNOTATIONS if key in mark.shield},
        {key: None for key in SHIELD_LABELS if key in mark.shield},
    )


def has_our_cordon(node: Node, mark: NodeMark) -> bool:
    """True if the node is cordoned, and by us."""
    return mark.cordon is CordonOwner.OURS and node.spec.unschedulable


def uncordon(node: Node, mark: NodeMark) -> bool | None:
    """False where the cordon is ours to take off, None where nothing is to be done about it."""
    return False if has_our_cordon(node, mark) else None


_decoder = msgspec.json.Decoder(NodeMark)
CONTROLLER: Final = "upgrade"


class NodeEvent(StrEnum):
    """An event that takes a node from one state to another; the value is its documentation."""

    CLAIMED = "is claimed"
    CLAIMED_FOR_PROOF = "is claimed by `upgrade prove`"
    GIVEN_BACK = "the drain cannot end, or a gate, a pause or an abort holds it"
    DRAINED = "its pods and their volumes are gone"
    TRY_FAILED = "a try of the work failed, and another one is left"
    WORK_DONE = "the work is done"
    REPLACED = "its object went, and a new node takes its place"
    SETTLED = "checks S1 to S9 pass"
    PROVEN = "its canary ran and is gone"
    PROOF_PASSED = "its canary ran and is gone, in a run of `upgrade prove`"
    PROOF_FAILED = "a check or its canary failed, in a run of `upgrade prove`"
    FAILED_AGAIN = "its proof did not pass, and it was Failed before"
    HELD_AGAIN = "its proof did not pass, and it was Held before"
    SOAKED = "nothing broke for as long as `--node-soak` says"
    FAILED = "the work failed, or it was not proven, or broke after its release"
    INTERVENED = "a person intervened, or it is unknown whether the work ran"
    RETRIED = "a person asks for `--retry`"
    ASSUMED_DONE = "a person asks for `--assume-done`"
    SKIPPED = "a person asks for `--skip`"
    RUN_OVER = "the run is over, and nothing of it keeps the node out of service"
    CLEANED = "a person runs `upgrade clean` after the run"
    PROOF_CLEANED = "a person runs `upgrade clean` after a run of `upgrade prove`"
    RELEASED = "a person runs `upgrade clean --release-failed`"


class Transition(NamedTuple):
    """A row of the table; None: the node bears no mark of the run. `record`: its PATCH's word."""

    state: NodeState | None
    event: NodeEvent
    to: NodeState | None
    record: str

    @property
    def reason(self) -> str:
        """The reason of the Event that reports it: Upgrade, and the state or how marks go."""
        return f"Upgrade{self.to or _MARKS_GO.get(self.event, 'Restoring')}"


_STATE: Final = "SetUpgradeState"
_MARK: Final = "MarkNode"
_FAIL: Final = "FailNode"
_RELEASE: Final = "ReleaseNode"
_RESTORE: Final = "RestoreNode"
_S, _E = NodeState, NodeEvent
TRANSITIONS: Final = tuple(
    Transition(state, event, to, record)
    for event, states, to, record in (
        (_E.CLAIMED, (None,), _S.DRAINING, CLAIM_NODE),
        (_E.CLAIMED_FOR_PROOF, (None,), _S.SETTLING, CLAIM_NODE),
        (_E.DRAINED, (_S.DRAINING,), _S.WORKING, _STATE),
        (_E.GIVEN_BACK, (_S.DRAINING,), None, _RESTORE),
        (_E.TRY_FAILED, (_S.WORKING,), _S.WORKING, _STATE),
        (_E.WORK_DONE, (_S.WORKING,), _S.SETTLING, _STATE),
        (_E.REPLACED, (_S.WORKING, _S.SETTLING), _S.SETTLING, _STATE),
        (_E.SETTLED, (_S.SETTLING,), _S.PROVING, "OpenForProof"),
        (_E.PROVEN, (_S.PROVING,), _S.SOAKING, _RELEASE),
        (_E.SOAKED, (_S.SOAKING,), _S.DONE, _STATE),
        (_E.FAILED, (_S.WORKING, _S.SETTLING, _S.PROVING, _S.SOAKING), _S.FAILED, _FAIL),
        (_E.INTERVENED, (_S.DRAINING, _S.WORKING, _S.SETTLING, _S.PROVING), _S.HELD, _STATE),
        (_E.PROOF_PASSED, (_S.PROVING,), None, _RELEASE),
        (_E.PROOF_FAILED, (_S.SETTLING, _S.PROVING), None, _RESTORE),
        (_E.FAILED_AGAIN, (_S.SETTLING, _S.PROVING), _S.FAILED, _STATE),
        (_E.HELD_AGAIN, (_S.SETTLING, _S.PROVING), _S.HELD, _STATE),
        (_E.RETRIED, (_S.FAILED, _S.HELD), _S.DRAINING, CLAIM_NODE),
        (_E.ASSUMED_DONE, (_S.FAILED, _S.HELD), _S.SETTLING, _STATE),
        (_E.SKIPPED, (_S.FAILED, _S.HELD), None, _RESTORE),
        (_E.RUN_OVER, (_S.DONE, _S.FAILED, _S.HELD), None, _MARK),
        (_E.CLEANED, (_S.DRAINING, _S.SOAKING, _S.DONE, _S.FAILED, _S.HELD), None, _RESTORE),
        (_E.CLEANED, (_S.WORKING, _S.SETTLING, _S.PROVING), _S.FAILED, _FAIL),
        (_E.PROOF_CLEANED, (_S.SETTLING, _S.PROVING), None, _RESTORE),
        (_E.RELEASED, (_S.WORKING, _S.SETTLING, _S.PROVING, _S.FAILED, _S.HELD), None, _RESTORE),
    )
    for state in states
)
"""By event: the states in which it may take place, and the one that it leads to."""
_MARKS_GO: Final = {NodeEvent.PROOF_PASSED: "Proven", NodeEvent.RUN_OVER: "RunOver"}
"""How the marks of a node go that is not given back."""
CLAIMS: Final = frozenset(row.event for row in TRANSITIONS if row.state is None)
"""The events of a node that bears no mark of the run."""
_BY_EVENT: Final = {(row.state, row.event): row for row in TRANSITIONS}


def transition(state: NodeState | None, event: NodeEvent) -> Transition:
    """The row of the table. Raises KeyError where the event cannot take place in that state."""
    return _BY_EVENT[state, event]


def states_with(event: NodeEvent) -> frozenset[NodeState]:
    """The states in which the event may take place."""
    return frozenset(row.state for row in TRANSITIONS if row.event is event and row.state)


LEFT_TO_A_PERSON: Final = states_with(NodeEvent.RETRIED)
"""States that the run itself never ends, but by its own end."""


def left_again(earlier: NodeMark) -> NodeEvent:
    """The event by which a proof ends that has not passed, of a node left to a person before."""
    held = earlier.state is NodeState.HELD
    return NodeEvent.HELD_AGAIN if held else NodeEvent.FAILED_AGAIN


def patch_marks(
    node: Node,
    because: str,
    row: Transition | None = None,
    *,
    mark: NodeMark | UnsetType | None = UNSET,
    notes: Notes = NO_NOTES,
    unschedulable: bool | None = None,
    add: tuple[Taint, ...] = (),
    remove: tuple[Taint, ...] = (),
) -> NodeMarkPatch:
    """The PATCH of a node's marks. `row`: the change of state, None where there is none. `mark`:
    None takes it off, UNSET leaves it alone; `notes`: what else changes with it.
    """
    annotations, labels = map(dict, notes)
    state = str(mark.state) if mark else ""
    record, before = (row.record, str(row.state or "")) if row is not None else (_MARK, state)
    if mark is not UNSET:
        annotations = {ANNOTATION: encode_mark(mark) if mark else None, **annotations}
        labels = {LABEL_STATE: state or None, **labels}
    return NodeMarkPatch(
        controller=CONTROLLER,
        because=because,
        **of_node(node),
        record=record,
        from_=before,
        to=state,
        unschedulable=unschedulable,
        add_taints=add,
        remove_taints=remove,
        annotations=annotations,
        labels=labels,
    )
