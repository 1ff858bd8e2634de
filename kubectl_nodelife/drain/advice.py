"""Budgets in words, and the cheapest change that lets a pod go, with its risk."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.drain.actors import PlannedPod
from kubectl_nodelife.drain.play import Play
from kubectl_nodelife.drain.results import PodPlan, Remedy
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import PodDisruptionBudget, PodDisruptionBudgetSpec
from kubectl_nodelife.sim.kubectl.progress import PodDeletion
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger
from kubectl_nodelife.workloads.budgets import sync_failure
from kubectl_nodelife.workloads.eviction import EvictionRefused
from kubectl_nodelife.workloads.force_advice import AFTER_POWER_OFF

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
            return f"{unready} of its pods are not Ready, and nothing that was read changes that"
        return "it does not refill"

    def remedy(
        self, plan: PodPlan, actor: PlannedPod, target: PodDeletion[PlannedPod] | None
    ) -> Remedy | None:
        """The cheapest change that unblocks the pod, or None where there is nothing to change."""
        gate = actor.held[0] if actor.held is not None else plan.gate
        if gate == "kubelet-unreachable":
            return _unreachable(plan, actor, self._play.scope.snapshot)
        made = _REMEDIES.get(gate)
        return made(plan, actor) if made is not None else None


def _budget_remedy(plan: PodPlan, actor: PlannedPod) -> Remedy:
    operator = operator_of(actor.pod)
    if operator is not None:
        name, way = operator
        return Remedy(f"{name} pins this budget by design: {way}", "without it data may be lost")
    ledger = actor.ledgers[0]
    status, budget = ledger.budget.status, ledger.budget
    if status.desired_healthy >= status.expected_pods:
        if budget.spec.max_unavailable is not None:
            return Remedy(
                f"kubectl patch pdb {budget.name} -n {budget.namespace} --type merge"
                ' -p \'{"spec":{"maxUnavailable":1}}\'',
                "one pod fewer serves while its replacement starts",
            )
        missing = status.desired_healthy + 1 - status.expected_pods
        return Remedy(
            f"scale {plan.owner or 'the workload'} up by {missing}",
            "needs room for it, and an autoscaler may undo it",
        )
    return Remedy(
        f"make {status.desired_healthy + 1 - ledger.healthy} more of the budget's pods Ready",
        "none, if they can be mended",
    )


def _two_budgets(plan: PodPlan, actor: PlannedPod) -> Remedy:
    names = " or ".join(ledger.budget.name for ledger in actor.ledgers)
    return Remedy(
        f"delete one of the budgets or narrow its selector: {names}",
        "the other one alone guards the pod then",
    )


def _unready(plan: PodPlan, actor: PlannedPod) -> Remedy:
    budget = actor.ledgers[0].budget
    return Remedy(
        f"kubectl patch pdb {budget.name} -n {budget.namespace} --type merge"
        ' -p \'{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}\'',
        "pods that are still starting may be evicted too",
    )


def _sync_failed(plan: PodPlan, actor: PlannedPod) -> Remedy:
    budget = actor.ledgers[0].budget
    return Remedy(
        f"give budget {budget.name} an integer minAvailable, or make its selector match only pods"
        " of owners with a scale",
        "the number must be kept up by hand when the workload is scaled",
    )


def _stale(plan: PodPlan, actor: PlannedPod) -> Remedy:
    return Remedy(
        "find out why kube-controller-manager does not sync budgets", "none; evictions wait for it"
    )


def _landing(plan: PodPlan, actor: PlannedPod) -> Remedy:
    return Remedy(
        "add a node, or free one, that the replacement fits; then the budget refills",
        "none but its cost",
    )


def _webhook(plan: PodPlan, actor: PlannedPod) -> Remedy:
    return Remedy(
        "mend the webhook or policy that refuses, or exempt this pod from it",
        "what it protects is not protected meanwhile",
    )


def _finalizer(plan: PodPlan, actor: PlannedPod) -> Remedy:
    return Remedy(
        f"let the controller of the finalizer finish; else kubectl patch pod {plan.name}"
        f' -n {plan.namespace} --type merge -p \'{{"metadata":{{"finalizers":null}}}}\'',
        "what the finalizer was to clean up stays behind",
    )


def _unreachable(plan: PodPlan, actor: PlannedPod, snapshot: PlanSnapshot) -> Remedy:
    advice = snapshot.force_advice(actor.pod)
    risk = "if the machine still runs, its pods and their replacements write to the same volumes"
    if advice.force_delete != AFTER_POWER_OFF:
        return Remedy(advice.sentence, "none")
    return Remedy(f"bring the kubelet of {plan.node} back; or, {advice.sentence}", risk)


def _namespace(plan: PodPlan, actor: PlannedPod) -> Remedy:
    return Remedy(
        f"delete the pod (kubectl delete pod {plan.name} -n {plan.namespace}), which the namespace"
        " controller should have done",
        "none: the namespace goes anyway",
    )


_REMEDIES = {
    "pdb": _budget_remedy,
    "two-pdbs": _two_budgets,
    "unready-under-pdb": _unready,
    "pdb-sync-failed": _sync_failed,
    "pdb-stale": _stale,
    "landing": _landing,
    "webhook": _webhook,
    "finalizer": _finalizer,
    "namespace-terminating": _namespace,
}
