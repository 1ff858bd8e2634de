"""The drain planner's verdict on one node, from its filters and the budgets' arithmetic alone.

`drain_answer` is quick enough to be asked of every node in every pass: nothing is played, and what
holds while the pods are the same is found once (`LeavingPods`). How a drain goes minute by minute,
and the cheapest change that unblocks it, is the planner's own (`drain/plan.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict, PodKey
from kubectl_nodelife.drain.results import NEVER, READY, REFUSED, SLOW, UNKNOWN
from kubectl_nodelife.drain.snapshot import PlanSnapshot, Unread
from kubectl_nodelife.kube.deletion import grace_seconds
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet, PodDisruptionBudget
from kubectl_nodelife.sim.kubectl.options import DELETE, REFUSE, DrainOptions, decide
from kubectl_nodelife.workloads.admission import Admission
from kubectl_nodelife.workloads.budgets import asks_budgets, numbers
from kubectl_nodelife.workloads.force_advice import finalizers_that_hold
from kubectl_nodelife.workloads.waves import BudgetKey

REFILL_SECONDS: Final = (1.0, 60.0)
"""How long a budget mostly takes to spare another pod: its replacement is Ready, and is seen. A
leader sees it at once; it is kubectl that tries again only after 5 s."""
STOP_EXTRA_SECONDS: Final = 5.0
"""The time that a kubelet and the loops between take on top of a pod's grace period, at most."""


@dataclass(slots=True)
class DrainFacts:
    """The facts that all nodes share. `snapshot` need not hold pods. `budgets`: as they are now,
    which may be later than in the snapshot; they match the same pods. `taken`: how many pods are
    still to leave the nodes Draining now, by budget.
    """

    snapshot: PlanSnapshot
    options: DrainOptions
    admission: Admission
    budgets: dict[BudgetKey, PodDisruptionBudget]
    taken: Mapping[BudgetKey, int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: PlanSnapshot, options: DrainOptions) -> DrainFacts:
        """The facts of a cluster."""
        budgets = {budget.key: budget for budget in snapshot.all_of(PodDisruptionBudget)}
        return cls(snapshot, options, Admission(snapshot), budgets)

    def asks_the_same(self, other: DrainFacts) -> bool:
        """True if `node_drain` of the same pods is the same under the other facts, whose budgets
        select the same: namespaces and DaemonSets are as they were, no webhook or admission policy
        is there, and no pod is skipped for its age.
        """
        mine, others = ({s.key for s in f.snapshot.all_of(DaemonSet)} for f in (self, other))
        return (
            self.options == other.options
            and self.options.skip_wait_seconds <= 0
            and not (self.admission.has_rules or other.admission.has_rules)
            and self.snapshot.namespaces == other.snapshot.namespaces
            and mine == others
        )

    def matching(self, pod: Pod) -> tuple[BudgetKey, ...]:
        """The budgets that match the pod."""
        return tuple(budget.key for budget in self.snapshot.budgets_of(pod))

    def asked(self, pod: Pod, matching: Iterable[BudgetKey]) -> list[PodDisruptionBudget]:
        """Of the budgets that match the pod those that its eviction spends, or that refuse it; none
        for a pod that is not Ready where its one budget lets it go all the same.
        """
        budgets = [self.budgets[key] for key in matching]
        return budgets if asks_budgets(pod, budgets, self.snapshot.now_ns) else []


class LeavingPod(NamedTuple):
    """A pod that leaves its node. `never`: why it never does; `budgets`: those that match it."""

    pod: Pod
    never: str
    budgets: tuple[BudgetKey, ...]


@dataclass(slots=True)
class LeavingPods:
    """The part of the answer on a node that holds while its pods and `asks_the_same` do. `refused`:
    why kubectl refuses, or "". `grace`: the longest, in seconds. `doubt`: what is not known.
    """

    node: str
    refused: str = ""
    pods: list[LeavingPod] = field(default_factory=list)
    grace: int = 0
    doubt: str = ""


def node_drain(node: str, pods: Iterable[Pod], facts: DrainFacts) -> LeavingPods:
    """The pods that leave the node when it is drained, in the order of their names."""
    snapshot, options = facts.snapshot, facts.options
    unread, drain = Unread(snapshot), LeavingPods(node)
    for pod in sorted(pods, key=lambda pod: pod.key):
        decision = decide(pod, options, snapshot, snapshot.now_ns)
        if not drain.doubt and (asked := unread.of_filters(pod, options)):
            drain.doubt = f"{_name(pod)}: not read: {', '.join(asked)}"
        if decision.verb == REFUSE:
            return LeavingPods(node, f"{_name(pod)}: {decision.message}")
        if decision.verb != DELETE:
            continue
        never = _why_never(pod, facts)
        drain.pods.append(LeavingPod(pod, never, facts.matching(pod)))
        drain.grace = max(drain.grace, grace_seconds(pod, options.requested_grace))
        if not drain.doubt:
            missing, doubt = unread.of(pod, options), facts.admission.doubt(pod)
            if doubt is not None or missing:
                drain.doubt = f"{_name(pod)}: {doubt or 'not read: ' + ', '.join(missing)}"
    return drain


def _why_never(pod: Pod, facts: DrainFacts) -> str:
    if held := finalizers_that_hold(pod):
        return f"{_name(pod)}: finalizer {held[0]} holds it"
    if pod.metadata.deletion_timestamp is not None:
        return ""
    refused = facts.admission.refuses_eviction(pod)
    return "" if refused is None else f"{_name(pod)}: {refused.message}"


def drain_answer(drain: LeavingPods, facts: DrainFacts) -> DrainVerdict:
    """If the drain ends, why not, how long it takes, and which pods may be evicted now."""
    if drain.refused:
        return DrainVerdict(REFUSED, drain.refused)
    snapshot, never, evictable = facts.snapshot, "", list[PodKey]()
    is_out = snapshot.out_of_service(drain.node)
    silent = None if is_out else snapshot.silent_kubelet(drain.node)
    needs: Counter[BudgetKey] = Counter()
    for pod, held, matching in drain.pods:
        is_going = pod.metadata.deletion_timestamp is not None
        if silent and pod.status.phase not in TERMINAL_PHASES:
            never = never or f"{_name(pod)}: {silent}"
        asked = facts.asked(pod, matching) if matching and not is_going else []
        never = never or held or _never_spared(pod, asked)
        needs.update(budget.key for budget in asked)
        spared = all(needs[b.key] <= b.status.disruptions_allowed for b in asked)
        if spared and not (never or is_going):
            evictable.append(pod.key)
    # How often the budget that spares the fewest is asked until all its pods here are gone.
    rounds = max((-(-n // max(1, spares(facts.budgets[k]))) for k, n in needs.items()), default=1)
    low, high = ((rounds - 1) * refill for refill in REFILL_SECONDS)
    if 0 < facts.options.timeout_ns < low * SECOND_NS:
        never = never or f"it takes at least {low:.0f}s, more than --drain-timeout"
    verdict, sentence = READY, "every pod goes at the first try"
    asked_of = map(facts.budgets.__getitem__, needs)  # short: it does not let all pods go at once
    short = (b for b in asked_of if b.status.disruptions_allowed < needs[b.key])
    if (budget := next(short, None)) is not None:
        verdict, sentence = SLOW, f"{numbers(budget)} and spares fewer than leave the node"
    if drain.doubt:
        verdict, sentence = UNKNOWN, drain.doubt
    if never:
        verdict, sentence = NEVER, never
    return DrainVerdict(
        verdict,
        sentence,
        not all(_has_turn(key, count, facts) for key, count in needs.items()),
        low,
        high + rounds * (drain.grace + STOP_EXTRA_SECONDS),
        tuple(leaving.pod.key for leaving in drain.pods),
        tuple(evictable),
        is_short=budget is not None,
    )


def _has_turn(key: BudgetKey, needed: int, facts: DrainFacts) -> bool:
    """True if the budget spares one now, and the nodes Draining leave enough of it."""
    budget, taken = facts.budgets[key], facts.taken.get(key, 0)
    enough = not taken or taken + needed <= spares(budget)
    return budget.status.disruptions_allowed > 0 and enough


def spares(budget: PodDisruptionBudget) -> int:
    """How many pods the budget spares at once when all that it expects are healthy."""
    status = budget.status
    return max(status.disruptions_allowed, status.expected_pods - status.desired_healthy, 0)


def pods_taken(drain: LeavingPods, facts: DrainFacts) -> dict[BudgetKey, int]:
    """How many pods of each budget are still to leave the node."""
    asked = (facts.asked(leaving.pod, leaving.budgets) for leaving in drain.pods)
    return Counter(budget.key for budgets in asked for budget in budgets)


def _never_spared(pod: Pod, budgets: list[PodDisruptionBudget]) -> str:
    """Why the budgets never let the pod go; "" where they do."""
    if len(budgets) > 1:
        names = " and ".join(budget.name for budget in budgets)
        return f"{_name(pod)}: two budgets match it, {names}: the Eviction API refuses that"
    for budget in budgets:
        if budget.status.observed_generation < budget.metadata.generation:
            return f"{_name(pod)}: the status of budget {budget.name} is out of date"
        if not spares(budget):
            return f"{_name(pod)}: {numbers(budget)}; it can never spare one"
    return ""


def _name(pod: Pod) -> str:
    return f"pod {pod.namespace}/{pod.name}"
