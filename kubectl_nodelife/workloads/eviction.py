"""The Eviction API's decision about one pod (what the DELETE then does: `kube.deletion`).

Follows pkg/registry/core/pod/storage/eviction.go (`Create`, `checkAndDecrement`).
Decisions are values: the caller writes the status that comes with an `Allowed`. Left out:
admission, which comes before; conflicts between writers, which only time shows (the drain planner
plays them); the options' own preconditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.workload import PodDisruptionBudget, PodDisruptionBudgetStatus
from kubectl_nodelife.workloads.budgets import (
    SYNC_FAILED,
    allowed_condition,
    with_allowed_condition,
)

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

    `budget` is the one that was asked, or None; `status` what to write to it, or None where it is
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


def can_ignore_budgets(pod: Pod) -> bool:
    """True if budgets do not matter: the pod is over, has not begun, or is going already.

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

    The budgets' statuses are believed as they stand; a dry run spends nothing.
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
    """True if the pod's eviction spends of the budgets that match it, or is refused by them.

    One that is not Ready, and that its one budget lets go all the same, does not.
    """
    if not budgets or can_ignore_budgets(pod):
        return False
    if len(budgets) > 1 or pod.ready():
        return True
    answer = decide_eviction(pod, budgets, now_ns, dry_run=True)
    return not isinstance(answer, Allowed) or not answer.guarded


def _check_and_decrement(
    pod: Pod, budget: PodDisruptionBudget, now_ns: int, dry_run: bool
) -> Allowed | EvictionRefused:
    status = budget.status
    if status.observed_generation < budget.metadata.generation:
        cause = f"The disruption budget {budget.name} is still being processed by the server."
        return EvictionRefused(429, VIOLATES, GATE_STALE, cause, 10, budget)
    if status.disruptions_allowed < 0:
        message = _forbidden(budget, "pdb disruptions allowed is negative")
        return EvictionRefused(403, message, GATE_PDB, budget=budget)
    if len(status.disrupted_pods or ()) > MAX_DISRUPTED_PODS:
        message = _forbidden(
            budget,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        )
        return EvictionRefused(403, message, GATE_PDB, budget=budget)
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
    told = condition is not None and condition.status == "False" and bool(condition.message)
    if condition is not None and told and condition.reason == SYNC_FAILED:
        # Asked first: the counts are not to be trusted when the sync failed.
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
    if condition is not None and told:
        return gate, (
            f"The disruption budget {name} does not allow evicting pods currently"
            f" ({condition.reason}): {condition.message}"
        )
    return gate, f"The disruption budget {name} does not allow evicting pods currently"


def _forbidden(budget: PodDisruptionBudget, why: str) -> str:
    return f'poddisruptionbudget.policy "{budget.name}" is forbidden: {why}'
