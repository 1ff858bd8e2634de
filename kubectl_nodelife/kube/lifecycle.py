"""How a pod ends: slices of who asks for it and who answers, of pods that are placed together, and
what a DELETE does to an object.

The slices are of `lifecycle.k8s.io/v1alpha1` (gate EvictionRequestAPI, since v1.37; its controllers
are in v1.38) and `scheduling.k8s.io/v1beta1` (gate GenericWorkload, since v1.37), both off by
default.

Deletion is graceful for pods, and waits for finalizers. It follows `BeforeDelete` (k8s.io/apiserver
pkg/registry/rest/delete.go), `CheckGracefulDelete` (pod strategy,
pkg/registry/core/pod/strategy.go), and the store's `markAsDeleting` and
`updateForGracefulDeletionAndFinalizers` (pkg/registry/generic/registry/store.go). Left out:
preconditions, propagation policies, and the end of the containers.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.kube.meta import ApiStruct, Int64, KubeObject, ObjectMeta, Time
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.times import SECOND_NS, whole_seconds
from kubectl_nodelife.kube.workload import Condition

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


class TargetPod(ApiStruct, frozen=True):
    """`lifecycle/v1alpha1.EvictionRequestPodReference` and `EvictionPodReference`."""

    name: str = ""
    uid: str = ""


class EvictionTarget(ApiStruct, frozen=True):
    """`lifecycle/v1alpha1.EvictionRequestTarget` and `EvictionTarget`: at present a pod."""

    pod: TargetPod | None = None


class EvictionRequestSpec(ApiStruct, frozen=True):
    """`lifecycle/v1alpha1.EvictionRequestSpec`. `intent`: Eviction or Withdrawn."""

    target: EvictionTarget = EvictionTarget()
    requester: str = ""
    intent: str = ""


class EvictionRequestStatus(ApiStruct, frozen=True):
    """`lifecycle/v1alpha1.EvictionRequestStatus`: conditions TargetEvicted and Failed."""

    conditions: tuple[Condition, ...] = ()


class EvictionRequest(KubeObject, frozen=True):
    """`lifecycle/v1alpha1.EvictionRequest`: one requester's wish that a pod be evicted."""

    spec: EvictionRequestSpec = EvictionRequestSpec()
    status: EvictionRequestStatus = EvictionRequestStatus()


class EvictionSpec(ApiStruct, frozen=True):
    """`lifecycle/v1alpha1.EvictionSpec`."""

    target: EvictionTarget = EvictionTarget()


class Requester(ApiStruct, frozen=True):
    """`lifecycle/v1alpha1.Requester`."""

    name: str = ""
    intent: str = ""


class TargetResponder(ApiStruct, frozen=True):
    """`lifecycle/v1alpha1.TargetResponder`: Inactive, Active, Interrupted, Canceled, Completed."""

    name: str = ""
    priority: Int64 = 0
    state: str = ""


class ResponderStatus(ApiStruct, frozen=True):
    """`lifecycle/v1alpha1.ResponderStatus`."""

    name: str = ""
    start_time: Time | None = None
    heartbeat_time: Time | None = None
    expected_completion_time: Time | None = None
    completion_time: Time | None = None
    message: str = ""


class EvictionStatus(ApiStruct, frozen=True):
    """`lifecycle/v1alpha1.EvictionStatus`."""

    conditions: tuple[Condition, ...] = ()
    requesters: tuple[Requester, ...] = ()
    target_responders: tuple[TargetResponder, ...] = ()
    responders: tuple[ResponderStatus, ...] = ()


class Eviction(KubeObject, frozen=True):
    """`lifecycle/v1alpha1.Eviction`, not policy/v1's: what is done about the requests for a pod."""

    spec: EvictionSpec = EvictionSpec()
    status: EvictionStatus = EvictionStatus()


class GangSchedulingPolicy(ApiStruct, frozen=True):
    """`scheduling/v1beta1.GangSchedulingPolicy`."""

    min_count: Int64 = 0


class PodGroupSchedulingPolicy(ApiStruct, frozen=True):
    """`scheduling/v1beta1.PodGroupSchedulingPolicy`: a gang, or without one as ever."""

    gang: GangSchedulingPolicy | None = None


class PodGroupSpec(ApiStruct, frozen=True):
    """`scheduling/v1beta1.PodGroupSpec`."""

    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()


class PodGroupStatus(ApiStruct, frozen=True):
    """`scheduling/v1beta1.PodGroupStatus`: PodGroupInitiallyScheduled and DisruptionTarget."""

    conditions: tuple[Condition, ...] = ()


class PodGroup(KubeObject, frozen=True):
    """`scheduling/v1beta1.PodGroup`: pods that name it in spec.schedulingGroup."""

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
