"""The disruption controller and the Eviction API of the virtual cluster.

The arithmetic is in `workloads.budget_ledger` and the decision in `workloads.budgets`; this module
has when a budget's status is updated (shortly after one of its pods changed) and what an eviction
writes. Follows pkg/controller/disruption and pkg/registry/core/pod/storage/eviction.go. Left out:
admission, and namespaces that are being deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Final

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import SelectorIndex
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sim.api import Api, event_record
from kubectl_nodelife.sim.timeline import KUBELET, Agenda
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger, evict_under, standing
from kubectl_nodelife.workloads.budgets import (
    DELETION_TIMEOUT_NS,
    Allowed,
    EvictionRefused,
    as_answered,
)
from kubectl_nodelife.workloads.owners import OwnerLookup

SYNC_NS: Final = 30 * MILLISECOND_NS
"""From a pod's change to the status that includes it."""

_KIND = "PodDisruptionBudget"
_SCALED = frozenset({"ReplicaSet", "Deployment", "StatefulSet", "ReplicationController"})


class DisruptionController:
    """Updates the status of every budget; `budgets_of` finds those that select a pod."""

    def __init__(self, api: Api, agenda: Agenda, owners: OwnerLookup) -> None:
        self.sync_ns = SYNC_NS
        self._stuck: frozenset[Key] = frozenset()
        self._origin_ns = 0
        self._api = api
        self._agenda = agenda
        self._owners = owners
        self._ledgers: dict[Key, BudgetLedger] = {}
        self._index: SelectorIndex[Key] = SelectorIndex()
        self._matching: dict[int, tuple[str, Mapping[str, str] | None, list[Key]]] = {}
        """(namespace, labels, the budgets of pods that have them) by the labels' id: a label map
        never changes, and a pod mostly shares it with the pods that it replaces. Forks share all of
        this until budgets change."""
        self._due: set[Key] = set()
        self.changed: dict[Key, None] = {}
        """The budgets whose status was written since they were first counted."""
        self._writes = False
        self._listens = False

    def fork(self, api: Api, agenda: Agenda, owners: OwnerLookup) -> DisruptionController:
        """The same for a fork of the world."""
        other = copy(self)
        other._api, other._agenda, other._owners = api, agenda, owners
        self._ledgers, other._ledgers = fork_dict(self._ledgers, BudgetLedger.clone)
        other._due, other.changed = set(self._due), dict(self.changed)
        return other

    def begin(self, pods_alike: Iterable[list[Pod]], *, joined: bool = False) -> None:
        """Count what is there, and follow it from now on. Entries of ledgers count from now.

        `pods_alike`: all pods, as the cache has them (`Cache.pods_alike`). `joined`: the controller
        goes on. A spec that is newer than its status then stays so: if it had been processed by
        now, the status would show that.
        """
        self._origin_ns = self._api.now_ns
        self._api.on_object(self._object_changed)
        self._count_all(pods_alike)
        if joined:
            self._stuck = frozenset(k for k, ledger in self._ledgers.items() if ledger.is_stale())

    def take_time(self, sync_ns: int) -> None:
        """From now on a status follows a pod's change after so long. Before the first tick."""
        self.sync_ns = sync_ns
        if self._due:
            self._agenda.forget(self, self._sync)
            for key in list(self._due):
                self._due.discard(key)
                if (ledger := self._ledgers.get(key)) is not None:  # else the budget is gone
                    self._sync_soon(ledger)

    @property
    def ledgers(self) -> Mapping[Key, BudgetLedger]:
        """All budgets."""
        return self._ledgers

    def budgets_of(self, pod: Pod) -> list[BudgetLedger]:
        """The budgets that match the pod."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        alike = id(labels)
        matching = self._matching.get(alike)
        if matching is None or matching[0] != namespace:
            found = self._index.find(namespace, labels) if self._ledgers else []
            # The labels are kept with it, so that the id stays theirs.
            matching = self._matching[alike] = (namespace, labels, found)
        keys = matching[2]
        return [self._ledgers[key] for key in keys] if keys else []

    def evict(self, pod: Pod, *, again: bool = True) -> Allowed | EvictionRefused | None:
        """The answer of the Eviction API; a budget that allows the eviction is spent and written.

        None: another eviction wrote to the budget at the same moment; never with `again`.
        """
        ledgers, now_ns = self.budgets_of(pod), self._api.now_ns
        answer = evict_under(ledgers, pod, now_ns - self._origin_ns, now_ns, again=again)
        if isinstance(answer, EvictionRefused):
            names_budget = self._api.profile.has("refusals_name_budget")
            return as_answered(answer, names_budget=names_budget)
        if isinstance(answer, Allowed) and answer.status is not None:
            self.changed[ledgers[0].budget.key] = None
            self.write(ledgers[0])
        return answer

    def write(self, ledger: BudgetLedger, cause: Action | None = None) -> None:
        """Store the budget in the API as the ledger has it."""
        self._writes = True
        self._api.put(_KIND, ledger.budget, cause)
        self._writes = False

    def _count_all(self, pods_alike: Iterable[list[Pod]]) -> None:
        """Begin anew with the budgets and pods as they are."""
        budgets = [b for b in self._api.store.all(_KIND) if isinstance(b, PodDisruptionBudget)]
        self._ledgers = {budget.key: BudgetLedger(budget) for budget in budgets}
        self._follow()
        if not budgets:
            return
        members: dict[Key, list[Pod]] = {key: [] for key in self._ledgers}
        for alike in pods_alike:
            for ledger in self.budgets_of(alike[0]):
                members[ledger.budget.key] += alike
        for key, pods in members.items():
            self._fill(self._ledgers[key], pods)

    def _follow(self) -> None:
        """Index the budgets by their selectors, and listen to changes of their pods."""
        self._index = SelectorIndex()
        self._matching = {}
        if self._ledgers and not self._listens:
            self._listens = True
            self._api.on_pod(self._pod_changed)
            self._api.on_pod_conditions(self._conditions_changed)
        for key, ledger in self._ledgers.items():
            self._index.add(key[0], ledger.budget.spec.selector, key)

    def _fill(self, ledger: BudgetLedger, pods: list[Pod]) -> None:
        now_ns = self._api.now_ns
        ledger.disrupted = standing(ledger.disrupted, pods, now_ns)
        for pod in pods:
            ledger.pod_changed(None, pod, self._owners)
        before = ledger.budget
        ledger.begin(now_ns)
        if ledger.budget is not before:
            self.write(ledger)
        if ledger.needs_sync:
            self._sync_soon(ledger)
        self._expire(ledger)

    def _expire(self, ledger: BudgetLedger) -> None:
        for name, since in ledger.disrupted.items():
            ends_ns = since + DELETION_TIMEOUT_NS
            self._agenda.add(ends_ns, KUBELET, self._disruption_ends, ledger.budget.key, name)

    def _disruption_ends(self, key: Key, name: str, now_ns: int) -> None:
        """Two minutes are over and the pod was not deleted: it counts again."""
        ledger = self._ledgers.get(key)
        if ledger is None or name not in ledger.disrupted:
            return
        pod = self._api.store.pods.get((key[0], name))
        if pod is not None:
            ledger.pod_changed(pod, None, self._owners)
        ledger.disrupted.pop(name, None)
        if pod is not None:
            ledger.pod_changed(None, pod, self._owners)
        self._sync_soon(ledger)

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        after = self.budgets_of(new) if new is not None else []
        before = after
        if old is None or new is None or old.metadata.labels is not new.metadata.labels:
            before = self.budgets_of(old) if old is not None else []
        for ledger in dict.fromkeys(before + after) if before is not after else after:
            was, now = old if ledger in before else None, new if ledger in after else None
            ledger.pod_changed(was, now, self._owners)
        for ledger in self._queued(before, after, new):
            self._sync_soon(ledger)
        if new is not None and len(after) > 1 and before is not after:
            self._warn(new, after, cause)

    def _warn(self, pod: Pod, ledgers: list[BudgetLedger], cause: Action | None) -> None:
        """An Event tells of the budgets that match the pod. Upstream sends it with each change of
        the pod, which only raises its count.
        """
        about = f'Pod "{pod.namespace}"/"{pod.name}" matches multiple PodDisruptionBudgets'
        names = [ledger.budget.name for ledger in ledgers]
        if self._api.profile.has("syncs_every_budget"):
            listed = " ".join(f'"{name}"' for name in sorted(names))
            message = f"{about} [{listed}]. Overlapping PDBs are unsupported for eviction."
        else:
            message = f'{about}.  Chose "{names[0]}" arbitrarily.'
        reason = "MultiplePodDisruptionBudgets"
        self._api.note(event_record(pod, reason, message, cause=cause, warning=True))

    def _queued(
        self, before: list[BudgetLedger], after: list[BudgetLedger], new: Pod | None
    ) -> Iterable[BudgetLedger]:
        """The budgets that are synced because of a pod's change: up to 1.37 one of those that match
        it now, or that matched a pod that is gone. Follows `updatePod` and `getPdbForPod`.
        """
        if self._api.profile.has("syncs_every_budget"):
            return dict.fromkeys(before + after)
        return (after if new is not None else before)[:1]

    def _conditions_changed(self, changes: Sequence[ConditionsChange]) -> None:
        for change in changes:
            self._pod_changed(*change)

    def _object_changed(self, kind: str, old: KubeObject | None, new: KubeObject | None) -> None:
        """A budget was added, deleted or written by another client; or a workload was scaled."""
        if self._writes or not (kind == _KIND or (kind in _SCALED and self._ledgers)):
            return
        if _spec_of(old) == _spec_of(new):
            ledger = self._ledgers.get(new.key) if new is not None and kind == _KIND else None
            if ledger is not None and isinstance(new, PodDisruptionBudget):
                ledger.budget = new
                self._sync_soon(ledger)
            return
        if kind == _KIND and (new or old) is not None:
            self._stuck -= {(new or old).key}  # type: ignore[union-attr]
        self._count_all(self._api.store.pods_alike())
        for ledger in self._ledgers.values():
            self._sync_soon(ledger)

    def _sync_soon(self, ledger: BudgetLedger) -> None:
        key = ledger.budget.key
        if key not in self._due:
            self._due.add(key)
            self._agenda.add(self._api.now_ns + self.sync_ns, KUBELET, self._sync, key)

    def _sync(self, key: Key, now_ns: int) -> None:
        self._due.discard(key)
        ledger = self._ledgers.get(key)
        if ledger is None:
            return
        before = ledger.budget
        ledger.sync(now_ns - self._origin_ns, now_ns, reads_spec=key not in self._stuck)
        if ledger.budget is not before:
            self.changed[key] = None
            self.write(ledger)


def _spec_of(obj: KubeObject | None) -> object:
    return getattr(obj, "spec", None)
