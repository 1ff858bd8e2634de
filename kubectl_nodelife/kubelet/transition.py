"""May a container leave the state "terminated"? And in which states does a dead pod leave its
containers?

Follows pkg/kubelet/status/status_manager.go (`checkContainerStateTransition`, `TerminatePod`,
`hasPodInitialized`, `initializedContainers`) and pkg/api/v1/pod/util.go (`ContainerShouldRestart`).
Left out on purpose: the log lines about phases that TerminatePod did not expect.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.kube.pod import (
    TERMINAL_PHASES,
    Container,
    ContainerRestartRule,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
)
from kubectl_nodelife.kubelet.conditions import is_sidecar
from kubectl_nodelife.kubelet.releases import StatusRules

Statuses = tuple[ContainerStatus, ...]

_OVERWRITTEN: Final = ContainerState(terminated=ContainerStateTerminated())
_UNKNOWN: Final = ContainerState(
    terminated=ContainerStateTerminated(
        reason="ContainerStatusUnknown",
        message="The container could not be located when the pod was terminated",
        exit_code=137,
    )
)


def illegal_transition(
    old: PodStatus, new: PodStatus, spec: PodSpec, rules: StatusRules
) -> str | None:
    """Why the step from `old` to `new` is refused: a container that may not restart left the state
    "terminated"; None where it is allowed. Follows `checkContainerStateTransition`."""
    if spec.restart_policy in ("", "Always"):  # "": as the API server defaults it
        return None
    if rules.restart_all_containers and _may_restart_all(spec):
        return None
    for status in old.container_statuses or ():
        if not _must_stay_terminated(status, spec):
            continue
        if rules.restart_rules and _restarts_by_its_own_policy(spec.containers, status):
            continue
        if _came_back(status, new.container_statuses):
            return (
                f"terminated container {status.name} attempted illegal transition"
                " to non-terminated state"
            )
    return _illegal_init_transition(old, new, spec, rules)


def _illegal_init_transition(
    old: PodStatus, new: PodStatus, spec: PodSpec, rules: StatusRules
) -> str | None:
    for index, status in enumerate(old.init_container_statuses or ()):
        if rules.init_matched_by_index:
            container = _container_at(spec.init_containers, status, index)
            if container is None:
                return f"found mismatch between pod spec and status, container: {status.name}"
            if is_sidecar(container):
                continue
        if _must_stay_terminated(status, spec) and _came_back(status, new.init_container_statuses):
            return (
                f"terminated init container {status.name} attempted illegal transition"
                " to non-terminated state"
            )
    return None


def _must_stay_terminated(status: ContainerStatus, spec: PodSpec) -> bool:
    terminated = status.state.terminated
    if terminated is None:
        return False
    return terminated.exit_code == 0 or spec.restart_policy != "OnFailure"


def _came_back(status: ContainerStatus, new: Statuses | None) -> bool:
    return any(n.name == status.name and n.state.terminated is None for n in new or ())


def _container_at(
    containers: tuple[Container, ...], status: ContainerStatus, index: int
) -> Container | None:
    """The container at `index` if it has the status's name. Follows `GetContainerByIndex`."""
    if index < len(containers) and containers[index].name == status.name:
        return containers[index]
    return None


def _restarts_by_its_own_policy(containers: tuple[Container, ...], status: ContainerStatus) -> bool:
    """True if the container's own rules or policy, not the pod's, restart it after this exit."""
    terminated = status.state.terminated
    exit_code = terminated.exit_code if terminated is not None else 0
    for container in containers:
        if container.name != status.name or not container.restart_policy:
            continue
        rule = _matching_rule(container, exit_code)
        if rule is not None and rule.action in ("Restart", "RestartAllContainers"):
            return True
        if container.restart_policy == "Always":
            return True
        return container.restart_policy == "OnFailure" and exit_code != 0
    return False


def _matching_rule(container: Container, exit_code: int) -> ContainerRestartRule | None:
    for rule in container.restart_policy_rules:
        if rule.exit_codes is not None and (exit_code in rule.exit_codes.values) == (
            rule.exit_codes.operator == "In"
        ):
            return rule
    return None


def _may_restart_all(spec: PodSpec) -> bool:
    return any(
        rule.action == "RestartAllContainers"
        for container in (*spec.init_containers, *spec.containers)
        for rule in container.restart_policy_rules
    )


def terminated_status(
    pod: Pod, status: PodStatus, rules: StatusRules, *, is_static: bool
) -> PodStatus:
    """`status`, the last one known of `pod`, with what the kubelet fills in when it has stopped the
    pod or found it gone. Follows `TerminatePod` up to the point where the status is accepted."""
    regular, init = status.container_statuses, status.init_container_statuses
    if rules.terminate_overwrites_all:
        regular = regular and tuple(replace(s, state=_OVERWRITTEN) for s in regular)
        init = init and tuple(replace(s, state=_OVERWRITTEN) for s in init)
    elif not rules.terminate_keeps_never_started:
        regular = regular and _defaulted(regular, keep_waiting=True)
        init = init and _defaulted(init, keep_waiting=True)
    else:
        if regular and has_pod_initialized(pod, rules):
            regular = _defaulted(regular)
        if init:
            started = _number_that_may_have_started(init)
            init = _defaulted(init[:started]) + init[started:]
    phase = status.phase
    if rules.terminate_sets_phase and not is_static and phase not in TERMINAL_PHASES:
        phase = "Failed"
    return replace(status, phase=phase, container_statuses=regular, init_container_statuses=init)


def has_pod_initialized(pod: Pod, rules: StatusRules) -> bool:
    """True if `pod.status` proves that the init containers were through once, so that a regular
    container may have run. Follows `hasPodInitialized`."""
    if not pod.spec.init_containers:
        return True
    for status in pod.status.container_statuses or ():
        if status.last_state.terminated is not None or status.state.waiting is None:
            return True
    init = pod.status.init_container_statuses or ()
    return bool(init) and _last_init_container_is_through(pod.spec, init, rules)


def _last_init_container_is_through(spec: PodSpec, init: Statuses, rules: StatusRules) -> bool:
    last = init[-1]
    if rules.init_matched_by_index:
        container = _container_at(spec.init_containers, last, len(init) - 1)
        if container is None:
            return False
        if is_sidecar(container):
            return last.state.running is not None and bool(last.started)
    return any(
        state.terminated is not None and state.terminated.exit_code == 0
        for state in (last.last_state, last.state)
    )


def _number_that_may_have_started(init: Statuses) -> int:
    """How many from the front: all up to the last one that is not waiting or has run before, and at
    least one. Follows `initializedContainers`."""
    for index in reversed(range(len(init))):
        if init[index].state.waiting is None or init[index].last_state.terminated is not None:
            return index + 1
    return 1


def _defaulted(statuses: Statuses, *, keep_waiting: bool = False) -> Statuses:
    return tuple(
        status
        if status.state.terminated is not None or (keep_waiting and status.state.waiting)
        else replace(status, state=_UNKNOWN)
        for status in statuses
    )
