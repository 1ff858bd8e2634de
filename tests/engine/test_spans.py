"""Since and until which release each behaviour holds, said once more: a date that moves fails here.

`docs/since-dates.md` says which line of Kubernetes' source dates it.
"""

import pytest

from kubectl_nodelife.controllers.daemonset.behaviour import SINCE_UNTIL as DAEMON_SETS
from kubectl_nodelife.engine.settings import SWITCHES, Profile, Span, holds
from kubectl_nodelife.kubelet.releases import SINCE_UNTIL as KUBELETS

OLDEST, LATEST = 11, 45

# behaviour -> (the first release that has it, the first one that no longer has; None: none)
NODES = {
    "decide_on_current": (34, None),
    "requeue_untainted": (18, None),
    "pod_retry": (17, None),
    "pod_not_ready_event": (19, None),
    "monitor_workers": (27, None),
    "classic_eviction": (None, 27),
    "evicted_node_map": (17, 27),
    "lease_gate": (None, 17),
    "noschedule_gate": (None, 17),
    "beta_zone_labels_only": (None, 17),
    "beta_labels_are_truth": (None, 19),
    "exclusion_gates": (None, 21),
    "infinite_cancels": (17, None),
    "sticky_timer_keys": (None, 33),
    "disruption_target": (26, None),
    "gc_quarantine": (17, None),
    "gc_sets_phase": (26, None),
    "gc_always_sets_phase": (29, None),
    "gc_out_of_service": (26, None),
    "gc_evicted_first": (27, None),
    "separate_taint_eviction": (29, None),
    "drains_daemon_sets_by_kind": (None, 34),
    "lease_circuit_breaker": (37, None),
    "health_follows_node": (38, None),
    "refusals_name_budget": (37, None),
    "pops_backoff_queue": (33, None),
    "syncs_every_budget": (38, None),
    "empty_selector_spreads": (38, None),
    "dry_run_ends": (37, None),
    "waiting_for_detach": (37, None),
    "eviction_tells_version": (38, None),
    "detach_when_node_is_gone": (38, None),
}

KUBELET_STATUS = {
    "owns_unschedulable": (None, 20),
    "request_per_change": (None, 27),
    "batch_empties_queue": (17, None),
    "terminate_overwrites_all": (None, 17),
    "terminate_keeps_never_started": (22, None),
    "terminate_sets_phase": (27, None),
    "delete_when_finished": (27, None),
    "phase_waits_for_containers": (22, None),
    "disruption_target": (26, None),
    "terminal_not_ready": (22, None),
    "sidecars": (29, None),
    "started_means_initialized": (28, None),
    "init_matched_by_index": (29, None),
    "ephemeral_counted": (32, None),
    "patch_has_uid": (17, None),
    "empty_patch_skipped": (18, None),
    "ready_to_start_containers": (29, None),
    "resize_conditions": (33, None),
    "restart_rules": (35, None),
    "restarting_is_dated": (35, None),
    "restart_all_containers": (36, None),
    "resource_claims": (28, None),
    "ready_to_start_says_why": (37, None),
    "evicted_stays_failed": (38, None),
    "volume_health": (37, None),
    "volume_health_in_seconds": (38, None),
    "fifty_requests": (27, None),
    "listing_blinds_reconcile": (15, 18),
    "claims_never_differ": (36, None),
    "lost_condition_differs": (33, None),
}

DAEMON_SET = {
    "critical_by_priority": (12, 17),
    "suspends": (None, 17),
    "tolerates_pid_pressure": (14, None),
    "tolerates_network_unavailable": (12, None),
    "tolerates_out_of_disk": (None, 14),
    "deletion_observed_at_the_mark": (15, None),
    "failed_pods_back_off": (12, None),
    "failed_pods_end_the_sync": (None, 16),
    "succeeded_pods_deleted": (26, None),
    "finished_terminating_left_out": (26, None),
    "unfit_terminating_deleted_again": (None, 16),
    "binds_for_old_kubelets": (12, 13),
    "own_scheduler_name": (14, 17),
    "classic_rolling_update": (None, 21),
    "unavailable_old_pods_use_budget": (28, None),
    "available_at_the_instant": (34, None),
    "generation_label_counts": (24, None),
    "status_written_after_error": (25, None),
    "status_update_retried": (21, None),
    "requeue_for_min_ready_after_status": (15, None),
    "node_queue": (33, None),
    "node_filter_labels_and_taints": (30, None),
    "node_filter_true_conditions": (None, 12),
    "not_found_on_delete_is_fine": (17, None),
    "terminating_namespace_is_fine": (17, None),
    "create_timeout_ignored": (None, 15),
    "slow_start_skips_from_the_batch": (None, 15),
    "collision_count_checked": (12, None),
}


TABLES = [
    pytest.param(table, rule, expected, id=f"{name}-{rule}")
    for name, table, rows in (
        ("nodes", SWITCHES, NODES),
        ("kubelet", KUBELETS, KUBELET_STATUS),
        ("daemonset", DAEMON_SETS, DAEMON_SET),
    )
    for rule, expected in rows.items()
]


@pytest.mark.parametrize(("table", "rule", "expected"), TABLES)
def test_a_behaviour_begins_and_ends_with_its_release(
    table: dict[str, Span], rule: str, expected: tuple[int | None, int | None]
) -> None:
    since, until = expected
    if since is not None:
        assert not holds(table[rule], since - 1)
        assert holds(table[rule], since)
    else:
        assert holds(table[rule], OLDEST)
    if until is not None:
        assert holds(table[rule], until - 1)
        assert not holds(table[rule], until)
    else:
        assert holds(table[rule], LATEST)


def test_every_behaviour_is_here() -> None:
    assert NODES.keys() == SWITCHES.keys()
    assert KUBELET_STATUS.keys() == KUBELETS.keys()
    assert DAEMON_SET.keys() == DAEMON_SETS.keys()


@pytest.mark.parametrize(
    ("release", "sentence"),
    [
        ("v1.36", None),
        ("v1.37", None),
        ("v1.38", "the behaviour of its beta is followed, which may change before the release"),
        ("v1.39", "the behaviour of v1.38, a beta and the newest known, is followed"),
    ],
)
def test_a_release_that_is_not_out_is_named_as_such(release: str, sentence: str | None) -> None:
    told = Profile(int(release.removeprefix("v1."))).stands_in()
    assert told == (None if sentence is None else f"profile {release}: {sentence}")
