"""Taints and labels of nodes: which the conditions ask for, and the patches that bring them about.

Follows `doNoScheduleTaintingPass`, `reconcileNodeLabels` and `SwapNodeControllerTaint` of
pkg/controller/nodelifecycle and pkg/controller/util/node. All decisions are on the cached node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    OriginFields,
    RemoveTaints,
    SetNodeLabels,
    of_node,
)
from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import whole_seconds

CONTROLLER: Final = "node-lifecycle"

# (condition type, status) -> key of the NoSchedule taint that mirrors it
NO_SCHEDULE_TAINTS: Final = {
    ("Ready", "False"): wellknown.TAINT_NODE_NOT_READY,
    ("Ready", "Unknown"): wellknown.TAINT_NODE_UNREACHABLE,
    ("MemoryPressure", "True"): wellknown.TAINT_NODE_MEMORY_PRESSURE,
    ("DiskPressure", "True"): wellknown.TAINT_NODE_DISK_PRESSURE,
    ("NetworkUnavailable", "True"): wellknown.TAINT_NODE_NETWORK_UNAVAILABLE,
    ("PIDPressure", "True"): wellknown.TAINT_NODE_PID_PRESSURE,
}
MIRRORING_KEYS: Final = frozenset(
    {*NO_SCHEDULE_TAINTS.values(), wellknown.TAINT_NODE_UNSCHEDULABLE}
)
"""Keys of the taints that mirror a node's state: the controller keeps them, whatever adds them."""

NOT_READY: Final = Taint(key=wellknown.TAINT_NODE_NOT_READY, effect=wellknown.NO_EXECUTE)
UNREACHABLE: Final = Taint(key=wellknown.TAINT_NODE_UNREACHABLE, effect=wellknown.NO_EXECUTE)
LOST_NODE_TAINTS: Final = (NOT_READY, UNREACHABLE)

# Ready status -> (NoExecute taint that the node should have, the one that it should not)
NO_EXECUTE_TAINTS: Final = {
    "False": (NOT_READY, UNREACHABLE),
    "Unknown": (UNREACHABLE, NOT_READY),
}


def why(because: str, cause: Action | None) -> OriginFields:
    """Whose the actions of this folder are, and what led to one."""
    return {"controller": CONTROLLER, "because": because, "cause": cause}


def is_own(taint: Taint) -> bool:
    """True if the node lifecycle controller adds and removes this taint, whatever added it."""
    if taint.effect == wellknown.NO_EXECUTE:
        return is_for_lost_node(taint)
    return taint.effect == wellknown.NO_SCHEDULE and taint.key in MIRRORING_KEYS


def is_for_lost_node(taint: Taint) -> bool:
    """True if it is one of the two NoExecute taints of a node that is not Ready, which cost a token
    of the zone's rate limiter.
    """
    return any(taint.matches(other) for other in LOST_NODE_TAINTS)


# (truth, copy): the copy gets the truth's value; before 1.18 the other way round
_LABELS = (
    (wellknown.LABEL_OS, wellknown.LABEL_OS_BETA),
    (wellknown.LABEL_ARCH, wellknown.LABEL_ARCH_BETA),
)


def swap_taints(
    node: Node,
    add: Sequence[Taint],
    remove: Sequence[Taint],
    now_ns: int,
    because: str,
    cause: Action | None,
) -> Iterator[Action]:
    """Two patches, the additions first, all stamped now. Follows `SwapNodeControllerTaint`.

    Of `remove` only what the cached node shows leads to a patch. A removal is sent even where the
    addition fails, unlike upstream, since what comes of the addition is known only later.
    """
    if add:
        stamp = whole_seconds(now_ns)
        taints = tuple(Taint(t.key, t.effect, t.value, stamp) for t in add)
        yield AddTaints(**why(because, cause), **of_node(node), taints=taints)
    yield from remove_taints(node, remove, because, cause)


def remove_taints(
    node: Node, taints: Sequence[Taint], because: str, cause: Action | None
) -> Iterator[Action]:
    """A patch without these taints, if the cached node has one of them.

    Follows `RemoveTaintOffNode`.
    """
    present = tuple(t for t in node.spec.taints if any(t.matches(r) for r in taints))
    if present:
        yield RemoveTaints(**why(because, cause), **of_node(node), taints=present)


def wanted_no_schedule(node: Node) -> dict[str, str]:
    """Keys of the NoSchedule taints that the node's state asks for, each with what asks."""
    wanted = {}
    for condition in node.status.conditions:
        key = NO_SCHEDULE_TAINTS.get((condition.type, condition.status))
        if key is not None:
            wanted[key] = f"condition {condition.type} is {condition.status}"
    if node.spec.unschedulable:
        wanted[wellknown.TAINT_NODE_UNSCHEDULABLE] = "the node is cordoned (spec.unschedulable)"
    return wanted


def taint_is_wanted(node: Node, taint: Taint) -> bool:
    """True if the node's conditions ask for this taint of the node lifecycle controller."""
    if taint.effect == wellknown.NO_EXECUTE:
        ready = node.ready()
        pair = NO_EXECUTE_TAINTS.get(ready.status) if ready is not None else None
        return pair is not None and pair[0].matches(taint)
    return taint.effect == wellknown.NO_SCHEDULE and taint.key in wanted_no_schedule(node)


def no_schedule_pass(node: Node, now_ns: int, cause: Action | None) -> Iterator[Action]:
    """NoSchedule taints mirror conditions and cordon. Follows `doNoScheduleTaintingPass`."""
    wanted = wanted_no_schedule(node)
    present = {
        t.key
        for t in node.spec.taints
        if t.effect == wellknown.NO_SCHEDULE and t.key in MIRRORING_KEYS
    }
    if present == wanted.keys():
        return
    add = [Taint(key=key, effect=wellknown.NO_SCHEDULE) for key in wanted if key not in present]
    remove = [
        Taint(key=key, effect=wellknown.NO_SCHEDULE) for key in sorted(present - wanted.keys())
    ]
    reasons = [wanted[t.key] for t in add]
    reasons += [f"nothing asks for {t.key} any more" for t in remove]
    yield from swap_taints(node, add, remove, now_ns, "; ".join(reasons), cause)


def reconcile_labels(node: Node, beta_is_truth: bool, cause: Action | None) -> Iterator[Action]:
    """The second of each pair of OS and architecture labels follows the first.

    Follows `reconcileNodeLabels`. A node without any labels is left alone.
    """
    labels = node.metadata.labels
    if labels is None:
        return
    changed = {}
    for stable, beta in _LABELS:
        truth, copy = (beta, stable) if beta_is_truth else (stable, beta)
        if truth in labels and labels.get(copy) != labels[truth]:
            changed[copy] = labels[truth]
    if changed:
        yield SetNodeLabels(
            **why("labels of both generations must agree", cause), **of_node(node), labels=changed
        )
