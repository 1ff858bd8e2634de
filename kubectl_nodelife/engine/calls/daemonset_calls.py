"""Conversations of the DaemonSet controller about revisions, owner references and status.

Follows `snapshot`, `storeDaemonSetStatus` (pkg/controller/daemon) and the ref managers of
pkg/controller/controller_ref_manager.go. Upstream puts a whole DaemonSet status; here it is a patch
of the counts under the same resourceVersion, so that conditions set by others stay.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.engine.actions import (
    STATUS_COUNTS,
    AdoptObject,
    CreateControllerRevision,
    DeleteControllerRevision,
    RaiseCollisionCount,
    ReleaseObject,
    RollBackDaemonSet,
    UpdateControllerRevision,
    UpdateDaemonSetStatus,
    camel_case,
)
from kubectl_nodelife.engine.calls.call import (
    CONFLICT,
    Body,
    Conversation,
    Delete,
    Get,
    OwnerAlive,
    Patch,
    Post,
    Result,
    as_seen,
    conflict,
    failed,
    read,
    same,
    write,
)
from kubectl_nodelife.kube.encode import encode
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.workload import DaemonSet

_ROLLBACK_TRIES: Final = 5


def create_revision(
    action: CreateControllerRevision, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """POST; where the name is taken, the one that has it is read for the next decision.

    A create whose answer was lost is found by its name, and by its owner and number.
    """
    body = encode(action.revision)
    body.setdefault("revision", action.revision.revision)
    result = yield from write(action, Post(*action.target, body))
    if result.code != CONFLICT:
        return result
    found = yield Get(*action.target)
    return Result(CONFLICT, result.message, result.reason, fresh=found.obj)


def update_revision(
    action: UpdateControllerRevision, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """PATCH of number and label under the version seen."""
    body: Body = {"revision": action.number}
    if action.hash_label is not None:
        key, value = action.hash_label
        body["metadata"] = {"labels": {key: value}}
    return (yield from write(action, Patch(*action.target, body, as_seen(action, seen))))


def delete_revision(
    action: DeleteControllerRevision, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """DELETE under the uid."""
    return (yield from write(action, Delete(*action.target, same(action, seen))))


def adopt(action: AdoptObject, seen: KubeObject | None, now_ns: int) -> Conversation:
    """Read the owner from the API server itself, then add the reference.

    An owner that is gone, another one or terminating must not adopt: the garbage collector would
    take what was adopted.
    """
    owner = action.owner
    found = yield Get(owner.kind, (action.namespace, owner.name))
    if found.obj is None:
        gone = conflict(f"{owner.kind} {owner.name} is gone") if found.code == 404 else None
        return gone or failed(found)
    if found.obj.uid != owner.uid:
        return conflict(f"{owner.kind} {owner.name} is another object now")
    if found.obj.metadata.deletion_timestamp is not None:
        return conflict(f"{owner.kind} {owner.name} is being deleted")
    body = {"metadata": {"ownerReferences": [encode(owner)]}}
    alive = OwnerAlive(owner.kind, action.namespace, owner.name, owner.uid)
    return (yield from write(action, Patch(*action.target, body, (*same(action, seen), alive))))


def release(action: ReleaseObject, seen: KubeObject | None, now_ns: int) -> Conversation:
    """Take the reference out."""
    gone = {"$patch": "delete", "uid": action.owner_uid}
    body = {"metadata": {"ownerReferences": [gone]}}
    return (yield from write(action, Patch(*action.target, body, same(action, seen))))


def update_status(
    action: UpdateDaemonSetStatus, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """PATCH of the counts under the version seen; the second try reads that version first."""
    if action.reread:
        found = yield from read(action, quorum=True)
        if isinstance(found, Result):
            return found
        seen = found.obj
    counts = {camel_case(field): getattr(action.status, field) for field in STATUS_COUNTS}
    patch = Patch(*action.target, {"status": counts}, as_seen(action, seen), "status")
    return (yield from write(action, patch))


def raise_collision_count(
    action: RaiseCollisionCount, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """Read the set; unless the count is raised already, raise it by one."""
    found = yield from read(action, quorum=True)
    if isinstance(found, Result):
        return found
    daemon_set = found.obj
    assert isinstance(daemon_set, DaemonSet)
    if action.check and daemon_set.status.collision_count != action.seen:
        return conflict("the collision count was raised already", daemon_set)
    body = {"status": {"collisionCount": (daemon_set.status.collision_count or 0) + 1}}
    patch = Patch(*action.target, body, as_seen(action, daemon_set), "status")
    return (yield from write(action, patch))


def roll_back(action: RollBackDaemonSet, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH with the revision's data, under the version judged.

    In the middle of a rollout the status changes each second: of a set with the generation that was
    judged nothing else has changed, and the patch is sent under its newer version.
    """
    for _ in range(_ROLLBACK_TRIES):
        patch = Patch(*action.target, action.patch, as_seen(action, seen))
        result = yield from write(action, patch)
        if result.code != CONFLICT or seen is None or not seen.metadata.generation:
            return result
        found = yield from read(action, quorum=True)
        if isinstance(found, Result) or found.obj is None:
            return result
        if found.obj.metadata.generation != seen.metadata.generation:
            return result
        seen = found.obj
    return result
