"""Tells which actions are refused because of what is in quarantine (`engine.quarantine`).

An action depends on its target, the node that a pod is made for, the heartbeat of a pod's node
where its controller decides from heartbeats, and the set that the target belongs to where it
decides from sets. If one of them is in quarantine, the action is refused. An object without a name
may be the one that is missing: the Lease of a node that has none, or any set's revision.
"""

from __future__ import annotations

from collections.abc import Collection

from kubectl_nodelife.engine.actions import Action, CreateControllerRevision, CreatePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.unreadable import Ref


def is_refused(action: Action, cache: Cache, watches: Collection[str]) -> bool:
    """True if the action concerns something in quarantine. `watches`: its controller's kinds."""
    quarantine, target = cache.quarantine, action.target
    if cache.is_quarantined(*target) or (action.controller, target) in quarantine.bugs:
        return True
    if isinstance(action, CreatePod) and quarantine.holds_room_on(action.node):
        return True
    if "Heartbeat" in watches and _is_heartbeat_unknown(target, cache):
        return True
    if _may_be_nameless(target, cache, watches):
        return True
    owner = _owner(action, cache)
    if owner is None or owner[0] not in watches:
        return False
    return quarantine.holds(owner) or (action.controller, owner) in quarantine.bugs


def _may_be_nameless(target: Ref, cache: Cache, watches: Collection[str]) -> bool:
    """True if what the action's target lacks may be there, without a name."""
    quarantine = cache.quarantine
    if "ControllerRevision" in watches and quarantine.is_nameless("ControllerRevision"):
        return True
    node = target[1][1] if target[0] == "Node" else ""
    if target[0] == "Pod" and (pod := cache.pods.get(target[1])) is not None:
        node = pod.spec.node_name
        if quarantine.is_nameless("Node") and node not in cache.nodes:
            return True
    return quarantine.is_nameless("Lease") and bool(node) and node not in cache.heartbeats


def _is_heartbeat_unknown(target: Ref, cache: Cache) -> bool:
    """True if the target is a pod, and its node's Lease cannot be read."""
    pod = cache.pods.get(target[1]) if target[0] == "Pod" else None
    return pod is not None and cache.quarantine.holds(("Node", ("", pod.spec.node_name)))


def _owner(action: Action, cache: Cache) -> Ref | None:
    """The object that controls the action's target."""
    kind, key = action.target
    if isinstance(action, CreatePod):
        return ("DaemonSet", (action.namespace, action.owner))
    if isinstance(action, CreateControllerRevision):
        obj: KubeObject | None = action.revision
    else:
        obj = cache.get(kind, key)
    owner = controller_of(obj.metadata) if obj is not None else None
    return (owner.kind, (key[0], owner.name)) if owner is not None else None
