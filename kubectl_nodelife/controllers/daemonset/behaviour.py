"""The differences between releases: one frozen value, read by the other modules here.

1.11 is v1.11.0. Every other release named is one whose latest patch shows the behaviour, so a
backported fix counts for the release it was backported to. `daemon_controller.go`, `update.go` and
`util/daemonset_util.go` of each release from 1.11 to 1.38 (beta) were read;
`tests/upstream/since_dates.py` reads them again.

Left out on purpose: gates that cannot be set any more and that change no decision, and the
read-your-writes gate of 1.36 (our cache is one consistent store; a sync that upstream tries again
5 ms later, and that brings the set's delayed add forward with it, is begun when the write is seen).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from kubectl_nodelife.engine.settings import holds, spans_of

Release = tuple[int, int]

NEWEST: Release = (1, 38)


@dataclass(frozen=True)
class Behaviour:
    """The DaemonSet controller's rules of one release; fields are named after what they switch.

    A rule that depends on the release alone has its span beside it.
    """

    release: Release
    simulated_predicates: bool
    """Resources and host ports are checked here and the pod is bound here (no scheduler)."""
    taints_count: bool
    """Taints are looked at; 1.11 with ScheduleDaemonSetPods leaves them to the scheduler."""
    critical_pod_annotation: bool
    """The gate `ExperimentalCriticalPodAnnotation`."""
    critical_by_priority: Annotated[bool, (12, 17)]
    """A system-critical priority makes a pod critical whatever that gate says."""
    suspends: Annotated[bool, (0, 17)]
    """Remember sets that wait for room on a node, and wake them when a pod there goes."""
    tolerates_pid_pressure: Annotated[bool, (14, None)]
    tolerates_unschedulable: bool
    tolerates_network_unavailable: Annotated[bool, (12, None)]
    """Pods on the host's network tolerate that there is no other."""
    tolerates_out_of_disk: Annotated[bool, (0, 14)]
    """Critical pods do."""
    deletion_observed_at_the_mark: Annotated[bool, (15, None)]
    """A deletion that was expected has come about once the pod terminates (else: is gone)."""
    failed_pods_back_off: Annotated[bool, (12, None)]
    failed_pods_end_the_sync: Annotated[bool, (0, 16)]
    """A sync that has seen a failed pod ends with an error, before rolling update and status."""
    succeeded_pods_deleted: Annotated[bool, (26, None)]
    finished_terminating_left_out: Annotated[bool, (26, None)]
    """A finished pod that is terminating (say, held by a finalizer) does not count any more."""
    unfit_terminating_deleted_again: Annotated[bool, (0, 16)]
    """Where a node stops fitting, pods that are terminating already are deleted once more."""
    unscheduled_pods_of_missing_nodes_deleted: bool
    binds_for_old_kubelets: Annotated[bool, (12, 13)]
    """A node whose kubelet is older than 1.11, or of unknown version, gets a pod that is bound."""
    own_scheduler_name: Annotated[bool, (14, 17)]
    """A pod that is bound here names `kubernetes.io/daemonset-controller` as its scheduler."""
    surge: bool
    classic_rolling_update: Annotated[bool, (0, 21)]
    """The algorithm before surge: old unavailable pods go first, outside the budget."""
    unavailable_old_pods_use_budget: Annotated[bool, (28, None)]
    available_at_the_instant: Annotated[bool, (34, None)]
    """minReadySeconds after the transition counts as available already (else: only after it)."""
    generation_label_counts: Annotated[bool, (24, None)]
    """A pod whose template generation label matches is up to date, whatever its hash."""
    waiting_sync_keeps_generation: bool
    """A sync that waits for expectations does not raise observedGeneration."""
    status_written_after_error: Annotated[bool, (25, None)]
    status_update_retried: Annotated[bool, (21, None)]
    requeue_for_min_ready_after_status: Annotated[bool, (15, None)]
    node_queue: Annotated[bool, (33, None)]
    """Node events are judged later, on the present node and pods, not by old against new."""
    node_filter_labels_and_taints: Annotated[bool, (30, None)]
    """Only label and taint changes of a node matter."""
    node_filter_true_conditions: Annotated[bool, (0, 12)]
    """Besides these a condition that begins or ends to be True (else: anything but heartbeats)."""
    not_found_on_delete_is_fine: Annotated[bool, (17, None)]
    terminating_namespace_is_fine: Annotated[bool, (17, None)]
    create_timeout_ignored: Annotated[bool, (0, 15)]
    slow_start_skips_from_the_batch: Annotated[bool, (0, 15)]
    """Expectations fall by the total less the batch, which is wrong after the first batch."""
    collision_count_checked: Annotated[bool, (12, None)]


SINCE_UNTIL: Final = spans_of(Behaviour)


def behaviour_of(release: Release, feature_gates: Mapping[str, bool] | None = None) -> Behaviour:
    """The rules of a release, with the gates that its controller looks at.

    `release` is (major, minor). Gates missing from the mapping have that release's default:
    `ScheduleDaemonSetPods` is off in 1.11, on from 1.12 and locked from 1.17,
    `ExperimentalCriticalPodAnnotation` is off and is gone after 1.15, `DaemonSetUpdateSurge` is off
    in 1.21 and on from 1.22.
    """
    gates = feature_gates or {}
    minor = release[1]
    scheduled = minor >= 17 or gates.get("ScheduleDaemonSetPods", minor >= 12)
    return Behaviour(
        release=release,
        simulated_predicates=not scheduled,
        taints_count=minor >= 12 or not scheduled,
        critical_pod_annotation=minor < 16
        and gates.get("ExperimentalCriticalPodAnnotation", False),
        tolerates_unschedulable=minor >= 12 or scheduled,
        unscheduled_pods_of_missing_nodes_deleted=minor >= 12 and scheduled,
        waiting_sync_keeps_generation=minor != 12,  # docs/deviations.md
        surge=minor >= 22 or (minor >= 21 and gates.get("DaemonSetUpdateSurge", False)),
        **{rule: holds(span, minor) for rule, span in SINCE_UNTIL.items()},
    )
