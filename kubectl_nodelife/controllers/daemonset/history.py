"""Revisions: what a set's template was, and which of them is current.

Follows `constructHistory`, `snapshot`, `dedupCurHistories` and `cleanupHistory`
(`pkg/controller/daemon/update.go`) and the ordering of `pkg/controller/history`. Plain functions;
the calls between them are made by `sync.py`. Revisions are the same when their data are equal as
JSON values, so that those made by another program count too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kubectl_nodelife.controllers.daemonset.hashing import (
    canonical_json,
    compute_hash,
    controller_revision_name,
    without_null_timestamp,
)
from kubectl_nodelife.controllers.daemonset.template import controller_reference
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from kubectl_nodelife.workloads.daemonset_defaults import (
    DEFAULT_REVISION_HISTORY_LIMIT,
    default_pod_template,
)


def get_patch(template: dict[str, Any]) -> dict[str, Any]:
    """The data of a revision: the template as a patch that replaces. Follows `getPatch`.

    The template is kept as the API server sent it, a null creationTimestamp too: the controller
    that comes after us compares the bytes.
    """
    return {"spec": {"template": {**template, "$patch": "replace"}}}


def match(template: dict[str, Any], revision: ControllerRevision) -> bool:
    """True if the revision holds this very template, as the API server stores it.

    Follows `Match`; templates that nobody has defaulted yet compare as if somebody had.
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
