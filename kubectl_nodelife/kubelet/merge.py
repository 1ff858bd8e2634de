"""What the kubelet sends: the API server's status and its own, put together.

Follows `mergePodStatus` in pkg/kubelet/status/status_manager.go. Pure: the two statuses and the
answer to "could containers of the pod still run?" in, the merged status out.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubectl_nodelife.kube.pod import PodCondition, PodStatus
from kubectl_nodelife.kubelet.conditions import (
    CONTAINERS_READY,
    DISRUPTION_TARGET,
    READY,
    TERMINAL_PHASES,
    owned_types,
    shared_types,
    terminal_phase_condition,
)
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.kubelet.status import with_condition, with_last_transition_times


def merge_pod_status(
    old: PodStatus,
    new: PodStatus,
    rules: StatusRules,
    *,
    could_have_running_containers: bool,
    now_ns: int,
) -> PodStatus:
    """The status to send, where the API server shows `old` and the kubelet believes `new`.

    Conditions of others stay as they are in `old`, and those in `new` are dropped. A terminal phase
    waits until no container could run any more.
    """
    becomes_terminal = old.phase not in TERMINAL_PHASES and new.phase in TERMINAL_PHASES
    waits = rules.phase_waits_for_containers and could_have_running_containers
    conditions = _merged_conditions(
        old, new, rules, disruption_may_be_set=becomes_terminal and not waits, now_ns=now_ns
    )
    merged = replace(new, conditions=conditions)
    if rules.resource_claims:
        merged = replace(merged, resource_claim_statuses=old.resource_claim_statuses)
    if becomes_terminal and waits:
        merged = replace(merged, phase=old.phase, reason=old.reason, message=old.message)
    if rules.terminal_not_ready and merged.phase in TERMINAL_PHASES:
        merged = _never_ready(merged, now_ns)
    return merged


def _merged_conditions(
    old: PodStatus,
    new: PodStatus,
    rules: StatusRules,
    *,
    disruption_may_be_set: bool,
    now_ns: int,
) -> tuple[PodCondition, ...]:
    owned, shared = owned_types(rules), shared_types(rules)
    conditions = tuple(c for c in old.conditions if c.type not in owned)
    if disruption_may_be_set:
        # the time set when the status was accepted is stale by now: the containers had to stop
        # first
        new = with_last_transition_times(new, old, (DISRUPTION_TARGET,), now_ns)
    for condition in new.conditions:
        if condition.type in owned:
            conditions = (*conditions, condition)
        elif condition.type in shared and disruption_may_be_set:
            conditions = with_condition(conditions, condition)
    return conditions


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
