"""A set's status: six counts summed over the nodes.

Follows `updateDaemonSetStatus` and `storeDaemonSetStatus`
(`pkg/controller/daemon/daemon_controller.go`).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.placement_decision import PlacementDecision
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus

WORDS: Final = {
    "desired_number_scheduled": "desired",
    "current_number_scheduled": "current",
    "number_misscheduled": "misscheduled",
    "number_ready": "ready",
    "updated_number_scheduled": "up to date",
    "number_available": "available",
}
"""The counts that people look at, and what they call them."""

_told = attrgetter(*WORDS)


class Tally(NamedTuple):
    """The counts that one node, or all of them, add to the status."""

    desired: int = 0
    current: int = 0
    misscheduled: int = 0
    ready: int = 0
    updated: int = 0
    available: int = 0


class Counted(Protocol):
    """A pod, as far as the status counts it."""

    @property
    def ready(self) -> bool:
        """Condition Ready is True."""

    @property
    def available(self) -> bool:
        """Ready for minReadySeconds."""

    @property
    def updated(self) -> bool:
        """Of the present template."""


def tally_of_node(verdict: PlacementDecision, pods: Sequence[Counted]) -> Tally:
    """One node's part; of its pods, the oldest of which is first, that one alone is asked."""
    if not verdict.want_to_run:
        return Tally(misscheduled=1) if pods else Tally()
    if not pods:
        return Tally(desired=1)
    oldest = pods[0]
    available = oldest.ready and oldest.available
    return Tally(1, 1, 0, int(oldest.ready), int(oldest.updated), int(available))


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


def status_differs(daemon_set: DaemonSet, tally: Tally, observe: bool) -> bool:
    """True if the stored status is another one than `status_from_tally` would give.

    Upstream writes besides while the set's generation is not observed and this sync may not observe
    it; such a write changes nothing and is left out.
    """
    old = daemon_set.status
    stored = (
        old.desired_number_scheduled,
        old.current_number_scheduled,
        old.number_misscheduled,
        old.number_ready,
        old.updated_number_scheduled,
        old.number_available,
    )
    if stored != tally or old.number_unavailable != tally.desired - tally.available:
        return True
    return observe and old.observed_generation < daemon_set.metadata.generation


def differences(reported: DaemonSetStatus, counted: DaemonSetStatus) -> list[str]:
    """Where the two differ, in words; `desired 3, counted 4`."""
    both = zip(WORDS.values(), _told(reported), _told(counted), strict=True)
    return [f"{word} {was}, counted {now}" for word, was, now in both if was != now]
