"""Tells which writes do harm if they are wrong, which take such things back, and which are capped.

*Harm* is a node called lost, a NoExecute taint, pods marked or deleted. *Recovery* takes such
things back; `guard` lets it pass where it holds harm back.
"""

from __future__ import annotations

from typing import TypeGuard

from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    EvictPod,
    MarkPodNotReady,
    RemoveTaints,
    SetNodeConditions,
    SetPodReady,
    SetPodReason,
    SetUnschedulable,
)
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, TRUE, UNKNOWN


def is_harm(action: Action) -> bool:
    """True if it hurts if it is wrong."""
    if isinstance(action, SetNodeConditions):
        return any(c.type == "Ready" and c.status == UNKNOWN for c in action.conditions)
    if isinstance(action, AddTaints):
        return any(t.effect == NO_EXECUTE for t in action.taints)
    if isinstance(action, DeletePod):
        if action.controller == "pod-gc":
            return bool(action.if_node_gone or action.if_node_out_of_service)
        return action.controller != "daemonset"
    if isinstance(action, SetPodReady):
        return action.status != TRUE
    return isinstance(action, (MarkPodNotReady, SetPodReason, EvictPod))


def is_recovery(action: Action) -> bool:
    """True if it takes a lifecycle taint, a cordon or the mark of a lost node's pod back."""
    if isinstance(action, RemoveTaints):
        return True
    if isinstance(action, SetPodReady):
        return action.status == TRUE
    return isinstance(action, SetUnschedulable) and not action.unschedulable


def is_capped_deletion(action: Action) -> bool:
    """True if it counts as one of the deletions a minute."""
    return isinstance(action, (DeletePod, EvictPod))


def is_daemon_deletion(action: Action) -> TypeGuard[DeletePod]:
    """True if it deletes a pod for the DaemonSet controller."""
    return isinstance(action, DeletePod) and action.controller == "daemonset"


def is_capped_taint(action: Action) -> bool:
    """True if it counts as one of the NoExecute taints a minute."""
    return isinstance(action, AddTaints) and is_harm(action)
