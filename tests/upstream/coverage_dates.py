"""What dates each row of docs/coverage.md that does not hold in every release: lines of the source.

`python -m tests.upstream.since_dates` reads them in each release's Go module, and writes what they
say to docs/since-dates.md; `tests/upstream/test_since_dates.py` holds the cells of coverage.md
against that.
"""

from typing import Final, NamedTuple

from tests.upstream.marks import (
    DS,
    EVICTION_REQUESTS,
    FEATURES,
    GENERATE,
    KUBELET_PODS,
    LIFECYCLE,
    PODGC,
    REPLICA_SETS,
    STATUS,
    TAINTS,
    TIMED_WORKERS,
    UPDATE,
    Mark,
    rule,
)


class Dated(NamedTuple):
    """Rows that hold while the first mark does, and those that hold until then. `words`: how their
    cells are written; {} is the span of each mark, in order.
    """

    marks: tuple[Mark, ...]
    rows: tuple[str, ...]
    before: tuple[str, ...] = ()
    words: str = "{}"


_GATE_OFF: Final = Mark("", FEATURES, r"ScheduleDaemonSetPods: +\{Default: false")
_GATE: Final = Mark("", DS, r"features\.ScheduleDaemonSetPods")
_SURGE: Final = Mark("", UPDATE, r"maxSurge", gate="DaemonSetUpdateSurge")
_CLASSIC: Final = rule("classic_eviction")
_DISRUPTION: Final = Mark("", TAINTS, r"DeletionByTaintManager", gate="PodDisruptionConditions")
_GC_PHASE: Final = Mark("", PODGC, r"v1\.PodFailed", gate="PodDisruptionConditions")
_OUT_OF_SERVICE: Final = Mark("", PODGC, r"gcTerminating", gate="NodeOutOfServiceVolumeDetach")

_EVICTION_REQUESTS: Final = "pkg/controller/evictionrequest/"

AROUND: Final = (
    Dated(
        (
            Mark(
                "",
                f"{_EVICTION_REQUESTS}evictionrequest_controller.go",
                r"ResponderHeartbeatTimeout = 20 \* time\.Minute",
            ),
        ),
        ("a responder of an Eviction that is silent for 20 minutes is passed over",),
    ),
    Dated(
        (rule("waiting_for_detach"),),
        ("FailedAttachVolume says Waiting for detach",),
        ("FailedAttachVolume says Multi-Attach error",),
    ),
    Dated(
        (rule("eviction_tells_version"),),
        ("the Status that answers an eviction has the pod's resourceVersion",),
    ),
    Dated(
        (rule("refusals_name_budget"),),
        (
            "a 403 for a budget of negative or unconfirmed disruptions has the cause "
            "DisruptionBudget",
        ),
    ),
    Dated(
        (rule("syncs_every_budget"),),
        ("a pod's change syncs all budgets that match it, and those that matched it",),
        ("a pod's change syncs one of the budgets that match it",),
    ),
    Dated(
        (rule("pops_backoff_queue"),),
        ("an idle scheduler tries a waiting pod before its back-off is over",),
    ),
    Dated(
        (rule("empty_selector_spreads"),),
        ("a spread constraint with an empty selector counts every pod of the namespace",),
        ("a spread constraint with an empty selector counts no pod",),
    ),
    Dated(
        (rule("detach_when_node_is_gone"),),
        ("nothing counts as mounted on a node whose object is gone",),
        ("volumes of a node whose object is gone wait six minutes, as of any silent one",),
    ),
)

_BREAKER: Final = "a Lease is read before its node is called lost: another version than the"

NODE_LIFECYCLE: Final = (
    Dated(
        (rule("lease_circuit_breaker"),),
        (
            f"{_BREAKER} remembered one, or any error but 404, and the node is skipped",
            "a Lease that was read and is newer than the watch holds up all nodes until the watch "
            "shows it",
            "a node that is skipped counts in no zone, and is neither written nor tainted in that "
            "pass",
        ),
    ),
    Dated(
        (rule("health_follows_node"),),
        ("the memory of a node goes with its Node object",),
        ("the memory of a deleted node stays under its name",),
    ),
    Dated(
        (Mark("", LIFECYCLE, r"features\.NodeLease"),),
        ("the gate NodeLease: without it only status posts count",),
        words="{}, by a gate",
    ),
    Dated((rule("noschedule_gate"),), ("the gate TaintNodesByCondition",), words="{}, by a gate"),
    Dated(
        (Mark("", LIFECYCLE, r"primaryKey: +v1\.LabelOSStable"),),
        ("os and arch labels: the stable ones are the truth",),
        ("os and arch labels: the beta ones are the truth",),
    ),
    Dated(
        (_CLASSIC,),
        (
            "the gate TaintBasedEvictions and enable-taint-manager",
            "without taints: False counts from its transition, Unknown from the last sign of life",
            "all pods of a node go in one turn, tolerations do not count",
            "pods that a DaemonSet selects stay",
            "reason NodeLost with its message, DaemonSet pods too",
            "DeletingAllPods once a turn, NodeControllerEviction for each DELETE",
            "a terminating pod is not deleted again",
            "a node is evicted once until it is Ready",
            "a DELETE that fails ends the node's turn; it waits for another token",
            "a conflict over a pod's status skips that pod, another error does not",
        ),
    ),
    Dated(
        (Mark("", LIFECYCLE, r"nodeEvictionMap"),),
        (
            "pods that come to an evicted node go at once",
            "each pass deletes what an evicted node still has, and says DeletingAllPods",
            "a pod's worker tries a failed eviction again before it marks the pod",
        ),
    ),
    Dated(
        (rule("decide_on_current"),),
        ("the decision goes by the condition after this pass",),
        ("the decision goes by the condition before this pass",),
    ),
    Dated(
        (rule("requeue_untainted"),),
        ("a node that lacks its taint is queued anew in each pass, behind others",),
        ("v1.16 taints a node once: a taint removed by hand stays away",),
    ),
    Dated(
        (Mark("", LIFECYCLE, r"retry in 50 millisecond", times=2),),
        ("a node without Ready is tried again 50 ms later",),
    ),
    Dated((rule("pod_not_ready_event"),), ("a warning NodeNotReady on each pod",)),
    Dated(
        (rule("pod_retry"),),
        (
            "a failed marking is tried again in the next passes",
            "a pod bound to a lost node is marked when it appears",
            "a pod's retries: 5 ms, doubled, 1000 s at most",
        ),
        ("a failed marking is never tried again",),
    ),
    Dated(
        (
            Mark("", LIFECYCLE, r"abelNodeExcludeDisruption|abelNodeDisruptionExclusion"),
            Mark("", LIFECYCLE, r"features\.LegacyNodeRoleBehavior"),
        ),
        ("nodes labelled exclude-disruption are not counted",),
        words="1.16, by a gate {1}",
    ),
    Dated(
        (Mark("", LIFECYCLE, r"features\.LegacyNodeRoleBehavior"),),
        ("masters by their name are not counted",),
        words="{}, by a gate",
    ),
    Dated(
        (rule("infinite_cancels"),),
        ("an infinite toleration cancels a running timer",),
        ("an infinite toleration leaves a running timer",),
    ),
    Dated((_DISRUPTION,), ("DisruptionTarget with DeletionByTaintManager before the delete",)),
    Dated(
        (_DISRUPTION,),
        (
            "a pod whose condition could not be patched is not deleted in that try, nor in that run"
            " of pod-gc",
        ),
    ),
    Dated(
        (rule("sticky_timer_keys"),),
        ("a key stays after its success and blocks the next pod of that name",),
    ),
    Dated(
        (Mark("", TIMED_WORKERS, r"q\.workers\[key\] = nil", there=False),),
        ("a key goes after its run",),
    ),
    Dated(
        (Mark("", "pkg/controller/tainteviction/taint_eviction.go", r"package tainteviction"),),
        ("a controller of its own: taint-eviction-controller",),
    ),
    Dated(
        (Mark("", FEATURES, r"TaintTolerationComparisonOperators +featuregate"),),
        ("Lt and Gt by the gate TaintTolerationComparisonOperators",),
        words="{}, by a gate",
    ),
    Dated(
        (rule("gc_quarantine"),),
        ("pods of a node that does not exist go after a quarantine of 40 s",),
        ("no quarantine: pods of a missing node go in the next run",),
    ),
    Dated(
        (Mark("", PODGC, r"Nodes\(\)\.Get\("),),
        ("the node is asked for live before its pods are orphans",),
    ),
    Dated((rule("gc_evicted_first"),), ("evicted pods before other finished ones",)),
    Dated(
        (_OUT_OF_SERVICE,),
        (
            "terminating pods of a node out of service that is not Ready",
            "the taint out-of-service counts with any value and effect",
        ),
    ),
    Dated(
        (_GC_PHASE,),
        ("phase Failed before the delete", "DisruptionTarget with DeletionByPodGC for orphans"),
    ),
    Dated(
        (Mark("", REPLICA_SETS, r"GetDeletionCostFromPodAnnotations", gate="PodDeletionCost"),),
        ("the pods that a ReplicaSet gives up first (ActivePodsWithRanks)",),
    ),
)

DAEMON_SETS: Final = (
    Dated(
        (Mark("", DS, r"wantToRun"),),
        ("wantToRun, shouldSchedule and shouldContinueRunning are three answers",),
    ),
    Dated(
        (Mark("", DS, r"wantToRun", there=False),),
        ("shouldRun and shouldContinueRunning are two answers",),
    ),
    Dated(
        (_GATE_OFF,),
        ("with the gate ScheduleDaemonSetPods v1.11 looks at selector and affinity alone",),
    ),
    Dated(
        (_GATE_OFF, _GATE),
        (
            "resources against what other pods on the node request",
            "the number of pods against the node's room",
            "init containers count by the largest of them",
            "host ports taken by another pod exclude the node",
            "the set's own pods and finished pods are left out of the node's picture",
            "all reasons are collected, a host port goes before taints",
            "disk conflict, volume zone and count, memory and disk pressure are in the switch,"
            " never reported by the predicates",
            "FailedPlacement at each evaluation, resources only where nothing else forbids",
            "the controller binds its pods itself",
        ),
        words="{}, {} by a gate",
    ),
    Dated(
        (Mark("", FEATURES, r"ExperimentalCriticalPodAnnotation: "),),
        ("critical pods need no resources (gate ExperimentalCriticalPodAnnotation)",),
        words="{}, by a gate",
    ),
    Dated(
        (Mark("", DS, r"IsCriticalPod|IsCritical\("),),
        ("a priority from the system-critical level on makes a pod critical",),
    ),
    Dated((rule("tolerates_pid_pressure"),), ("default toleration pid-pressure:NoSchedule",)),
    Dated(
        (rule("tolerates_network_unavailable"),),
        ("default toleration network-unavailable:NoSchedule for the host's network",),
    ),
    Dated((rule("tolerates_out_of_disk"),), ("out-of-disk is tolerated by critical pods",)),
    Dated(
        (Mark("", FEATURES, r"ScheduleDaemonSetPods: +\{Default: false", there=False),),
        (
            "default toleration unschedulable:NoSchedule",
            "required node affinity is replaced by the node's name, other affinity kept",
            "the default scheduler filters daemon pods: they can stay Pending",
            "a daemon pod of high priority makes room by preemption, since the default scheduler"
            " places it",
            "what is Pending is tried again with back-off, 1 s to 10 s",
        ),
    ),
    Dated((rule("suspends"),), ("suspended sets are woken when a pod leaves the node",)),
    Dated(
        (rule("finished_terminating_left_out"),),
        ("finished pods that are terminating are left out",),
    ),
    Dated(
        (rule("failed_pods_end_the_sync"),),
        ("deleting failed pods makes the create step an error that ends the sync",),
    ),
    Dated(
        (rule("succeeded_pods_deleted"),),
        ("succeeded pods are deleted, with the event SucceededDaemonPod",),
    ),
    Dated(
        (rule("unfit_terminating_deleted_again"),),
        ("where a node stops fitting all pods are deleted, terminating ones again",),
    ),
    Dated(
        (Mark("", DS, r"pod\.DeletionTimestamp != nil", times=3),),
        ("where a node stops fitting pods that are not terminating are deleted",),
    ),
    Dated(
        (Mark("", DS, r"getUnscheduledPodsWithoutNode"),),
        ("unscheduled pods of nodes that do not exist are deleted",),
    ),
    Dated(
        (_SURGE,),
        (
            "surge: at most one running pod, another is made beside a terminating one",
            "surge: the old pod goes when it is not Ready or the new one is available",
            "surge: a new pod beside an old available one, within maxSurge",
            "surge: unavailable old pods get theirs outside the budget",
            "surge: old pods of nodes that should not run one go while enough are available",
        ),
    ),
    Dated(
        (rule("failed_pods_back_off"),),
        (
            "backoff of failed pods: 1 s, doubled, 15 min at most",
            "its key: set uid, observed generation, node; a new spec starts afresh",
            "in backoff the set comes back after the whole delay, counted anew",
            "entries idle for twice the cap are dropped",
        ),
    ),
    Dated(
        (rule("slow_start_skips_from_the_batch"),),
        ("1.11 lowers by total less the batch, which is wrong after the first",),
    ),
    Dated((rule("create_timeout_ignored"),), ("a create that times out is no error",)),
    Dated(
        (rule("deletion_observed_at_the_mark"),),
        ("a deletion that was expected is observed at the mark; to 1.14 when the pod is gone",),
    ),
    Dated(
        (rule("terminating_namespace_is_fine"),),
        ("a namespace that is being deleted is no error of a create",),
    ),
    Dated((rule("not_found_on_delete_is_fine"),), ("NotFound is no error of a delete",)),
    Dated(
        (rule("binds_for_old_kubelets"),),
        (
            "a node whose kubelet is older than 1.11, or of unknown version, gets a pod that is"
            " bound",
        ),
    ),
    Dated(
        (rule("own_scheduler_name"),),
        ("what it binds names the scheduler `kubernetes.io/daemonset-controller`",),
    ),
    Dated((rule("collision_count_checked"),), ("the collision count is checked for staleness",)),
    Dated(
        (rule("classic_rolling_update"),),
        ("the classic algorithm: new and old pods, unavailable ones counted by node",),
    ),
    Dated(
        (Mark("", UPDATE, r"SplitByAvailablePods", there=False),),
        (
            "maxUnavailable and maxSurge both 0: maxUnavailable becomes 1",
            "nodes with more than one old or new pod use the budget and wait",
        ),
    ),
    Dated((rule("unavailable_old_pods_use_budget"),), ("unavailable old pods use the budget",)),
    Dated((rule("generation_label_counts"),), ("a pod is up to date by the template generation",)),
    Dated((rule("available_at_the_instant"),), ("at the very instant counts as available",)),
    Dated(
        (rule("status_written_after_error"),),
        ("written after an error, which is returned",),
        ("not written after an error",),
    ),
    Dated(
        (Mark("", DS, r"SatisfiedExpectations\((logger, )?dsKey\) \{[^}]*Status\([^)]*false\)"),),
        ("a sync that waits for expectations does not raise observedGeneration",),
    ),
    Dated((rule("status_update_retried"),), ("one more try after a conflict",)),
    Dated(
        (rule("requeue_for_min_ready_after_status"),),
        ("the set comes back after minReadySeconds",),
    ),
    Dated((rule("node_filter_labels_and_taints"),), ("a node's labels and taints alone matter",)),
    Dated(
        (Mark("", DS, r"func shouldIgnoreNodeUpdate(?s:.*)(DeepEqual\(oldNode, cur|nodeInSameC)"),),
        ("a node's True conditions and all else but conditions matter",),
    ),
    Dated(
        (rule("node_filter_true_conditions"),),
        ("labels, taints and conditions that begin or end to be True matter",),
    ),
    Dated(
        (rule("node_queue"),),
        ("a queue of nodes, judged later on the present node",),
        ("the old node is judged against the new one",),
    ),
)

KUBELETS: Final = (
    Dated((rule("owns_unschedulable"),), ("owned condition types, Unschedulable among them",)),
    Dated((rule("ready_to_start_containers"),), ("PodReadyToStartContainers is owned",)),
    Dated(
        (rule("ready_to_start_says_why"),),
        ("PodReadyToStartContainers that is False has a reason and a message",),
    ),
    Dated(
        (rule("volume_health"),),
        (
            "the health of a pod's volumes is kept apart from the generated status, and another "
            "message alone is not sent",
        ),
    ),
    Dated(
        (rule("volume_health_in_seconds"),),
        ("the times of the health of volumes are whole seconds",),
    ),
    Dated(
        (rule("evicted_stays_failed"),),
        ("a pod that the kubelet has failed stays Failed though its containers exit with 0",),
        ("a pod whose containers all exit with 0 ends Succeeded, whatever failed it",),
    ),
    Dated((rule("resize_conditions"),), ("conditions of in-place resize are owned",)),
    Dated((rule("disruption_target"),), ("DisruptionTarget is shared",)),
    Dated(
        (rule("terminate_overwrites_all"),),
        ("TerminatePod: every container becomes terminated, exit code 0",),
    ),
    Dated(
        (Mark("", STATUS, r"ExitCode: +137"),),
        ("TerminatePod: only unknown ones, 137 ContainerStatusUnknown",),
    ),
    Dated(
        (rule("terminate_keeps_never_started"),),
        (
            "TerminatePod: containers that never started stay waiting",
            "has the pod been initialised: by its statuses",
        ),
    ),
    Dated(
        (rule("terminate_sets_phase"),),
        ("TerminatePod: phase Failed unless terminal, not for static pods",),
    ),
    Dated((rule("delete_when_finished"),), ("a finished pod stays finished",)),
    Dated(
        (rule("init_matched_by_index"),),
        ("init containers are matched by their place in the spec",),
    ),
    Dated((rule("restart_rules"),), ("a container's own restart rules",)),
    Dated((rule("restart_all_containers"),), ("restart of all containers",)),
    Dated((rule("ephemeral_counted"),), ("ephemeral containers share it",)),
    Dated(
        (rule("lost_condition_differs"),),
        ("equality: an owned or shared condition that only one of both has is a difference",),
    ),
    Dated(
        (rule("claims_never_differ"),),
        ("equality: claims of resources make no difference",),
    ),
    Dated(
        (Mark("", KUBELET_PODS, r"cType := v1\.DisruptionTarget", gate="PodDisruptionConditions"),),
        (
            "a pod sync takes over the conditions of others, and keeps the DisruptionTarget that"
            " the kubelet has",
        ),
    ),
    Dated(
        (rule("request_per_change"),),
        (
            "a channel of 1000 requests wakes the sender",
            "a full channel leaves the change to the batch",
        ),
    ),
    Dated(
        (Mark("", STATUS, r"type podStatusSyncRequest", there=False),),
        ("one signal for all that changed",),
    ),
    Dated(
        (rule("fifty_requests"),),
        (
            "a kubelet's client makes 50 requests a second after 100 at once, two for a report and"
            " a third for the last one",
        ),
        ("a kubelet's client makes 5 requests a second after 10 at once",),
    ),
    Dated(
        (rule("batch_empties_queue"),),
        ("the batch empties the channel first",),
        ("the batch leaves the channel alone",),
    ),
    Dated(
        (Mark("", STATUS, r"m\.needsUpdate\(uid, status\)|needsUpdate\(types\.UID\(statusUID\)"),),
        ("needsUpdate of a single send asks with the pod's own uid",),
    ),
    Dated((rule("empty_patch_skipped"),), (), ("an empty patch is sent",)),
    Dated((rule("patch_has_uid"),), ("the patch carries the uid",)),
    Dated(
        (rule("phase_waits_for_containers"),),
        ("merge: a terminal phase waits while containers could run",),
    ),
    Dated((rule("disruption_target"),), ("merge: DisruptionTarget only with a terminal phase",)),
    Dated((rule("terminal_not_ready"),), ("merge: a terminal pod is never sent as ready",)),
    Dated((rule("resource_claims"),), ("merge: resourceClaimStatuses are another's",)),
    Dated(
        (Mark("", STATUS, r"PodResourcesAreReclaimed"),),
        ("canBeDeleted: resources are reclaimed", "containers that the runtime keeps hold a pod"),
    ),
    Dated((rule("delete_when_finished"),), ("canBeDeleted: terminal in the API and finished",)),
    Dated((Mark("", GENERATE, r"PodFailed"),), ("ContainersReady: PodFailed",)),
    Dated((rule("sidecars"),), ("sidecars count in readiness",)),
    Dated(
        (Mark("", EVICTION_REQUESTS, r"ResponderHeartbeatTimeout"),),
        ("a responder of an Eviction that is silent for 20 minutes is passed over",),
    ),
    Dated(
        (rule("started_means_initialized"),),
        ("Initialized: a started regular container proves it",),
    ),
)

UNDATED: Final = {
    "SetContainerStartup: no condition is computed": "the function begins with 1.16",
    "SetContainerStartup: an absent value differs from both": "the function begins with 1.16",
    "listing pods overwrites what the pod manager shows (PR 77661)": (
        "1.15.0 to 1.17.0: later patches of all three copy static pods alone"
    ),
    "pods that stay unready after their node is back": "as the row of PR 77661",
}
"""Rows with a date that no line of two releases' last patches tells, and why."""
