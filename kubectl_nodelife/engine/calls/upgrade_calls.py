"""Conversations of an upgrade: the one PATCH of a node's state, canaries, Jobs, the run's Lease.

Each PATCH is a JSON merge patch under the version that was judged, and is refused with 409 where
anything changed since; it is not tried again here, for the next pass decides anew. Taints go as
the whole list, which the API holds to be one value. What is created has a name that was worked out:
409 means that it is there already.
"""

from __future__ import annotations

from kubectl_nodelife.engine.actions import CreateForNode, DeleteForNode, NodeMarkPatch, UpdateRun
from kubectl_nodelife.engine.calls.call import (
    CONFLICT,
    MERGE,
    NOT_FOUND,
    UNCHANGED,
    Body,
    Conversation,
    Delete,
    Patch,
    Post,
    as_seen,
    conflict,
    same,
    write,
)
from kubectl_nodelife.kube.encode import encode
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node

ALREADY_EXISTS = "AlreadyExists"


def patch_node(action: NodeMarkPatch, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH of cordon, taints, labels and annotations, under the version judged."""
    after = action.effect(seen, now_ns)
    if not isinstance(seen, Node) or not isinstance(after, Node):
        return conflict("the node was never seen")
    if after is seen:
        return UNCHANGED
    body: Body = {}
    metadata = {"annotations": action.annotations, "labels": action.labels}
    if changed := {key: dict(value) for key, value in metadata.items() if value}:
        body["metadata"] = changed
    spec: Body = {}
    if after.spec.unschedulable != seen.spec.unschedulable:
        spec["unschedulable"] = True if after.spec.unschedulable else None
    if after.spec.taints is not seen.spec.taints:
        spec["taints"] = [encode(taint) for taint in after.spec.taints] or None
    if spec:
        body["spec"] = spec
    patch = Patch(*action.target, body, as_seen(action, seen), content_type=MERGE)
    return (yield from write(action, patch))


def update_run(action: UpdateRun, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH of the Lease's annotations, under the version judged."""
    if action.effect(seen, now_ns) is seen:
        return UNCHANGED
    body: Body = {"metadata": {"annotations": dict(action.annotations)}}
    patch = Patch(*action.target, body, as_seen(action, seen), content_type=MERGE)
    return (yield from write(action, patch))


def create(action: CreateForNode, seen: KubeObject | None, now_ns: int) -> Conversation:
    """POST of the manifest; one of that name that is there already will do."""
    result = yield from write(action, Post(*action.target, action.manifest))
    if result.code == CONFLICT and result.reason in ("", ALREADY_EXISTS):
        return UNCHANGED
    return result


def delete(action: DeleteForNode, seen: KubeObject | None, now_ns: int) -> Conversation:
    """DELETE under the uid; a Job's pods go with it, for by default they would stay."""
    policy = "Background" if action.kind == "Job" else ""
    call = Delete(*action.target, same(action, seen), propagation_policy=policy)
    result = yield from write(action, call)
    return UNCHANGED if result.code == NOT_FOUND else result
