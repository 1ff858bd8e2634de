"""Metrics of the daemon: here is the table of them, `recorder` keeps their values in memory, and
`endpoint` makes the text with prometheus_client and serves it.

Nodes, zones and what the daemon does not watch are looked at by `cluster_sample`.
`alerts.yaml` holds the alerting rules, `dashboard.yaml` the dashboard.

The table has name, type, labels, bound and help of each: `metrics list`, the HELP lines and
docs/metrics.md are made from it. Names of upstream
(pkg/controller/nodelifecycle/metrics.go, tainteviction/metrics, podgc/metrics) are kept where the
meaning is the same. Left out on purpose: upstream's durations of a monitor pass and the metrics of
client-go's work queues, since a pass here visits only the nodes that are due, and there are no such
queues; the namespace and reason of pod_gc_collector, and a DaemonSet's, pod's or node's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

LEASE_AGES: Final = (10, 15, 20, 30, 40, 50, 60, 300)
UNKNOWN_WITHIN: Final = (10, 20, 30)
DUE_WITHIN: Final = (60, 300)
UNKNOWN_AGE: Final = "unknown"
DELETION_BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)
ERROR_BUCKETS: Final = (0.5, 1, 2, 5, 10, 30, 60, 300)
WHAT_IF_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

MOST_ZONES: Final = 200
MOST_NODES: Final = 5_000
OTHER_ZONES: Final = "other"


class MetricFamily(NamedTuple):
    """One metric. A counter's `name` ends with _total. `most`: how many series it has at the most,
    `z` for each zone, `n` for each node. `buckets`: of a histogram. `per_node`: with
    --metrics-per-node only.
    """

    name: str
    type: str
    labels: tuple[str, ...]
    most: str
    help: str
    buckets: tuple[float, ...] = ()
    per_node: bool = False


_BUCKETS: Final = {
    "taint_eviction_controller_pod_deletion_duration_seconds": DELETION_BUCKETS,
    "nodelife_prediction_error_seconds": ERROR_BUCKETS,
    "nodelife_what_if_duration_seconds": WHAT_IF_BUCKETS,
}
_TABLE: Final = """
gauge node_collector_zone_size zone 1z
    Number of nodes that count in the zone.
gauge node_collector_zone_health zone 1z
    Percentage of ready nodes of the zone.
gauge node_collector_unhealthy_nodes_in_zone zone 1z
    Nodes of the zone not ready.
counter node_collector_evictions_total zone 1z
    Nodes whose eviction began (NoExecute taint, or all pods) since this process began.
counter taint_eviction_controller_pod_deletions_total - 1
    Pods that the taint-eviction controller decided to delete since this process began.
histogram taint_eviction_controller_pod_deletion_duration_seconds - 15
    Seconds from the decision to delete a pod until it was deleted. In seconds: upstream's value is
    multiplied by 1e9 by mistake up to v1.37.
counter pod_gc_collector_force_delete_pods_total - 1
    Pods that the pod GC deletes.
counter pod_gc_collector_force_delete_pod_errors_total - 1
    Such deletions that failed.
gauge nodelife_info version,profile,mode,server_hash 1
    1; version, profile followed, mode (dry-run or enforce), and a hash of the server.
gauge nodelife_nodes zone,state 11z
    Nodes by zone and verdict, as in status.
gauge nodelife_zone_state zone,state 4z
    1 for the state that the zone is in.
gauge nodelife_zone_eviction_rate_nodes_per_second zone 1z
    Nodes that may be tainted a second; 0: the zone is stopped.
gauge nodelife_zone_queued_nodes zone 1z
    Nodes waiting for a NoExecute taint.
gauge nodelife_zone_nodes_until_brake zone 1z
    How many more lost nodes slow or stop the zone; 0: it is. Absent where none would.
gauge nodelife_nodes_by_lease_age older_than_seconds 9
    Nodes whose Lease was renewed longer ago than that; unknown: no Lease was read.
gauge nodelife_nodes_unknown_within seconds 3
    Nodes that turn Unknown within that time unless they report. Nodes that are cordoned, being
    removed or deleted are left out.
gauge nodelife_nodes_flapping - 1
    Nodes that were lost three times in 15 minutes.
gauge nodelife_next_eviction_timestamp_seconds - 1
    When the next pod is deleted by a taint, in seconds since the epoch; 0: none is due.
gauge nodelife_pods_due seconds 2
    Pods that a taint deletes within that time. Pods on nodes that are cordoned, being removed or
    deleted are left out.
gauge nodelife_pods_stranded because 5
    Pods on lost nodes that no timer deletes: they tolerate that (forever), the zone is stopped
    (brake), they are static (mirror), or they are Terminating and wait for a finalizer or for their
    kubelet.
gauge nodelife_drain_wait_seconds gate 3
    For how long the oldest drain waits: for pods that are not evicted (eviction), that are past
    their grace period (stopping), or that a finalizer holds.
gauge nodelife_daemonset_nodes condition 4
    Sums of the status of all DaemonSets: desired, ready, misscheduled, unavailable.
gauge nodelife_budgets state 4
    Disruption budgets: ok, zero, failed, stale.
gauge nodelife_budget_blocked_nodes - 1
    Nodes with a pod that a disruption budget does not allow to be evicted now.
counter nodelife_predicted_changes_total controller,action,outcome 528
    Changes by controller, action and outcome; would counts each when it is predicted. Only those
    that occurred.
histogram nodelife_prediction_error_seconds action,sign 154
    By how much a predicted write was late or early, where the cluster shows it.
gauge nodelife_divergences finding 9
    Findings of diverge that are open now.
gauge nodelife_controller_last_act_timestamp_seconds controller 4
    When a predicted write of that controller of the cluster was last seen.
gauge nodelife_upgrade_nodes state 8
    Nodes of an upgrade run, by state.
gauge nodelife_upgrade_gate_closed gate 7
    1 for a gate that holds the run.
gauge nodelife_upgrade_held_nodes by 9
    What holds nodes or steps, counted.
gauge nodelife_upgrade_lowest_available_nodes - 1
    The fewest nodes available during the run. Absent until it is known.
counter nodelife_writes_total controller,action,code 392
    Requests sent in enforce mode, by their answer: 2xx, 404, 409, 429, 4xx, 5xx, lost.
gauge nodelife_guard_open guard 10
    1 for a breaker that is open.
gauge nodelife_held_writes - 1
    Writes that a guard holds back now.
gauge nodelife_lease_held - 1
    1 while this process holds the Lease of the writer.
gauge nodelife_paused - 1
    1 while enforcing is paused.
gauge nodelife_synced - 1
    1 once all kinds were read.
gauge nodelife_warming_up - 1
    1 while no missing heartbeat counts yet.
gauge nodelife_watch_up kind 5
    1 while the kind is watched, where it may be read.
gauge nodelife_watch_last_event_timestamp_seconds kind 5
    When the watch of the kind last sent anything.
counter nodelife_relists_total kind 5
    Lists of the kind.
counter nodelife_requests_total code 6
    Requests that read, by class of answer.
gauge nodelife_ui_listeners - 1
    Live pages that listen to the stream.
histogram nodelife_what_if_duration_seconds - 12
    Seconds that answers to what-if took.
gauge nodelife_loop_stall_seconds - 1
    The longest time that the loop was held up.
gauge nodelife_journal_bytes - 1
    Size of the journal.
gauge nodelife_sample_timestamp_seconds - 1
    When nodes and zones were looked at.
gauge nodelife_series_dropped - 1
    Nodes left out of the metrics of nodes.
gauge nodelife_node_unknown_in_seconds node 1n
    Seconds until the node is Unknown unless it reports.
gauge nodelife_node_pods_due node 1n
    Pods of the node with a timer.
"""
"""The words of each family: type, name, labels, bound; its help in the lines below."""


def _families(table: str) -> Iterator[MetricFamily]:
    for entry in re.split(r"\n(?=\S)", table.strip()):
        head, _, text = entry.partition("\n")
        type_, name, labels, most = head.split()
        names = tuple(labels.split(",")) if labels != "-" else ()
        buckets = _BUCKETS.get(name, ())
        text = " ".join(text.split())
        yield MetricFamily(name, type_, names, most, text, buckets, most.endswith("n"))


FAMILIES: Final = tuple(_families(_TABLE))
