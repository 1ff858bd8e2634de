"""The result of a pod sync: the states of containers, and from them phase and conditions.

Follows `getPhase` and `generateAPIPodStatus` in pkg/kubelet/kubelet_pods.go, with the conditions of
`conditions`. Pure. Left out on purpose: probes (a container that runs is ready unless it is set
otherwise), back-off between restarts, and sidecars in the phase.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import (
    TERMINAL_PHASES,
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
    containers_ready_condition,
    initialized_condition,
    pod_scheduled_condition,
    ready_condition,
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

    Where the API server's object says nothing of a container, it does what the phase says.
    """
    status = pod.status
    if status.container_statuses is None and not status.init_container_statuses:
        init = tuple(replace(_ended(c.name, now_ns), ready=True) for c in pod.spec.init_containers)
        status = replace(
            status,
            container_statuses=tuple(
                _as_phase_says(container.name, status, now_ns) for container in pod.spec.containers
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

    `is_terminal`: the kubelet has ended the pod and restarts nothing.
    """
    status = replace(status, phase=pod_phase(spec, status, is_terminal=is_terminal))
    for condition in (
        initialized_condition(spec, status, rules),
        ready_condition(spec, status, rules),
        containers_ready_condition(spec, status, rules),
        pod_scheduled_condition(),
    ):
        status = replace(status, conditions=_put(status.conditions, condition))
    return status


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


def _as_phase_says(name: str, status: PodStatus, now_ns: int) -> ContainerStatus:
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
    """The conditions with the new one; one that says the same keeps its times."""
    for present in conditions:
        if present.type == new.type and (present.status, present.reason, present.message) == (
            new.status,
            new.reason,
            new.message,
        ):
            return conditions
    return with_condition(conditions, new)
