"""PodDisruptionBudgets: what the disruption controller writes into their status, and what the
Eviction API decides by it.

The arithmetic follows pkg/controller/disruption/disruption.go (`trySync`, `getExpectedPodCount`,
`buildDisruptedPodMap`, `countHealthyPods`, `updatePdbStatus`, `failSafe`) and component-helpers
apps/poddisruptionbudget. Both percentages round up. Left out: events, and the stale
DisruptionTarget conditions that the same controller resets on pods.

The decision about one pod follows pkg/registry/core/pod/storage/eviction.go (`Create`,
`checkAndDecrement`); what the DELETE then does is in `kube.deletion`. Decisions are values: the
caller writes the status that comes with an `Allowed`. Left out: admission, which comes before;
conflicts between writers, which arise only over time (the drain planner simulates them); the
options' own preconditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.selectors import SelectorIndex
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.workload import (
    Condition,
    NotAPercentage,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    scaled_value,
)
from kubectl_nodelife.workloads.owners import OwnerLookup, Scale, SyncFailure, scale_of_pod

DELETION_TIMEOUT_NS: Final = 2 * MINUTE_NS
"""How long a pod that the Eviction API let go counts as disrupted before it is marked deleted."""

DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
SYNC_FAILED: Final = "SyncFailed"
SUFFICIENT_PODS: Final = "SufficientPods"
INSUFFICIENT_PODS: Final = "InsufficientPods"


class Expectation(NamedTuple):
    """A budget's demands: expected and desired pods, and the names of pods without an owner."""

    expected: int
    desired: int
    unmanaged: tuple[str, ...] = ()


class LedgerEntry(NamedTuple):
    """The budget's status from an instant on; nanoseconds since the plan's moment."""

    at_ns: int
    healthy: int
    desired: int
    allowed: int


def rule_of(spec: PodDisruptionBudgetSpec) -> str:
    """The budget's rule as it is written: `maxUnavailable 1`."""
    if spec.max_unavailable is not None:
        return f"maxUnavailable {spec.max_unavailable}"
    if spec.min_available is not None:
        return f"minAvailable {spec.min_available}"
    return "no rule"


def numbers(budget: PodDisruptionBudget) -> str:
    """The budget's arithmetic in one clause."""
    status = budget.status
    return (
        f"budget {budget.name} ({rule_of(budget.spec)}) has {status.current_healthy} healthy of"
        f" {status.expected_pods} and needs {status.desired_healthy}"
    )


def is_healthy(pod: Pod) -> bool:
    """Ready and not marked deleted: it counts if nothing stands in disruptedPods for it either.
    Follows `countHealthyPods`.
    """
    return pod.metadata.deletion_timestamp is None and pod.ready()


def standing(disrupted: Mapping[str, Time], pods: Iterable[Pod], now_ns: int) -> dict[str, Time]:
    """The entries of disruptedPods that still keep a pod from counting. One ends when its pod is
    gone or marked deleted, and after two minutes. Follows `buildDisruptedPodMap`.
    """
    if not disrupted:
        return {}
    unmarked = {pod.name for pod in pods if pod.metadata.deletion_timestamp is None}
    return {
        name: since
        for name, since in disrupted.items()
        if name in unmarked and since + DELETION_TIMEOUT_NS > now_ns
    }


def budget_index(budgets: Iterable[PodDisruptionBudget]) -> SelectorIndex[PodDisruptionBudget]:
    """The budgets by what they select; an empty selector means all pods of the namespace."""
    index: SelectorIndex[PodDisruptionBudget] = SelectorIndex()
    for budget in budgets:
        index.add(budget.namespace, budget.spec.selector, budget)
    return index


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
    desired = desired_pods(spec, sum(scales.values()), 0)
    return desired._replace(unmanaged=tuple(unmanaged))


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
    if spec.max_unavailable is None and isinstance(spec.min_available, int):
        return Expectation(count, spec.min_available)
    try:
        if spec.max_unavailable is not None:
            return Expectation(scale, max(0, scale - scaled_value(spec.max_unavailable, scale)))
        if spec.min_available is not None:
            return Expectation(scale, scaled_value(spec.min_available, scale))
    except NotAPercentage as error:
        raise SyncFailure(str(error)) from None
    return Expectation(0, 0)


def disruptions_allowed(healthy: int, desired: int, expected: int) -> int:
    """How many more pods may go now; 0 where nothing is expected. Follows `updatePdbStatus`."""
    return max(0, healthy - desired) if expected > 0 else 0


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


MAX_DISRUPTED_PODS: Final = 2000
ALWAYS_ALLOW: Final = "AlwaysAllow"


TWO_BUDGETS: Final = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    " support."
)
VIOLATES: Final = "Cannot evict pod as it would violate the pod's disruption budget."

# Gates: which rule decided. The words are those of the plan's JSON.
GATE_PDB: Final = "pdb"
GATE_TWO_PDBS: Final = "two-pdbs"
GATE_SYNC_FAILED: Final = "pdb-sync-failed"
GATE_STALE: Final = "pdb-stale"
GATE_UNREADY: Final = "unready-under-pdb"


class Allowed(NamedTuple):
    """The eviction goes through: the pod is deleted.

    `budget` is the one that was checked, or None; `status` what to write to it, or None where it is
    not spent; `guarded`: the deletion holds only for the pod as it was seen (its resourceVersion).
    """

    budget: PodDisruptionBudget | None = None
    status: PodDisruptionBudgetStatus | None = None
    guarded: bool = False


class EvictionRefused(NamedTuple):
    """The eviction is refused. `cause` is the status' DisruptionBudget cause, "" if it has none."""

    code: int
    message: str
    gate: str
    cause: str = ""
    retry_after_seconds: int = 0
    budget: PodDisruptionBudget | None = None


def as_answered(refusal: EvictionRefused, *, names_budget: bool) -> EvictionRefused:
    """The refusal as an API server sends it: up to 1.36 its 403s have no cause (`names_budget`)."""
    if names_budget or refusal.code != 403 or refusal.gate != GATE_PDB:
        return refusal
    return refusal._replace(cause="")


def can_ignore_budgets(pod: Pod) -> bool:
    """True if budgets do not matter: the pod has ended, has not started, or terminates already.

    Follows `canIgnorePDB`.
    """
    return (
        pod.status.phase in TERMINAL_PHASES
        or pod.status.phase == "Pending"
        or pod.metadata.deletion_timestamp is not None
    )


def decide_eviction(
    pod: Pod, budgets: Sequence[PodDisruptionBudget], now_ns: int, *, dry_run: bool = False
) -> Allowed | EvictionRefused:
    """The answer to POST pods/eviction, given the budgets of the namespace that match the pod.

    The budgets' statuses are taken as they are; a dry run spends nothing.
    """
    if can_ignore_budgets(pod):
        terminal = pod.status.phase in TERMINAL_PHASES
        going = pod.metadata.deletion_timestamp is not None
        return Allowed(guarded=not terminal and not going)
    if len(budgets) > 1:
        return EvictionRefused(500, TWO_BUDGETS, GATE_TWO_PDBS)
    if not budgets:
        return Allowed()
    budget = budgets[0]
    if not pod.ready():
        if budget.spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW:
            return Allowed(budget, guarded=True)
        # IfHealthyBudget, which is also what no policy means.
        if budget.status.current_healthy >= budget.status.desired_healthy > 0:
            return Allowed(budget, guarded=True)
    return _check_and_decrement(pod, budget, now_ns, dry_run)


def asks_budgets(pod: Pod, budgets: Sequence[PodDisruptionBudget], now_ns: int) -> bool:
    """True if the pod's eviction counts against the budgets that match it, or is refused by them.

    That of a pod that is not Ready, which its one budget allows all the same, does not count.
    """
    if not budgets or can_ignore_budgets(pod):
        return False
    if len(budgets) > 1 or pod.ready():
        return True
    answer = decide_eviction(pod, budgets, now_ns, dry_run=True)
    return not isinstance(answer, Allowed) or not answer.guarded


_NOT_NOW: Final = "The disruption budget {} does not allow evicting pods currently"


def _check_and_decrement(
    pod: Pod, budget: PodDisruptionBudget, now_ns: int, dry_run: bool
) -> Allowed | EvictionRefused:
    status = budget.status
    if status.observed_generation < budget.metadata.generation:
        cause = f"The disruption budget {budget.name} is still being processed by the server."
        return EvictionRefused(429, VIOLATES, GATE_STALE, cause, 10, budget)
    if status.disruptions_allowed < 0:
        why = "pdb disruptions allowed is negative"
        cause = f"{_NOT_NOW.format(budget.name)}: {why}"
        return EvictionRefused(403, _forbidden(budget, why), GATE_PDB, cause, budget=budget)
    if len(status.disrupted_pods or ()) > MAX_DISRUPTED_PODS:
        message = _forbidden(
            budget,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        )
        cause = _NOT_NOW.format(budget.name)
        cause += ": too many pending evictions not confirmed by PDB controller"
        return EvictionRefused(403, message, GATE_PDB, cause, budget=budget)
    if status.disruptions_allowed == 0:
        gate, cause = _why_none_allowed(pod, budget)
        return EvictionRefused(429, VIOLATES, gate, cause, 0, budget)
    if dry_run:
        return Allowed(budget)
    return Allowed(budget, spend(status, pod.name, now_ns))


def spend(
    status: PodDisruptionBudgetStatus, pod_name: str, now_ns: int
) -> PodDisruptionBudgetStatus:
    """The status after one disruption more, with the pod among the disrupted."""
    spent = msgspec.structs.replace(
        status,
        disruptions_allowed=status.disruptions_allowed - 1,
        disrupted_pods={**(status.disrupted_pods or {}), pod_name: Time(now_ns)},
    )
    return with_allowed_condition(spent, now_ns) if spent.disruptions_allowed == 0 else spent


def _why_none_allowed(pod: Pod, budget: PodDisruptionBudget) -> tuple[str, str]:
    """(gate, the cause's message) of a budget that allows nothing."""
    status, name = budget.status, budget.name
    condition = allowed_condition(status)
    has_message = condition is not None and condition.status == "False" and bool(condition.message)
    if condition is not None and has_message and condition.reason == SYNC_FAILED:
        # Checked first: the counts are not reliable when the sync failed.
        return GATE_SYNC_FAILED, (
            f"The disruption budget {name} does not allow evicting pods currently because it"
            f" failed sync: {condition.message}"
        )
    gate = GATE_PDB if pod.ready() else GATE_UNREADY
    if status.current_healthy <= status.desired_healthy:
        return gate, (
            f"The disruption budget {name} needs {status.desired_healthy} healthy pods and has"
            f" {status.current_healthy} currently"
        )
    if condition is not None and has_message:
        return gate, (
            f"The disruption budget {name} does not allow evicting pods currently"
            f" ({condition.reason}): {condition.message}"
        )
    return gate, f"The disruption budget {name} does not allow evicting pods currently"


def _forbidden(budget: PodDisruptionBudget, why: str) -> str:
    return f'poddisruptionbudget.policy "{budget.name}" is forbidden: {why}'
