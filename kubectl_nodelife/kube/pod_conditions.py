"""Conditions that controllers set on pods. Follows pkg/api/v1/pod/util.go."""

from __future__ import annotations

from kubectl_nodelife.kube.pod import PodCondition, PodStatus
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.wellknown import DISRUPTION_TARGET, TRUE


def disruption_target(
    status: PodStatus, reason: str, message: str, now_ns: int
) -> PodCondition | None:
    """The condition DisruptionTarget to set, or None where the pod has it already.

    Follows `UpdatePodCondition`: the transition time moves only when the status does.
    """
    old = status.condition(DISRUPTION_TARGET)
    since = whole_seconds(now_ns)
    if old is not None and old.status == TRUE:
        if (old.reason, old.message) == (reason, message):
            return None
        since = old.last_transition_time or since
    return PodCondition(
        type=DISRUPTION_TARGET,
        status=TRUE,
        reason=reason,
        message=message,
        last_transition_time=since,
    )
