"""Revisions: what a set's template was, which of them is current, and how that one is found or
made.

Follows `constructHistory`, `controlledHistories`, `snapshot`, `dedupCurHistories` and
`cleanupHistory` (`pkg/controller/daemon/update.go`) and the ordering of `pkg/controller/history`.
Revisions are the same when their data are equal as JSON values, so that those made by another
program count too. What was found is kept until a revision or the set changes.

Hashes and names follow `ComputeHash` (`pkg/controller/controller_utils.go`) and
`HashControllerRevision` in form: 32-bit FNV over the template and the collision count, in the
alphabet without vowels. Upstream hashes Go's printed form of the template, which depends on the
field order of Go structs; ours hashes the template's canonical JSON. The value is therefore ours
alone: revisions are matched by content and a pod's hash is read from its label, never computed
again and compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from kubectl_nodelife.controllers.daemonset.memory import (
    ALREADY_EXISTS,
    INVALID,
    NOT_FOUND,
    Calls,
    Failures,
    RevisionHistory,
    SyncContext,
    SyncError,
    describe,
    raise_first,
)
from kubectl_nodelife.controllers.daemonset.pods_on_node import Claim, claim_object
from kubectl_nodelife.controllers.daemonset.template import controller_reference
from kubectl_nodelife.engine import actions
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.names import fnv1a_32
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import (
    DEFAULT_REVISION_HISTORY_LIMIT,
    ControllerRevision,
    DaemonSet,
    default_pod_template,
)

Old = tuple[ControllerRevision, ...]
"""The revisions of other templates than the present one."""

SAFE_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
REVISION_PREFIX_LIMIT = 223
_encoder = msgspec.json.Encoder(order="deterministic")


def get_patch(template: dict[str, Any]) -> dict[str, Any]:
    """The data of a revision: the template as a patch that replaces. Follows `getPatch`.

    The template is kept as the API server sent it, a null creationTimestamp too: the controller
    that comes after us compares the bytes.
    """
    return {"spec": {"template": {**template, "$patch": "replace"}}}


def match(template: dict[str, Any], revision: ControllerRevision) -> bool:
    """True if the revision holds this very template, as the API server stores it.

    Follows `Match`; templates without defaults compare as if they had them.
    """
    return _canonical(revision.data) == _canonical(get_patch(template))


def equal_data(one: ControllerRevision, other: ControllerRevision) -> bool:
    """True if two revisions hold the same data. Follows `EqualRevision`, less the hash label."""
    return _canonical(one.data) == _canonical(other.data)


def _canonical(data: dict[str, Any] | None) -> bytes:
    spec = (data or {}).get("spec")  # data may be any JSON at all
    template = spec.get("template") if isinstance(spec, dict) else None
    if data is None or not isinstance(template, dict):
        return canonical_json(data)
    stored = default_pod_template(without_null_timestamp(template))
    return canonical_json({**data, "spec": {**data["spec"], "template": stored}})


def revision_order(revision: ControllerRevision) -> tuple[int, int, str]:
    """Sort key: number, creation time, name. Follows `byRevision` of the history package."""
    created = revision.metadata.creation_timestamp
    return (revision.revision, -1 if created is None else created, revision.name)


def max_revision(revisions: Iterable[ControllerRevision]) -> int:
    """The largest number, 0 for none. Follows `maxRevision`."""
    return max((r.revision for r in revisions), default=0)


def hash_label(revision: ControllerRevision) -> str:
    """The revision's hash label, "" where it has none."""
    return (revision.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH, "")


def split_revisions(
    template: dict[str, Any], revisions: Iterable[ControllerRevision]
) -> tuple[list[ControllerRevision], list[ControllerRevision]]:
    """(those that hold the template, the old ones), each in list order."""
    current: list[ControllerRevision] = []
    old: list[ControllerRevision] = []
    for revision in revisions:
        (current if match(template, revision) else old).append(revision)
    return current, old


def revision_to_keep(candidates: Sequence[ControllerRevision]) -> ControllerRevision:
    """Of several current candidates the one with the largest number, the later on a tie."""
    keep = candidates[0]
    for candidate in candidates[1:]:
        if candidate.revision >= keep.revision:
            keep = candidate
    return keep


def new_revision(daemon_set: DaemonSet, number: int) -> ControllerRevision:
    """The set's template as a revision that is to be created. Follows `snapshot`."""
    template = daemon_set.spec.template
    revision_hash = compute_hash(template, daemon_set.status.collision_count)
    labels = dict((template.get("metadata") or {}).get("labels") or {})
    labels[LABEL_CONTROLLER_REVISION_HASH] = revision_hash
    annotations = daemon_set.metadata.annotations
    metadata = ObjectMeta(
        name=controller_revision_name(daemon_set.name, revision_hash),
        namespace=daemon_set.namespace,
        labels=labels,
        annotations=dict(annotations) if annotations else None,
        owner_references=(controller_reference(daemon_set),),
    )
    return ControllerRevision(metadata=metadata, data=get_patch(template), revision=number)


def revisions_to_delete(
    old: Iterable[ControllerRevision], limit: int | None, live_hashes: Collection[str]
) -> list[ControllerRevision]:
    """Old revisions beyond the limit, the smallest numbers first, but none that a pod still has.

    `limit` None: 10, as the API defaults it. Follows `cleanupHistory`.
    """
    old = sorted(old, key=revision_order)
    to_kill = len(old) - (DEFAULT_REVISION_HISTORY_LIMIT if limit is None else limit)
    doomed: list[ControllerRevision] = []
    for revision in old:
        if len(doomed) >= to_kill:
            break
        label = hash_label(revision)
        if not label or label not in live_hashes:
            doomed.append(revision)
    return doomed


def adopt(context: SyncContext, kind: str, obj: KubeObject) -> actions.AdoptObject:
    """The action that makes an orphan the set's."""
    return actions.AdoptObject(
        **context.why(
            f"it matches the selector of {context.daemon_set.name} and has no controller"
        ),
        kind=kind,
        **actions.of_object(obj),
        owner=controller_reference(context.daemon_set),
    )


def release(context: SyncContext, kind: str, obj: KubeObject) -> actions.ReleaseObject:
    """The action that lets go of what no longer matches."""
    return actions.ReleaseObject(
        **context.why(f"its labels no longer match the selector of {context.daemon_set.name}"),
        kind=kind,
        **actions.of_object(obj),
        owner_uid=context.daemon_set.uid,
    )


def claim_or_fail(_sync: SyncContext, failures: Failures) -> Calls:
    """Raise SyncError for a claim that failed; a release of what is gone or invalid is none."""
    for failure in failures:
        released = isinstance(failure.action, actions.ReleaseObject)
        if failure.code == NOT_FOUND or (released and failure.code == INVALID):
            continue
        raise SyncError(describe(failure))
    return ()


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
    calls: list[actions.Action] = []
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
    claim_or_fail(sync, failures)
    gone = {f.action.target[1] for f in failures}
    present = (_present(sync, key) for key in adopted if key not in gone)
    sync.revisions = (*sync.revisions, *present)
    return ()


def _label(sync: SyncContext, _failures: Failures) -> Calls:
    """Revisions without a hash label get their own name for one."""
    sync.then(_labelled)
    return [
        actions.UpdateControllerRevision(
            **sync.why("the revision lacks its hash label"),
            **actions.of_object(r),
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
        actions.CreateControllerRevision(
            **sync.why(f"no revision holds the present template of {sync.daemon_set.name}"),
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
        actions.RaiseCollisionCount(
            **sync.why(f"another template has the name {revision.name}"),
            **actions.of_object(daemon_set),
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
        actions.SetPodLabel(
            **sync.why(f"revision {keep.name} holds the same template as the pod's"),
            **actions.of_pod(pod),
            key=LABEL_CONTROLLER_REVISION_HASH,
            value=label,
        )
        for pod in sorted(sync.tracked.pods.claimed(), key=lambda pod: pod.key)
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
        actions.UpdateControllerRevision(
            **sync.why(f"the template is that of revision {current.revision} again"),
            **actions.of_object(current),
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
        actions.DeleteControllerRevision(
            **sync.why(because),
            **actions.of_object(r),
            number=r.revision,
        )
        for r in doomed
    ]


def _present(context: SyncContext, key: tuple[str, str]) -> ControllerRevision:
    revision = context.cache.get("ControllerRevision", key)
    if not isinstance(revision, ControllerRevision):
        raise SyncError(f"controllerrevisions {key[1]!r} not found")
    return revision


def canonical_json(value: Any) -> bytes:
    """Compact JSON with sorted keys: equal values give equal bytes, whatever their key order."""
    return _encoder.encode(value)


def safe_encode(text: str) -> str:
    """Each character mapped into the safe alphabet. Follows `rand.SafeEncodeString`."""
    return "".join(SAFE_ALPHABET[ord(c) % len(SAFE_ALPHABET)] for c in text)


def without_null_timestamp(template: dict[str, Any]) -> dict[str, Any]:
    """The template less `metadata.creationTimestamp: null`.

    API servers before 1.34 write that null, later ones do not; it means nothing, and a template
    must not become another one because the cluster was upgraded.
    """
    metadata = template.get("metadata")
    if isinstance(metadata, dict) and metadata.get("creationTimestamp", "") is None:
        rest = {k: v for k, v in metadata.items() if k != "creationTimestamp"}
        return {**template, "metadata": rest}
    return template


def compute_hash(template: dict[str, Any], collision_count: int | None) -> str:
    """The hash label of a template. Follows `ComputeHash`; a collision count of 0 counts as set."""
    content = canonical_json(without_null_timestamp(template))
    if collision_count is not None:
        content += collision_count.to_bytes(4, "little") + bytes(4)
    return safe_encode(str(fnv1a_32(content)))


def controller_revision_name(prefix: str, revision_hash: str) -> str:
    """`<prefix>-<hash>`, the prefix cut to 223 characters. Follows `ControllerRevisionName`."""
    return f"{prefix[:REVISION_PREFIX_LIMIT]}-{revision_hash}"
