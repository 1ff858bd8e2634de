"""Slices of who asks for a pod's end, who answers that, and of pods that are placed together.

`lifecycle.k8s.io/v1alpha1` (gate EvictionRequestAPI, since v1.37; its controllers are in v1.38) and
`scheduling.k8s.io/v1beta1` (gate GenericWorkload, since v1.37), both off by default.
"""

from __future__ import annotations

from kubectl_nodelife.kube.meta import ApiStruct, Int64, KubeObject, Time
from kubectl_nodelife.kube.workload import Condition


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
