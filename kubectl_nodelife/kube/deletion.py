"""An object after a DELETE: graceful deletion of pods, and finalizers.

Follows `BeforeDelete` (k8s.io/apiserver pkg/registry/rest/delete.go), `CheckGracefulDelete` (pod
strategy, pkg/registry/core/pod/strategy.go), and the store's `markAsDeleting` and
`updateForGracefulDeletionAndFinalizers` (pkg/registry/generic/registry/store.go). Left out:
preconditions, propagation policies, and the end of the containers.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.times import SECOND_NS, whole_seconds

DEFAULT_GRACE_SECONDS: Final = 30
"""spec.terminationGracePeriodSeconds of a pod that does not say (`SetDefaults_PodSpec`)."""


def grace_seconds(pod: Pod, requested: int | None = None) -> int:
    """Seconds of grace that a first DELETE gives the pod; 0: its object goes at once.

    `requested` is DeleteOptions.gracePeriodSeconds, None where it is not set. A pod on no node and
    one that has ended get none. Follows `CheckGracefulDelete`.
    """
    if not pod.spec.node_name or pod.status.phase in TERMINAL_PHASES:
        return 0
    grace = pod.spec.termination_grace_period_seconds if requested is None else requested
    if grace is None:
        return DEFAULT_GRACE_SECONDS
    return 1 if grace < 0 else grace


def delete_pod(pod: Pod, now_ns: int, requested: int | None = None) -> Pod | None:
    """The pod as a DELETE leaves it: terminating, or None where its object is gone.

    The same object comes back where the DELETE changes nothing. Of a pod that terminates already
    only the grace can be shortened, and only by a DELETE that names one. A finalizer keeps the
    object of a pod without grace. deletionTimestamp has whole seconds, as `metav1.Time`.
    """
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        grace = grace_seconds(pod, requested)
        if grace == 0 and not meta.finalizers:
            return None
        meta = replace(
            meta,
            deletion_timestamp=whole_seconds(now_ns + grace * SECOND_NS),
            deletion_grace_period_seconds=grace,
            generation=meta.generation + 1 if meta.generation > 0 else meta.generation,
        )
        return replace(pod, metadata=meta)
    after = _deleted_again(meta, now_ns, requested)
    if after is None or after is meta:
        return None if after is None else pod
    return replace(pod, metadata=after)


def _deleted_again(meta: ObjectMeta, now_ns: int, requested: int | None) -> ObjectMeta | None:
    """The metadata of a terminating object after another DELETE; None where it is gone."""
    present = meta.deletion_grace_period_seconds or 0
    if present < 0:
        present = 1
    if present == 0:
        return marked_deleting(meta, now_ns) if meta.finalizers else None
    if requested is not None and requested < 0:
        requested = 1
    if requested is None or requested >= present:
        return meta
    if requested == 0 and not meta.finalizers:
        return None
    assert meta.deletion_timestamp is not None
    ends_ns = meta.deletion_timestamp - (present - requested) * SECOND_NS
    if ends_ns < now_ns:
        # The whole grace is over. It is still a graceful deletion: the kubelet has the last word.
        ends_ns, requested = now_ns, 1 if requested else 0
    return replace(
        meta,
        deletion_timestamp=whole_seconds(ends_ns),
        deletion_grace_period_seconds=requested,
    )


def deletion_asked_ns(meta: ObjectMeta) -> int | None:
    """When the object's deletion was asked for: deletionTimestamp lies its grace later; else None.

    To the whole second, and of a deletion whose grace was shortened later a later moment.
    """
    if meta.deletion_timestamp is None:
        return None
    return meta.deletion_timestamp - (meta.deletion_grace_period_seconds or 0) * SECOND_NS


def is_let_go(before: ObjectMeta, after: ObjectMeta) -> bool:
    """True if an update removes the object: it was being deleted without any more grace, and its
    last finalizer is gone (`ShouldDeleteDuringUpdate`, registry/generic/registry/store.go)."""
    waits = before.deletion_timestamp is not None and not before.deletion_grace_period_seconds
    return waits and not after.finalizers


def marked_deleting(meta: ObjectMeta, now_ns: int) -> ObjectMeta:
    """The metadata of an object that finalizers keep and that has no grace (`markAsDeleting`)."""
    ends = meta.deletion_timestamp
    if ends is not None and ends <= now_ns and meta.deletion_grace_period_seconds == 0:
        return meta
    bumped = ends is None and meta.generation > 0
    return replace(
        meta,
        deletion_timestamp=whole_seconds(now_ns) if ends is None or ends > now_ns else ends,
        deletion_grace_period_seconds=0,
        generation=meta.generation + 1 if bumped else meta.generation,
    )
