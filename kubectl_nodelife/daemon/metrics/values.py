"""Samples and counts as values of metrics: name -> (label values, value), in the table's order.

Of labels whose values are known beforehand each has a value, 0 where there is nothing. The changes
of the journal are counted as they come and as they end (`ChangeCounts`): each once as `would`, when
it is predicted, and once for each outcome that it comes to. What an earlier process predicted
counts by its end alone. The answers that are timed are those made in child processes, of `what-if`.
Pure but for what it remembers.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import accumulate
from typing import Any, Final

from kubectl_nodelife.daemon.changes import ENFORCE, HELD, WOULD, ChangeRecord
from kubectl_nodelife.daemon.metrics.cluster_sample import (
    BUDGET_STATES,
    DRAIN_GATES,
    STRANDED,
    ZONE_STATES,
    BudgetSample,
    ClusterSample,
    UpgradeSample,
)
from kubectl_nodelife.daemon.metrics.families import (
    DELETION_BUCKETS,
    DUE_WITHIN,
    ERROR_BUCKETS,
    LEASE_AGES,
    UNKNOWN_AGE,
    UNKNOWN_WITHIN,
)
from kubectl_nodelife.daemon.server import Query, Stream
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.outlook.diverge.observations import (
    DISABLED,
    EARLY,
    EVICTION,
    EXTRA,
    JUDGED,
    LATE,
    MISSING,
    OTHER_ACTOR,
    POD_GC,
    RESTARTED,
    SETTINGS,
    STALLED,
    WRITES,
)
from kubectl_nodelife.outlook.node_verdict import WORST_FIRST

_MOST_OPEN: Final = 200_000


class Histogram:
    """Counts by bucket, and the sum."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def copy(self) -> Histogram:
        """As it is now."""
        other = Histogram(self.bounds)
        other.counts, other.sum = list(self.counts), self.sum
        return other

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, how many values are not above it), the last without a bound."""
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return [(name, float(n)) for name, n in zip(names, accumulate(self.counts), strict=True)]


class ChangeCounts:
    """Counts the journal's changes for the metrics.

    `changes`: by controller, action and outcome. `errors`: by action and sign.

    `last_act_ns`: by controller, when a write of the cluster's own was seen last.
    """

    def __init__(self, began_ns: int) -> None:
        """A prediction from before `began_ns` is of an earlier process."""
        self._began_ns = began_ns
        self._open: dict[int, str] = {}
        self.changes: Counter[tuple[str, str, str]] = Counter()
        self.errors = {  # all at once: to Prometheus the first value of a series is no increase
            (action, sign): Histogram(ERROR_BUCKETS)
            for action in sorted(WRITES)
            for sign in (LATE, EARLY)
        }
        self.last_act_ns: dict[str, int] = {}
        self.deletion_s = Histogram(DELETION_BUCKETS)
        self.deletions = self.force_deletions = self.force_deletion_errors = 0

    @property
    def held(self) -> int:
        """How many writes a guard holds back now."""
        return sum(outcome == HELD for outcome in self._open.values())

    def take(self, changes: Iterable[ChangeRecord]) -> None:
        """Changes that are new, or that have another outcome."""
        for change in changes:
            outcome = self._open.get(change.id)
            if outcome is None and change.time_ns >= self._began_ns:
                self._count(change, WOULD)
                self._predicted(change)
                outcome = WOULD
            if change.outcome not in (outcome, WOULD):
                self._count(change, change.outcome)
            if change.settled_ns is None:
                self._open[change.id] = change.outcome
                if len(self._open) > _MOST_OPEN:
                    del self._open[next(iter(self._open))]
            else:
                self._open.pop(change.id, None)
                self._ended(change, change.settled_ns)

    def _count(self, change: ChangeRecord, outcome: str) -> None:
        self.changes[change.controller, change.action, outcome] += 1

    def _predicted(self, change: ChangeRecord) -> None:
        if change.action == "DeletePod":
            self.deletions += change.controller == EVICTION
            self.force_deletions += change.controller == POD_GC

    def _ended(self, change: ChangeRecord, settled_ns: int) -> None:
        if change.action == "DeletePod" and change.controller == POD_GC:
            self.force_deletion_errors += change.outcome == "failed"
        done = change.outcome in ("confirmed", "applied")
        if done and change.action == "DeletePod" and change.controller == EVICTION:
            self.deletion_s.observe(max(0, settled_ns - change.time_ns) / SECOND_NS)
        if change.outcome != "confirmed" or change.mode == ENFORCE:
            return
        last_ns = self.last_act_ns.get(change.controller, 0)
        self.last_act_ns[change.controller] = max(last_ns, settled_ns)
        if change.controller in JUDGED and change.action in WRITES:
            error_s = _error_ns(change, settled_ns) / SECOND_NS
            sign = EARLY if error_s < 0 else LATE
            self.errors[change.action, sign].observe(abs(error_s))


def _error_ns(change: ChangeRecord, settled_ns: int) -> int:
    """How far the write was outside of the time that was predicted; negative: before it."""
    low_ns, high_ns = change.time_ns, change.time_ns
    if change.earliest_ns is not None and change.latest_ns is not None:
        low_ns, high_ns = change.earliest_ns, change.latest_ns
    return min(0, settled_ns - low_ns) or max(0, settled_ns - high_ns)


def timed(stream: Stream, times: Histogram) -> Stream:
    """The same, of which is kept how long it took, also where it ends in an error."""

    async def with_time(query: Query) -> AsyncGenerator[dict[str, Any]]:
        began = time.monotonic()
        try:
            async with aclosing(stream(query)) as told:
                async for document in told:
                    yield document
        finally:
            times.observe(time.monotonic() - began)

    return with_time


Labels = tuple[str, ...]
Values = dict[str, Sequence[tuple[Labels, float | Histogram]]]

FINDINGS = (STALLED, DISABLED, SETTINGS, MISSING, LATE, EARLY, EXTRA, RESTARTED, OTHER_ACTOR)


def cluster_values(
    sample: ClusterSample, evictions: Mapping[str, int], *, per_node: bool
) -> Values:
    """The values of a look at the cluster. `evictions`: by zone, since the process began."""
    due_ns = sample.next_eviction_ns
    values: Values = {
        "node_collector_evictions_total": [((z,), n) for z, n in sorted(evictions.items())],
        "nodelife_nodes_by_lease_age": _each(sample.lease_ages, (*LEASE_AGES, UNKNOWN_AGE)),
        "nodelife_nodes_unknown_within": _each(sample.unknown_within, UNKNOWN_WITHIN),
        "nodelife_pods_due": _each(sample.pods_due, DUE_WITHIN),
        "nodelife_next_eviction_timestamp_seconds": [((), due_ns / SECOND_NS)],
        "nodelife_pods_stranded": _each(sample.stranded, STRANDED),
        "nodelife_drain_wait_seconds": _each(sample.drain_waits, DRAIN_GATES),
        "nodelife_sample_timestamp_seconds": [((), sample.now_ns / SECOND_NS)],
    }
    if per_node:
        values["nodelife_series_dropped"] = [((), sample.dropped)]
        values["nodelife_node_pods_due"] = [((n.name,), n.pods_due) for n in sample.nodes]
        values["nodelife_node_unknown_in_seconds"] = [
            ((n.name,), n.unknown_in_s) for n in sample.nodes if n.unknown_in_s is not None
        ]
    return values | _zone_values(sample)


def _zone_values(sample: ClusterSample) -> Values:
    values: dict[str, list[tuple[Labels, float | Histogram]]] = {}

    def add(name: str, labels: Labels, value: float) -> None:
        values.setdefault(name, []).append((labels, value))

    for label, zone in sorted(sample.zones.items()):
        healthy = zone.size - zone.unhealthy
        health = 100 * healthy / zone.size if zone.size else 100.0
        add("node_collector_zone_size", (label,), zone.size)
        add("node_collector_zone_health", (label,), round(health, 3))
        add("node_collector_unhealthy_nodes_in_zone", (label,), zone.unhealthy)
        add("nodelife_zone_eviction_rate_nodes_per_second", (label,), zone.rate)
        add("nodelife_zone_queued_nodes", (label,), zone.queued)
        if zone.until_brake is not None:
            add("nodelife_zone_nodes_until_brake", (label,), zone.until_brake)
        for state in ZONE_STATES:
            add("nodelife_zone_state", (label, state), int(state in zone.states))
        for verdict in WORST_FIRST:
            add("nodelife_nodes", (label, verdict), zone.verdicts[verdict])
    return dict(values)


def work_values(
    counts: ChangeCounts,
    findings: Counter[str] | None,
    budgets: BudgetSample | None,
    run: UpgradeSample | None,
) -> Values:
    """Changes, divergences, budgets and the upgrade run; None: not known."""
    last_act = sorted(counts.last_act_ns.items())
    values: Values = {
        "nodelife_predicted_changes_total": sorted(counts.changes.items()),
        "nodelife_prediction_error_seconds": [
            (labels, errors.copy()) for labels, errors in sorted(counts.errors.items())
        ],
        "nodelife_controller_last_act_timestamp_seconds": [
            ((name,), at_ns / SECOND_NS) for name, at_ns in last_act
        ],
        "taint_eviction_controller_pod_deletions_total": [((), counts.deletions)],
        "taint_eviction_controller_pod_deletion_duration_seconds": [((), counts.deletion_s.copy())],
        "pod_gc_collector_force_delete_pods_total": [((), counts.force_deletions)],
        "pod_gc_collector_force_delete_pod_errors_total": [((), counts.force_deletion_errors)],
    }
    if findings is not None:
        values["nodelife_divergences"] = _each(findings, FINDINGS)
    if budgets is not None:
        values["nodelife_budgets"] = _each(budgets.states, BUDGET_STATES)
        values["nodelife_budget_blocked_nodes"] = [((), budgets.blocked_nodes)]
    if run is not None:
        values["nodelife_upgrade_nodes"] = [((s,), n) for s, n in sorted(run.nodes.items())]
        values["nodelife_upgrade_gate_closed"] = [((gate,), 1) for gate in sorted(run.gates)]
        values["nodelife_upgrade_held_nodes"] = [((b,), n) for b, n in sorted(run.held.items())]
        if run.lowest is not None:
            values["nodelife_upgrade_lowest_available_nodes"] = [((), run.lowest)]
    return values


def daemon_set_values(cache: Cache) -> Values:
    """The sums of the status of all DaemonSets."""
    sums: Counter[str] = Counter()
    for obj in cache.all("DaemonSet"):
        if isinstance(obj, DaemonSet):
            sums["desired"] += obj.status.desired_number_scheduled
            sums["ready"] += obj.status.number_ready
            sums["misscheduled"] += obj.status.number_misscheduled
            sums["unavailable"] += obj.status.number_unavailable
    of = ("desired", "ready", "misscheduled", "unavailable")
    return {"nodelife_daemonset_nodes": _each(sums, of)}


def _each(
    counts: Mapping[str, float], keys: Iterable[object]
) -> list[tuple[Labels, float | Histogram]]:
    return [((str(key),), counts.get(str(key), 0)) for key in keys]
