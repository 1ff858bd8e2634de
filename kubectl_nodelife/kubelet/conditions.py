"""The conditions that a kubelet computes for a pod, and which condition types are whose.

Follows pkg/kubelet/status/generate.go and pkg/kubelet/types/pod_status.go. Each function is
plain: a spec and a status in, one condition out, without times (the cache adds them). Left out on
purpose: observedGeneration, and the conditions of in-place resize, whose values come from the
runtime; their types are known, so that merging treats them as the kubelet's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from kubectl_nodelife.kube.pod import (
    Container,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)
from kubectl_nodelife.kubelet.releases import StatusRules

READY: Final = "Ready"
CONTAINERS_READY: Final = "ContainersReady"
INITIALIZED: Final = "Initialized"
POD_SCHEDULED: Final = "PodScheduled"
READY_TO_START_CONTAINERS: Final = "PodReadyToStartContainers"
DISRUPTION_TARGET: Final = "DisruptionTarget"
ALL_CONTAINERS_RESTARTING: Final = "AllContainersRestarting"

UNKNOWN_CONTAINER_STATUSES: Final = "UnknownContainerStatuses"
POD_SANDBOX_NOT_READY: Final = "PodSandboxNotReady"
POD_COMPLETED: Final = "PodCompleted"
POD_FAILED: Final = "PodFailed"
CONTAINERS_NOT_READY: Final = "ContainersNotReady"
CONTAINERS_NOT_INITIALIZED: Final = "ContainersNotInitialized"
READINESS_GATES_NOT_READY: Final = "ReadinessGatesNotReady"

_REASON_OF_TERMINAL_PHASE: Final = {"Failed": POD_FAILED, "Succeeded": POD_COMPLETED}

_READY: Final = PodCondition(type=READY, status="True")
_CONTAINERS_READY: Final = PodCondition(type=CONTAINERS_READY, status="True")
_RESIZE_CONDITIONS: Final = ("PodResizePending", "PodResizeInProgress")


@lru_cache
def owned_types(rules: StatusRules) -> frozenset[str]:
    """Condition types that only the kubelet may write. Follows `PodConditionByKubelet`."""
    types = {POD_SCHEDULED, READY, INITIALIZED, CONTAINERS_READY}
    if rules.owns_unschedulable:
        types.add("Unschedulable")
    if rules.ready_to_start_containers:
        types.add(READY_TO_START_CONTAINERS)
    if rules.resize_conditions:
        types.update(_RESIZE_CONDITIONS)
    if rules.restart_all_containers:
        types.add(ALL_CONTAINERS_RESTARTING)
    return frozenset(types)


@lru_cache
def shared_types(rules: StatusRules) -> frozenset[str]:
    """Condition types that others may write too. Follows `PodConditionSharedByKubelet`."""
    return frozenset({DISRUPTION_TARGET} if rules.disruption_target else ())


def is_sidecar(container: Container) -> bool:
    """True if an init container keeps running. Follows `IsRestartableInitContainer`."""
    return container.restart_policy == "Always"


def containers_ready_condition(
    spec: PodSpec, status: PodStatus, rules: StatusRules
) -> PodCondition:
    """The condition ContainersReady. Follows `GenerateContainersReadyCondition`."""
    statuses = status.container_statuses
    counted = spec.containers
    if rules.sidecars:
        statuses = _joined(status.init_container_statuses, statuses)
        if spec.init_containers:
            counted = (*(c for c in spec.init_containers if is_sidecar(c)), *counted)
    if statuses is None:
        return _not_ready(CONTAINERS_READY, UNKNOWN_CONTAINER_STATUSES)
    ready = {s.name: s.ready for s in reversed(statuses)}  # the first of a name counts
    unknown, unready = [], []
    for container in counted:
        if container.name not in ready:
            unknown.append(container.name)
        elif not ready[container.name]:
            unready.append(container.name)
    if status.phase == "Succeeded" and not unknown:
        return _not_ready(CONTAINERS_READY, POD_COMPLETED)
    if status.phase == "Failed" and rules.terminal_not_ready:
        return _not_ready(CONTAINERS_READY, POD_FAILED)
    if unknown or unready:
        message = _listed(("unknown", unknown), ("unready", unready))
        return _not_ready(CONTAINERS_READY, CONTAINERS_NOT_READY, message)
    return _CONTAINERS_READY


def ready_condition(spec: PodSpec, status: PodStatus, rules: StatusRules) -> PodCondition:
    """The condition Ready: all containers, then the readiness gates among `status.conditions`.

    Follows `GeneratePodReadyCondition`.
    """
    containers = containers_ready_condition(spec, status, rules)
    if containers.status != "True":
        return _not_ready(READY, containers.reason, containers.message)
    complaints = []
    for gate in spec.readiness_gates:
        type_ = gate.condition_type
        condition = status.condition(type_)
        if condition is None:
            complaints.append(
                f'corresponding condition of pod readiness gate "{type_}" does not exist.'
            )
        elif condition.status != "True":
            complaints.append(
                f'the status of pod readiness gate "{type_}" is not "True", but {condition.status}'
            )
    if complaints:
        return _not_ready(READY, READINESS_GATES_NOT_READY, ", ".join(complaints))
    return _READY


def initialized_condition(spec: PodSpec, status: PodStatus, rules: StatusRules) -> PodCondition:
    """The condition Initialized. Follows `GeneratePodInitializedCondition`."""
    statuses = status.init_container_statuses
    if rules.started_means_initialized:
        statuses = _joined(statuses, status.container_statuses)
    if statuses is None and spec.init_containers:
        return _not_ready(INITIALIZED, UNKNOWN_CONTAINER_STATUSES)
    status_of = _by_name(statuses or ())
    unknown = [c.name for c in spec.init_containers if c.name not in status_of]
    incomplete = [
        c.name
        for c in spec.init_containers
        if c.name in status_of and not _is_init_container_initialized(c, status_of[c.name], rules)
    ]
    if status.phase == "Succeeded" and not unknown:
        return PodCondition(type=INITIALIZED, status="True", reason=POD_COMPLETED)
    if rules.started_means_initialized and _any_regular_container_started(spec, statuses or ()):
        return PodCondition(type=INITIALIZED, status="True")
    if unknown or incomplete:
        message = _listed(("unknown", unknown), ("incomplete", incomplete))
        return _not_ready(INITIALIZED, CONTAINERS_NOT_INITIALIZED, message)
    return PodCondition(type=INITIALIZED, status="True")


class PodSandbox(NamedTuple):
    """A pod's sandbox: whether it is ready, its address, whether its network is still as asked."""

    ready: bool
    ip: str = "unknown"
    same_network: bool = True


def ready_to_start_condition(
    spec: PodSpec, sandboxes: Sequence[PodSandbox], rules: StatusRules
) -> PodCondition:
    """PodReadyToStartContainers; `sandboxes`: the newest first. Follows
    `GeneratePodReadyToStartContainersCondition` with `PodSandboxChanged`.
    """
    why = _why_no_sandbox(spec, sandboxes)
    if not why:
        return PodCondition(type=READY_TO_START_CONTAINERS, status="True")
    if not rules.ready_to_start_says_why:
        return PodCondition(type=READY_TO_START_CONTAINERS, status="False")
    return _not_ready(READY_TO_START_CONTAINERS, POD_SANDBOX_NOT_READY, why)


def _why_no_sandbox(spec: PodSpec, sandboxes: Sequence[PodSandbox]) -> str:
    if not sandboxes:
        return "no pod sandbox exists"
    if sum(sandbox.ready for sandbox in sandboxes) > 1:
        return "multiple pod sandboxes are ready and need to be reconciled"
    newest = sandboxes[0]
    if not newest.ready:
        return "pod sandbox is not ready"
    if not newest.same_network:
        return "network namespace mode changed and sandbox needs to be recreated"
    if not spec.host_network and not newest.ip:
        return "pod sandbox has no IP address"
    return ""


def pod_scheduled_condition() -> PodCondition:
    """PodScheduled, which the kubelet sets for every pod that it runs."""
    return PodCondition(type=POD_SCHEDULED, status="True")


def terminal_phase_condition(type_: str, phase: str) -> PodCondition:
    """`type_` False, for the reason of that terminal phase."""
    return _not_ready(type_, _REASON_OF_TERMINAL_PHASE.get(phase, ""))


def need_to_reconcile_pod_readiness(pod: Pod, rules: StatusRules) -> bool:
    """True if a pod with readiness gates must be synced at once, because its Ready condition does
    not match its status. Follows `NeedToReconcilePodReadiness`."""
    if not pod.spec.readiness_gates:
        return False
    present = pod.status.condition(READY)
    if present is None:
        return False
    expected = ready_condition(pod.spec, pod.status, rules)
    return (present.status, present.message) != (expected.status, expected.message)


def _is_init_container_initialized(
    container: Container, status: ContainerStatus, rules: StatusRules
) -> bool:
    if rules.sidecars and is_sidecar(container):
        return bool(status.started)
    return status.ready


def _any_regular_container_started(spec: PodSpec, statuses: Iterable[ContainerStatus]) -> bool:
    regular = {c.name for c in spec.containers}
    return any(
        status.name in regular
        and (status.state.running is not None or status.state.terminated is not None)
        for status in statuses
    )


def _joined(
    first: tuple[ContainerStatus, ...] | None, second: tuple[ContainerStatus, ...] | None
) -> tuple[ContainerStatus, ...] | None:
    """Both lists in one; absent only where both are."""
    if first is None:
        return second
    return first if second is None else first + second


def _by_name(statuses: tuple[ContainerStatus, ...]) -> dict[str, ContainerStatus]:
    """The first status of each name."""
    return {status.name: status for status in reversed(statuses)}


def _listed(*parts: tuple[str, list[str]]) -> str:
    return ", ".join(
        f"containers with {what} status: [{' '.join(names)}]" for what, names in parts if names
    )


def _not_ready(type_: str, reason: str, message: str = "") -> PodCondition:
    return PodCondition(type=type_, status="False", reason=reason, message=message)
