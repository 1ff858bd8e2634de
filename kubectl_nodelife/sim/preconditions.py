"""What the virtual API server checks before it applies an action, besides admission: names that are
taken, an owner that must live, a collision that was counted already. Follows the registry of
kube-apiserver, and what upstream's controllers read right before they write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubectl_nodelife.engine.actions import (
    Action,
    AdoptObject,
    CreateControllerRevision,
    CreatePod,
    RaiseCollisionCount,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.workload import DaemonSet


def _exists(store: Cache, action: Action, old: KubeObject | None) -> str:
    return "already exists" if old is not None else ""


def _owner_gone(store: Cache, action: Action, old: KubeObject | None) -> str:
    assert isinstance(action, AdoptObject)
    owner = store.get(action.owner.kind, (action.namespace, action.owner.name))
    if owner is None or owner.uid != action.owner.uid:
        return "the owner is gone"
    return "the owner is being deleted" if owner.metadata.deletion_timestamp is not None else ""


def _collision_counted(store: Cache, action: Action, old: KubeObject | None) -> str:
    assert isinstance(action, RaiseCollisionCount)
    if not action.check or not isinstance(old, DaemonSet):
        return ""
    return "" if old.status.collision_count == action.seen else "the count was raised already"


PRECONDITIONS: Final[dict[type[Action], Callable[[Cache, Action, KubeObject | None], str]]] = {
    CreatePod: _exists,
    CreateControllerRevision: _exists,
    AdoptObject: _owner_gone,
    RaiseCollisionCount: _collision_counted,
}
"""Action -> the check: "" or why it refuses. It is given the objects, and the action's own."""
