"""What each difference between releases means to whoever runs a cluster, in one sentence.

A note for each row of the tables of releases (`engine/settings.py:SWITCHES`,
`kubelet/releases.py:SINCE_UNTIL`, `controllers/daemonset/behaviour.py:SINCE_UNTIL`): what begins
with its first release, and what is so from the release on that no longer has it. The defaults of
flags and gates are no notes: `releases.py` reads them from `engine/settings.py`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NODES: Final = "nodes"
TAINTS: Final = "taints"
PODS: Final = "pods"
DAEMON_SETS: Final = "DaemonSets"
DRAINS: Final = "drains"


class Note(NamedTuple):
    """`begins`: what the first release with it does; `ends`: what the first one without it does; ""
    where another note says it, or where there is none."""

    area: str
    begins: str = ""
    ends: str = ""


CONTROL_PLANE: Final[dict[str, Note]] = {
    "decide_on_current": Note(
        TAINTS,
        "the NoExecute taint of a node follows in the pass that finds the node lost; "
        "before, one pass later",
    ),
    "requeue_untainted": Note(
        TAINTS,
        "a lost node whose NoExecute taint is missing, for instance taken off by "
        "hand, is queued for it again",
    ),
    "pod_retry": Note(
        PODS,
        "pods of a lost node that could not be marked not ready are tried again in the next pass",
    ),
    "monitor_workers": Note(NODES, "a monitor pass looks at eight nodes at once"),
    "pod_not_ready_event": Note(PODS, "each pod of a lost node gets a Warning event NodeNotReady"),
    "classic_eviction": Note(
        TAINTS,
        ends="eviction without taints is gone, with --enable-taint-manager and "
        "--pod-eviction-timeout",
    ),
    "evicted_node_map": Note(
        PODS,
        "with eviction without taints, pods that come to an evicted node later are evicted at once",
    ),
    "lease_gate": Note(
        NODES, ends="a renewed Lease is always a sign of life: the gate NodeLease is locked"
    ),
    "noschedule_gate": Note(
        TAINTS,
        ends="conditions and cordons always become NoSchedule taints: the gate "
        "TaintNodesByCondition is locked",
    ),
    "beta_zone_labels_only": Note(
        NODES, ends="zones are read from the labels topology.kubernetes.io/zone and region, too"
    ),
    "beta_labels_are_truth": Note(
        NODES,
        ends="kubernetes.io/os and kubernetes.io/arch are copied to the beta labels; "
        "before, the other way round",
    ),
    "exclusion_gates": Note(
        NODES, ends="the role label of masters no longer keeps nodes out of their zone's counts"
    ),
    "infinite_cancels": Note(
        TAINTS, "a pod that tolerates its node's taints for ever loses an eviction that was pending"
    ),
    "sticky_timer_keys": Note(
        TAINTS,
        ends="a pod that was deleted for a taint and is still there may be deleted for it again; "
        "before, once",
    ),
    "disruption_target": Note(
        PODS, "pods evicted for a taint or by pod-gc have the condition DisruptionTarget"
    ),
    "gc_quarantine": Note(
        PODS, "pods of a missing node are collected only after 40 s in quarantine"
    ),
    "gc_sets_phase": Note(PODS, "pod-gc sets phase Failed before it deletes a pod"),
    "gc_always_sets_phase": Note(
        PODS, "pod-gc sets phase Failed whatever the gate PodDisruptionConditions says"
    ),
    "gc_out_of_service": Note(
        PODS,
        "pods that terminate on a node with the taint "
        "node.kubernetes.io/out-of-service are deleted by force",
    ),
    "gc_evicted_first": Note(
        PODS, "above terminated-pod-gc-threshold evicted pods are collected first"
    ),
    "separate_taint_eviction": Note(
        TAINTS,
        "evictions for taints are a controller of their own, taint-eviction-controller, with its "
        "own share of requests",
    ),
    "drains_daemon_sets_by_kind": Note(
        DRAINS, ends="kubectl drain takes an owner for a DaemonSet only where its API group is apps"
    ),
    "lease_circuit_breaker": Note(
        NODES,
        "the Lease of a silent node is read before it is called lost: one whose Lease"
        " somebody else wrote to is never lost, and none is where the controller "
        "manager may not get Leases",
    ),
    "health_follows_node": Note(
        NODES, "a Node that is deleted and made again has its grace periods anew"
    ),
    "refusals_name_budget": Note(DRAINS, "a 403 of an eviction has the cause DisruptionBudget"),
    "syncs_every_budget": Note(
        DRAINS,
        "a pod's change brings every budget that selects or selected it up to date; "
        "before, one of them",
    ),
    "pops_backoff_queue": Note(
        PODS,
        "a scheduler that has nothing else to do tries a pod again before its back-off is over",
    ),
    "empty_selector_spreads": Note(
        PODS,
        "a spread constraint with an empty selector counts all pods of the namespace; before, none",
    ),
    "dry_run_ends": Note(
        DRAINS,
        "kubectl drain --disable-eviction --dry-run=server ends; before, it waited "
        "for pods that nobody deletes",
    ),
    "waiting_for_detach": Note(
        PODS, "FailedAttachVolume says Waiting for detach; before, Multi-Attach error"
    ),
    "eviction_tells_version": Note(
        DRAINS, "the answer to an eviction has the pod's resourceVersion"
    ),
    "detach_when_node_is_gone": Note(
        PODS,
        "volumes of a deleted Node are detached as soon as their pods are gone; "
        "before, after six minutes",
    ),
}

KUBELET: Final[dict[str, Note]] = {
    "owns_unschedulable": Note(
        PODS, ends="the condition Unschedulable of a pod no longer belongs to the kubelet"
    ),
    "request_per_change": Note(
        PODS,
        ends="the kubelet sends the changed statuses of its pods in one go, not each from a queue",
    ),
    "batch_empties_queue": Note(
        PODS, "the kubelet's pass over all statuses sends none of them twice"
    ),
    "terminate_overwrites_all": Note(
        PODS,
        ends="a pod that the kubelet has stopped keeps the exit codes of its containers; "
        "before, all were 0",
    ),
    "terminate_keeps_never_started": Note(
        PODS, "containers that never started stay waiting when their pod is stopped"
    ),
    "terminate_sets_phase": Note(
        PODS, "a pod that the kubelet has stopped ends Failed unless it has ended already"
    ),
    "delete_when_finished": Note(
        PODS,
        "a pod object goes when its containers have ended, not first when its volumes"
        " are unmounted",
    ),
    "phase_waits_for_containers": Note(
        PODS, "phase Failed or Succeeded is reported only once no container can run"
    ),
    "disruption_target": Note(
        PODS, "pods that the kubelet evicts have the condition DisruptionTarget"
    ),
    "terminal_not_ready": Note(PODS, "a pod that has ended is never shown as Ready"),
    "sidecars": Note(
        PODS, "sidecars, init containers that restart, count in a pod's readiness and end"
    ),
    "started_means_initialized": Note(
        PODS,
        "a pod whose containers have started counts as initialized after a restart of the kubelet",
    ),
    "init_matched_by_index": Note(
        PODS, "a status whose init containers are in another order than the spec's is refused"
    ),
    "ephemeral_counted": Note(PODS, "ephemeral containers share the room for termination messages"),
    "patch_has_uid": Note(PODS, "a status cannot land on a pod made anew under the same name"),
    "empty_patch_skipped": Note(PODS, "a status that changes nothing is not sent"),
    "ready_to_start_containers": Note(
        PODS, "condition PodReadyToStartContainers says whether a pod has its sandbox and network"
    ),
    "resize_conditions": Note(
        PODS, "conditions PodResizePending and PodResizeInProgress tell of a resize in place"
    ),
    "restarting_is_dated": Note(
        PODS, "the kubelet gives the condition AllContainersRestarting a transition time of its own"
    ),
    "restart_rules": Note(PODS, "containers may have restart policies and rules of their own"),
    "restart_all_containers": Note(
        PODS, "a container's rule may restart all containers of its pod"
    ),
    "resource_claims": Note(PODS, "status.resourceClaimStatuses survives the kubelet's patches"),
    "claims_never_differ": Note(
        PODS, "another status.resourceClaimStatuses makes the kubelet read the pod no more"
    ),
    "lost_condition_differs": Note(
        PODS,
        "the kubelet takes away a condition of its own that another client added to a pod",
    ),
    "ready_to_start_says_why": Note(
        PODS, "PodReadyToStartContainers that is False says why: reason PodSandboxNotReady"
    ),
    "evicted_stays_failed": Note(
        PODS, "a pod that its kubelet has failed stays Failed though its containers exit with 0"
    ),
    "fifty_requests": Note(
        PODS, "a kubelet makes 50 requests a second after 100 at once; before, 5 after 10"
    ),
    "volume_health": Note(
        PODS, "status.volumeHealth may tell of broken volumes (gate CSIVolumeHealth, off)"
    ),
    "volume_health_in_seconds": Note(PODS, "times of status.volumeHealth are whole seconds"),
    "listing_blinds_reconcile": Note(
        PODS,
        "the kubelet's statuses stop being corrected once its pods are listed: pods "
        "stay unready after their node is back",
        "wrong statuses of pods are corrected again, also after the kubelet's pods were listed",
    ),
}

DAEMON_SET: Final[dict[str, Note]] = {
    "critical_by_priority": Note(
        DAEMON_SETS,
        "a pod of a system-critical priority counts as critical whatever its annotation",
        "critical pods have no rules of their own any more",
    ),
    "suspends": Note(
        DAEMON_SETS,
        ends="a set that lacks room on a node is left to the scheduler's preemption and retries",
    ),
    "tolerates_pid_pressure": Note(DAEMON_SETS, "daemon pods tolerate pid-pressure"),
    "tolerates_network_unavailable": Note(
        DAEMON_SETS, "daemon pods on the host's network tolerate network-unavailable"
    ),
    "tolerates_out_of_disk": Note(DAEMON_SETS, ends="the taint out-of-disk is gone"),
    "deletion_observed_at_the_mark": Note(
        DAEMON_SETS, "a roll-out counts a deletion when the pod begins to terminate"
    ),
    "failed_pods_back_off": Note(
        DAEMON_SETS, "failed daemon pods are deleted and made again with back-off, 1 s to 15 min"
    ),
    "failed_pods_end_the_sync": Note(
        DAEMON_SETS, ends="a failed pod no longer keeps its set's roll-out and status from going on"
    ),
    "succeeded_pods_deleted": Note(
        DAEMON_SETS, "daemon pods that have ended with Succeeded are made again"
    ),
    "finished_terminating_left_out": Note(
        DAEMON_SETS, "a finished pod that a finalizer holds no longer keeps its place"
    ),
    "unfit_terminating_deleted_again": Note(
        DAEMON_SETS,
        ends="pods that terminate already are not deleted again where their node stops fitting",
    ),
    "binds_for_old_kubelets": Note(
        DAEMON_SETS,
        "nodes whose kubelet is older than 1.11 get pods that are bound by the controller",
        "the scheduler places every daemon pod",
    ),
    "own_scheduler_name": Note(
        DAEMON_SETS, "a pod that the controller binds names it as its scheduler"
    ),
    "classic_rolling_update": Note(
        DAEMON_SETS, ends="roll-outs go node by node, so that maxSurge is possible"
    ),
    "unavailable_old_pods_use_budget": Note(
        DAEMON_SETS, "old pods that are unavailable count in maxUnavailable"
    ),
    "available_at_the_instant": Note(
        DAEMON_SETS, "a pod is available minReadySeconds after it is Ready, not a moment later"
    ),
    "generation_label_counts": Note(
        DAEMON_SETS, "a pod whose template generation matches is up to date whatever its hash"
    ),
    "status_written_after_error": Note(
        DAEMON_SETS, "a set's status is written also where pods could not be made"
    ),
    "status_update_retried": Note(
        DAEMON_SETS, "a status that met a conflict is written again at once"
    ),
    "requeue_for_min_ready_after_status": Note(
        DAEMON_SETS, "a set is looked at again when minReadySeconds are over"
    ),
    "node_queue": Note(DAEMON_SETS, "changes of nodes are taken up from a queue of their own"),
    "node_filter_labels_and_taints": Note(
        DAEMON_SETS, "of a node's changes only labels and taints matter"
    ),
    "node_filter_true_conditions": Note(
        DAEMON_SETS, ends="every change of a node but its heartbeats makes its sets look again"
    ),
    "not_found_on_delete_is_fine": Note(
        DAEMON_SETS, "a pod that is gone when it is to be deleted is no error"
    ),
    "terminating_namespace_is_fine": Note(
        DAEMON_SETS, "a set in a namespace that is being deleted no longer tries again for ever"
    ),
    "create_timeout_ignored": Note(
        DAEMON_SETS, ends="a pod whose creation timed out is tried again"
    ),
    "slow_start_skips_from_the_batch": Note(
        DAEMON_SETS, ends="pods that slow start left out are not waited for"
    ),
    "collision_count_checked": Note(
        DAEMON_SETS,
        "a revision whose name is taken is made under another name, counted on the newest status",
    ),
}
