"""Find, or make, the revision of the set's present template.

Follows `constructHistory`, `controlledHistories`, `snapshot` and `dedupCurHistories`
(`pkg/controller/daemon/update.go`). What was found is kept until a revision or the set changes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

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
    Failures,
    Steps,
    SyncContext,
    SyncError,
    describe,
)
from kubectl_nodelife.controllers.daemonset.template import controller_reference
from kubectl_nodelife.controllers.daemonset.tracked_set import RevisionHistory
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.daemonset_actions import (
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

Constructing = Generator[list[Action], Failures, RevisionHistory]
Finding = Generator[list[Action], Failures, ControllerRevision]
Listing = Generator[list[Action], Failures, list[ControllerRevision]]


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


def construct_history(context: SyncContext) -> Constructing:
    """The set's current revision and the old ones, made, found or renumbered. Raises SyncError."""
    tracked = context.tracked
    if tracked.history is not None:
        return tracked.history
    revisions = yield from controlled_histories(context)
    revisions = yield from _label(context, revisions)
    template = context.daemon_set.spec.template
    candidates, old = split_revisions(template, revisions)
    number = max_revision(old) + 1
    if not candidates:
        current = yield from _snapshot(context, number)
    else:
        current = yield from _dedupe(context, candidates)
        current = yield from _renumber(context, current, number)
    tracked.history = RevisionHistory(current, tuple(old))
    return tracked.history


def controlled_histories(context: SyncContext) -> Listing:
    """The set's revisions, orphans adopted and strangers released. Raises SyncError."""
    claimed: list[ControllerRevision] = []
    calls: list[Action] = []
    adopted: list[tuple[str, str]] = []
    namespace = context.daemon_set.namespace
    for revision in context.index.revisions.get(namespace, {}).values():
        claim = claim_object(context.daemon_set, revision)
        if claim is Claim.KEEP:
            claimed.append(revision)
        elif claim is Claim.ADOPT:
            calls.append(adopt(context, "ControllerRevision", revision))
            adopted.append(revision.key)
        elif claim is Claim.RELEASE:
            calls.append(release(context, "ControllerRevision", revision))
    if calls:
        failures = yield calls
        claim_or_fail(failures)
        gone = {f.action.target[1] for f in failures}
        claimed += [_present(context, key) for key in adopted if key not in gone]
    return claimed


def _label(context: SyncContext, revisions: Sequence[ControllerRevision]) -> Listing:
    """Revisions without a hash label get their own name for one."""
    bare = [r for r in revisions if LABEL_CONTROLLER_REVISION_HASH not in (r.metadata.labels or {})]
    if bare:
        failures = yield [
            UpdateControllerRevision(
                controller=CONTROLLER,
                because="the revision lacks its hash label",
                cause=context.cause,
                namespace=r.namespace,
                name=r.name,
                revision_uid=r.uid,
                number=r.revision,
                hash_label=(LABEL_CONTROLLER_REVISION_HASH, r.name),
            )
            for r in bare
        ]
        _raise_first(failures)
    return [_present(context, r.key) for r in revisions]


def _snapshot(context: SyncContext, number: int) -> Finding:
    daemon_set = context.daemon_set
    revision = new_revision(daemon_set, number)
    existing = context.cache.get("ControllerRevision", revision.key)
    if existing is None:
        failures = yield [
            CreateControllerRevision(
                controller=CONTROLLER,
                because=f"no revision holds the present template of {daemon_set.name}",
                cause=context.cause,
                namespace=revision.namespace,
                name=revision.name,
                revision=revision,
            )
        ]
        if failures and failures[0].code != ALREADY_EXISTS:
            raise SyncError(describe(failures[0]))
        existing = context.cache.get("ControllerRevision", revision.key)
    if not isinstance(existing, ControllerRevision):
        raise SyncError(
            f"controllerrevisions {revision.name!r} already exists, but is not seen yet"
        )
    if match(daemon_set.spec.template, existing):
        return existing
    failures = yield [
        RaiseCollisionCount(
            controller=CONTROLLER,
            because=f"another template has the name {revision.name}",
            cause=context.cause,
            namespace=daemon_set.namespace,
            name=daemon_set.name,
            set_uid=daemon_set.uid,
            seen=daemon_set.status.collision_count,
            check=context.rules.collision_count_checked,
        )
    ]
    _raise_first(failures)
    raise SyncError(f'controllerrevisions.apps "{revision.name}" already exists')


def _dedupe(context: SyncContext, candidates: Sequence[ControllerRevision]) -> Finding:
    keep = revision_to_keep(candidates)
    doomed = [r for r in candidates if r is not keep]
    if not doomed:
        return keep
    label = hash_label(keep)
    relabel: list[Action] = [
        SetPodLabel(
            controller=CONTROLLER,
            because=f"revision {keep.name} holds the same template as the pod's",
            cause=context.cause,
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            key=LABEL_CONTROLLER_REVISION_HASH,
            value=label,
        )
        for pod in context.tracked.pods.claimed()
        if (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH) != label
    ]
    if relabel:
        _raise_first((yield relabel))
    yield from delete_revisions(context, doomed, f"revision {keep.name} holds the same template")
    return _present(context, keep.key)


def _renumber(context: SyncContext, current: ControllerRevision, number: int) -> Finding:
    if current.revision >= number:
        return current
    failures = yield [
        UpdateControllerRevision(
            controller=CONTROLLER,
            because=f"the template is that of revision {current.revision} again",
            cause=context.cause,
            namespace=current.namespace,
            name=current.name,
            revision_uid=current.uid,
            number=number,
        )
    ]
    _raise_first(failures)
    return _present(context, current.key)


def clean_up_history(context: SyncContext, history: RevisionHistory) -> Steps:
    """Delete old revisions beyond the limit. Follows `cleanupHistory`. Raises SyncError."""
    limit = context.daemon_set.spec.revision_history_limit
    if not history.old or (limit is not None and len(history.old) <= limit):
        return
    live = context.tracked.pods.live_hashes()
    doomed = revisions_to_delete(history.old, limit, live)
    if doomed:
        yield from delete_revisions(context, doomed, "it is beyond the limit of kept revisions")


def delete_revisions(
    context: SyncContext, doomed: Sequence[ControllerRevision], because: str
) -> Steps:
    """Delete revisions. Raises SyncError."""
    failures = yield [
        DeleteControllerRevision(
            controller=CONTROLLER,
            because=because,
            cause=context.cause,
            namespace=r.namespace,
            name=r.name,
            revision_uid=r.uid,
            number=r.revision,
        )
        for r in doomed
    ]
    _raise_first(failures)


def _present(context: SyncContext, key: tuple[str, str]) -> ControllerRevision:
    revision = context.cache.get("ControllerRevision", key)
    if not isinstance(revision, ControllerRevision):
        raise SyncError(f"controllerrevisions {key[1]!r} not found")
    return revision


def _raise_first(failures: Failures) -> None:
    if failures:
        raise SyncError(describe(failures[0]))
