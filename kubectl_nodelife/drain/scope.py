"""What a plan for some nodes is about: their pods, the owners, the budgets, other members.

Found once and shared by the three runs of a plan. Pods elsewhere count in two ways: as members of
a budget, and as siblings that show how long a workload's pods take to be Ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kubectl_nodelife.drain.history import History
from kubectl_nodelife.drain.ledger import Ledger
from kubectl_nodelife.drain.snapshot import Snapshot
from kubectl_nodelife.kube.meta import Time, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.workloads.budgets import DELETION_TIMEOUT_NS
from kubectl_nodelife.workloads.matching import SelectorIndex
from kubectl_nodelife.workloads.owners import NEVER, Replacement, replacement_of

BudgetKey = tuple[str, str]

NO_REPLACEMENT = Replacement(NEVER, why="no controller owns it")


class Scope:
    """The part of a snapshot that a plan for `nodes` is about.

    `pods`: the pods of each planned node, in the API's order. `owner_pods`: all pods of the owners
    of these, by the owner's uid. `rules`: how each owner replaces pods. `ledgers`: the budgets that
    match one of the pods, as they stand. `budgets_of`: the keys of the budgets that match a pod, by
    its uid, for every pod that one of them matches.
    """

    def __init__(self, snapshot: Snapshot, nodes: Sequence[str]) -> None:
        self.snapshot = snapshot
        self.nodes = tuple(nodes)
        self.pods: dict[str, list[Pod]] = {name: snapshot.pods_on(name) for name in nodes}
        self.owner_pods: dict[str, list[Pod]] = {}
        self.rules: dict[str, Replacement] = {}
        self.ledgers: dict[BudgetKey, Ledger] = {}
        self.budgets_of: dict[str, tuple[BudgetKey, ...]] = {}
        self.history = History(snapshot)
        self._find_owners()
        self._find_budgets()
        self._find_members()
        for uid, pods in self.owner_pods.items():
            self.history.add(uid, pods)

    def all_pods(self) -> Iterable[Pod]:
        """The pods of all planned nodes."""
        for pods in self.pods.values():
            yield from pods

    def _find_owners(self) -> None:
        for pod in self.all_pods():
            owner = controller_of(pod.metadata)
            if owner is not None and owner.uid not in self.rules:
                self.rules[owner.uid] = replacement_of(pod, self.snapshot)
                self.owner_pods[owner.uid] = []

    def _find_budgets(self) -> None:
        budgets = self.snapshot.budgets
        for pod in self.all_pods():
            for budget in budgets.find(pod.metadata.namespace, pod.metadata.labels):
                if budget.key not in self.ledgers:
                    self.ledgers[budget.key] = Ledger(budget, self.snapshot)

    def _find_members(self) -> None:
        """One pass over the namespaces concerned: siblings, and members of the budgets."""
        index: SelectorIndex[PodDisruptionBudget] = SelectorIndex()
        for ledger in self.ledgers.values():
            index.add(ledger.budget.namespace, ledger.budget.spec.selector, ledger.budget)
        members: dict[BudgetKey, list[Pod]] = {key: [] for key in self.ledgers}
        for namespace in {pod.metadata.namespace for pod in self.all_pods()}:
            for pod in self.snapshot.pods_by_namespace.get(namespace, ()):
                meta = pod.metadata
                for owner in meta.owner_references:
                    if owner.controller and owner.uid in self.owner_pods:
                        self.owner_pods[owner.uid].append(pod)
                found = index.find(namespace, meta.labels)
                if found:
                    self.budgets_of[meta.uid] = tuple(budget.key for budget in found)
                    for budget in found:
                        members[budget.key].append(pod)
        for key, pods in members.items():
            self._fill(self.ledgers[key], pods)

    def _fill(self, ledger: Ledger, pods: list[Pod]) -> None:
        """Count the members as they stand."""
        now_ns = self.snapshot.now_ns
        ledger.disrupted = standing(ledger.disrupted, pods, now_ns)
        for pod in pods:
            ledger.join(pod)
            if is_healthy(pod) and pod.name not in ledger.disrupted:
                ledger.healthy += 1
        ledger.begin(now_ns)


def standing(disrupted: Mapping[str, Time], pods: Iterable[Pod], now_ns: int) -> dict[str, Time]:
    """The entries of disruptedPods that still keep a pod from counting."""
    if not disrupted:
        return {}
    unmarked = {pod.name for pod in pods if pod.metadata.deletion_timestamp is None}
    return {
        name: since
        for name, since in disrupted.items()
        if name in unmarked and since + DELETION_TIMEOUT_NS > now_ns
    }


def is_healthy(pod: Pod) -> bool:
    """Ready and not marked deleted."""
    return pod.metadata.deletion_timestamp is None and pod.ready()
