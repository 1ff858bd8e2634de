"""Find, or make, the revision of the set's present template.

Follows `constructHistory`, `controlledHistories`, `snapshot` and `dedupCurHistories`
(`pkg/controller/daemon/update.go`). What was found is kept until a revision or the set changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kubectl_nodelife.controllers.daemonset.claim import Claim, claim_object
from kubectl_nodelife.controllers.daemonset.history import (
    hash_label,
    match,
    max_revision,
    new_revision,
    revision_to_keep,
    revisions_to_delete,
    split_revisions,
)
from kubectl_nodelife.controllers.daemonset.sync_context import (
    ALREADY_EXISTS,
    CONTROLLER,
    INVALID,
    NOT_FOUND,
    Calls,
    Failures,
    SyncContext,
    SyncError,
    describe,
    raise_first,
)
from kubectl_nodelife.controllers.daemonset.template import controller_reference
from kubectl_nodelife.controllers.daemonset.tracked_set import RevisionHistory
from kubectl_nodelife.engine.actions import (
    Action,
    AdoptObject,
    CreateControllerRevision,
    DeleteControllerRevision,
    RaiseCollisionCount,
    ReleaseObject,
    SetPodLabel,
    UpdateControllerRevision,
)
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import ControllerRevision

Old = tuple[ControllerRevision, ...]
"""The revisions of other templates than the present one."""


def adopt(context: SyncContext, kind: str, obj: KubeObject) -> AdoptObject:
    """The action that makes an orphan the set's."""
    return AdoptObject(
        controller=CONTROLLER,
        because=f"it matches the selector of {context.daemon_set.name} and has no controller",
        cause=context.cause,
        kind=kind,
        namespace=obj.namespace,
        name=obj.name,
        object_uid=obj.uid,
        owner=controller_reference(context.daemon_set),
    )


def release(context: SyncContext, kind: str, obj: KubeObject) -> ReleaseObject:
    """The action that lets go of what no longer matches."""
    return ReleaseObject(
        controller=CONTROLLER,
        because=f"its labels no longer match the selector of {context.daemon_set.name}",
        cause=context.cause,
        kind=kind,
        namespace=obj.namespace,
        name=obj.name,
        object_uid=obj.uid,
        owner_uid=context.daemon_set.uid,
    )


def claim_or_fail(failures: Failures) -> None:
    """Raise SyncError for a claim that failed; a release of what is gone or invalid is none."""
    for failure in failures:
        released = isinstance(failure.action, ReleaseObject)
        if failure.code == NOT_FOUND or (released and failure.code == INVALID):
            continue
        raise SyncError(describe(failure))


def construct_history(sync: SyncContext, _failures: Failures) -> Calls:
    """Leave the set's history in `sync.history`: made, found or renumbered. Raises SyncError."""
    if sync.tracked.history is not None:
        sync.history = sync.tracked.history
        return ()
    return sync.then(controlled_histories, _label, _find_current)


def _keep_history(sync: SyncContext, current: ControllerRevision, old: Old) -> Calls:
    sync.history = sync.tracked.history = RevisionHistory(current, old)
    return ()


def controlled_histories(sync: SyncContext, _failures: Failures) -> Calls:
    """Leave the set's revisions in `sync.revisions`: orphans adopted, strangers released.

    Raises SyncError.
    """
    claimed: list[ControllerRevision] = []
    calls: list[Action] = []
    adopted: list[tuple[str, str]] = []
    namespace = sync.daemon_set.namespace
    for revision in sync.index.revisions.get(namespace, {}).values():
        claim = claim_object(sync.daemon_set, revision)
        if claim is Claim.KEEP:
            claimed.append(revision)
        elif claim is Claim.ADOPT:
            calls.append(adopt(sync, "ControllerRevision", revision))
            adopted.append(revision.key)
        elif claim is Claim.RELEASE:
            calls.append(release(sync, "ControllerRevision", revision))
    sync.revisions = tuple(claimed)
    if calls:
        sync.then(partial(_revisions_claimed, tuple(adopted)))
    return calls


def _revisions_claimed(
    adopted: Sequence[tuple[str, str]], sync: SyncContext, failures: Failures
) -> Calls:
    claim_or_fail(failures)
    gone = {f.action.target[1] for f in failures}
    present = (_present(sync, key) for key in adopted if key not in gone)
    sync.revisions = (*sync.revisions, *present)
    return ()


def _label(sync: SyncContext, _failures: Failures) -> Calls:
    """Revisions without a hash label get their own name for one."""
    sync.then(_labelled)
    return [
        UpdateControllerRevision(
            controller=CONTROLLER,
            because="the revision lacks its hash label",
            cause=sync.cause,
            namespace=r.namespace,
            name=r.name,
            object_uid=r.uid,
            number=r.revision,
            hash_label=(LABEL_CONTROLLER_REVISION_HASH, r.name),
        )
        for r in sync.revisions
        if LABEL_CONTROLLER_REVISION_HASH not in (r.metadata.labels or {})
    ]


def _labelled(sync: SyncContext, failures: Failures) -> Calls:
    raise_first(sync, failures)
    sync.revisions = tuple(_present(sync, r.key) for r in sync.revisions)
    return ()


def _find_current(sync: SyncContext, _failures: Failures) -> Calls:
    """Which revision is that of the present template: one of several, one, or none yet."""
    candidates, others = split_revisions(sync.daemon_set.spec.template, sync.revisions)
    number, old = max_revision(others) + 1, tuple(others)
    if not candidates:
        return _snapshot(sync, number, old)
    keep = revision_to_keep(candidates)
    doomed = tuple(r for r in candidates if r is not keep)
    if not doomed:
        return _renumber(sync, keep, number, old)
    sync.then(
        partial(_delete_duplicates, keep, doomed),
        partial(_renumber_kept, keep.key, number, old),
    )
    return _relabel_pods(sync, keep)


def _snapshot(sync: SyncContext, number: int, old: Old) -> Calls:
    revision = new_revision(sync.daemon_set, number)
    sync.then(partial(_snapshot_made, revision, old))
    if sync.cache.get("ControllerRevision", revision.key) is not None:
        return ()
    return [
        CreateControllerRevision(
            controller=CONTROLLER,
            because=f"no revision holds the present template of {sync.daemon_set.name}",
            cause=sync.cause,
            namespace=revision.namespace,
            name=revision.name,
            revision=revision,
        )
    ]


def _snapshot_made(
    revision: ControllerRevision, old: Old, sync: SyncContext, failures: Failures
) -> Calls:
    """Keep what has the revision's name, unless it holds another template."""
    if failures and failures[0].code != ALREADY_EXISTS:
        raise SyncError(describe(failures[0]))
    existing = sync.cache.get("ControllerRevision", revision.key)
    if not isinstance(existing, ControllerRevision):
        raise SyncError(
            f"controllerrevisions {revision.name!r} already exists, but is not seen yet"
        )
    daemon_set = sync.daemon_set
    if match(daemon_set.spec.template, existing):
        return _keep_history(sync, existing, old)
    sync.then(partial(_collided, revision.name))
    return [
        RaiseCollisionCount(
            controller=CONTROLLER,
            because=f"another template has the name {revision.name}",
            cause=sync.cause,
            namespace=daemon_set.namespace,
            name=daemon_set.name,
            object_uid=daemon_set.uid,
            seen=daemon_set.status.collision_count,
            check=sync.rules.collision_count_checked,
        )
    ]


def _collided(name: str, sync: SyncContext, failures: Failures) -> Calls:
    raise_first(sync, failures)
    raise SyncError(f'controllerrevisions.apps "{name}" already exists')


def _relabel_pods(sync: SyncContext, keep: ControllerRevision) -> Calls:
    """Pods that carry the hash of a revision of the same template get that of the kept one."""
    label = hash_label(keep)
    return [
        SetPodLabel(
            controller=CONTROLLER,
            because=f"revision {keep.name} holds the same template as the pod's",
            cause=sync.cause,
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            key=LABEL_CONTROLLER_REVISION_HASH,
            value=label,
        )
        for pod in sync.tracked.pods.claimed()
        if (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH) != label
    ]


def _delete_duplicates(
    keep: ControllerRevision,
    doomed: Sequence[ControllerRevision],
    sync: SyncContext,
    failures: Failures,
) -> Calls:
    raise_first(sync, failures)
    return delete_revisions(sync, doomed, f"revision {keep.name} holds the same template")


def _renumber_kept(
    key: tuple[str, str], number: int, old: Old, sync: SyncContext, _failures: Failures
) -> Calls:
    return _renumber(sync, _present(sync, key), number, old)


def _renumber(sync: SyncContext, current: ControllerRevision, number: int, old: Old) -> Calls:
    if current.revision >= number:
        return _keep_history(sync, current, old)
    sync.then(partial(_renumbered, current.key, old))
    return [
        UpdateControllerRevision(
            controller=CONTROLLER,
            because=f"the template is that of revision {current.revision} again",
            cause=sync.cause,
            namespace=current.namespace,
            name=current.name,
            object_uid=current.uid,
            number=number,
        )
    ]


def _renumbered(key: tuple[str, str], old: Old, sync: SyncContext, failures: Failures) -> Calls:
    raise_first(sync, failures)
    return _keep_history(sync, _present(sync, key), old)


def clean_up_history(sync: SyncContext, _failures: Failures) -> Calls:
    """Delete old revisions beyond the limit. Follows `cleanupHistory`. Raises SyncError."""
    old = sync.history.old if sync.history is not None else ()
    limit = sync.daemon_set.spec.revision_history_limit
    if not old or (limit is not None and len(old) <= limit):
        return ()
    live = sync.tracked.pods.live_hashes()
    doomed = revisions_to_delete(old, limit, live)
    if not doomed:
        return ()
    return delete_revisions(sync, doomed, "it is beyond the limit of kept revisions")


def delete_revisions(
    sync: SyncContext, doomed: Sequence[ControllerRevision], because: str
) -> Calls:
    """Delete revisions; the next step raises SyncError where one could not be."""
    sync.then(raise_first)
    return [
        DeleteControllerRevision(
            controller=CONTROLLER,
            because=because,
            cause=sync.cause,
            namespace=r.namespace,
            name=r.name,
            object_uid=r.uid,
            number=r.revision,
        )
        for r in doomed
    ]


def _present(context: SyncContext, key: tuple[str, str]) -> ControllerRevision:
    revision = context.cache.get("ControllerRevision", key)
    if not isinstance(revision, ControllerRevision):
        raise SyncError(f"controllerrevisions {key[1]!r} not found")
    return revision
