"""The drain planner's verdict on one node, from its filters and the budgets' arithmetic alone.

`drain_answer` is quick enough to be asked of every node in every pass: nothing is played. It knows
all that can stop a pod for ever (kubectl's filters, finalizers, a silent kubelet, admission, two
budgets, a budget that never spares one) and how many rounds the budgets need. How a drain goes
minute by minute, and the cheapest change that unblocks it, is the planner's own (`drain/plan.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict, PodKey
from kubectl_nodelife.drain.admission import Admission
from kubectl_nodelife.drain.advice import numbers
from kubectl_nodelife.drain.needs import Unread
from kubectl_nodelife.drain.results import NEVER, READY, REFUSED, SLOW, UNKNOWN
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.deletion import grace_seconds
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sim.kubectl.filters import DELETE, REFUSE, decide
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.workloads.eviction import TERMINAL_PHASES, asks_budgets
from kubectl_nodelife.workloads.force_advice import finalizers_that_hold
from kubectl_nodelife.workloads.waves import BudgetKey

REFILL_SECONDS: Final = (5.0, 60.0)
"""How long a budget takes to spare another pod once its pod is gone: a replacement is Ready."""
STOP_EXTRA_SECONDS: Final = 5.0
"""The time that a kubelet and the loops between take on top of a pod's grace period, at most."""


@dataclass(slots=True)
class DrainFacts:
    """The facts that all nodes share. `snapshot` need not hold pods.

    `taken`: how many pods are still to leave the nodes Draining now, by budget.
    """

    snapshot: PlanSnapshot
    options: DrainOptions
    admission: Admission
    taken: Mapping[BudgetKey, int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: PlanSnapshot, options: DrainOptions) -> DrainFacts:
        """The facts of a cluster."""
        return cls(snapshot, options, Admission(snapshot))

    def budgets_asked(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that the pod's eviction spends, or that refuse it.

        None for a pod that is not Ready where its one budget lets it go all the same.
        """
        found = self.snapshot.budgets.find(pod.namespace, pod.metadata.labels)
        return found if asks_budgets(pod, found, self.snapshot.now_ns) else []


def drain_answer(node: str, pods: Iterable[Pod], facts: DrainFacts) -> DrainVerdict:
    """The verdict on a drain of the node: if it ends, why not, how long it takes, and which pods
    may be evicted now.
    """
    return _Answer(node, facts).of(pods)


class _Answer:
    """One node's answer in the making."""

    def __init__(self, node: str, facts: DrainFacts) -> None:
        self._node = node
        self._facts = facts
        self._moving: list[PodKey] = []
        self._evictable: list[PodKey] = []
        self._needs: dict[BudgetKey, int] = {}
        self._left: dict[BudgetKey, int] = {}
        self._budgets: dict[BudgetKey, PodDisruptionBudget] = {}
        self._grace = 0
        self._never = ""
        self._doubt = ""
        self._unread = Unread(facts.snapshot)
        snapshot = facts.snapshot
        silent = snapshot.silent_kubelet(node)
        self._silent = "" if snapshot.out_of_service(node) else silent or ""

    def of(self, pods: Iterable[Pod]) -> DrainVerdict:
        snapshot, options = self._facts.snapshot, self._facts.options
        for pod in sorted(pods, key=lambda pod: pod.key):
            decision = decide(pod, options, snapshot, snapshot.now_ns)
            if decision.verb == REFUSE:
                return DrainVerdict(REFUSED, f"{_name(pod)}: {decision.message}")
            if decision.verb == DELETE:
                self._add(pod)
        return self._verdict()

    def _add(self, pod: Pod) -> None:
        self._moving.append(pod.key)
        self._grace = max(self._grace, grace_seconds(pod, self._facts.options.requested_grace))
        self._never = self._never or self._why_never(pod)
        if not self._doubt:
            missing = self._unread.of(pod, self._facts.options)
            doubt = self._facts.admission.doubt(pod)
            if doubt is not None or missing:
                self._doubt = f"{_name(pod)}: {doubt or 'not read: ' + ', '.join(missing)}"
        if pod.metadata.deletion_timestamp is not None:
            return
        budgets = self._facts.budgets_asked(pod)
        for budget in budgets:
            self._budgets[budget.key] = budget
            self._needs[budget.key] = self._needs.get(budget.key, 0) + 1
        if self._may_go_now(budgets) and not self._never:
            self._evictable.append(pod.key)

    def _may_go_now(self, budgets: list[PodDisruptionBudget]) -> bool:
        """True if the budget spares this pod as well as those counted before it."""
        for budget in budgets:
            left = self._left.setdefault(budget.key, budget.status.disruptions_allowed)
            if left <= 0:
                return False
            self._left[budget.key] = left - 1
        return True

    def _why_never(self, pod: Pod) -> str:
        if self._silent and pod.status.phase not in TERMINAL_PHASES:
            return f"{_name(pod)}: {self._silent}"
        held = finalizers_that_hold(pod)
        if held:
            return f"{_name(pod)}: finalizer {held[0]} holds it"
        if pod.metadata.deletion_timestamp is not None:
            return ""
        refused = self._facts.admission.refuses_eviction(pod)
        if refused is not None:
            return f"{_name(pod)}: {refused.message}"
        budgets = self._facts.budgets_asked(pod)
        if len(budgets) > 1:
            names = " and ".join(budget.name for budget in budgets)
            return f"{_name(pod)}: two budgets match it, {names}: the Eviction API refuses that"
        for budget in budgets:
            if budget.status.observed_generation < budget.metadata.generation:
                return f"{_name(pod)}: the status of budget {budget.name} is out of date"
            if not spares(budget):
                return f"{_name(pod)}: {numbers(budget)}; it can never spare one"
        return ""

    def _verdict(self) -> DrainVerdict:
        low, high = self._seconds()
        limit = self._facts.options.timeout_ns / SECOND_NS
        verdict, sentence = READY, "every pod goes at the first try"
        short = self._short()
        if short:
            verdict, sentence = SLOW, f"{numbers(short)} and spares fewer than leave the node"
        if self._doubt:
            verdict, sentence = UNKNOWN, self._doubt
        if limit and low > limit:
            self._never = self._never or f"it takes at least {low:.0f}s, more than --drain-timeout"
        if self._never:
            verdict, sentence = NEVER, self._never
        waits = any(not self._has_turn(budget) for budget in self._budgets.values())
        moving, evictable = tuple(self._moving), tuple(self._evictable)
        return DrainVerdict(verdict, sentence, waits, low, high, moving, evictable)

    def _short(self) -> PodDisruptionBudget | None:
        """The first budget that does not let all its pods here go at once."""
        return next(
            (b for k, b in self._budgets.items() if b.status.disruptions_allowed < self._needs[k]),
            None,
        )

    def _has_turn(self, budget: PodDisruptionBudget) -> bool:
        """True if the budget spares one now, and the nodes Draining leave enough of it."""
        taken = self._facts.taken.get(budget.key, 0)
        enough = not taken or taken + self._needs[budget.key] <= spares(budget)
        return budget.status.disruptions_allowed > 0 and enough

    def _seconds(self) -> tuple[float, float]:
        if not self._moving:
            return 0.0, STOP_EXTRA_SECONDS
        rounds = max(
            (-(-n // max(1, spares(self._budgets[key]))) for key, n in self._needs.items()),
            default=1,
        )
        low, high = ((rounds - 1) * refill for refill in REFILL_SECONDS)
        return low, high + rounds * (self._grace + STOP_EXTRA_SECONDS)


def spares(budget: PodDisruptionBudget) -> int:
    """How many pods the budget spares at once when all that it expects are healthy."""
    status = budget.status
    return max(status.disruptions_allowed, status.expected_pods - status.desired_healthy, 0)


def pods_taken(pods: Iterable[Pod], facts: DrainFacts) -> dict[BudgetKey, int]:
    """How many pods of each budget are still to leave a node with these pods."""
    taken: dict[BudgetKey, int] = {}
    for pod in pods:
        decision = decide(pod, facts.options, facts.snapshot, facts.snapshot.now_ns)
        if decision.verb == DELETE:
            for budget in facts.budgets_asked(pod):
                taken[budget.key] = taken.get(budget.key, 0) + 1
    return taken


def _name(pod: Pod) -> str:
    return f"pod {pod.namespace}/{pod.name}"
