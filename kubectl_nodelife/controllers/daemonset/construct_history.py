"""Find, or make, the revision of the set's present template.

Follows `constructHistory`, `controlledHistories`, `snapshot` and `dedupCurHistories`
(`pkg/controller/daemon/update.go`). What was found is kept until a revision or the set changes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from kubectl_nodelife.controllers.daemonset.claim import Claim, claim_object
from kubectl_nodelife.controllers.daemonset.desk import (
    ALREADY_EXISTS,
    CONTROLLER,
    INVALID,
    NOT_FOUND,
    Desk,
    Failures,
    Steps,
    SyncError,
    describe,
)
from kubectl_nodelife.controllers.daemonset.history import (
    hash_label,
    match,
    max_revision,
    new_revision,
    revision_to_keep,
    revisions_to_delete,
    split_revisions,
)
from kubectl_nodelife.controllers.daemonset.template import controller_reference
from kubectl_nodelife.controllers.daemonset.tracked_set import History
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

Constructing = Generator[list[Action], Failures, History]
Finding = Generator[list[Action], Failures, ControllerRevision]
Listing = Generator[list[Action], Failures, list[ControllerRevision]]


def adopt(desk: Desk, kind: str, obj: KubeObject) -> AdoptObject:
    """The action that makes an orphan the set's."""
    return AdoptObject(
        controller=CONTROLLER,
        because=f"it matches the selector of {desk.daemon_set.name} and has no controller",
        cause=desk.cause,
        kind=kind,
        namespace=obj.namespace,
        name=obj.name,
        object_uid=obj.uid,
        owner=controller_reference(desk.daemon_set),
    )


def release(desk: Desk, kind: str, obj: KubeObject) -> ReleaseObject:
    """The action that lets go of what no longer matches."""
    return ReleaseObject(
        controller=CONTROLLER,
        because=f"its labels no longer match the selector of {desk.daemon_set.name}",
        cause=desk.cause,
        kind=kind,
        namespace=obj.namespace,
        name=obj.name,
        object_uid=obj.uid,
        owner_uid=desk.daemon_set.uid,
    )


def claim_or_fail(failures: Failures) -> None:
    """Raise SyncError for a claim that failed; a release of what is gone or invalid is none."""
    for failure in failures:
        released = isinstance(failure.action, ReleaseObject)
        if failure.code == NOT_FOUND or (released and failure.code == INVALID):
            continue
        raise SyncError(describe(failure))


def construct_history(desk: Desk) -> Constructing:
    """The set's current revision and the old ones, made, found or renumbered. Raises SyncError."""
    tracked = desk.tracked
    if tracked.history is not None:
        return tracked.history
    revisions = yield from controlled_histories(desk)
    revisions = yield from _label(desk, revisions)
    template = desk.daemon_set.spec.template
    candidates, old = split_revisions(template, revisions)
    number = max_revision(old) + 1
    if not candidates:
        current = yield from _snapshot(desk, number)
    else:
        current = yield from _dedupe(desk, candidates)
        current = yield from _renumber(desk, current, number)
    tracked.history = History(current, tuple(old))
    return tracked.history


def controlled_histories(desk: Desk) -> Listing:
    """The set's revisions, orphans adopted and strangers released. Raises SyncError."""
    claimed: list[ControllerRevision] = []
    calls: list[Action] = []
    adopted: list[tuple[str, str]] = []
    namespace = desk.daemon_set.namespace
    for revision in desk.index.revisions.get(namespace, {}).values():
        claim = claim_object(desk.daemon_set, revision)
        if claim is Claim.KEEP:
            claimed.append(revision)
        elif claim is Claim.ADOPT:
            calls.append(adopt(desk, "ControllerRevision", revision))
            adopted.append(revision.key)
        elif claim is Claim.RELEASE:
            calls.append(release(desk, "ControllerRevision", revision))
    if calls:
        failures = yield calls
        claim_or_fail(failures)
        gone = {f.action.target[1] for f in failures}
        claimed += [_present(desk, key) for key in adopted if key not in gone]
    return claimed


def _label(desk: Desk, revisions: Sequence[ControllerRevision]) -> Listing:
    """Revisions without a hash label get their own name for one."""
    bare = [r for r in revisions if LABEL_CONTROLLER_REVISION_HASH not in (r.metadata.labels or {})]
    if bare:
        failures = yield [
            UpdateControllerRevision(
                controller=CONTROLLER,
                because="the revision lacks its hash label",
                cause=desk.cause,
                namespace=r.namespace,
                name=r.name,
                revision_uid=r.uid,
                number=r.revision,
                hash_label=(LABEL_CONTROLLER_REVISION_HASH, r.name),
            )
            for r in bare
        ]
        _raise_first(failures)
    return [_present(desk, r.key) for r in revisions]


def _snapshot(desk: Desk, number: int) -> Finding:
    daemon_set = desk.daemon_set
    revision = new_revision(daemon_set, number)
    existing = desk.cache.get("ControllerRevision", revision.key)
    if existing is None:
        failures = yield [
            CreateControllerRevision(
                controller=CONTROLLER,
                because=f"no revision holds the present template of {daemon_set.name}",
                cause=desk.cause,
                namespace=revision.namespace,
                name=revision.name,
                revision=revision,
            )
        ]
        if failures and failures[0].code != ALREADY_EXISTS:
            raise SyncError(describe(failures[0]))
        existing = desk.cache.get("ControllerRevision", revision.key)
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
            cause=desk.cause,
            namespace=daemon_set.namespace,
            name=daemon_set.name,
            set_uid=daemon_set.uid,
            seen=daemon_set.status.collision_count,
            check=desk.rules.collision_count_checked,
        )
    ]
    _raise_first(failures)
    raise SyncError(f'controllerrevisions.apps "{revision.name}" already exists')


def _dedupe(desk: Desk, candidates: Sequence[ControllerRevision]) -> Finding:
    keep = revision_to_keep(candidates)
    doomed = [r for r in candidates if r is not keep]
    if not doomed:
        return keep
    label = hash_label(keep)
    relabel: list[Action] = [
        SetPodLabel(
            controller=CONTROLLER,
            because=f"revision {keep.name} holds the same template as the pod's",
            cause=desk.cause,
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            key=LABEL_CONTROLLER_REVISION_HASH,
            value=label,
        )
        for pod in desk.tracked.pods.claimed()
        if (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH) != label
    ]
    if relabel:
        _raise_first((yield relabel))
    yield from delete_revisions(desk, doomed, f"revision {keep.name} holds the same template")
    return _present(desk, keep.key)


def _renumber(desk: Desk, current: ControllerRevision, number: int) -> Finding:
    if current.revision >= number:
        return current
    failures = yield [
        UpdateControllerRevision(
            controller=CONTROLLER,
            because=f"the template is that of revision {current.revision} again",
            cause=desk.cause,
            namespace=current.namespace,
            name=current.name,
            revision_uid=current.uid,
            number=number,
        )
    ]
    _raise_first(failures)
    return _present(desk, current.key)


def clean_up_history(desk: Desk, history: History) -> Steps:
    """Delete old revisions beyond the limit. Follows `cleanupHistory`. Raises SyncError."""
    limit = desk.daemon_set.spec.revision_history_limit
    if not history.old or (limit is not None and len(history.old) <= limit):
        return
    live = desk.tracked.pods.live_hashes()
    doomed = revisions_to_delete(history.old, limit, live)
    if doomed:
        yield from delete_revisions(desk, doomed, "it is beyond the limit of kept revisions")


def delete_revisions(desk: Desk, doomed: Sequence[ControllerRevision], because: str) -> Steps:
    """Delete revisions. Raises SyncError."""
    failures = yield [
        DeleteControllerRevision(
            controller=CONTROLLER,
            because=because,
            cause=desk.cause,
            namespace=r.namespace,
            name=r.name,
            revision_uid=r.uid,
            number=r.revision,
        )
        for r in doomed
    ]
    _raise_first(failures)


def _present(desk: Desk, key: tuple[str, str]) -> ControllerRevision:
    revision = desk.cache.get("ControllerRevision", key)
    if not isinstance(revision, ControllerRevision):
        raise SyncError(f"controllerrevisions {key[1]!r} not found")
    return revision


def _raise_first(failures: Failures) -> None:
    if failures:
        raise SyncError(describe(failures[0]))
