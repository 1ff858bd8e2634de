"""Why a pod of a DaemonSet does not do its work, in words."""

from __future__ import annotations

from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.outlook.daemonset.view import SetView

NOT_SCHEDULED = "not scheduled"


def trouble_of(view: SetView, pod: Pod) -> str:
    """Why the pod does not do its work, "" if it does."""
    node = view.cache.nodes.get(pod.spec.node_name)
    node_down = node is not None and not node.is_ready
    if pod.metadata.deletion_timestamp is not None:
        return "terminating, and its node is not Ready" if node_down else "terminating"
    if pod.status.phase in TERMINAL_PHASES:
        return pod.status.reason or pod.status.phase
    if not pod.spec.node_name:
        obstacle = view.pending(pod)
        if obstacle is not None:
            return f"{NOT_SCHEDULED}: {obstacle.because}"
        scheduled = pod.status.condition("PodScheduled")
        why = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
        return f"{NOT_SCHEDULED}: {why}" if why else NOT_SCHEDULED
    if pod.ready():
        return ""
    for status in pod.status.container_statuses or ():
        waiting = status.state.waiting
        if waiting is not None and waiting.reason:
            return f"container {status.name} waits: {waiting.reason}"
    return "its node is not Ready" if node_down else "not Ready"
