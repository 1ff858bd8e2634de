"""The marks that an upgrade writes on a Node: annotation, label, taints, shield.

The annotation is the truth of a node's state; the label repeats it for people and selectors and is
never read. A taint of ours without our annotation, or an annotation that cannot be read, is
not taken for ours: nothing is done on such a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

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
    "remediation.medik8s.io/exclude-from-remediation": "true",
}


Off = dict[str, str | None]
"""Keys that a PATCH takes away."""


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
"""A growth step waits for these."""


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
    """The node as it was at the claim. `csi`: its drivers, None where they could not be read.

    `taints` hold key, value and effect. Nothing of ours and no `unschedulable` is among them.
    """

    uid: str = ""
    boot_id: str = ""
    node_info: dict[str, str] = {}
    allocatable: dict[str, str | int | float] = {}
    taints: tuple[Taint, ...] = ()
    csi: tuple[str, ...] | None = None


class WorkMark(_Mark, frozen=True):
    """The work of one try. `started`, `ended`, `again`: RFC 3339, the API server's clock.

    `code`: the exit code, once it ended; `again`: when it is tried again after exit code 75, the
    `waits`-th time.
    """

    started: str = ""
    ended: str = ""
    code: int | None = None
    again: str = ""
    waits: int = 0


class NodeMark(_Mark, frozen=True, kw_only=True):
    """The annotation `nodelife.dev/upgrade`. `since`, `deadline`: RFC 3339, for readers alone, as
    is `claimed`, when the node was claimed.

    `for_`: the node whose place this newcomer takes. `earlier`: the mark by which a run before left
    the node to a person, and which stands again should the node not be proven now.
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
    """The node's mark, None where it has none. Raises UnreadableMark.

    A kubelet may write its own Node, so that a cordon is ours only where the API server, too, names
    no other manager of it (`metadata.managedFields`).
    """
    text = (node.metadata.annotations or {}).get(ANNOTATION)
    if text is None:
        return None
    mark = decode_mark(text)
    return _without_our_cordon(mark) if cordoned_by(node) else mark


def cordoned_by(node: Node) -> str:
    """The other manager that put the node's cordon on; "" where that was us, or where nothing is
    known about it.
    """
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
        for stamp in (mark.since, mark.deadline, mark.work.started, mark.work.again):
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
    kept = mark.reason.encode()[: -excess - 3].decode(errors="ignore") + "..."
    return msgspec.json.encode(msgspec.structs.replace(mark, reason=kept)).decode()


def unproven(run: str) -> Taint:
    """The taint of a node that is being proven."""
    return Taint(TAINT_UNPROVEN, NO_SCHEDULE, run)


def outdated(run: str) -> Taint:
    """The taint of a node that is still to be done."""
    return Taint(TAINT_OUTDATED, PREFER_NO_SCHEDULE, run)


def left_by_another(node: Node, run: str) -> NodeMark | None:
    """The mark by which another run left the node, Failed or Held, to a person; None for none."""
    try:
        mark = mark_of(node)
    except UnreadableMark:
        return None
    if mark is None or mark.run == run or mark.state not in (NodeState.FAILED, NodeState.HELD):
        return None
    return mark


def is_beyond_epoch(mark: NodeMark, run: str, epoch: int) -> bool:
    """True if the mark is of the run and of an epoch in which no leader has led it yet.

    A kubelet may write its own Node, so that an epoch above the Lease's `leaseTransitions` is
    forged or another cluster's; it says nothing of another leader.
    """
    return mark.run == run and mark.epoch > epoch


def is_uncordoned(node: Node, mark: NodeMark) -> bool:
    """True if a cordon that the node had at its claim was taken off by another."""
    return mark.cordon != "none" and not node.spec.unschedulable


def is_cordoned_meanwhile(node: Node, mark: NodeMark) -> bool:
    """True if another put a cordon on a node that had none."""
    return node.spec.unschedulable and mark.cordon is CordonOwner.NONE


def absent_shield(node: Node) -> tuple[dict[str, str], dict[str, str]]:
    """(annotations, labels) of the shield that the node does not have yet."""
    annotations, labels = node.metadata.annotations or {}, node.metadata.labels or {}
    return (
        {key: value for key, value in SHIELD_ANNOTATIONS.items() if key not in annotations},
        {key: value for key, value in SHIELD_LABELS.items() if key not in labels},
    )


def shield_off(mark: NodeMark) -> tuple[Off, Off]:
    """(annotations, labels) that take our part of the shield away."""
    return (
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
