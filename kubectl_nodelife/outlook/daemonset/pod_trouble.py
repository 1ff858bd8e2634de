"""Why a pod of a DaemonSet does not do its work."""

from __future__ import annotations

import enum
from typing import NamedTuple

from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.outlook.daemonset.view import SetView

NOT_SCHEDULED = "not scheduled"


class TroubleKind(enum.Enum):
    """What keeps the pod."""

    LEAVING = enum.auto()
    FINISHED = enum.auto()
    UNSCHEDULED = enum.auto()
    WAITING_CONTAINER = enum.auto()
    NODE_DOWN = enum.auto()
    UNREADY = enum.auto()


class PodTrouble(NamedTuple):
    """The kind, in words, and whether the pod's node is there and not Ready."""

    kind: TroubleKind
    words: str
    node_down: bool = False


def trouble_of(view: SetView, pod: Pod) -> PodTrouble | None:
    """Why the pod does not do its work; None if it does."""
    node = view.cache.nodes.get(pod.spec.node_name)
    node_down = node is not None and not node.is_ready
    if pod.metadata.deletion_timestamp is not None:
        words = "terminating, and its node is not Ready" if node_down else "terminating"
        return PodTrouble(TroubleKind.LEAVING, words, node_down)
    if pod.status.phase in TERMINAL_PHASES:
        return PodTrouble(TroubleKind.FINISHED, pod.status.reason or pod.status.phase, node_down)
    if not pod.spec.node_name:
        return PodTrouble(TroubleKind.UNSCHEDULED, _unscheduled(view, pod))
    if pod.ready():
        return None
    for status in pod.status.container_statuses or ():
        waiting = status.state.waiting
        if waiting is not None and waiting.reason:
            words = f"container {status.name} waits: {waiting.reason}"
            return PodTrouble(TroubleKind.WAITING_CONTAINER, words, node_down)
    if node_down:
        return PodTrouble(TroubleKind.NODE_DOWN, "its node is not Ready", node_down)
    return PodTrouble(TroubleKind.UNREADY, "not Ready")


def _unscheduled(view: SetView, pod: Pod) -> str:
    obstacle = view.pending(pod)
    if obstacle is not None:
        return f"{NOT_SCHEDULED}: {obstacle.because}"
    scheduled = pod.status.condition("PodScheduled")
    why = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
    return f"{NOT_SCHEDULED}: {why}" if why else NOT_SCHEDULED
