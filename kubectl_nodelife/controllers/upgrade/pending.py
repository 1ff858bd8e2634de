"""Writes of the upgrade controller that the cache does not show yet.

Until the outcome of a write is known nothing more is decided on its object, and the object is read
with the write's effect laid over it: a node whose claim is on its way is unavailable already. A
write is no longer pending once the cache shows it, shows a later version, or it failed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubectl_nodelife.engine.actions import (
    Action,
    CreateCanary,
    CreateOfNode,
    DeleteCanary,
    DeleteOfNode,
    EvictPod,
    NodeMarkPatch,
    SetNodeConditions,
    UpdateRun,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.meta import KubeObject

ObjectKey = tuple[str, tuple[str, str]]
_TRACKED: Final = (
    NodeMarkPatch,
    SetNodeConditions,
    UpdateRun,
    EvictPod,
    CreateCanary,
    DeleteCanary,
    CreateOfNode,
    DeleteOfNode,
)


class _Pending(msgspec.Struct):
    action: Action
    fresh_version: str = ""


class PendingWrites:
    """The writes under way, by object: one for each."""

    def __init__(self) -> None:
        self._by_target: dict[ObjectKey, _Pending] = {}

    def sent(self, action: Action) -> None:
        """The action goes out now; events and what is no call are not followed."""
        if isinstance(action, _TRACKED):
            self._by_target[action.target] = _Pending(action)

    def ended(self, action: Action, code: int, obj: KubeObject | None) -> None:
        """What came of it: done, it stays pending until the cache has caught up."""
        pending = self._by_target.get(action.target)
        if pending is None or pending.action != action:
            return
        version = obj.metadata.resource_version if obj is not None else ""
        if 200 <= code < 300 and version:
            pending.fresh_version = version
        else:
            del self._by_target[action.target]

    def settle(self, cache: Cache) -> None:
        """Forget what the cache shows by now."""
        for target, pending in list(self._by_target.items()):
            if _is_shown(pending, cache.get(*target)):
                del self._by_target[target]

    def names_of(self, kind: str) -> set[str]:
        """The names of all objects of the kind on which a write is under way."""
        return {key[1] for of_kind, key in self._by_target if of_kind == kind}

    def holds(self, kind: str, key: tuple[str, str]) -> bool:
        """Whether a write on the object is under way."""
        return (kind, key) in self._by_target

    def action_on(self, kind: str, key: tuple[str, str]) -> Action | None:
        """The write under way on the object."""
        pending = self._by_target.get((kind, key))
        return pending.action if pending else None

    def laid_over(
        self, kind: str, key: tuple[str, str], obj: KubeObject | None, now_ns: int
    ) -> KubeObject | None:
        """The object with the effect of the write under way."""
        pending = self._by_target.get((kind, key))
        return obj if pending is None else pending.action.effect(obj, now_ns)


def _is_shown(pending: _Pending, obj: KubeObject | None) -> bool:
    action = pending.action
    if isinstance(action, (CreateCanary, CreateOfNode)):
        return obj is not None
    if obj is None or (action.uid and obj.uid and action.uid != obj.uid):
        return True  # the object that was meant is gone
    if action.shown_by(obj):
        return True
    shown, fresh = obj.metadata.resource_version, pending.fresh_version
    return shown.isdigit() and fresh.isdigit() and int(shown) >= int(fresh)
