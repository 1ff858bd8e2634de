"""The disruption controller and the Eviction API of the virtual cluster: a ledger for each budget.

The Eviction API uses a budget's status; the disruption controller updates it a moment after a pod
changed. So a ledger has both: the true counts, which pods change when they come, go, become Ready
or are marked deleted, and the budget as the API shows it, which `sync` writes. The arithmetic
itself and the decision on an eviction are in `workloads.budgets`.

Follows pkg/controller/disruption and pkg/registry/core/pod/storage/eviction.go. Left out:
admission, and namespaces that are being deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final, Self

import msgspec

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.events import ConditionsChange
from kubectl_nodelife.kube.meta import KubeObject, Time, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import SelectorIndex
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sim.api import Api, ForkedWorld, WorldPart, event_record
from kubectl_nodelife.sim.timeline import KUBELET, Agenda
from kubectl_nodelife.workloads.budgets import (
    DELETION_TIMEOUT_NS,
    Allowed,
    EvictionRefused,
    Expectation,
    LedgerEntry,
    as_answered,
    computed_status,
    counts_scales,
    decide_eviction,
    desired_pods,
    failed_status,
    is_healthy,
    standing,
    sync_failure,
)
from kubectl_nodelife.workloads.owners import (
    OwnerLookup,
    ScaleUnknown,
    SyncFailure,
    scale_of_pod,
    shows_scale,
)
from kubectl_nodelife.workloads.pod_classes import LabelledPods

CONFLICT_WINDOW_NS: Final = 8 * MILLISECOND_NS
"""Two evictions under one budget within this time have read the same status: one is retried."""

SYNC_NS: Final = 30 * MILLISECOND_NS
"""From a pod's change to the status that includes it."""

_KIND = "PodDisruptionBudget"
_SCALED = frozenset({"ReplicaSet", "Deployment", "StatefulSet", "ReplicationController"})


@dataclass(slots=True, eq=False)
class BudgetLedger:
    """A budget, the counts behind it, and the history of its status.

    `budget` is what the API shows. `healthy`, `matched` are the true counts. `last_spent_ns`: when
    an eviction last wrote to it. `guessed`: the scale of some owner could not be read and was taken
    from the recorded status, or else from the number of its pods.
    """

    budget: PodDisruptionBudget
    healthy: int = 0
    matched: int = 0
    last_spent_ns: int | None = None
    needs_sync: bool = False
    guessed: str = ""
    entries: list[LedgerEntry] = field(default_factory=list)
    disrupted: dict[str, Time] = field(init=False)
    _recorded_failure: str | None = field(init=False)
    _scales: dict[str, list[int]] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)
    _unknown: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.disrupted = dict(self.budget.status.disrupted_pods or {})
        self._recorded_failure = sync_failure(self.budget.status)

    def clone(self) -> BudgetLedger:
        """A ledger of its own with the same counts, for one run."""
        other = copy(self)
        other._scales = {uid: list(counted) for uid, counted in self._scales.items()}
        other._failures, other._unknown = dict(self._failures), dict(self._unknown)
        other.disrupted, other.entries = dict(self.disrupted), list(self.entries)
        return other

    # --- the true counts -------------------------------------------------------------------------

    def pod_changed(self, old: Pod | None, new: Pod | None, owners: OwnerLookup) -> None:
        """A pod that the budget matches came, went or changed; None where it does not match it."""
        if old is None and new is not None:
            self._count(new, 1, owners)
        elif old is not None and new is None:
            self._count(old, -1, owners)
        was = old is not None and is_healthy(old) and old.name not in self.disrupted
        if old is not None and (new is None or new.metadata.deletion_timestamp is not None):
            self.disrupted.pop(old.name, None)
        now = new is not None and is_healthy(new) and new.name not in self.disrupted
        self.healthy += now - was

    def _count(self, pod: Pod, by: int, owners: OwnerLookup) -> None:
        self.matched += by
        if not counts_scales(self.budget.spec):
            return
        try:
            scale = scale_of_pod(pod, owners)
        except SyncFailure as failure:
            message = str(failure)
            self._failures[message] = self._failures.get(message, 0) + by
            return
        except ScaleUnknown as unknown:
            owner = controller_of(pod.metadata)
            uid = owner.uid if owner is not None else ""
            self._unknown[uid] = self._unknown.get(uid, 0) + by
            self.guessed = str(unknown)
            return
        if scale is not None:
            counted = self._scales.setdefault(scale.uid, [scale.replicas, 0])
            counted[1] += by

    def expectation(self) -> Expectation:
        """Expected and desired pods now. Raises SyncFailure."""
        for message, count in self._failures.items():
            if count:
                raise SyncFailure(message)
        scale = sum(replicas for replicas, members in self._scales.values() if members)
        if self._unknown:
            scale += self._guess(scale)
        return desired_pods(self.budget.spec, scale, self.matched)

    def _guess(self, counted: int) -> int:
        """The scales that could not be read: the rest that the recorded status leaves for them."""
        status = self.budget.status
        if status.observed_generation >= self.budget.metadata.generation and status.conditions:
            return max(0, status.expected_pods - counted)
        return sum(self._unknown.values())

    # --- the status ------------------------------------------------------------------------------

    def begin(self, now_ns: int) -> None:
        """All pods are counted: check if the recorded status is that of a sync.

        A budget without any status was written by hand and gets one at once. A recorded failure
        that the objects do not explain is kept: the controller saw more than was read. It syncs
        upon a pod's change alone: an owner that was scaled or deleted changes no status by itself.
        """
        status = self.budget.status
        if not status.conditions and not status.observed_generation:
            if not self.budget.metadata.generation:  # a failed sync leaves the spec unobserved
                meta = msgspec.structs.replace(self.budget.metadata, generation=1)
                self.budget = msgspec.structs.replace(self.budget, metadata=meta)
                self.sync(0, now_ns, reads_spec=True)
            self._note(0)
            return
        if self._recorded_failure is None or any(self._failures.values()):
            self._recorded_failure = None
            self.needs_sync = not self.is_stale() and self.healthy != status.current_healthy
        self._note(0)

    def is_stale(self) -> bool:
        """True if the status belongs to an older spec: no eviction until the controller has run."""
        return self.budget.status.observed_generation < self.budget.metadata.generation

    def sync(self, at_ns: int, now_ns: int, *, reads_spec: bool = False) -> bool:
        """The controller writes the status; True if it allows another number than before.

        `at_ns` counts as the entries do; `now_ns`: since the epoch. `reads_spec`: a spec newer than
        the status is taken in; otherwise the controller is assumed to be stuck on it.
        """
        before = self.budget.status.disruptions_allowed
        if self._recorded_failure is not None or (self.is_stale() and not reads_spec):
            return False
        try:
            expectation = self.expectation()
            status = computed_status(self.budget, expectation, self.healthy, self.disrupted, now_ns)
        except SyncFailure as failure:
            status = failed_status(self.budget, str(failure), now_ns)
        if status is not self.budget.status:
            self.budget = msgspec.structs.replace(self.budget, status=status)
            self._note(at_ns)
        return status.disruptions_allowed != before

    def spend(self, at_ns: int, budget: PodDisruptionBudget) -> None:
        """An eviction went through and wrote `budget`, with one disruption less."""
        self.budget = budget
        self.last_spent_ns = at_ns
        self._note(at_ns)

    def _note(self, at_ns: int) -> None:
        status = self.budget.status
        entry = LedgerEntry(
            at_ns, status.current_healthy, status.desired_healthy, status.disruptions_allowed
        )
        if not self.entries or self.entries[-1][1:] != entry[1:]:
            self.entries.append(entry)


class DisruptionController(WorldPart):
    """Updates the status of every budget; `budgets_of` finds those that select a pod.

    Where it goes on with a cluster that was joined, a budget is counted when it is first asked for,
    as its pods were then: a play comes to few of thousands.
    """

    def __init__(self, api: Api, agenda: Agenda) -> None:
        self.sync_ns = SYNC_NS
        self._stuck: frozenset[Key] = frozenset()
        self._origin_ns = 0
        super().__init__(api, agenda)
        self._ledgers: dict[Key, BudgetLedger] = {}
        self._uncounted: set[Key] = set()
        self._pods: LabelledPods | None = None
        self._counted_ns = 0
        self._goes_on = False
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

    def fork(self, world: ForkedWorld) -> Self:
        """The same for a fork of the world."""
        other = super().fork(world)
        self._ledgers, other._ledgers = fork_dict(self._ledgers, BudgetLedger.clone)
        other._uncounted, other._due = set(self._uncounted), set(self._due)
        other.changed = dict(self.changed)
        return other

    def begin(self, pods: LabelledPods, *, joined: bool = False) -> None:
        """Count what is there, and follow it from now on. Entries of ledgers count from now.

        `pods`: all pods. `joined`: the controller goes on, and they stay as they are now. A spec
        that is newer than its status then stays so: if it had been processed by now, the status
        would show that.
        """
        self._origin_ns = self._api.now_ns
        self._api.on_object(self._object_changed)
        self._begin_anew(pods)
        if not joined:
            self.count_all()
            return
        self._goes_on = True
        for key, ledger in self._ledgers.items():
            if ledger.disrupted:  # some of its pods count again at an instant of their own
                self.ledger(key)
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
        """All budgets, counted."""
        self.count_all()
        return self._ledgers

    @property
    def guessed(self) -> set[str]:
        """Why the scales of owners had to be guessed: each could not be read."""
        if self._pods is not None and not (
            all(map(self._api.store.was_read, _SCALED))
            and all(starmap(shows_scale, self._pods.owner_kinds()))
        ):
            self.count_all()
        return {ledger.guessed for ledger in self._ledgers.values() if ledger.guessed}

    def __contains__(self, budget: Key) -> bool:
        return budget in self._ledgers

    def ledger(self, key: Key) -> BudgetLedger:
        """The budget of that key. Raises KeyError where there is none."""
        ledger = self._ledgers[key]
        if key in self._uncounted:
            self._uncounted.discard(key)
            self._fill(ledger)
        return ledger

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
        return [self.ledger(key) for key in keys] if keys else []

    def evict(self, pod: Pod, *, again: bool = True) -> Allowed | EvictionRefused | None:
        """The answer of the Eviction API; a budget that allows the eviction is spent and written.

        None: another eviction wrote to the budget at the same moment; never with `again`.
        """
        ledgers, now_ns = self.budgets_of(pod), self._api.now_ns
        decision = decide_eviction(pod, [ledger.budget for ledger in ledgers], now_ns)
        if isinstance(decision, EvictionRefused):
            asks_budget = decision.code == 429
        else:
            asks_budget = decision.status is not None
        at_ns = now_ns - self._origin_ns
        if asks_budget and not again:
            spent_ns = ledgers[0].last_spent_ns
            if spent_ns is not None and at_ns - spent_ns < CONFLICT_WINDOW_NS:
                return None
        if isinstance(decision, EvictionRefused):
            names_budget = self._api.profile.has("refusals_name_budget")
            return as_answered(decision, names_budget=names_budget)
        if decision.status is not None:
            ledger = ledgers[0]
            ledger.spend(at_ns, msgspec.structs.replace(ledger.budget, status=decision.status))
            self.changed[ledger.budget.key] = None
            self.write(ledger)
        return decision

    def write(self, ledger: BudgetLedger, cause: Action | None = None) -> None:
        """Store the budget in the API as the ledger has it."""
        self._writes = True
        self._api.put(_KIND, ledger.budget, cause)
        self._writes = False

    def _begin_anew(self, pods: LabelledPods) -> None:
        """Begin anew with the budgets and pods as they are."""
        budgets = [b for b in self._api.store.all(_KIND) if isinstance(b, PodDisruptionBudget)]
        self._ledgers = {budget.key: BudgetLedger(budget) for budget in budgets}
        self._uncounted = set(self._ledgers)
        self._pods, self._counted_ns = pods, self._api.now_ns
        self._follow()

    def count_all(self) -> None:
        """Count all budgets now, for who tells of each: whose status is not that of its pods is
        synced a moment later, to which the play goes on then.
        """
        if self._uncounted:
            for key in self._ledgers:
                self.ledger(key)

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

    def _fill(self, ledger: BudgetLedger) -> None:
        """Count its pods, and let happen what has come of that by now."""
        assert self._pods is not None
        budget, now_ns = ledger.budget, self._counted_ns
        pods = self._pods.matching(budget.namespace, budget.spec.selector)
        ledger.disrupted = standing(ledger.disrupted, pods, now_ns)
        for pod in pods:
            ledger.pod_changed(None, pod, self._api.store)
        before = ledger.budget
        ledger.begin(now_ns)
        if ledger.budget is not before:
            if self._goes_on and ledger.is_stale():
                self._stuck |= {budget.key}
            self.write(ledger)
        if ledger.needs_sync:
            due_ns = now_ns + self.sync_ns
            if due_ns >= self._api.now_ns:
                self._sync_at(due_ns, budget.key)
            else:
                self._sync(budget.key, due_ns)
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
            ledger.pod_changed(pod, None, self._api.store)
        ledger.disrupted.pop(name, None)
        if pod is not None:
            ledger.pod_changed(None, pod, self._api.store)
        self._sync_soon(ledger)

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        after = self.budgets_of(new) if new is not None else []
        before = after
        if old is None or new is None or old.metadata.labels is not new.metadata.labels:
            before = self.budgets_of(old) if old is not None else []
        for ledger in dict.fromkeys(before + after) if before is not after else after:
            was, now = old if ledger in before else None, new if ledger in after else None
            ledger.pod_changed(was, now, self._api.store)
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
            if isinstance(new, PodDisruptionBudget) and new.key in self._ledgers:
                ledger = self.ledger(new.key)
                ledger.budget = new
                self._sync_soon(ledger)
            return
        if kind == _KIND and (new or old) is not None:
            self._stuck -= {(new or old).key}  # type: ignore[union-attr]
        for key in list(self._uncounted):
            if not self._ledgers[key].budget.metadata.generation:  # it may be stuck once counted
                self.ledger(key)
        self._goes_on = False
        self._begin_anew(LabelledPods(self._api.store))
        self.count_all()
        for ledger in self._ledgers.values():
            self._sync_soon(ledger)

    def _sync_soon(self, ledger: BudgetLedger) -> None:
        self._sync_at(self._api.now_ns + self.sync_ns, ledger.budget.key)

    def _sync_at(self, at_ns: int, key: Key) -> None:
        if key not in self._due:
            self._due.add(key)
            self._agenda.add(at_ns, KUBELET, self._sync, key)

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
