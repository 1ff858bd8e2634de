"""Which actions are refused because of what is in quarantine (`engine.quarantine`).

An action concerns its target, the node that a pod is made for, and the set that the target belongs
to where its controller decides from sets. One of them in quarantine is enough.
"""

from __future__ import annotations

from collections.abc import Collection

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.daemonset_actions import CreateControllerRevision, CreatePod
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.unreadable import Ref


def is_refused(action: Action, cache: Cache, watches: Collection[str]) -> bool:
    """Whether the action concerns something in quarantine. `watches`: its controller's kinds."""
    quarantine, target = cache.quarantine, action.target
    if cache.is_quarantined(*target) or (action.controller, target) in quarantine.bugs:
        return True
    if isinstance(action, CreatePod) and quarantine.holds(("Node", ("", action.node))):
        return True
    owner = _owner(action, cache)
    if owner is None or owner[0] not in watches:
        return False
    return quarantine.holds(owner) or (action.controller, owner) in quarantine.bugs


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
