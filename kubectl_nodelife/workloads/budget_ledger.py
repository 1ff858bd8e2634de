"""One budget over time: what it counts, what its status says, and when the two differ.

The Eviction API uses the status; the disruption controller updates it a moment after a pod changed.
So a ledger has both: the true counts, which pods change when they come, go, become Ready or are
marked deleted, and the budget as the API shows it, which `sync` writes. The arithmetic itself is
that of `workloads.budgets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.kube.meta import Time, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.workloads.budgets import (
    DELETION_TIMEOUT_NS,
    Allowed,
    EvictionRefused,
    Expectation,
    computed_status,
    counts_scales,
    decide_eviction,
    desired_pods,
    failed_status,
    sync_failure,
)
from kubectl_nodelife.workloads.owners import OwnerLookup, ScaleUnknown, SyncFailure, scale_of_pod

CONFLICT_WINDOW_NS: Final = 8 * MILLISECOND_NS
"""Two evictions under one budget within this time have read the same status: one is retried."""


class LedgerEntry(NamedTuple):
    """The budget's status from an instant on; nanoseconds since the plan's moment."""

    at_ns: int
    healthy: int
    desired: int
    allowed: int


class BudgetLedger:
    """A budget, the counts behind it, and the history of its status.

    `budget` is what the API shows. `healthy`, `matched` are the true counts. `last_spent_ns`: when
    an eviction last wrote to it. `guessed`: the scale of some owner could not be read and was taken
    from the recorded status, or else from the number of its pods.
    """

    __slots__ = (
        "_failures",
        "_recorded_failure",
        "_scales",
        "_unknown",
        "budget",
        "disrupted",
        "entries",
        "guessed",
        "healthy",
        "last_spent_ns",
        "matched",
        "needs_sync",
    )

    def __init__(self, budget: PodDisruptionBudget) -> None:
        self.budget = budget
        self._recorded_failure = sync_failure(budget.status)
        self._scales: dict[str, list[int]] = {}
        self._failures: dict[str, int] = {}
        self._unknown: dict[str, int] = {}
        self.disrupted: dict[str, Time] = dict(budget.status.disrupted_pods or {})
        self.healthy = 0
        self.matched = 0
        self.last_spent_ns: int | None = None
        self.needs_sync = False
        self.guessed = ""
        self.entries: list[LedgerEntry] = []

    def clone(self) -> BudgetLedger:
        """A ledger of its own with the same counts, for one run."""
        copy = BudgetLedger(self.budget)
        copy._recorded_failure = self._recorded_failure
        copy._scales = {uid: list(counted) for uid, counted in self._scales.items()}
        copy._failures = dict(self._failures)
        copy._unknown = dict(self._unknown)
        copy.disrupted = dict(self.disrupted)
        copy.healthy, copy.matched = self.healthy, self.matched
        copy.last_spent_ns = self.last_spent_ns
        copy.needs_sync, copy.guessed = self.needs_sync, self.guessed
        copy.entries = list(self.entries)
        return copy

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


def is_healthy(pod: Pod) -> bool:
    """Ready and not marked deleted."""
    return pod.metadata.deletion_timestamp is None and pod.ready()


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


def evict_under(
    ledgers: Sequence[BudgetLedger], pod: Pod, at_ns: int, now_ns: int, *, again: bool
) -> Allowed | EvictionRefused | None:
    """The Eviction API's answer; where it lets the pod go, the budget is spent in its ledger.

    None: another eviction wrote to the budget at the same moment, and the API server itself tries
    once more (`again`). `at_ns` counts as the ledgers do, `now_ns` is since the epoch.
    """
    decision = decide_eviction(pod, [ledger.budget for ledger in ledgers], now_ns)
    if isinstance(decision, EvictionRefused):
        asks_budget = decision.code == 429
    else:
        asks_budget = decision.status is not None
    if asks_budget and not again:
        spent_ns = ledgers[0].last_spent_ns
        if spent_ns is not None and at_ns - spent_ns < CONFLICT_WINDOW_NS:
            return None
    if isinstance(decision, Allowed) and decision.status is not None:
        budget = ledgers[0].budget
        ledgers[0].spend(at_ns, msgspec.structs.replace(budget, status=decision.status))
    return decision
