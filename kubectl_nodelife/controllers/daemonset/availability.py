"""Ready, available, up to date: what a rolling update and the status ask of a pod.

Follows `IsPodAvailable` (`pkg/api/v1/pod/util.go`) and `IsPodUpdated`
(`pkg/controller/daemon/util/daemonset_util.go`).
"""

from __future__ import annotations

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import (
    LABEL_CONTROLLER_REVISION_HASH,
    LABEL_POD_TEMPLATE_GENERATION,
)

SECOND_NS = 1_000_000_000


def available_from(pod: Pod, min_ready_seconds: int) -> int | None:
    """The instant (ns) from which a pod counts as available; 0: always; None: not known yet.

    None: the pod is not Ready, or its Ready condition lacks the time of its transition. In releases
    before 1.34 the pod is available only after that instant, from 1.34 on at it.
    """
    condition = pod.status.condition("Ready")
    if condition is None or condition.status != "True":
        return None
    if min_ready_seconds == 0:
        return 0
    if condition.last_transition_time is None:
        return None
    return condition.last_transition_time + min_ready_seconds * SECOND_NS


def is_pod_available(pod: Pod, min_ready_seconds: int, now: int, at_the_instant: bool) -> bool:
    """True if a pod is Ready and has been for minReadySeconds at `now` (ns)."""
    since = available_from(pod, min_ready_seconds)
    return since is not None and is_past(since, now, at_the_instant)


def is_past(since: int, now: int, at_the_instant: bool) -> bool:
    """True if what holds from `since` on (0: always) holds at `now`."""
    return since == 0 or since < now or (at_the_instant and since == now)


def is_pod_updated(
    labels: dict[str, str] | None,
    revision_hash: str,
    generation: int | None,
    generation_label_counts: bool,
) -> bool:
    """True if a pod with these labels is of the current template. Follows `IsPodUpdated`.

    `generation` is what the set's annotation tells; from 1.10 to 1.23 it was compared in vain.
    """
    labels = labels or {}
    if revision_hash and labels.get(LABEL_CONTROLLER_REVISION_HASH) == revision_hash:
        return True
    if not generation_label_counts or generation is None:
        return False
    return labels.get(LABEL_POD_TEMPLATE_GENERATION) == str(generation)
