"""A set's status: six counts summed over the nodes.

Follows `updateDaemonSetStatus` and `storeDaemonSetStatus`
(`pkg/controller/daemon/daemon_controller.go`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.verdict import Verdict
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus


class Tally(NamedTuple):
    """What one node, or all of them, add to the status."""

    desired: int = 0
    current: int = 0
    misscheduled: int = 0
    ready: int = 0
    updated: int = 0
    available: int = 0


def tally_of_node(
    verdict: Verdict, pods: Sequence[Pod], ready: bool, available: bool, updated: bool
) -> Tally:
    """One node's part. Ready, available and updated are those of the node's oldest pod."""
    if not verdict.want_to_run:
        return Tally(misscheduled=1) if pods else Tally()
    if not pods:
        return Tally(desired=1)
    return Tally(1, 1, 0, int(ready), int(updated), int(ready and available))


def status_from_tally(daemon_set: DaemonSet, tally: Tally, observe: bool) -> DaemonSetStatus:
    """The status to store; collision count and conditions stay as they are.

    `observe`: this sync may raise observedGeneration to the set's generation.
    """
    old = daemon_set.status
    return replace(
        old,
        desired_number_scheduled=tally.desired,
        current_number_scheduled=tally.current,
        number_misscheduled=tally.misscheduled,
        number_ready=tally.ready,
        updated_number_scheduled=tally.updated,
        number_available=tally.available,
        number_unavailable=tally.desired - tally.available,
        observed_generation=(
            daemon_set.metadata.generation if observe else old.observed_generation
        ),
    )


def status_needs_write(daemon_set: DaemonSet, status: DaemonSetStatus) -> bool:
    """Whether the stored status differs in a count, or lags behind the set's generation."""
    old = daemon_set.status
    same = replace(status, observed_generation=old.observed_generation) == old
    return not same or old.observed_generation < daemon_set.metadata.generation
