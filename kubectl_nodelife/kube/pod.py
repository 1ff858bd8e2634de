"""Slices of Pod: scheduling terms, containers, volumes, status.

`disruption_target` is a condition that controllers set, after pkg/api/v1/pod/util.go.
"""

from __future__ import annotations

from typing import Final

from msgspec import field
from msgspec.structs import replace

from kubectl_nodelife.kube.meta import (
    ApiStruct,
    BaseCondition,
    Int64,
    KubeObject,
    LabelSelector,
    LabelSelectorRequirement,
    Time,
    controller_of,
)
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.wellknown import ANNOTATION_CONFIG_MIRROR, DISRUPTION_TARGET, TRUE

Quantities = dict[str, str | int | float]


class Toleration(ApiStruct, frozen=True):
    """`core/v1.Toleration`. `toleration_seconds` None: for ever."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class NodeSelectorTerm(ApiStruct, frozen=True):
    """`core/v1.NodeSelectorTerm`: all expressions and all fields must hold; an empty term matches
    nothing.
    """

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(ApiStruct, frozen=True):
    """`core/v1.NodeSelector`: terms are ORed; no terms match nothing."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(ApiStruct, frozen=True):
    """`core/v1.PreferredSchedulingTerm`."""

    weight: Int64 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct, frozen=True):
    """`core/v1.NodeAffinity`."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(ApiStruct, frozen=True):
    """`core/v1.PodAffinityTerm`."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiStruct, frozen=True):
    """`core/v1.WeightedPodAffinityTerm`."""

    weight: Int64 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ApiStruct, frozen=True):
    """`core/v1.PodAffinity` and `PodAntiAffinity`."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(ApiStruct, frozen=True):
    """`core/v1.Affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct, frozen=True):
    """`core/v1.TopologySpreadConstraint`; the first three fields are always there in the API."""

    max_skew: Int64 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int64 | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class ResourceRequirements(ApiStruct, frozen=True):
    """`core/v1.ResourceRequirements`; limits stand in where requests are missing."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerPort(ApiStruct, frozen=True):
    """`core/v1.ContainerPort`."""

    container_port: Int64 = 0
    host_port: Int64 = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class ContainerRestartRuleOnExitCodes(ApiStruct, frozen=True):
    """`core/v1.ContainerRestartRuleOnExitCodes`; operator In or NotIn."""

    operator: str = ""
    values: tuple[Int64, ...] = ()


class ContainerRestartRule(ApiStruct, frozen=True):
    """`core/v1.ContainerRestartRule`; action Restart or RestartAllContainers."""

    action: str = ""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class Container(ApiStruct, frozen=True):
    """`core/v1.Container`; an init container with `restart_policy: Always` is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


class PersistentVolumeClaimVolume(ApiStruct, frozen=True):
    """`core/v1.PersistentVolumeClaimVolumeSource`."""

    claim_name: str = ""
    read_only: bool = False


class VolumePresence(ApiStruct, frozen=True):
    """Some volume source of which only the presence counts."""

    path: str = ""
    medium: str = ""


class Volume(ApiStruct, frozen=True):
    """`core/v1.Volume`: the sources that keep a pod at its node or that a drain asks about."""

    name: str = ""
    empty_dir: VolumePresence | None = None
    host_path: VolumePresence | None = None
    persistent_volume_claim: PersistentVolumeClaimVolume | None = None
    ephemeral: VolumePresence | None = None


class PodReadinessGate(ApiStruct, frozen=True):
    """`core/v1.PodReadinessGate`."""

    condition_type: str = ""


class PodSchedulingGroup(ApiStruct, frozen=True):
    """`core/v1.PodSchedulingGroup`: the PodGroup whose pods the scheduler places together."""

    pod_group_name: str = ""


class EvictionResponder(ApiStruct, frozen=True):
    """`core/v1.EvictionResponder`: who is asked first where an EvictionRequest names the pod."""

    name: str = ""


class PodSpec(ApiStruct, frozen=True):
    """`core/v1.PodSpec`."""

    node_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    termination_grace_period_seconds: Int64 | None = None
    restart_policy: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    overhead: Quantities | None = None
    volumes: tuple[Volume, ...] = ()
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    scheduling_gates: tuple[VolumePresence, ...] = ()
    host_network: bool = False
    priority: Int64 | None = None
    preemption_policy: str | None = None
    scheduler_name: str = ""
    resources: ResourceRequirements | None = None
    resource_claims: tuple[VolumePresence, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    eviction_responders: tuple[EvictionResponder, ...] = ()


class PodCondition(BaseCondition, frozen=True):
    """`core/v1.PodCondition`."""

    last_transition_time: Time | None = None
    last_probe_time: Time | None = None
    observed_generation: Int64 = 0


class ContainerStateWaiting(ApiStruct, frozen=True):
    """`core/v1.ContainerStateWaiting`."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(ApiStruct, frozen=True):
    """`core/v1.ContainerStateRunning`."""

    started_at: Time | None = None


class ContainerStateTerminated(ApiStruct, frozen=True):
    """`core/v1.ContainerStateTerminated`."""

    exit_code: Int64 = 0
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None
    container_id: str = field(default="", name="containerID")


class ContainerState(ApiStruct, frozen=True):
    """`core/v1.ContainerState`: at most one is set."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(ApiStruct, frozen=True):
    """`core/v1.ContainerStatus`. `started` None differs from False."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    restart_count: Int64 = 0
    image: str = ""
    container_id: str = field(default="", name="containerID")


class PodResourceClaimStatus(ApiStruct, frozen=True):
    """`core/v1.PodResourceClaimStatus`; written by the resource claim controller."""

    name: str = ""
    resource_claim_name: str = ""


TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""The phases of a pod that has ended, whatever becomes of its object."""


class VolumeHealthCondition(ApiStruct, frozen=True):
    """`core/v1.VolumeHealthCondition`: `Inaccessible`, `DataLoss` or `Degraded`, and why."""

    status: str = ""
    reason: str = ""
    message: str = ""


class PodVolumeHealth(ApiStruct, frozen=True):
    """`core/v1.PodVolumeHealth`: what is wrong with one volume of a pod; empty: nothing is."""

    name: str = ""
    health_conditions: tuple[VolumeHealthCondition, ...] = ()
    last_transition_time: Time | None = None


class PodStatus(ApiStruct, frozen=True):
    """`core/v1.PodStatus`. `container_statuses is None` means that the key is absent."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    start_time: Time | None = None
    nominated_node_name: str = ""
    host_ip: str = field(default="", name="hostIP")
    pod_ip: str = field(default="", name="podIP")
    qos_class: str = ""
    volume_health: tuple[PodVolumeHealth, ...] = ()

    def condition(self, type_: str) -> PodCondition | None:
        """The first condition of that type, or None. Follows upstream's `GetPodCondition`."""
        for condition in self.conditions:
            if condition.type == type_:
                return condition
        return None


class Pod(KubeObject, frozen=True):
    """`core/v1.Pod`."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def ready(self) -> bool:
        """True if condition Ready is True. Follows upstream's `IsPodReady`."""
        for condition in self.status.conditions:
            if condition.type == "Ready":
                return condition.status == "True"
        return False


_CANNOT_START: Final = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Reasons for which a container waits that nothing but a change ends."""

_ALIVE_PHASES = frozenset({"Pending", "Running", "Unknown"})


def is_mirror_pod(pod: Pod) -> bool:
    """True if the pod is the API server's copy of a static pod. Follows `IsMirrorPod`."""
    annotations = pod.metadata.annotations
    return annotations is not None and ANNOTATION_CONFIG_MIRROR in annotations


def is_daemon_pod(pod: Pod) -> bool:
    """True if the pod's controller is a DaemonSet."""
    owner = controller_of(pod.metadata)
    return owner is not None and owner.kind == "DaemonSet"


def stays_on_its_node(pod: Pod) -> bool:
    """True if a drain leaves the pod where it is, as a DaemonSet's and a mirror pod."""
    return is_daemon_pod(pod) or is_mirror_pod(pod)


def moves_off(pod: Pod) -> bool:
    """True if the pod runs, or will, and a drain moves it off its node."""
    return pod.status.phase not in TERMINAL_PHASES and not stays_on_its_node(pod)


def same_but_for_conditions(old: Pod, new: Pod) -> bool:
    """True if only what the status says of a pod that has not ended can have changed, such as a
    condition; or, of one that has ended, without a change of its phase.

    Quick: it compares by identity, as copies of a pod share what they have in common, and may say
    False of a pod that came anew from the wire.
    """
    return (
        old.spec is new.spec
        and old.metadata is new.metadata
        and (
            (was := old.status.phase) == (now := new.status.phase)
            or (was in _ALIVE_PHASES and now in _ALIVE_PHASES)
        )
    )


def is_starting(pod: Pod) -> bool:
    """True if the pod is not Ready because it is still starting.

    A pod that runs and is not Ready is not starting, nor is one whose containers cannot be started.
    """
    if pod.status.phase != "Pending" or pod.ready():
        return False
    statuses = (pod.status.container_statuses or ()) + (pod.status.init_container_statuses or ())
    return not any(
        status.state.waiting is not None and status.state.waiting.reason in _CANNOT_START
        for status in statuses
    )


def put_condition(
    conditions: tuple[PodCondition, ...], condition: PodCondition
) -> tuple[PodCondition, ...]:
    """The conditions with this one in place of the one of its type, or appended.

    The same tuple comes back where that changes nothing.
    """
    type_ = condition.type
    for i, present in enumerate(conditions):
        if present.type == type_:
            if present == condition:
                return conditions
            changed = list(conditions)
            changed[i] = condition
            return tuple(changed)
    return (*conditions, condition)


def with_condition(pod: Pod, condition: PodCondition) -> Pod:
    """The pod with this condition; the same object where it has it."""
    conditions = put_condition(pod.status.conditions, condition)
    if conditions is pod.status.conditions:
        return pod
    return replace(pod, status=replace(pod.status, conditions=conditions))


def disruption_target(
    status: PodStatus, reason: str, message: str, now_ns: int
) -> PodCondition | None:
    """The condition DisruptionTarget to set, or None where the pod has it already.

    Follows `UpdatePodCondition`: the transition time moves only when the status does.
    """
    old = status.condition(DISRUPTION_TARGET)
    since = whole_seconds(now_ns)
    if old is not None and old.status == TRUE:
        if (old.reason, old.message) == (reason, message):
            return None
        since = old.last_transition_time or since
    return PodCondition(
        type=DISRUPTION_TARGET,
        status=TRUE,
        reason=reason,
        message=message,
        last_transition_time=since,
    )
