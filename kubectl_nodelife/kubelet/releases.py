"""The differences of the kubelet's status code from release to release.

One table, after the kubelet's own history; everything else in this folder asks a `StatusRules`
for a fact and never compares version numbers. Where upstream's notes name a range ("1.22 and
1.26") the first release that behaves so without a feature gate set by hand is taken.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from kubectl_nodelife.engine.settings import Profile, Span, holds

SINCE_UNTIL: Final[dict[str, Span]] = {
    "owns_unschedulable": (0, 20),
    "request_per_change": (0, 27),
    "batch_empties_queue": (17, None),
    "terminate_overwrites_all": (0, 17),
    "terminate_keeps_never_started": (22, None),  # PR 108366
    "terminate_sets_phase": (27, None),  # PR 115331
    "delete_when_finished": (27, None),
    "phase_waits_for_containers": (22, None),  # PR 102344
    "disruption_target": (26, None),
    "terminal_not_ready": (22, None),  # issue 108594
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
    "claims_never_differ": (36, None),
    "lost_condition_differs": (33, None),
    "ready_to_start_says_why": (37, None),
    "evicted_stays_failed": (38, None),  # PR 142761
    "volume_health": (37, None),  # by the gate CSIVolumeHealth
    "volume_health_in_seconds": (38, None),
    "fifty_requests": (27, None),  # PR 116121
    "listing_blinds_reconcile": (15, 18),  # PR 77661 broke it in 1.15, PR 84951 fixed it
}


class StatusRules(msgspec.Struct, frozen=True):
    """The facts about one release that the functions of this folder ask for."""

    owns_unschedulable: bool
    """`Unschedulable` is in the list of condition types that only the kubelet writes."""
    request_per_change: bool
    """A queue of requests wakes the sender, and not one signal for a batch of what changed."""
    batch_empties_queue: bool
    """The batch takes all requests out of the queue first, since it covers them."""
    terminate_overwrites_all: bool
    """TerminatePod makes every container "terminated, exit code 0", whatever it was."""
    terminate_keeps_never_started: bool
    """TerminatePod leaves waiting containers alone that certainly never started."""
    terminate_sets_phase: bool
    """TerminatePod makes the phase Failed unless it is terminal (not for static pods)."""
    delete_when_finished: bool
    """The pod object may go when its phase is terminal and the kubelet has finished, and no longer
    when its resources are reclaimed."""
    phase_waits_for_containers: bool
    """A terminal phase is not sent while containers could still run."""
    disruption_target: bool
    """The kubelet shares the condition DisruptionTarget with others."""
    terminal_not_ready: bool
    """Phase Failed implies PodFailed, and a terminal pod is never sent as ready."""
    sidecars: bool
    """Restartable init containers count in readiness, initialisation and termination."""
    started_means_initialized: bool
    """A regular container that started proves that the pod is initialised."""
    init_matched_by_index: bool
    """Init container statuses must stand in the order of the spec, or the update is refused."""
    ephemeral_counted: bool
    """Ephemeral containers share the room for termination messages and are normalised."""
    patch_has_uid: bool
    """A status patch carries metadata.uid, so that it cannot land on a pod made anew."""
    empty_patch_skipped: bool
    """No call is made where the merged status is what the API server has already."""
    ready_to_start_containers: bool
    """The kubelet owns the condition PodReadyToStartContainers."""
    resize_conditions: bool
    """The kubelet owns the conditions of in-place resize."""
    restart_rules: bool
    """Regular containers may have a restart policy and restart rules of their own."""
    restarting_is_dated: bool
    """The kubelet dates the condition AllContainersRestarting, which becomes its own later."""
    restart_all_containers: bool
    """A rule may restart all containers of the pod."""
    resource_claims: bool
    """status.resourceClaimStatuses belongs to another component."""
    claims_never_differ: bool
    """A difference in it makes the kubelet neither write a status nor reconcile it."""
    lost_condition_differs: bool
    """Two statuses differ if either has a condition of the kubelet that the other lacks."""
    ready_to_start_says_why: bool
    """PodReadyToStartContainers that is False has a reason and a message."""
    evicted_stays_failed: bool
    """A pod that the kubelet has failed stays Failed though all its containers exit with 0."""
    volume_health: bool
    """The kubelet may report the health of a pod's volumes, apart from its generated status."""
    volume_health_in_seconds: bool
    """The times of the health of volumes are whole seconds, as the API server gives them back."""
    fifty_requests: bool
    """Its client makes fifty requests a second by default, and not five."""
    listing_blinds_reconcile: bool
    """Listing the kubelet's pods overwrites what reconciling compares with."""


@lru_cache
def rules_for(profile: Profile) -> StatusRules:
    """The rules of that release."""
    minor = profile.minor
    return StatusRules(**{rule: holds(span, minor) for rule, span in SINCE_UNTIL.items()})
