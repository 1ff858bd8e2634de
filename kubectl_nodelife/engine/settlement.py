"""Judges whether a planned action is settled by what the cluster shows: done by another, or moot.

A write that was carried out stays: a pod that is deleted stays deleted. A plan that was never
carried out is different. A controller that began on what the cluster shows now would not make it,
so it no longer stands.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Event, Put
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import no_execute_taints, tolerates_for_ever
from kubectl_nodelife.kube.wellknown import TAINT_NODE_OUT_OF_SERVICE

APPLIED, FAILED = "applied", "failed"
CONFIRMED, SUPERSEDED = "confirmed", "superseded"


class OverlayEntry(msgspec.Struct):
    """An action in the overlay, planned at `at_ns`; it leaves it confirmed or superseded."""

    action: actions.Action
    at_ns: int


def laid_over(obj: KubeObject | None, planned: Iterable[OverlayEntry]) -> KubeObject | None:
    """The object had these plans been carried out."""
    for entry in planned:
        obj = entry.action.effect(obj, entry.at_ns)
    return obj


def is_newer(obj: KubeObject, version: str) -> bool:
    """True if the object is of a later resourceVersion; False where that is unknown."""
    present = obj.metadata.resource_version
    return present.isdecimal() and version.isdecimal() and int(present) > int(version)


def is_old(event: Event, cache: Cache) -> bool:
    """True if the cache holds a later version of the object that the event shows: an answer to a
    write, or a read, may have overtaken the watch.
    """
    if not isinstance(event, Put):
        return False
    known = cache.get(event.kind, event.obj.key)
    version = event.obj.metadata.resource_version
    return known is not None and known.uid == event.obj.uid and is_newer(known, version)


def settle_action(action: actions.Action, obj: KubeObject) -> tuple[str, str] | None:
    """(outcome, why) where the object as the cluster shows it settles the action."""
    if action.uid and obj.uid and action.uid != obj.uid:
        return SUPERSEDED, "another object has the name now"
    if action.shown_by(obj):
        return CONFIRMED, "the cluster shows it"
    if isinstance(action, actions.SetNodeConditions) and isinstance(obj, Node):
        posted = max((c.last_heartbeat_time or 0 for c in obj.status.conditions), default=0)
        decided_on = max((c.last_heartbeat_time or 0 for c in action.conditions), default=0)
        if posted > decided_on:
            return SUPERSEDED, "the kubelet posted its status"
    return None


def lost_premise(action: actions.Action, pod: Pod | None, node: Node) -> str:
    """Why a plan for a pod of this node does not stand, "" where it does.

    `pod`: as the cluster shows it; `node`: as it is with all that is planned for it.
    """
    if isinstance(action, actions.MarkPodNotReady):
        return f"node {node.name} is Ready again" if node.is_ready else ""
    if isinstance(action, actions.PodAction) and action.if_node_gone:
        return f"node {node.name} exists again"
    if _is_taint_eviction(action):
        return _why_it_stays(pod, node)
    if isinstance(action, actions.DeletePod) and action.force and _is_terminating(pod):
        out = any(t.key == TAINT_NODE_OUT_OF_SERVICE for t in node.spec.taints)
        return "" if out and not node.is_ready else f"node {node.name} is in service again"
    return ""


def sign_of_life_since(
    action: actions.SetNodeConditions, node: Node | None, renewed_ns: int | None, decided_ns: int
) -> str:
    """The last news of a kubelet since its node was to be called lost, "" where nothing was.

    `node`: as it is known now. `renewed_ns`: when a renewal of its Lease was seen last, None where
    renewals are no signs of life; `decided_ns`: when the action was decided. Upstream's
    `monitorNodeHealth` writes what it has decided without another look.
    """
    settled = settle_action(action, node) if node is not None else None
    if settled is not None and settled[0] == SUPERSEDED:
        return settled[1]
    renewed = renewed_ns is not None and renewed_ns > decided_ns
    return "its Lease was renewed after that was decided" if renewed else ""


def _is_taint_eviction(action: actions.Action) -> bool:
    """True if NoExecute taints led to it."""
    return isinstance(action.cause, actions.ScheduleEviction) or (
        isinstance(action, actions.DeletePod) and bool(action.taints)
    )


def _why_it_stays(pod: Pod | None, node: Node) -> str:
    """Why a pod whose eviction has begun is not to go, "" where it is.

    As `processPodOnNode` has it: what counts is the taints that the node has now, not those that
    set the timer. An exchange of one for another cancels nothing, and where the present ones are
    tolerated for some seconds the earlier end stands. A pod that tolerates them for ever stays in
    each release, although up to 1.16 its timer went on.
    """
    taints = no_execute_taints(node.spec.taints)
    if not taints:
        return f"node {node.name} has no NoExecute taint any more"
    if pod is not None and tolerates_for_ever(pod.spec.tolerations, taints):
        return f"the pod tolerates the taints of node {node.name} for ever"
    return ""


def _is_terminating(pod: Pod | None) -> bool:
    return pod is not None and pod.metadata.deletion_timestamp is not None
