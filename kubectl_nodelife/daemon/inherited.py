"""Plans that a daemon left open when it ended, judged by what the cluster shows now."""

from __future__ import annotations

from typing import Any

import msgspec

from kubectl_nodelife.daemon.changes import Change
from kubectl_nodelife.engine.projection import CONFIRMED, SUPERSEDED, Projection
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod

_RESTARTED = "the daemon was restarted, and no longer plans it"


def fate_of(change: Change, projection: Projection) -> tuple[str, str]:
    """(outcome, why) of an open plan that was not made again."""
    obj = projection.shown(change.kind, (change.namespace, change.name))
    if obj is None:
        if change.action.startswith("Delete"):
            return CONFIRMED, f"{change.kind} {change.name} is gone"
        return SUPERSEDED, _RESTARTED
    if change.uid and obj.uid != change.uid:
        return SUPERSEDED, "another object has the name now"
    detail = msgspec.json.decode(change.detail)
    shown = False
    if isinstance(obj, Node):
        shown = _node_shows(change.action, detail, obj)
    elif isinstance(obj, Pod):
        shown = _pod_shows(change.action, detail, obj)
    return (CONFIRMED, "the cluster shows it") if shown else (SUPERSEDED, _RESTARTED)


def _node_shows(word: str, detail: dict[str, Any], node: Node) -> bool:
    match word:
        case "SetNodeCondition":
            condition = node.status.condition(detail["type"])
            return condition is not None and bool(condition.status == detail["status"])
        case "AddTaint":
            return node.has_taint(detail["key"], detail["effect"])
        case "RemoveTaint":
            return not node.has_taint(detail["key"], detail["effect"])
        case "SetNodeLabel":
            return bool((node.metadata.labels or {}).get(detail["key"]) == detail["value"])
    return False


def _pod_shows(word: str, detail: dict[str, Any], pod: Pod) -> bool:
    match word:
        case "DeletePod":
            return pod.metadata.deletion_timestamp is not None
        case "MarkPodNotReady" | "SetPodCondition":
            condition = pod.status.condition(detail.get("type", "Ready"))
            return condition is not None and bool(condition.status == detail["status"])
        case "CreatePod":
            return True
    return False
