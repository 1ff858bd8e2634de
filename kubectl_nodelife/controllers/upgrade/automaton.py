"""The automaton of a node in an upgrade: which state follows which, at what event, by what PATCH.

All transitions are in one table; `UpgradePass.advance` and `cleaning` make no other. What must hold
before an event takes place is decided in the state's own file (`draining`, `working`, `settling`,
`proving`, `ending`), which `UpgradeController` calls in each pass; `marks` says what stands on the
node, and `patch_marks` makes each PATCH of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType

from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    LABEL_STATE,
    NodeMark,
    NodeState,
    encode_mark,
)
from kubectl_nodelife.engine.actions import (
    ClaimNode,
    FailNode,
    MarkNode,
    NodeMarkPatch,
    OpenForProof,
    ReleaseNode,
    RestoreNode,
    SetUpgradeState,
)
from kubectl_nodelife.kube.node import Node, Taint

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
    """A row of the table. `state`, `to`: None where the node bears no mark of the run."""

    state: NodeState | None
    event: NodeEvent
    to: NodeState | None
    patch: type[NodeMarkPatch]

    @property
    def reason(self) -> str:
        """The reason of the Event that reports it: Upgrade, and the state or how marks go."""
        return f"Upgrade{self.to or _MARKS_GO.get(self.event, 'Restoring')}"


TRANSITIONS: Final = (
    Transition(None, NodeEvent.CLAIMED, NodeState.DRAINING, ClaimNode),
    Transition(None, NodeEvent.CLAIMED_FOR_PROOF, NodeState.SETTLING, ClaimNode),
    Transition(NodeState.DRAINING, NodeEvent.DRAINED, NodeState.WORKING, SetUpgradeState),
    Transition(NodeState.DRAINING, NodeEvent.GIVEN_BACK, None, RestoreNode),
    Transition(NodeState.DRAINING, NodeEvent.INTERVENED, NodeState.HELD, SetUpgradeState),
    Transition(NodeState.DRAINING, NodeEvent.CLEANED, None, RestoreNode),
    Transition(NodeState.WORKING, NodeEvent.WORK_DONE, NodeState.SETTLING, SetUpgradeState),
    Transition(NodeState.WORKING, NodeEvent.TRY_FAILED, NodeState.WORKING, SetUpgradeState),
    Transition(NodeState.WORKING, NodeEvent.REPLACED, NodeState.SETTLING, SetUpgradeState),
    Transition(NodeState.WORKING, NodeEvent.FAILED, NodeState.FAILED, FailNode),
    Transition(NodeState.WORKING, NodeEvent.INTERVENED, NodeState.HELD, SetUpgradeState),
    Transition(NodeState.WORKING, NodeEvent.CLEANED, NodeState.FAILED, FailNode),
    Transition(NodeState.WORKING, NodeEvent.RELEASED, None, RestoreNode),
    Transition(NodeState.SETTLING, NodeEvent.SETTLED, NodeState.PROVING, OpenForProof),
    Transition(NodeState.SETTLING, NodeEvent.REPLACED, NodeState.SETTLING, SetUpgradeState),
    Transition(NodeState.SETTLING, NodeEvent.FAILED, NodeState.FAILED, FailNode),
    Transition(NodeState.SETTLING, NodeEvent.INTERVENED, NodeState.HELD, SetUpgradeState),
    Transition(NodeState.SETTLING, NodeEvent.PROOF_FAILED, None, RestoreNode),
    Transition(NodeState.SETTLING, NodeEvent.FAILED_AGAIN, NodeState.FAILED, SetUpgradeState),
    Transition(NodeState.SETTLING, NodeEvent.HELD_AGAIN, NodeState.HELD, SetUpgradeState),
    Transition(NodeState.SETTLING, NodeEvent.CLEANED, NodeState.FAILED, FailNode),
    Transition(NodeState.SETTLING, NodeEvent.PROOF_CLEANED, None, RestoreNode),
    Transition(NodeState.SETTLING, NodeEvent.RELEASED, None, RestoreNode),
    Transition(NodeState.PROVING, NodeEvent.PROVEN, NodeState.SOAKING, ReleaseNode),
    Transition(NodeState.PROVING, NodeEvent.FAILED, NodeState.FAILED, FailNode),
    Transition(NodeState.PROVING, NodeEvent.INTERVENED, NodeState.HELD, SetUpgradeState),
    Transition(NodeState.PROVING, NodeEvent.PROOF_PASSED, None, ReleaseNode),
    Transition(NodeState.PROVING, NodeEvent.PROOF_FAILED, None, RestoreNode),
    Transition(NodeState.PROVING, NodeEvent.FAILED_AGAIN, NodeState.FAILED, SetUpgradeState),
    Transition(NodeState.PROVING, NodeEvent.HELD_AGAIN, NodeState.HELD, SetUpgradeState),
    Transition(NodeState.PROVING, NodeEvent.CLEANED, NodeState.FAILED, FailNode),
    Transition(NodeState.PROVING, NodeEvent.PROOF_CLEANED, None, RestoreNode),
    Transition(NodeState.PROVING, NodeEvent.RELEASED, None, RestoreNode),
    Transition(NodeState.SOAKING, NodeEvent.SOAKED, NodeState.DONE, SetUpgradeState),
    Transition(NodeState.SOAKING, NodeEvent.FAILED, NodeState.FAILED, FailNode),
    Transition(NodeState.SOAKING, NodeEvent.CLEANED, None, RestoreNode),
    Transition(NodeState.DONE, NodeEvent.RUN_OVER, None, MarkNode),
    Transition(NodeState.DONE, NodeEvent.CLEANED, None, RestoreNode),
    Transition(NodeState.FAILED, NodeEvent.RETRIED, NodeState.DRAINING, ClaimNode),
    Transition(NodeState.FAILED, NodeEvent.ASSUMED_DONE, NodeState.SETTLING, SetUpgradeState),
    Transition(NodeState.FAILED, NodeEvent.SKIPPED, None, RestoreNode),
    Transition(NodeState.FAILED, NodeEvent.RUN_OVER, None, MarkNode),
    Transition(NodeState.FAILED, NodeEvent.CLEANED, None, RestoreNode),
    Transition(NodeState.FAILED, NodeEvent.RELEASED, None, RestoreNode),
    Transition(NodeState.HELD, NodeEvent.RETRIED, NodeState.DRAINING, ClaimNode),
    Transition(NodeState.HELD, NodeEvent.ASSUMED_DONE, NodeState.SETTLING, SetUpgradeState),
    Transition(NodeState.HELD, NodeEvent.SKIPPED, None, RestoreNode),
    Transition(NodeState.HELD, NodeEvent.RUN_OVER, None, MarkNode),
    Transition(NodeState.HELD, NodeEvent.CLEANED, None, RestoreNode),
    Transition(NodeState.HELD, NodeEvent.RELEASED, None, RestoreNode),
)

_MARKS_GO: Final = {NodeEvent.PROOF_PASSED: "Proven", NodeEvent.RUN_OVER: "RunOver"}
"""How the marks of a node go that is not given back."""

CLAIMS: Final = frozenset(row.event for row in TRANSITIONS if row.state is None)
"""The events of a node that bears no mark of the run."""

GIVES_ITS_REASON: Final = frozenset({NodeState.DONE, NodeState.FAILED, NodeState.HELD})
"""States whose mark says why the node came into them."""

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
    word: type[NodeMarkPatch],
    node: Node,
    because: str,
    *,
    was: str = "",
    mark: NodeMark | UnsetType | None = UNSET,
    annotations: Mapping[str, str | None] | None = None,
    labels: Mapping[str, str | None] | None = None,
    unschedulable: bool | None = None,
    add: tuple[Taint, ...] = (),
    remove: tuple[Taint, ...] = (),
) -> NodeMarkPatch:
    """The PATCH of a node's marks. `word`: the class that a row of the table names, MarkNode where
    no state changes. `was`: the state before. `mark`: None takes it off, UNSET leaves it alone;
    `annotations`, `labels`: others that change with it.
    """
    state = str(mark.state) if mark else ""
    if mark is not UNSET:
        annotations = {ANNOTATION: encode_mark(mark) if mark else None, **(annotations or {})}
        labels = {LABEL_STATE: state or None, **(labels or {})}
    return word(
        controller=CONTROLLER,
        because=because,
        node=node.name,
        node_uid=node.uid,
        from_=str(was),
        to=state,
        unschedulable=unschedulable,
        add_taints=add,
        remove_taints=remove,
        annotations=dict(annotations or {}),
        labels=dict(labels or {}),
    )
