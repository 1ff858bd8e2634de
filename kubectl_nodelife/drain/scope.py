"""The objects of a plan for some nodes: their pods, the owners, the budgets, other members.

Found once and shared by the three runs of a plan. Pods elsewhere count in two ways: as members of
a budget, and as siblings that show how long a workload's pods take to be Ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from kubectl_nodelife.drain.planned_nodes import NodeIndex
from kubectl_nodelife.drain.running_controllers import JoinedControllers
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import SelectorIndex
from kubectl_nodelife.kube.workload import ControllerRevision
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger, standing
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
    budgets that match one of the pods or of the `unsettled` ones, as they stand. `budgets_of`: the
    keys of the budgets that match a pod, by its uid, for every pod that one of them matches;
    `own_budgets`: of those that match one of the plan's own pods.
    `unsettled`: the pods elsewhere that are being deleted, that wait for a node, or are on one of
    which a controller may have something to decide; their owners are among the owners; `left_out`:
    how many there are besides, where they are too many. `daemon_sets`: the DaemonSets of those that
    are being deleted, with their revisions and all their pods. `joined`: the cluster's controllers
    at the plan's moment, once a play has asked for them, by whether kubelets that are late are
    slow.
    """

    def __init__(
        self, snapshot: PlanSnapshot, nodes: Sequence[str], whole: Scope | None = None
    ) -> None:
        """`whole`: a scope of the same snapshot of which these nodes are a part (`part`)."""
        self.snapshot = snapshot
        self.nodes = tuple(nodes)
        self._whole = whole
        self.pods: dict[str, list[Pod]] = {
            name: snapshot.pods_on(name) if whole is None else whole.pods[name] for name in nodes
        }
        self.owner_pods: dict[str, list[Pod]] = {}
        self.rules: dict[str, Replacement] = {}
        self.counts: dict[str, tuple[int, int]] = {}
        self.moving: dict[str, list[Pod]] = {}
        self.unsettled: list[Pod] = []
        self.daemon_sets: list[KubeObject] = []
        self.left_out = 0
        self.joined: dict[bool, JoinedControllers] = {}
        self.ledgers: dict[BudgetKey, BudgetLedger] = {}
        self.budgets_of: dict[str, tuple[BudgetKey, ...]] = {}
        owner_pods = self.owner_pods
        self.times = TimesToReady(
            lambda uid: owner_pods.get(uid, ()),
            lambda namespace: snapshot.pods_by_namespace.get(namespace, ()),
            snapshot.pods,
        )
        self.node_index: NodeIndex = NodeIndex(snapshot) if whole is None else whole.node_index
        self._daemon_pods: dict[str, list[Pod]] = {}
        self._find_owners()
        self.own_budgets = frozenset(self._find_budgets(self.all_pods()))
        self._find_members(self._namespaces(), [*self.ledgers], self.owner_pods)
        self._find_unsettled()
        self._count()
        if whole is not None:
            self.times.learn_from(whole.times, self.owner_pods)

    def part(self, nodes: Sequence[str]) -> Scope:
        """The scope of some of these nodes, without another look at all pods."""
        return Scope(self.snapshot, nodes, self)

    def all_pods(self) -> Iterable[Pod]:
        """The pods of all planned nodes."""
        return chain.from_iterable(self.pods.values())

    def _find_owners(self) -> None:
        for pod in self.all_pods():
            owner = controller_of(pod.metadata)
            if owner is None or owner.kind in BELONG_TO_NODES:
                continue
            if owner.uid not in self.rules:
                self.rules[owner.uid] = replacement_of(pod, self.snapshot)
                self.owner_pods[owner.uid] = []

    def _find_budgets(self, pods: Iterable[Pod]) -> list[BudgetKey]:
        """Add the budgets that match one of the pods; the keys of those that are new."""
        budgets, new = self.snapshot.budgets, []
        seen: set[tuple[str, int]] = set()  # pods of one template mostly share their labels
        for pod in pods:
            namespace, labels = pod.metadata.namespace, pod.metadata.labels
            alike = (namespace, id(labels))
            if alike in seen:
                continue
            seen.add(alike)
            for budget in budgets.find(namespace, labels):
                if budget.key not in self.ledgers:
                    self.ledgers[budget.key] = BudgetLedger(budget)
                    new.append(budget.key)
        return new

    def _find_members(
        self, namespaces: Iterable[str], keys: Sequence[BudgetKey], owner_pods: dict[str, list[Pod]]
    ) -> None:
        """One pass over the namespaces: pods of these owners, and members of these budgets."""
        if self._whole is not None:
            self._take_members(self._whole, keys, owner_pods)
            return
        index: SelectorIndex[BudgetKey] = SelectorIndex()
        for key in keys:
            index.add(key[0], self.ledgers[key].budget.spec.selector, key)
        members: dict[BudgetKey, list[Pod]] = {key: [] for key in keys}
        for namespace in namespaces:
            alike: dict[int, list[BudgetKey]] = {}  # pods of one template mostly share their labels
            for pod in self.snapshot.pods_by_namespace.get(namespace, ()):
                meta = pod.metadata
                for owner in meta.owner_references:
                    if owner.uid in owner_pods and owner.controller:
                        owner_pods[owner.uid].append(pod)
                found = alike.get(id(meta.labels))
                if found is None:
                    found = alike[id(meta.labels)] = index.find(namespace, meta.labels)
                if found:
                    self.budgets_of[meta.uid] = (*self.budgets_of.get(meta.uid, ()), *found)
                    for key in found:
                        members[key].append(pod)
        for key, pods in members.items():
            self._fill(self.ledgers[key], pods)

    def _take_members(
        self, whole: Scope, keys: Sequence[BudgetKey], owner_pods: dict[str, list[Pod]]
    ) -> None:
        """The same from a scope that has found them."""
        for uid, pods in owner_pods.items():
            pods += whole.owner_pods[uid] if uid in whole.owner_pods else whole._daemon_pods[uid]
        order = {key: place for place, key in enumerate(keys)}
        for key in keys:
            self.ledgers[key] = whole.ledgers[key]
        for uid, of_pod in whole.budgets_of.items():
            found = sorted((key for key in of_pod if key in order), key=order.__getitem__)
            if found:
                self.budgets_of[uid] = (*self.budgets_of.get(uid, ()), *found)

    def _namespaces(self) -> set[str]:
        """Those in which a budget or an owner has pods to count."""
        found = {namespace for namespace, _ in self.ledgers}
        for pod in self.all_pods():
            owner = controller_of(pod.metadata)
            if owner is not None and owner.uid in self.owner_pods:
                found.add(pod.metadata.namespace)
        return found

    def _find_unsettled(self) -> None:
        """Pods elsewhere that come or go by themselves, or may, while the nodes are drained, with
        the owners that replace them and the budgets that guard them: they take room, and some land
        on a node of the plan.
        """
        snapshot = self.snapshot
        unsettled = snapshot.in_trouble | {""}
        found: dict[str, list[Pod]] = {}
        pods = self._unsettled_that_count()
        new = self._find_budgets(pods)
        namespaces = {namespace for namespace, _ in new}
        daemon_pods = self._daemon_pods
        for pod in pods:
            owner, going = controller_of(pod.metadata), pod.metadata.deletion_timestamp is not None
            if going or pod.spec.node_name in unsettled:
                self.unsettled.append(pod)
            if owner is None or owner.uid in self.rules:
                continue
            if owner.kind not in BELONG_TO_NODES:
                found[owner.uid] = []
                self.rules[owner.uid] = replacement_of(pod, snapshot)
            elif not (going and owner.uid not in daemon_pods and self._add_daemon_set(pod, owner)):
                continue
            else:
                daemon_pods[owner.uid] = []
            namespaces.add(pod.metadata.namespace)
        self._find_members(namespaces, new, found | daemon_pods)
        self.owner_pods |= found
        for of_set in daemon_pods.values():
            self.daemon_sets += of_set

    def _add_daemon_set(self, pod: Pod, owner: OwnerReference) -> bool:
        """Add the DaemonSet that makes the pod anew, with its revisions; whether there is one."""
        found = self.snapshot.find("DaemonSet", pod.namespace, owner.name)
        if found is None or found.uid != owner.uid:
            return False
        self.daemon_sets.append(found)
        for revision in self.snapshot.all_of(ControllerRevision):
            above = controller_of(revision.metadata)
            if above is not None and above.uid == owner.uid:
                self.daemon_sets.append(revision)
        return True

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
            if self._whole is not None:
                self.counts[uid] = self._whole.counts[uid]
                self.moving[uid] = self._whole.moving[uid]
                continue
            owner = controller_of(pods[0].metadata) if pods else None
            stateful = owner is not None and owner.kind == "StatefulSet"
            active = healthy = 0
            moving = []
            for pod in pods:
                if pod.metadata.deletion_timestamp is None:
                    ready = pod.ready()
                    active += is_active(pod)
                    healthy += ready
                    if not stateful and (ready or not is_on_its_way(pod)):
                        continue
                moving.append(pod)
            self.counts[uid] = (active, healthy)
            self.moving[uid] = moving

    def _fill(self, ledger: BudgetLedger, pods: list[Pod]) -> None:
        """Count the members as they stand."""
        now_ns = self.snapshot.now_ns
        ledger.disrupted = standing(ledger.disrupted, pods, now_ns)
        for pod in pods:
            ledger.pod_changed(None, pod, self.snapshot)
        ledger.begin(now_ns)
