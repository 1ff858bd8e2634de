"""What differs between releases: one frozen value, looked up by everybody else here.

The releases named are those whose latest patch shows the behaviour, so a backported fix counts for
the release it was backported to. `daemon_controller.go` and `update.go` of the trees of 1.11, 1.16
and 1.28 to 1.36 were the source. A release below 1.14 behaves as 1.11, one from 1.14 to 1.16 as
1.16; later ones are the newest behaviour less what came after them.

Left out on purpose: gates that nobody can set any more and that change no decision, and the
read-your-writes gate of 1.36 (our cache is one consistent store; a sync that upstream tries again
5 ms later, and that brings the set's delayed add forward with it, is begun when the write is seen).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kubectl_nodelife.engine.profiles import Span, holds

Release = tuple[int, int]

NEWEST: Release = (1, 36)


@dataclass(frozen=True)
class Behaviour:
    """The DaemonSet controller's rules of one release; fields are named after what they switch."""

    release: Release
    simulated_predicates: bool
    """Resources and host ports are checked here and the pod is bound here (no scheduler)."""
    taints_count: bool
    """Taints are looked at; 1.11 with ScheduleDaemonSetPods leaves them to the scheduler."""
    critical_pod_annotation: bool
    """The gate `ExperimentalCriticalPodAnnotation`."""
    suspends: bool
    """Remember sets that wait for room on a node, and wake them when a pod there goes."""
    three_verdicts: bool
    """1.11 distinguishes wantToRun from shouldSchedule; it emits `FailedPlacement`."""
    tolerates_pid_pressure: bool
    tolerates_unschedulable: bool
    """Created pods tolerate the unschedulable taint; trial pods do, if `trial_unschedulable`."""
    trial_tolerates_unschedulable: bool
    failed_pods_back_off: bool
    succeeded_pods_deleted: bool
    finished_terminating_left_out: bool
    """A finished pod that is terminating (say, held by a finalizer) does not count any more."""
    unfit_terminating_deleted_again: bool
    """Where a node stops fitting, pods that are terminating already are deleted once more."""
    unscheduled_pods_of_missing_nodes_deleted: bool
    surge: bool
    classic_rolling_update: bool
    """The algorithm before surge: old unavailable pods go first, outside the budget."""
    unavailable_old_pods_use_budget: bool
    available_at_the_instant: bool
    """minReadySeconds after the transition counts as available already (else: only after it)."""
    generation_label_counts: bool
    """A pod whose template generation label matches is up to date, whatever its hash."""
    status_written_after_error: bool
    status_update_retried: bool
    requeue_for_min_ready_after_status: bool
    node_queue: bool
    """Node events are judged later, on the present node and pods, not by old against new."""
    node_filter_labels_and_taints: bool
    """Only label and taint changes of a node matter (else: anything but heartbeats)."""
    not_found_on_delete_is_fine: bool
    terminating_namespace_is_fine: bool
    create_timeout_ignored: bool
    slow_start_skips_from_the_batch: bool
    """1.11 lowers expectations by total less the batch, which is wrong after the first batch."""
    collision_count_checked: bool

    @property
    def bound_by_controller(self) -> bool:
        """Created pods carry spec.nodeName; else an affinity and the default scheduler."""
        return self.simulated_predicates


SINCE_UNTIL: Final[dict[str, Span]] = {
    "suspends": (0, 17),
    "three_verdicts": (0, 14),
    "tolerates_pid_pressure": (14, None),
    "trial_tolerates_unschedulable": (14, None),
    "failed_pods_back_off": (14, None),
    "succeeded_pods_deleted": (26, None),
    "finished_terminating_left_out": (27, None),
    "unfit_terminating_deleted_again": (0, 17),
    "unscheduled_pods_of_missing_nodes_deleted": (14, None),
    "classic_rolling_update": (0, 21),
    "unavailable_old_pods_use_budget": (30, None),
    "available_at_the_instant": (34, None),
    "generation_label_counts": (24, None),
    "status_written_after_error": (26, None),
    "status_update_retried": (21, None),
    "requeue_for_min_ready_after_status": (14, None),
    "node_queue": (33, None),
    "node_filter_labels_and_taints": (30, None),
    "not_found_on_delete_is_fine": (17, None),
    "terminating_namespace_is_fine": (17, None),
    "create_timeout_ignored": (0, 14),
    "slow_start_skips_from_the_batch": (0, 14),
    "collision_count_checked": (14, None),
}
"""The rules that depend on the release alone."""


def behaviour_of(release: Release, feature_gates: Mapping[str, bool] | None = None) -> Behaviour:
    """The rules of a release, with the gates that the 1.11 controller looks at.

    `release` is (major, minor). Gates missing from the mapping have that release's default:
    `ScheduleDaemonSetPods` is off in 1.11 and locked on later, `ExperimentalCriticalPodAnnotation`
    is off and is gone after 1.15, `DaemonSetUpdateSurge` is off in 1.21 and on from 1.22.
    """
    gates = feature_gates or {}
    minor = release[1]
    old = minor < 14
    scheduled = not old or gates.get("ScheduleDaemonSetPods", False)
    return Behaviour(
        release=release,
        simulated_predicates=not scheduled,
        taints_count=minor >= 12 or not scheduled,
        critical_pod_annotation=old and gates.get("ExperimentalCriticalPodAnnotation", False),
        tolerates_unschedulable=scheduled,
        surge=minor >= 22 or (minor >= 21 and gates.get("DaemonSetUpdateSurge", False)),
        **{rule: holds(span, minor) for rule, span in SINCE_UNTIL.items()},
    )
