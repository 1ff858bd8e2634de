"""What a plan for some nodes is about: their pods, the owners, the budgets, other members.

Found once and shared by the three runs of a plan. Pods elsewhere count in two ways: as members of
a budget, and as siblings that show how long a workload's pods take to be Ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubectl_nodelife.drain.node_index import NodeIndex
from kubectl_nodelife.drain.running_controllers import JoinedControllers
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger, is_healthy, standing
from kubectl_nodelife.workloads.matching import SelectorIndex
from kubectl_nodelife.workloads.owners import NEVER, Replacement, is_active, replacement_of
from kubectl_nodelife.workloads.time_to_ready import TimesToReady, is_on_its_way
from kubectl_nodelife.workloads.waves import BudgetKey

BELONG_TO_NODES = frozenset({"DaemonSet", "Node"})
"""Owners whose pods a drain does not move."""

MOST_UNSETTLED = 500
"""So many pods elsewhere are played for the room that they take; a lost zone has thousands."""

NO_REPLACEMENT = Replacement(NEVER, why="no controller owns it")


class Scope:
    """The part of a snapshot that a plan for `nodes` is about.

    `pods`: the pods of each planned node, in the API's order. `owner_pods`: all pods of the owners
    of these, by the owner's uid, DaemonSets left out. `rules`: how each owner replaces pods.
    `counts`: its replicas, and those that are Ready. `moving`: its pods that need watching wherever
    they are: those that start or stop, and a StatefulSet's, whose order counts. `ledgers`: the
    budgets that match one of the pods, as they stand. `budgets_of`: the keys of the budgets that
    match a pod, by its uid, for every pod that one of them matches. `unsettled`: the pods that wait
    for a node, or are on one of which a controller may have something to decide; their owners, and
    those of pods that are being deleted, are among the owners; `left_out`: how many there are
    besides, where they are too many. `joined`: the cluster's controllers at the plan's moment, once
    a play has asked for them, by whether kubelets that are late are slow.
    """

    def __init__(
        self, snapshot: PlanSnapshot, nodes: Sequence[str], node_index: NodeIndex | None = None
    ) -> None:
        self.snapshot = snapshot
        self.nodes = tuple(nodes)
        self.pods: dict[str, list[Pod]] = {name: snapshot.pods_on(name) for name in nodes}
        self.owner_pods: dict[str, list[Pod]] = {}
        self.rules: dict[str, Replacement] = {}
        self.counts: dict[str, tuple[int, int]] = {}
        self.moving: dict[str, list[Pod]] = {}
        self.unsettled: list[Pod] = []
        self.left_out = 0
        self.joined: dict[bool, JoinedControllers] = {}
        self.ledgers: dict[BudgetKey, BudgetLedger] = {}
        self.budgets_of: dict[str, tuple[BudgetKey, ...]] = {}
        self.times = TimesToReady(
            lambda uid: self.owner_pods.get(uid, ()),
            lambda namespace: snapshot.pods_by_namespace.get(namespace, ()),
            snapshot.pods,
        )
        self.node_index = node_index or NodeIndex(snapshot)
        self._find_owners()
        self._find_budgets()
        self._find_members()
        self._find_unsettled()
        self._count()

    def all_pods(self) -> Iterable[Pod]:
        """The pods of all planned nodes."""
        for pods in self.pods.values():
            yield from pods

    def _find_owners(self) -> None:
        for pod in self.all_pods():
            owner = controller_of(pod.metadata)
            if owner is None or owner.kind in BELONG_TO_NODES:
                continue
            if owner.uid not in self.rules:
                self.rules[owner.uid] = replacement_of(pod, self.snapshot)
                self.owner_pods[owner.uid] = []

    def _find_budgets(self) -> None:
        budgets = self.snapshot.budgets
        for pod in self.all_pods():
            for budget in budgets.find(pod.metadata.namespace, pod.metadata.labels):
                if budget.key not in self.ledgers:
                    self.ledgers[budget.key] = BudgetLedger(budget)

    def _find_members(self) -> None:
        """One pass over the namespaces concerned: siblings, and members of the budgets."""
        index: SelectorIndex[BudgetKey] = SelectorIndex()
        for key, ledger in self.ledgers.items():
            index.add(key[0], ledger.budget.spec.selector, key)
        members: dict[BudgetKey, list[Pod]] = {key: [] for key in self.ledgers}
        owner_pods = self.owner_pods
        for namespace in self._namespaces():
            for pod in self.snapshot.pods_by_namespace.get(namespace, ()):
                meta = pod.metadata
                for owner in meta.owner_references:
                    if owner.uid in owner_pods and owner.controller:
                        owner_pods[owner.uid].append(pod)
                found = index.find(namespace, meta.labels)
                if found:
                    self.budgets_of[meta.uid] = tuple(found)
                    for key in found:
                        members[key].append(pod)
        for key, pods in members.items():
            self._fill(self.ledgers[key], pods)

    def _namespaces(self) -> set[str]:
        """Those in which a budget or an owner has pods to count."""
        found = {namespace for namespace, _ in self.ledgers}
        for pod in self.all_pods():
            owner = controller_of(pod.metadata)
            if owner is not None and owner.uid in self.owner_pods:
                found.add(pod.metadata.namespace)
        return found

    def _find_unsettled(self) -> None:
        """Pods elsewhere that come or go by themselves, or may, while the nodes are drained, and
        the owners that replace them: they take room, and some land before the cordon.
        """
        snapshot = self.snapshot
        unsettled = snapshot.in_trouble | {""}
        found: dict[str, list[Pod]] = {}
        namespaces: set[str] = set()
        for pod in self._unsettled_that_count():
            owner = controller_of(pod.metadata)
            if pod.spec.node_name in unsettled:
                self.unsettled.append(pod)
            if owner is None or owner.uid in self.rules or owner.kind in BELONG_TO_NODES:
                continue
            found[owner.uid] = []
            namespaces.add(pod.metadata.namespace)
            self.rules[owner.uid] = replacement_of(pod, snapshot)
        for namespace in namespaces:
            for pod in snapshot.pods_by_namespace.get(namespace, ()):
                owner = controller_of(pod.metadata)
                if owner is not None and owner.uid in found:
                    found[owner.uid].append(pod)
        self.owner_pods |= found

    def _unsettled_that_count(self) -> list[Pod]:
        """All of them, or if those are too many, the ones of the plan's owners and budgets."""
        found = self.snapshot.unsettled_pods
        if len(found) <= MOST_UNSETTLED:
            return found
        members, counted = self.budgets_of.keys(), []
        for pod in found:
            owner = controller_of(pod.metadata)
            if pod.metadata.uid in members or (owner is not None and owner.uid in self.owner_pods):
                counted.append(pod)
        self.left_out = len(found) - len(counted)
        return counted

    def _count(self) -> None:
        """Replicas and Ready pods of each owner."""
        for uid, pods in self.owner_pods.items():
            active = sum(1 for pod in pods if is_active(pod))
            self.counts[uid] = (active, sum(1 for pod in pods if is_healthy(pod)))
            self.moving[uid] = [pod for pod in pods if _moves(pod)]

    def _fill(self, ledger: BudgetLedger, pods: list[Pod]) -> None:
        """Count the members as they stand."""
        now_ns = self.snapshot.now_ns
        ledger.disrupted = standing(ledger.disrupted, pods, now_ns)
        for pod in pods:
            ledger.pod_changed(None, pod, self.snapshot)
        ledger.begin(now_ns)


def _moves(pod: Pod) -> bool:
    owner = controller_of(pod.metadata)
    going = pod.metadata.deletion_timestamp is not None
    return going or is_on_its_way(pod) or (owner is not None and owner.kind == "StatefulSet")
