"""What the kubelet does to a whole PodStatus before it compares or sends it.

Follows pkg/kubelet/status/status_manager.go: `normalizeStatus`, `isPodStatusByKubeletEqual`,
`updateLastTransitionTime`. Objects are frozen here, so each function returns a new status, and
the very same one where nothing changes (which later comparisons profit from). Left out on
purpose: cutting a message in the middle of a character; the rest of that character goes too.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import (
    ContainerState,
    ContainerStatus,
    PodCondition,
    PodSpec,
    PodStatus,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kubelet.conditions import owned_types, shared_types
from kubectl_nodelife.kubelet.releases import StatusRules

MAX_POD_TERMINATION_MESSAGE_BYTES: Final = 12 * 1024

Statuses = tuple[ContainerStatus, ...]


def normalize_status(spec: PodSpec, status: PodStatus, rules: StatusRules) -> PodStatus:
    """`status` as the API server gives it back: whole seconds, short messages, sorted lists."""
    limit = _message_bytes(spec, rules)
    regular = status.container_statuses
    init = status.init_container_statuses
    ephemeral = status.ephemeral_container_statuses
    if rules.ephemeral_counted and ephemeral:
        ephemeral = _by_container_name(_each(ephemeral, limit))
    return replace(
        status,
        start_time=_whole_seconds(status.start_time),
        conditions=tuple(_whole_second_condition(c) for c in status.conditions),
        container_statuses=regular and _by_container_name(_each(regular, limit)),
        init_container_statuses=init and _in_order_of_spec(spec, _each(init, limit)),
        ephemeral_container_statuses=ephemeral,
    )


def is_status_equal_by_kubelet(old: PodStatus, new: PodStatus, rules: StatusRules) -> bool:
    """True if the kubelet sees no difference: its own and shared conditions of `new` stand in `old`
    with the same status, reason and message, and all else but conditions is the same.

    As upstream's semantic equality, an absent list and an empty one are the same.
    """
    if old is new:
        return True
    compared = owned_types(rules) | shared_types(rules)
    for condition in new.conditions:
        if condition.type in compared and not _same_word(old.condition(condition.type), condition):
            return False
    return _without_conditions(old) == _without_conditions(new)


def with_last_transition_times(
    new: PodStatus, old: PodStatus, types: tuple[str, ...], now_ns: int
) -> PodStatus:
    """`new` with lastTransitionTime set in its conditions of these types: the time in `old` where
    the status is the same there, else `now_ns`. Follows `updateLastTransitionTime`."""
    pending = set(types)
    conditions = list(new.conditions)
    for index, condition in enumerate(conditions):
        if condition.type in pending:
            pending.discard(condition.type)  # only the first of a type, as upstream
            before = old.condition(condition.type)
            same = before is not None and before.status == condition.status
            time = before.last_transition_time if before is not None and same else Time(now_ns)
            conditions[index] = replace(condition, last_transition_time=time)
    return replace(new, conditions=tuple(conditions))


def with_condition(
    conditions: tuple[PodCondition, ...], condition: PodCondition
) -> tuple[PodCondition, ...]:
    """`conditions` with the first one of that type replaced, or with it appended."""
    for index, present in enumerate(conditions):
        if present.type == condition.type:
            return (*conditions[:index], condition, *conditions[index + 1 :])
    return (*conditions, condition)


def _same_word(old: PodCondition | None, new: PodCondition) -> bool:
    return old is not None and (old.status, old.reason, old.message) == (
        new.status,
        new.reason,
        new.message,
    )


def _without_conditions(status: PodStatus) -> PodStatus:
    return replace(
        status,
        conditions=(),
        container_statuses=status.container_statuses or (),
        init_container_statuses=status.init_container_statuses or (),
    )


def _message_bytes(spec: PodSpec, rules: StatusRules) -> int:
    count = len(spec.containers) + len(spec.init_containers)
    if rules.ephemeral_counted:
        count += len(spec.ephemeral_containers)
    return MAX_POD_TERMINATION_MESSAGE_BYTES // max(count, 1)


def _each(statuses: Statuses, limit: int) -> list[ContainerStatus]:
    return [
        replace(
            status,
            state=_normal_state(status.state, limit),
            last_state=_normal_state(status.last_state, limit),
        )
        for status in statuses
    ]


def _normal_state(state: ContainerState, limit: int) -> ContainerState:
    running, terminated = state.running, state.terminated
    if running is not None:
        running = replace(running, started_at=_whole_seconds(running.started_at))
    if terminated is not None:
        terminated = replace(
            terminated,
            started_at=_whole_seconds(terminated.started_at),
            finished_at=_whole_seconds(terminated.finished_at),
            message=_cut(terminated.message, limit),
        )
    return ContainerState(waiting=state.waiting, running=running, terminated=terminated)


def _cut(message: str, limit: int) -> str:
    if len(message) * 4 <= limit:  # no character takes more than four bytes
        return message
    return message.encode()[:limit].decode(errors="ignore")


def _by_container_name(statuses: list[ContainerStatus]) -> Statuses:
    return tuple(sorted(statuses, key=lambda status: status.name))


def _in_order_of_spec(spec: PodSpec, statuses: list[ContainerStatus]) -> Statuses:
    """Those that the spec knows, in its order, before the rest. Follows
    `SortInitContainerStatuses`."""
    place = {container.name: i for i, container in enumerate(spec.init_containers)}
    return tuple(sorted(statuses, key=lambda status: place.get(status.name, len(place))))


def _whole_second_condition(condition: PodCondition) -> PodCondition:
    transition, probe = condition.last_transition_time, condition.last_probe_time
    if (transition or 0) % SECOND_NS == 0 and (probe or 0) % SECOND_NS == 0:
        return condition
    return replace(
        condition,
        last_transition_time=_whole_seconds(transition),
        last_probe_time=_whole_seconds(probe),
    )


def _whole_seconds(time: Time | None) -> Time | None:
    if time is None or time % SECOND_NS == 0:
        return time
    return Time(time - time % SECOND_NS)
