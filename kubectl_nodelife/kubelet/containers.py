"""The result of a pod sync: the states of containers, and from them phase and conditions.

Follows `getPhase` and `generateAPIPodStatus` in pkg/kubelet/kubelet_pods.go, with the conditions of
`conditions`. Pure. Left out on purpose: probes (a container that runs is ready unless it is set
otherwise), back-off between restarts, and sidecars in the phase.

If a container may leave the state "terminated", and in which states a dead pod leaves its
containers, follows pkg/kubelet/status/status_manager.go (`checkContainerStateTransition`,
`TerminatePod`, `hasPodInitialized`, `initializedContainers`) and pkg/api/v1/pod/util.go
(`ContainerShouldRestart`). Left out on purpose: the log lines about phases that TerminatePod did
not expect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import (
    TERMINAL_PHASES,
    Container,
    ContainerRestartRule,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)
from kubectl_nodelife.kubelet.conditions import (
    READY_TO_START_CONTAINERS,
    PodSandbox,
    containers_ready_condition,
    initialized_condition,
    is_sidecar,
    pod_scheduled_condition,
    ready_condition,
    ready_to_start_condition,
)
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.kubelet.status import with_condition

CREATING = "ContainerCreating"


class ContainerStep(msgspec.Struct, frozen=True):
    """A container's next state: "running", "waiting" or "terminated", with what belongs to it."""

    state: str
    reason: str = ""
    exit_code: int = 0
    message: str = ""


def with_container_statuses(pod: Pod, now_ns: int) -> PodStatus:
    """The pod's status with a status for each container and an id for each status.

    A container without a status in the API server's object has the state that the phase implies.
    """
    status = pod.status
    if status.container_statuses is None and not status.init_container_statuses:
        init = tuple(replace(_ended(c.name, now_ns), ready=True) for c in pod.spec.init_containers)
        status = replace(
            status,
            container_statuses=tuple(
                _status_from_phase(container.name, status, now_ns)
                for container in pod.spec.containers
            ),
            init_container_statuses=init or None,
        )
    return replace(
        status,
        container_statuses=_with_ids(pod, status.container_statuses),
        init_container_statuses=_with_ids(pod, status.init_container_statuses),
    )


def stepped(
    pod: Pod, status: PodStatus, names: Iterable[str], step: ContainerStep, now_ns: int
) -> PodStatus:
    """`status` with these containers in their next state; phase and conditions stay as they are."""
    wanted = frozenset(names)

    def each(statuses: tuple[ContainerStatus, ...] | None) -> tuple[ContainerStatus, ...] | None:
        return statuses and tuple(
            _stepped(s, step, now_ns) if s.name in wanted else s for s in statuses
        )

    return replace(
        status,
        container_statuses=each(status.container_statuses),
        init_container_statuses=each(status.init_container_statuses),
    )


def generated(
    spec: PodSpec, status: PodStatus, rules: StatusRules, *, is_terminal: bool = False
) -> PodStatus:
    """`status` with the phase and conditions that follow from its container statuses.

    `is_terminal`: the kubelet has ended the pod and restarts nothing, and its sandbox is stopped. A
    reason and a message stay as long as the phase does. Follows `generateAPIPodStatus`.
    """
    phase = pod_phase(spec, status, is_terminal=is_terminal)
    if status.phase in TERMINAL_PHASES and _is_kept(status.phase, phase, rules):
        phase = status.phase
    elif phase != status.phase:
        status = replace(status, phase=phase, reason="", message="")
    conditions = [
        initialized_condition(spec, status, rules),
        ready_condition(spec, status, rules),
        containers_ready_condition(spec, status, rules),
        pod_scheduled_condition(),
    ]
    if status.condition(READY_TO_START_CONTAINERS) is not None:
        conditions.append(ready_to_start_condition(spec, (PodSandbox(not is_terminal),), rules))
    for condition in conditions:
        status = replace(status, conditions=_put(status.conditions, condition))
    return status


def _is_kept(before: str, computed: str, rules: StatusRules) -> bool:
    """True if a terminal phase stays though the containers tell of another. From 1.38 on Failed
    stays though all of them succeeded, since an eviction may have failed the pod (#142761).
    """
    if computed == "Failed":
        return False
    return computed != "Succeeded" or before == "Succeeded" or rules.evicted_stays_failed


def pod_phase(spec: PodSpec, status: PodStatus, *, is_terminal: bool = False) -> str:
    """The phase that follows from the states of the containers. Follows `getPhase`."""
    init = {s.name: s for s in status.init_container_statuses or ()}
    regular = {s.name: s for s in status.container_statuses or ()}
    firsts = [_init_outcome(init.get(c.name)) for c in spec.init_containers]
    if "failed" in firsts and spec.restart_policy == "Never":
        return "Failed"
    states = [_regular_outcome(regular.get(c.name)) for c in spec.containers]
    if "pending" in firsts or "waiting" in states or "unknown" in states:
        return "Pending"
    if "running" in states:
        return "Running"
    if not states:
        return "Pending"
    if spec.restart_policy in ("", "Always") and not is_terminal:
        return "Running"
    if set(states) == {"succeeded"}:
        return "Succeeded"
    return "Failed" if spec.restart_policy == "Never" or is_terminal else "Running"


def _init_outcome(status: ContainerStatus | None) -> str:
    if status is None or status.state.running is not None:
        return "pending"
    ended = status.state.terminated or (
        status.last_state.terminated if status.state.waiting is not None else None
    )
    if ended is None:
        return "pending"
    return "through" if ended.exit_code == 0 else "failed"


def _regular_outcome(status: ContainerStatus | None) -> str:
    if status is None:
        return "unknown"
    state = status.state
    if state.running is not None:
        return "running"
    if state.terminated is not None:
        return "succeeded" if state.terminated.exit_code == 0 else "stopped"
    if state.waiting is not None:
        return "stopped" if status.last_state.terminated is not None else "waiting"
    return "unknown"


def _stepped(status: ContainerStatus, step: ContainerStep, now_ns: int) -> ContainerStatus:
    before = status.state
    last = before if before.terminated is not None else status.last_state
    match step.state:
        case "running":
            again = before.terminated is not None or status.last_state.terminated is not None
            return replace(
                status,
                ready=True,
                started=True,
                state=ContainerState(running=ContainerStateRunning(started_at=Time(now_ns))),
                last_state=last,
                restart_count=status.restart_count + again,
            )
        case "waiting":
            waiting = ContainerStateWaiting(reason=step.reason or CREATING)
            state = ContainerState(waiting=waiting)
        case _:
            began = before.running.started_at if before.running is not None else None
            word = "Completed" if step.exit_code == 0 else "Error"
            terminated = ContainerStateTerminated(
                exit_code=step.exit_code,
                reason=step.reason or word,
                message=step.message,
                started_at=began,
                finished_at=Time(now_ns),
                container_id=status.container_id,
            )
            state, last = ContainerState(terminated=terminated), status.last_state
    return replace(status, ready=False, started=False, state=state, last_state=last)


def _status_from_phase(name: str, status: PodStatus, now_ns: int) -> ContainerStatus:
    if status.phase in ("", "Pending"):
        waiting = ContainerState(waiting=ContainerStateWaiting(reason=CREATING))
        return ContainerStatus(name=name, started=False, state=waiting)
    if status.phase in TERMINAL_PHASES:
        return _ended(name, now_ns, exit_code=int(status.phase == "Failed"))
    running = ContainerStateRunning(started_at=status.start_time or Time(now_ns))
    return ContainerStatus(
        name=name, ready=True, started=True, state=ContainerState(running=running)
    )


def _ended(name: str, now_ns: int, exit_code: int = 0) -> ContainerStatus:
    step = ContainerStep("terminated", exit_code=exit_code)
    return _stepped(ContainerStatus(name=name), step, now_ns)


def _with_ids(
    pod: Pod, statuses: tuple[ContainerStatus, ...] | None
) -> tuple[ContainerStatus, ...] | None:
    return statuses and tuple(
        s if s.container_id else replace(s, container_id=f"simulated://{pod.uid}/{s.name}")
        for s in statuses
    )


def _put(conditions: tuple[PodCondition, ...], new: PodCondition) -> tuple[PodCondition, ...]:
    """The conditions with the new one; one with the same content keeps its times."""
    for present in conditions:
        if present.type == new.type and (present.status, present.reason, present.message) == (
            new.status,
            new.reason,
            new.message,
        ):
            return conditions
    return with_condition(conditions, new)


Statuses = tuple[ContainerStatus, ...]

_OVERWRITTEN: Final = ContainerState(terminated=ContainerStateTerminated())
_UNKNOWN: Final = ContainerState(
    terminated=ContainerStateTerminated(
        reason="ContainerStatusUnknown",
        message="The container could not be located when the pod was terminated",
        exit_code=137,
    )
)
_ILLEGAL: Final = "attempted illegal transition to non-terminated state"


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
        if _may_not_come_back(status, new.container_statuses, spec.containers, spec, rules):
            return f"terminated container {status.name} {_ILLEGAL}"
    for index, status in enumerate(old.init_container_statuses or ()):
        if rules.init_matched_by_index:
            container = _container_at(spec.init_containers, status, index)
            if container is None:
                return f"found mismatch between pod spec and status, container: {status.name}"
            if is_sidecar(container):
                continue
        now, containers = new.init_container_statuses, spec.init_containers
        if _may_not_come_back(status, now, containers, spec, rules):
            return f"terminated init container {status.name} {_ILLEGAL}"
    return None


def _may_not_come_back(
    old: ContainerStatus,
    new: Statuses | None,
    containers: tuple[Container, ...],
    spec: PodSpec,
    rules: StatusRules,
) -> bool:
    """True if the container is back, which had to stay terminated."""
    terminated = old.state.terminated
    if terminated is None or (terminated.exit_code != 0 and spec.restart_policy == "OnFailure"):
        return False
    if _restarts_by_its_own_policy(containers, old.name, terminated.exit_code, rules):
        return False
    return any(n.name == old.name and n.state.terminated is None for n in new or ())


def _container_at(
    containers: tuple[Container, ...], status: ContainerStatus, index: int
) -> Container | None:
    """The container at `index` if it has the status's name. Follows `GetContainerByIndex`."""
    if index < len(containers) and containers[index].name == status.name:
        return containers[index]
    return None


def _restarts_by_its_own_policy(
    containers: tuple[Container, ...], name: str, exit_code: int, rules: StatusRules
) -> bool:
    """True if the container's own rules or policy, not the pod's, restart it after this exit."""
    if not rules.restart_rules:
        return False
    actions = ("Restart", "RestartAllContainers") if rules.restart_all_containers else ("Restart",)
    for container in containers:
        if container.name != name or not container.restart_policy:
            continue
        rule = _matching_rule(container, exit_code)
        if rule is not None and rule.action in actions:
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
    """True if `pod.status` proves that the init containers completed once, so that a regular
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
