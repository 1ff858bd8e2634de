"""How the kubelet makes a whole PodStatus comparable, and merges it with the API server's into
the one that it sends.

Follows pkg/kubelet/status/status_manager.go: `normalizeStatus`, `isPodStatusByKubeletEqual`,
`updateLastTransitionTime`, `mergePodStatus`. Objects are frozen here, so each function returns a
new status, and the same object where nothing changes (which makes later comparisons fast). Left
out on purpose: cutting a message in the middle of a character; the rest of that character goes too.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import (
    TERMINAL_PHASES,
    ContainerState,
    ContainerStatus,
    PodCondition,
    PodSpec,
    PodStatus,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kubelet.conditions import (
    CONTAINERS_READY,
    DISRUPTION_TARGET,
    READY,
    owned_types,
    shared_types,
    terminal_phase_condition,
)
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
    if rules.volume_health_in_seconds:
        status = _with_whole_second_volumes(status)
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
    with the same status, reason and message (from 1.33 on `old` has no others either), and all else
    but conditions is the same.

    As upstream's semantic equality, an absent list and an empty one are the same.
    """
    if old is new:
        return True
    compared = owned_types(rules) | shared_types(rules)
    words, before = (
        {c.type: (c.status, c.reason, c.message) for c in status.conditions if c.type in compared}
        for status in (new, old)
    )
    if rules.lost_condition_differs and len(before) != len(words):
        return False
    if any(before.get(type_) != told for type_, told in words.items()):
        return False
    return _without_conditions(old, rules) == _without_conditions(new, rules)


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


def with_conditions_of_others(
    own: PodStatus, shown: PodStatus, rules: StatusRules, *, shared_are_set: bool = True
) -> PodStatus:
    """`own` with the conditions of others as the API server shows them.

    `shared_are_set`: one that the kubelet shares with others is as in `own` where it has it.
    Follows `generateAPIPodStatus`, which a pod sync calls, and `mergePodStatus`.
    """
    owned, shared = owned_types(rules), shared_types(rules)
    conditions = tuple(c for c in shown.conditions if c.type not in owned)
    for condition in own.conditions:
        if condition.type in owned:
            conditions = (*conditions, condition)
        elif condition.type in shared and shared_are_set:
            conditions = with_condition(conditions, condition)
    return replace(own, conditions=conditions)


def _without_conditions(status: PodStatus, rules: StatusRules) -> PodStatus:
    claims = () if rules.claims_never_differ else status.resource_claim_statuses
    return replace(
        status,
        conditions=(),
        resource_claim_statuses=claims,
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


def _with_whole_second_volumes(status: PodStatus) -> PodStatus:
    health = tuple(
        replace(volume, last_transition_time=_whole_seconds(volume.last_transition_time))
        for volume in status.volume_health
    )
    return replace(status, volume_health=health) if health != status.volume_health else status


def _whole_seconds(time: Time | None) -> Time | None:
    if time is None or time % SECOND_NS == 0:
        return time
    return Time(time - time % SECOND_NS)


def merge_pod_status(
    old: PodStatus,
    new: PodStatus,
    rules: StatusRules,
    *,
    could_have_running_containers: bool,
    now_ns: int,
) -> PodStatus:
    """The status to send, where the API server shows `old` and the kubelet has `new`.

    Conditions of others stay as they are in `old`, and those in `new` are dropped. A terminal phase
    waits until no container could run any more.
    """
    now_ns -= now_ns % SECOND_NS  # as it is sent; else a time of this very second would be a change
    becomes_terminal = old.phase not in TERMINAL_PHASES and new.phase in TERMINAL_PHASES
    waits = rules.phase_waits_for_containers and could_have_running_containers
    ends = becomes_terminal and not waits
    if ends:
        # the time set when the status was accepted is stale by now: the containers had to stop
        # first
        new = with_last_transition_times(new, old, (DISRUPTION_TARGET,), now_ns)
    merged = with_conditions_of_others(new, old, rules, shared_are_set=ends)
    if rules.resource_claims:
        merged = replace(merged, resource_claim_statuses=old.resource_claim_statuses)
    if becomes_terminal and waits:
        merged = replace(merged, phase=old.phase, reason=old.reason, message=old.message)
    if rules.terminal_not_ready and merged.phase in TERMINAL_PHASES:
        merged = _never_ready(merged, now_ns)
    return _with_whole_second_volumes(merged)  # as it is sent: a fraction alone is no change


def _never_ready(status: PodStatus, now_ns: int) -> PodStatus:
    """A terminal pod must not look ready (issue 108594)."""
    if not any(_is_true(status, type_) for type_ in (READY, CONTAINERS_READY)):
        return status
    conditions = status.conditions
    for type_ in (CONTAINERS_READY, READY):
        conditions = with_condition(conditions, terminal_phase_condition(type_, status.phase))
    return with_last_transition_times(
        replace(status, conditions=conditions), status, (CONTAINERS_READY, READY), now_ns
    )


def _is_true(status: PodStatus, type_: str) -> bool:
    condition = status.condition(type_)
    return condition is not None and condition.status == "True"
