"""The differences of the kubelet's status code from release to release.

One table, after the kubelet's own history: the fields of `StatusRules` with their spans. Everything
else in this folder asks one for a fact and never compares version numbers. Where upstream's notes
name a range ("1.22 and 1.26") the first release that behaves so without a feature gate set by hand
is taken.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final

import msgspec

from kubectl_nodelife.engine.settings import Profile, holds, spans_of


class StatusRules(msgspec.Struct, frozen=True):
    """The facts about one release that the functions of this folder ask for."""

    owns_unschedulable: Annotated[bool, (0, 20)]
    """`Unschedulable` is in the list of condition types that only the kubelet writes."""
    request_per_change: Annotated[bool, (0, 27)]
    """A queue of requests wakes the sender, and not one signal for a batch of what changed."""
    batch_empties_queue: Annotated[bool, (17, None)]
    """The batch takes all requests out of the queue first, since it covers them."""
    terminate_overwrites_all: Annotated[bool, (0, 17)]
    """TerminatePod makes every container "terminated, exit code 0", whatever it was."""
    terminate_keeps_never_started: Annotated[bool, (22, None)]  # PR 108366
    """TerminatePod leaves waiting containers alone that certainly never started."""
    terminate_sets_phase: Annotated[bool, (27, None)]  # PR 115331
    """TerminatePod makes the phase Failed unless it is terminal (not for static pods)."""
    delete_when_finished: Annotated[bool, (27, None)]
    """The pod object may go when its phase is terminal and the kubelet has finished, and no longer
    when its resources are reclaimed."""
    phase_waits_for_containers: Annotated[bool, (22, None)]  # PR 102344
    """A terminal phase is not sent while containers could still run."""
    disruption_target: Annotated[bool, (26, None)]
    """The kubelet shares the condition DisruptionTarget with others."""
    terminal_not_ready: Annotated[bool, (22, None)]  # issue 108594
    """Phase Failed implies PodFailed, and a terminal pod is never sent as ready."""
    sidecars: Annotated[bool, (29, None)]
    """Restartable init containers count in readiness, initialisation and termination."""
    started_means_initialized: Annotated[bool, (28, None)]
    """A regular container that started proves that the pod is initialised."""
    init_matched_by_index: Annotated[bool, (29, None)]
    """Init container statuses must stand in the order of the spec, or the update is refused."""
    ephemeral_counted: Annotated[bool, (32, None)]
    """Ephemeral containers share the room for termination messages and are normalised."""
    patch_has_uid: Annotated[bool, (17, None)]
    """A status patch carries metadata.uid, so that it cannot land on a pod made anew."""
    empty_patch_skipped: Annotated[bool, (18, None)]
    """No call is made where the merged status is what the API server has already."""
    ready_to_start_containers: Annotated[bool, (29, None)]
    """The kubelet owns the condition PodReadyToStartContainers."""
    resize_conditions: Annotated[bool, (33, None)]
    """The kubelet owns the conditions of in-place resize."""
    restart_rules: Annotated[bool, (35, None)]
    """Regular containers may have a restart policy and restart rules of their own."""
    restarting_is_dated: Annotated[bool, (35, None)]
    """The kubelet dates the condition AllContainersRestarting, which becomes its own later."""
    restart_all_containers: Annotated[bool, (36, None)]
    """A rule may restart all containers of the pod."""
    resource_claims: Annotated[bool, (28, None)]
    """status.resourceClaimStatuses belongs to another component."""
    claims_never_differ: Annotated[bool, (36, None)]
    """A difference in it makes the kubelet neither write a status nor reconcile it."""
    lost_condition_differs: Annotated[bool, (33, None)]
    """Two statuses differ if either has a condition of the kubelet that the other lacks."""
    ready_to_start_says_why: Annotated[bool, (37, None)]
    """PodReadyToStartContainers that is False has a reason and a message."""
    evicted_stays_failed: Annotated[bool, (38, None)]  # PR 142761
    """A pod that the kubelet has failed stays Failed though all its containers exit with 0."""
    volume_health: Annotated[bool, (37, None)]  # by the gate CSIVolumeHealth
    """The kubelet may report the health of a pod's volumes, apart from its generated status."""
    volume_health_in_seconds: Annotated[bool, (38, None)]
    """The times of the health of volumes are whole seconds, as the API server gives them back."""
    fifty_requests: Annotated[bool, (27, None)]  # PR 116121
    """Its client makes fifty requests a second by default, and not five."""
    listing_blinds_reconcile: Annotated[bool, (15, 18)]  # PR 77661 to PR 84951
    """Listing the kubelet's pods overwrites what reconciling compares with."""


SINCE_UNTIL: Final = spans_of(StatusRules)


@lru_cache
def rules_for(profile: Profile) -> StatusRules:
    """The rules of that release."""
    minor = profile.minor
    return StatusRules(**{rule: holds(span, minor) for rule, span in SINCE_UNTIL.items()})
