"""PodDisruptionBudget arithmetic: what the disruption controller writes into a budget's status.

Follows pkg/controller/disruption/disruption.go (`trySync`, `getExpectedPodCount`,
`buildDisruptedPodMap`, `countHealthyPods`, `updatePdbStatus`, `failSafe`) and component-helpers
apps/poddisruptionbudget. Both percentages round up. Left out: events, and the stale
DisruptionTarget conditions that the same controller resets on pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.workload import (
    Condition,
    IntOrString,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from kubectl_nodelife.workloads.matching import SelectorIndex
from kubectl_nodelife.workloads.scales import OwnerLookup, Scale, SyncFailure, scale_of_pod

DELETION_TIMEOUT_NS: Final = 2 * MINUTE_NS
"""How long a pod that the Eviction API let go counts as disrupted before it is marked deleted."""

DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
SYNC_FAILED: Final = "SyncFailed"
SUFFICIENT_PODS: Final = "SufficientPods"
INSUFFICIENT_PODS: Final = "InsufficientPods"

_PERCENT = re.compile(r"[0-9]+%")


class Expectation(NamedTuple):
    """A budget's demands: expected and desired pods, and the names of pods without an owner."""

    expected: int
    desired: int
    unmanaged: tuple[str, ...] = ()


def rule_of(spec: PodDisruptionBudgetSpec) -> str:
    """The budget's rule as it is written: `maxUnavailable 1`."""
    if spec.max_unavailable is not None:
        return f"maxUnavailable {spec.max_unavailable}"
    if spec.min_available is not None:
        return f"minAvailable {spec.min_available}"
    return "no rule"


def budget_index(budgets: Iterable[PodDisruptionBudget]) -> SelectorIndex[PodDisruptionBudget]:
    """The budgets by what they select; an empty selector means all pods of the namespace."""
    index: SelectorIndex[PodDisruptionBudget] = SelectorIndex()
    for budget in budgets:
        index.add(budget.namespace, budget.spec.selector, budget)
    return index


def scaled_value(value: IntOrString, total: int) -> int:
    """An int as it is; a percentage of `total`, rounded up.

    Raises SyncFailure for text that is no percentage. Follows `GetScaledValueFromIntOrPercent`.
    """
    if isinstance(value, int):
        return value
    if _PERCENT.fullmatch(value) is None:
        raise SyncFailure("invalid value for IntOrString: invalid type: string is not a percentage")
    return -(-int(value[:-1]) * total // 100)


def counts_scales(spec: PodDisruptionBudgetSpec) -> bool:
    """True if the arithmetic asks for the owners' scales; an integer minAvailable counts pods."""
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def expected_pods(
    spec: PodDisruptionBudgetSpec, pods: Iterable[Pod], owners: OwnerLookup
) -> Expectation:
    """Expected and desired pods for the matching `pods`. Follows `getExpectedPodCount`.

    Raises SyncFailure, and ScaleUnknown where a needed scale is unknown.
    """
    if not counts_scales(spec):
        count = sum(1 for _ in pods)
        return desired_pods(spec, 0, count)
    scales: dict[str, int] = {}
    asked: set[str] = set()
    unmanaged: list[str] = []
    for pod in pods:
        scale = _scale_once(pod, owners, asked)
        if scale is not None:
            scales[scale.uid] = scale.replicas
        elif not any(owner.controller for owner in pod.metadata.owner_references):
            unmanaged.append(pod.name)
    found = desired_pods(spec, sum(scales.values()), 0)
    return found._replace(unmanaged=tuple(unmanaged))


def _scale_once(pod: Pod, owners: OwnerLookup, asked: set[str]) -> Scale | None:
    """The pod's scale, or None for an owner that was asked before and for a pod without one."""
    for owner in pod.metadata.owner_references:
        if owner.controller:
            if owner.uid in asked and owner.uid:
                return None
            asked.add(owner.uid)
            break
    return scale_of_pod(pod, owners)


def desired_pods(spec: PodDisruptionBudgetSpec, scale: int, count: int) -> Expectation:
    """Expected and desired pods from the sum of scales and the number of matching pods.

    Only one of the two is used (`counts_scales`). Raises SyncFailure.
    """
    if spec.max_unavailable is not None:
        return Expectation(scale, max(0, scale - scaled_value(spec.max_unavailable, scale)))
    if spec.min_available is None:
        return Expectation(0, 0)
    if isinstance(spec.min_available, int):
        return Expectation(count, spec.min_available)
    return Expectation(scale, scaled_value(spec.min_available, scale))


def disruptions_allowed(healthy: int, desired: int, expected: int) -> int:
    """How many more pods may go now; 0 where nothing is expected. Follows `updatePdbStatus`."""
    return max(0, healthy - desired) if expected > 0 else 0


def disrupted_pods(
    pods: Iterable[Pod], disrupted: Mapping[str, Time] | None, now_ns: int
) -> tuple[dict[str, Time], int | None]:
    """The entries that still stand, and when the first of them ends.

    An entry goes when its pod is gone or marked deleted, or was not so within two minutes.
    Follows `buildDisruptedPodMap`.
    """
    kept: dict[str, Time] = {}
    if not disrupted:
        return kept, None
    for pod in pods:
        since = disrupted.get(pod.name)
        if since is None or pod.metadata.deletion_timestamp is not None:
            continue
        if since + DELETION_TIMEOUT_NS >= now_ns:
            kept[pod.name] = since
    return kept, min((since + DELETION_TIMEOUT_NS for since in kept.values()), default=None)


def count_healthy_pods(pods: Iterable[Pod], disrupted: Mapping[str, Time], now_ns: int) -> int:
    """Ready pods that are neither marked deleted nor about to be. Follows `countHealthyPods`."""
    healthy = 0
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None:
            continue
        since = disrupted.get(pod.name)
        if since is not None and since + DELETION_TIMEOUT_NS > now_ns:
            continue
        if pod.ready():
            healthy += 1
    return healthy


def budget_status(
    budget: PodDisruptionBudget, pods: Iterable[Pod], owners: OwnerLookup, now_ns: int
) -> PodDisruptionBudgetStatus:
    """The status that one sync writes for the budget and the pods that it matches.

    Where upstream's sync fails the status is the old one with nothing allowed and the condition
    SyncFailed. The very same object comes back where nothing changes. Raises ScaleUnknown.
    """
    pods = list(pods)
    try:
        expectation = expected_pods(budget.spec, pods, owners)
    except SyncFailure as failure:
        return failed_status(budget, str(failure), now_ns)
    disrupted, _ = disrupted_pods(pods, budget.status.disrupted_pods, now_ns)
    healthy = count_healthy_pods(pods, disrupted, now_ns)
    return computed_status(budget, expectation, healthy, disrupted, now_ns)


def computed_status(
    budget: PodDisruptionBudget,
    expectation: Expectation,
    healthy: int,
    disrupted: Mapping[str, Time],
    now_ns: int,
) -> PodDisruptionBudgetStatus:
    """The status for counts that are known. Follows `updatePdbStatus`."""
    allowed = disruptions_allowed(healthy, expectation.desired, expectation.expected)
    status = PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disrupted_pods=dict(disrupted) or None,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=expectation.desired,
        expected_pods=expectation.expected,
        conditions=budget.status.conditions,
    )
    status = with_allowed_condition(status, now_ns)
    return budget.status if status == budget.status else status


def with_allowed_condition(
    status: PodDisruptionBudgetStatus, now_ns: int
) -> PodDisruptionBudgetStatus:
    """The status with condition DisruptionAllowed as its count says.

    Follows `UpdateDisruptionAllowedCondition`.
    """
    enough = status.disruptions_allowed > 0
    return _with_condition(
        status,
        Condition(
            type=DISRUPTION_ALLOWED,
            status="True" if enough else "False",
            reason=SUFFICIENT_PODS if enough else INSUFFICIENT_PODS,
            observed_generation=status.observed_generation,
        ),
        now_ns,
    )


def failed_status(
    budget: PodDisruptionBudget, message: str, now_ns: int
) -> PodDisruptionBudgetStatus:
    """The status after a sync that failed: nothing is allowed. Follows `failSafe`."""
    return _with_condition(
        msgspec.structs.replace(budget.status, disruptions_allowed=0),
        Condition(
            type=DISRUPTION_ALLOWED,
            status="False",
            reason=SYNC_FAILED,
            message=message,
            observed_generation=budget.status.observed_generation,
        ),
        now_ns,
    )


def _with_condition(
    status: PodDisruptionBudgetStatus, condition: Condition, now_ns: int
) -> PodDisruptionBudgetStatus:
    """As `SetStatusCondition`: the transition time moves only when the status does."""
    present = allowed_condition(status)
    since = Time(now_ns)
    if present is not None and present.status == condition.status:
        since = present.last_transition_time or since
    condition = msgspec.structs.replace(condition, last_transition_time=since)
    others = tuple(c for c in status.conditions if c.type != condition.type)
    return msgspec.structs.replace(status, conditions=(*others, condition))


def allowed_condition(status: PodDisruptionBudgetStatus) -> Condition | None:
    """The condition DisruptionAllowed, or None."""
    for condition in status.conditions:
        if condition.type == DISRUPTION_ALLOWED:
            return condition
    return None


def sync_failure(status: PodDisruptionBudgetStatus) -> str | None:
    """The message of the sync that failed, or None where the last one did not."""
    condition = allowed_condition(status)
    if condition is None or condition.reason != SYNC_FAILED or condition.status != "False":
        return None
    return condition.message
