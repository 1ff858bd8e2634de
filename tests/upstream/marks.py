"""Lines of Kubernetes' source that date a behaviour: a mark for each rule of our tables."""

import re
from pathlib import Path
from typing import NamedTuple

DS = "pkg/controller/daemon/daemon_controller.go"
UPDATE = "pkg/controller/daemon/update.go"
DS_UTIL = "pkg/controller/daemon/util/daemonset_util.go"
LIFECYCLE = "pkg/controller/nodelifecycle/node_lifecycle_controller.go"
NODE_UTIL = "pkg/controller/util/node/controller_utils.go"
PODGC = "pkg/controller/podgc/gc_controller.go"
STATUS = "pkg/kubelet/status/status_manager.go"
GENERATE = "pkg/kubelet/status/generate.go"
EVICTION_REQUESTS = "pkg/controller/evictionrequest/evictionrequest_controller.go"
OWNED = "pkg/kubelet/types/pod_status.go"
REPLICA_SETS = "pkg/controller/controller_utils.go"
FEATURES = "pkg/features/kube_features.go"
_SCHEDULER = "pkg/controller/nodelifecycle/scheduler/"
_TAINT_EVICTION = "pkg/controller/tainteviction/"
TAINTS = f"{_SCHEDULER}taint_manager.go|{_TAINT_EVICTION}taint_eviction.go"
TIMED_WORKERS = f"{_SCHEDULER}timed_workers.go|{_TAINT_EVICTION}timed_workers.go"
EVICTION = "pkg/registry/core/pod/storage/eviction.go"
DISRUPTION = "pkg/controller/disruption/disruption.go"
SPREAD = "pkg/scheduler/framework/plugins/podtopologyspread/common.go"
ATTACH = "pkg/controller/volume/attachdetach/attach_detach_controller.go"
RECONCILER = "pkg/controller/volume/attachdetach/reconciler/reconciler.go"
KUBELET_PODS = "pkg/kubelet/kubelet_pods.go"
POD_UTIL = "pkg/api/v1/pod/util.go"
PATCH = "pkg/util/pod/pod.go"
KUBELET_DEFAULTS = "pkg/kubelet/apis/config/v1beta1/defaults.go"


class Mark(NamedTuple):
    """A behaviour of a table holds where the pattern occurs `times` in the file, or does not, and
    its feature gate, if it has one, is not off by default.
    """

    rule: str
    path: str
    pattern: str
    there: bool = True
    times: int = 1
    gate: str = ""

    def holds_in(self, source: Path) -> bool:
        """True if the release with that source shows the behaviour."""
        files = [source / path for path in self.path.split("|")]
        text = "".join(file.read_text() for file in files if file.is_file())
        found = (len(re.findall(self.pattern, text)) >= self.times) is self.there
        return found and not (self.gate and is_off(source, self.gate))


def is_off(source: Path, gate: str) -> bool:
    """True if the gate of that name is there and off by default. Since v1.32 an entry has a line
    for each release that changed it.
    """
    text = (source / FEATURES).read_text()
    for entry in re.finditer(rf"\b(?:{gate}): +\{{(?:\n((?:\t\t.*\n)+)|(.*))", text):
        told = re.findall(r"Default: +(true|false)", entry[1] or entry[2])
        if told:
            return told[-1] == "false"
    return False


def rule(name: str) -> Mark:
    """The mark of a rule."""
    return next(mark for marks in MARKS.values() for mark in marks if mark.rule == name)


_RULES, _ALL = "ContainerRestartRules", "RestartAllContainersOnContainerExits"

MARKS: dict[str, tuple[Mark, ...]] = {
    "DaemonSet controller": (
        Mark("suspends", DS, r"suspendedDaemonPods "),
        Mark("tolerates_pid_pressure", DS_UTIL, r"TaintNodePIDPressure"),
        Mark("tolerates_network_unavailable", DS_UTIL, r"TaintNodeNetworkUnavailable"),
        Mark("tolerates_out_of_disk", DS + "|" + DS_UTIL, r"TaintNodeOutOfDisk"),
        Mark("deletion_observed_at_the_mark", DS, r"if curPod.DeletionTimestamp != nil"),
        Mark("failed_pods_back_off", DS, r"IsInBackOffSinceUpdate"),
        Mark("failed_pods_end_the_sync", DS, r"if failedPodsObserved > 0"),
        Mark("succeeded_pods_deleted", DS, r"SucceededDaemonPodReason ="),
        Mark("finished_terminating_left_out", DS, r"includeDeletedTerminal bool"),
        Mark("unfit_terminating_deleted_again", DS, r"pod\.DeletionTimestamp != nil", False, 3),
        Mark("binds_for_old_kubelets", DS, r"nodeCanUseMatchFields := "),
        Mark("own_scheduler_name", DS, r'"kubernetes.io/daemonset-controller"'),
        Mark("classic_rolling_update", UPDATE, r"SplitByAvailablePods"),
        Mark("unavailable_old_pods_use_budget", UPDATE, r"numUnavailable\+\+", True, 4),
        Mark("available_at_the_instant", POD_UTIL, r"Compare\(now\.Time\) <= 0"),
        Mark("generation_label_counts", DS_UTIL, r"fmt\.Sprint\(\*dsTemplateGeneration\)"),
        Mark("status_written_after_error", DS, r"statusErr := dsc\.updateDaemonSetStatus"),
        Mark("status_update_retried", DS, r"if i >= StatusUpdateRetries"),
        Mark("requeue_for_min_ready_after_status", DS, r"numberReady != numberAvailable"),
        Mark("node_queue", DS, r"nodeUpdateQueue +workqueue"),
        Mark(
            "node_filter_labels_and_taints", DS, r"DeepEqual\(oldNode, curNode\)|nodeInSameC", False
        ),
        Mark("node_filter_true_conditions", DS, r"func shouldIgnoreNodeUpdate", False),
        Mark("not_found_on_delete_is_fine", DS, r"if !(api)?errors\.IsNotFound\(err\)"),
        Mark("terminating_namespace_is_fine", DS, r"NamespaceTerminatingCause"),
        Mark("create_timeout_ignored", DS, r"errors\.IsTimeout\(err\)"),
        Mark("slow_start_skips_from_the_batch", DS, r"skippedPods := createDiff - batchSize\n"),
        Mark("collision_count_checked", UPDATE, r"stale collision count"),
    ),
    "node lifecycle, taint eviction and pod-gc": (
        Mark(
            "lease_circuit_breaker",
            LIFECYCLE,
            r"liveLease\.ResourceVersion",
            gate="NodeControllerLeaseCircuitBreaker",
        ),
        Mark("health_follows_node", LIFECYCLE, r"nodeHealthMap\.delete\("),
        Mark(
            "refusals_name_budget",
            EVICTION,
            r'currently: pdb disruptions allowed is negative", pdb',
        ),
        Mark("syncs_every_budget", DISRUPTION, r"getPdbsForPod"),
        Mark("pops_backoff_queue", FEATURES, r"SchedulerPopFromBackoffQ: +\{"),
        Mark("empty_selector_spreads", SPREAD, r"labels\.MatchesNothing\(selector\)"),
        Mark("waiting_for_detach", RECONCILER, r'"Waiting for detach"'),
        Mark("eviction_tells_version", EVICTION, r"ResourceVersion: deletedPodRV"),
        Mark("detach_when_node_is_gone", ATTACH, r"processVolumesInUse\(logger, nodeName, nil\)"),
        Mark("decide_on_current", LIFECYCLE, r"switch currentReadyCondition\.Status"),
        Mark("monitor_workers", LIFECYCLE, r"workqueue\.ParallelizeUntil\("),
        Mark("requeue_untainted", LIFECYCLE, r"zoneNoExecuteTainter\[[^]]*\]\.Remove\(", True, 3),
        Mark("pod_not_ready_event", NODE_UTIL, r'"NodeNotReady", "Node is not ready"'),
        Mark("classic_eviction", LIFECYCLE, r"seTaintBasedEvictions bool|runTaintManager bool"),
        Mark("noschedule_gate", LIFECYCLE, r"taintNodeByCondition"),
        Mark("separate_taint_eviction", TAINTS, r"func New\(ctx context"),
        Mark("gc_quarantine", PODGC, r"nodeQueue\.AddAfter"),
        Mark("pod_retry", LIFECYCLE, r"nodesToRetry"),
        Mark("evicted_node_map", LIFECYCLE, r"nodeEvictionMap"),
        Mark("lease_gate", LIFECYCLE, r"features\.NodeLease"),
        Mark("beta_labels_are_truth", LIFECYCLE, r"primaryKey: +kubeletapis\.LabelOS"),
        Mark("exclusion_gates", LIFECYCLE, r"features\.LegacyNodeRoleBehavior"),
        Mark("infinite_cancels", TAINTS, r"minTolerationTime < 0 \{[^}]*cancelWorkWithEvent"),
        Mark("sticky_timer_keys", TIMED_WORKERS, r"q\.workers\[key\] = nil"),
        Mark(
            "disruption_target", TAINTS, r"DeletionByTaintManager", gate="PodDisruptionConditions"
        ),
        Mark("gc_sets_phase", PODGC, r"v1\.PodFailed", gate="PodDisruptionConditions"),
        Mark("gc_out_of_service", PODGC, r"gcTerminating", gate="NodeOutOfServiceVolumeDetach"),
        Mark("gc_evicted_first", PODGC, r"byEvictionAndCreationTimestamp"),
    ),
    "kubelet's status manager": (
        Mark("owns_unschedulable", OWNED, r"Unschedulable"),
        Mark("request_per_change", STATUS, r"type podStatusSyncRequest"),
        Mark(
            "batch_empties_queue",
            STATUS,
            r"len\(m\.podStatusChannel\)|m\.syncBatch\((ctx, )?false\)",
        ),
        Mark("terminate_sets_phase", STATUS, r"status\.Phase = v1\.PodFailed"),
        Mark("delete_when_finished", STATUS, r"podIsFinished +bool"),
        Mark("disruption_target", OWNED, r"DisruptionTarget"),
        Mark("phase_waits_for_containers", STATUS, r"couldHaveRunningContainers bool"),
        Mark("resize_conditions", OWNED, r"PodResizeInProgress"),
        Mark("terminate_overwrites_all", STATUS, r"Terminated: &v1\.ContainerStateTerminated\{\}"),
        Mark("terminate_keeps_never_started", STATUS, r"func hasPodInitialized"),
        Mark("terminal_not_ready", STATUS, r"If the new phase is terminal"),
        Mark("sidecars", GENERATE, r"IsRestartableInitContainer", gate="SidecarContainers"),
        Mark("started_means_initialized", GENERATE, r"HasAnyRegularContainerStarted"),
        Mark("init_matched_by_index", STATUS, r"GetContainerByIndex", gate="SidecarContainers"),
        Mark("ephemeral_counted", STATUS, r"len\(pod\.Spec\.EphemeralContainers\)"),
        Mark("patch_has_uid", PATCH, r"uid types\.UID"),
        Mark("empty_patch_skipped", PATCH, r"unchanged"),
        Mark(
            "ready_to_start_containers",
            OWNED,
            r"PodReadyToStartContainers|PodHasNetwork",
            gate="PodHasNetworkCondition|PodReadyToStartContainersCondition",
        ),
        Mark("restart_rules", STATUS, r"ContainerShouldRestart|RestartRules", gate=_RULES),
        Mark("restarting_is_dated", STATUS, r"&oldStatus, v1\.AllContainersRestarting"),
        Mark("restart_all_containers", STATUS, r"RestartAllContainers", gate=_ALL),
        Mark("ready_to_start_says_why", GENERATE, r"PodSandboxNotReadyReason"),
        Mark("evicted_stays_failed", KUBELET_PODS, r"s\.Phase != v1\.PodFailed \{\n\t+switch"),
        Mark("volume_health", STATUS, r"func \(m \*manager\) SetPodVolumeHealth"),
        Mark("volume_health_in_seconds", STATUS, r"normalizeTimeStamp\(&status\.VolumeHealth"),
        Mark("fifty_requests", KUBELET_DEFAULTS, r"KubeAPIQPS = \S+\(50\)"),
        Mark("resource_claims", STATUS, r"ResourceClaimStatuses = old"),
        Mark("claims_never_differ", STATUS, r"oldCopy\.ResourceClaimStatuses = status"),
        Mark("lost_condition_differs", STATUS, r"len\(newConditions\) != len\(oldConditions\)"),
    ),
}
