"""Budgets in words: their arithmetic, and why one refuses. What unblocks a pod is in `remedies`."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.drain.actors import PlannedPod
from kubectl_nodelife.drain.world import Play
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger
from kubectl_nodelife.workloads.budgets import rule_of, sync_failure
from kubectl_nodelife.workloads.eviction import EvictionRefused

OPERATORS: Final = (
    ("cnpg.io/cluster", "CloudNativePG", "switch the primary over, or set nodeMaintenanceWindow"),
    ("postgres-operator.crunchydata.com/cluster", "PGO", "switch the primary over first"),
    ("longhorn.io/component", "Longhorn", "set its node-drain-policy, or evict its replicas first"),
    ("strimzi.io/cluster", "Strimzi", "let Strimzi's drain cleaner roll the pod"),
    ("kubevirt.io", "KubeVirt", "let it migrate the virtual machine (evictionStrategy)"),
    ("ceph.rook.io/fs", "Rook", "wait until Ceph's placement groups are active+clean"),
    ("rook_cluster", "Rook", "wait until Ceph's placement groups are active+clean"),
)
"""Operators that pin budgets at 0 by design: (a label of their pods, name, the proper way)."""


def numbers(budget: PodDisruptionBudget) -> str:
    """The budget's arithmetic in one clause."""
    status = budget.status
    return (
        f"budget {budget.name} ({rule_of(budget.spec)}) has {status.current_healthy} healthy of"
        f" {status.expected_pods} and needs {status.desired_healthy}"
    )


def operator_of(pod: Pod) -> tuple[str, str] | None:
    """(name, the proper way) of the operator that the pod belongs to, if it is one known here."""
    labels = pod.metadata.labels or {}
    for label, name, way in OPERATORS:
        if label in labels:
            return name, way
    return None


class Advice:
    """Sentences about one run."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def numbers(self, ledger: BudgetLedger) -> str:
        """The budget's arithmetic at the plan's moment."""
        return numbers(self._play.scope.ledgers[ledger.budget.key].budget)

    def why_refused(self, actor: PlannedPod, ledger: BudgetLedger, refusal: EvictionRefused) -> str:
        """Why the budget refuses, in a sentence with the numbers as they are at the end."""
        budget = ledger.budget
        told = numbers(budget)
        if refusal.gate == "pdb-stale":
            failure = sync_failure(budget.status)
            return (
                f"the status of budget {budget.name} is of generation"
                f" {budget.status.observed_generation}, its spec of {budget.metadata.generation}:"
                " the disruption controller "
                + ("has not looked at it" if failure is None else f"fails on it: {failure}")
            )
        if refusal.gate == "pdb-sync-failed":
            failure = sync_failure(budget.status)
            return f"the sync of budget {budget.name} failed, so nothing may go: {failure}"
        if refusal.gate == "unready-under-pdb":
            policy = budget.spec.unhealthy_pod_eviction_policy or "IfHealthyBudget"
            return f"it is not Ready, and {told}; {policy} protects it until the others are healthy"
        return f"{told}; {self._why_none(actor, ledger)}"

    def _why_none(self, actor: PlannedPod, ledger: BudgetLedger) -> str:
        status = ledger.budget.status
        if status.desired_healthy >= status.expected_pods:
            return "it can never spare one"
        unready = ledger.matched - ledger.healthy
        if unready > 0:
            verb = "is" if unready == 1 else "are"
            return f"{unready} of its pods {verb} not Ready, and nothing that was read changes that"
        return "it does not refill"
