"""What a plan is about: its nodes with their pods, and the owners and budgets of these.

All of it is read off the present of the snapshot, in which every budget is counted already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain

from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.sim.timing import LearntTerms
from kubectl_nodelife.sim.world import World
from kubectl_nodelife.workloads.admission import Admission
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger, is_healthy
from kubectl_nodelife.workloads.owners import NEVER, Replacement
from kubectl_nodelife.workloads.time_to_ready import TimesToReady
from kubectl_nodelife.workloads.waves import BudgetKey

BELONG_TO_NODES = frozenset({"DaemonSet", "Node"})
"""Owners whose pods a drain does not move."""

NO_REPLACEMENT = Replacement(NEVER, why="no controller owns it")


class Scope:
    """The part of a snapshot that a plan for `nodes` is about, at the plan's moment.

    `pods`: the pods of each planned node, in the API's order. `world`: the snapshot's present,
    which is not changed: each run has a fork of it.
    """

    def __init__(self, snapshot: PlanSnapshot, nodes: Sequence[str]) -> None:
        self.snapshot = snapshot
        self.nodes = tuple(nodes)
        self.pods: dict[str, list[Pod]] = {name: snapshot.pods_on(name) for name in nodes}
        self._rules: dict[str, Replacement] = {}
        self._ready: dict[str, int] = {}
        made = map(self.world.api.default_tolerations.admit, self.all_pods())
        self.world.scheduler.placement.prepare(made)

    @property
    def world(self) -> World:
        """See the class."""
        return self.snapshot.present.world

    @property
    def admission(self) -> Admission:
        """What the API server refuses."""
        return self.world.api.admission

    @property
    def ledgers(self) -> Mapping[BudgetKey, BudgetLedger]:
        """All budgets as they stand."""
        return self.world.disruption.ledgers

    @property
    def times(self) -> TimesToReady:
        """How long pods take to be Ready."""
        terms = self.world.kubelets.terms
        assert isinstance(terms, LearntTerms)
        return terms.times

    def all_pods(self) -> Iterable[Pod]:
        """The pods of all planned nodes."""
        return chain.from_iterable(self.pods.values())

    def budgets_of(self, pod: Pod) -> tuple[BudgetKey, ...]:
        """The budgets that match the pod."""
        return tuple(ledger.budget.key for ledger in self.world.disruption.budgets_of(pod))

    @cached_property
    def own_budgets(self) -> frozenset[BudgetKey]:
        """The budgets that match one of the plan's own pods."""
        return frozenset(key for pod in self.all_pods() for key in self.budgets_of(pod))

    def rule_of(self, pod: Pod) -> Replacement:
        """How the pod's owner replaces it; `NO_REPLACEMENT` where a drain does not move it."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind in BELONG_TO_NODES:
            return NO_REPLACEMENT
        rule = self._rules.get(owner.uid)
        if rule is None:
            rule = self._rules[owner.uid] = self.world.owners.rule_of(pod)
        return rule

    def pods_of(self, owner_uid: str) -> list[Pod]:
        """All pods of an owner."""
        return self.world.api.store.pods_of(owner_uid)

    def ready_pods(self, owner_uid: str) -> int:
        """How many of them are Ready."""
        if owner_uid not in self._ready:
            self._ready[owner_uid] = sum(map(is_healthy, self.pods_of(owner_uid)))
        return self._ready[owner_uid]
