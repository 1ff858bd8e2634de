"""Conversations about nodes: status, taints, labels, cordon.

Follows `tryUpdateNodeHealth` (pkg/controller/nodelifecycle), `AddOrUpdateTaintOnNode`,
`RemoveTaintOffNode` and `AddOrUpdateLabelsOnNode` (pkg/controller/controller_utils.go). Upstream
writes a node's status with a PUT of the whole object; here it is a strategic merge patch of the
conditions under the same resourceVersion, so that fields which no slice holds stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubectl_nodelife.engine.actions import (
    AddTaints,
    RemoveTaints,
    SetNodeConditions,
    SetNodeLabels,
    SetUnschedulable,
)
from kubectl_nodelife.engine.calls.call import (
    CONFLICT,
    OK,
    UNCHANGED,
    Answer,
    Body,
    Conversation,
    Get,
    Patch,
    Result,
    WaitUntil,
    another,
    as_seen,
    failed,
    is_another,
    is_done,
    read,
    same,
    unchanged,
    whole,
    write,
)
from kubectl_nodelife.kube.encode import encode
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import MILLISECOND_NS

CONFLICT_TRIES: Final = 5
CONFLICT_BACKOFF_NS: Final = 100 * MILLISECOND_NS
"""`UpdateTaintBackoff` and `UpdateLabelBackoff`: 5 steps of 100 ms with jitter 1."""


def set_node_conditions(
    action: SetNodeConditions, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """One PATCH of the status as seen; after an error a fresh read for the next decision."""
    kind, key = action.target
    body = {"status": {"conditions": [whole(c) for c in action.conditions]}}
    answer = yield Patch(kind, key, body, as_seen(action, seen), "status")
    if answer.ok:
        return Result(answer.code, changed=True, fresh=answer.obj)
    found = yield Get(kind, key)
    if found.obj is None:
        return failed(answer)
    if is_another(action, found.obj):
        return another(action)
    if answer.is_ambiguous and action.effect(found.obj, now_ns) is found.obj:
        return Result(OK, changed=True, fresh=found.obj)
    return failed(answer, found.obj)


def change_taints(
    action: AddTaints | RemoveTaints, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """Patch the whole list under the version read, and again after a conflict."""

    def patch(before: Node, after: Node, found: Answer) -> Patch:
        taints = [_with_unknown_fields(t, found) for t in after.spec.taints]
        body: Body = {"spec": {"taints": taints or None}}
        return Patch(*action.target, body, unchanged(before))

    return (yield from _patch_as_read(action, now_ns, patch))


def set_node_labels(action: SetNodeLabels, seen: KubeObject | None, now_ns: int) -> Conversation:
    """Patch the labels, and again after a conflict. As upstream's, the patch names no version: what
    else changed in the node since it was read takes nothing from its labels.
    """
    body = {"metadata": {"labels": dict(action.labels)}}

    def patch(before: Node, after: Node, found: Answer) -> Patch:
        return Patch(*action.target, body, same(action, before))

    return (yield from _patch_as_read(action, now_ns, patch))


def _patch_as_read(
    action: AddTaints | RemoveTaints | SetNodeLabels,
    now_ns: int,
    patch: Callable[[Node, Node, Answer], Patch],
) -> Conversation:
    """Read the node, patch it if that changes it, and begin again after a conflict. `patch`: makes
    the call of the node as it was read, as the action leaves it, and of the answer.
    """
    result = UNCHANGED
    for attempt in range(CONFLICT_TRIES):
        found = yield from read(action, quorum=attempt > 0)
        if isinstance(found, Result):
            return found
        before = found.obj
        after = action.effect(before, now_ns)
        if after is before or not isinstance(before, Node) or not isinstance(after, Node):
            return UNCHANGED
        result = yield from write(action, patch(before, after, found))
        if result.code != CONFLICT:
            return result
        if attempt + 1 < CONFLICT_TRIES:
            last = found.now_ns or now_ns
            yield WaitUntil(last + CONFLICT_BACKOFF_NS, last + 2 * CONFLICT_BACKOFF_NS)
    return result


def set_unschedulable(
    action: SetUnschedulable, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """Read, then patch under the version read; again after a conflict."""
    result = UNCHANGED
    for _ in range(CONFLICT_TRIES):
        found = yield from read(action, quorum=True)
        if isinstance(found, Result):
            return found
        if found.obj is None or is_done(action, found.obj, now_ns):
            return UNCHANGED
        body = {"spec": {"unschedulable": True if action.unschedulable else None}}
        result = yield from write(action, Patch(*action.target, body, unchanged(found.obj)))
        if result.code != CONFLICT:
            break
    return result


def _with_unknown_fields(taint: Taint, found: Answer) -> Body:
    """The taint as it was read where it was there already, with fields that no slice holds."""
    encoded = encode(taint)
    spec = (found.raw or {}).get("spec")
    for raw in (spec or {}).get("taints") or ():
        if all(raw.get(key) == value for key, value in encoded.items()):
            return dict(raw)
    return encoded
