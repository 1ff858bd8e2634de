"""Samples and counts as values of metrics: name -> (label values, value), in the table's order.

Of labels whose values are known beforehand each has a value, 0 where there is nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kubectl_nodelife.daemon.metrics.change_counts import ChangeCounts, Histogram
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
    DUE_WITHIN,
    LEASE_AGES,
    UNKNOWN_AGE,
    UNKNOWN_WITHIN,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.outlook.diverge.observations import (
    DISABLED,
    EARLY,
    EXTRA,
    LATE,
    MISSING,
    OTHER_ACTOR,
    RESTARTED,
    SETTINGS,
    STALLED,
)
from kubectl_nodelife.outlook.node_verdict import WORST_FIRST

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
