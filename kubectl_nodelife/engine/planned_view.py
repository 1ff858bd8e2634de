"""Holds the objects that the overlay changes, with the planned actions that change each of them.

Data and look-ups only: `overlay` decides when a planned action comes and when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Self

from kubectl_nodelife.copy_on_write import copy_of_dict, fork_dict
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import Event, Gone, Put
from kubectl_nodelife.engine.settlement import OverlayEntry, laid_over
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod

ObjectKey = tuple[str, Key]


class PlannedView:
    """Entries over observed objects. `cache` is the engine's, which holds the projected view.

    Only objects with an entry are kept here as observed (None: the cluster has none).
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._observed: dict[ObjectKey, KubeObject | None] = {}
        self._freed: dict[ObjectKey, KubeObject | None] = {}  # the cache may still show plans
        self._planned: dict[ObjectKey, list[OverlayEntry]] = {}
        self._created: dict[str, dict[ObjectKey, Action]] = {}
        self._pods_of: dict[str, dict[ObjectKey, None]] = {}  # node -> its pods with a plan
        self._entries: dict[int, OverlayEntry] = {}  # by the action's number

    def fork(self, cache: Cache) -> Self:
        """The same entries over the fork of the cache; copying takes as long as there are entries,
        since how far each is differs from then on.
        """
        other = copy(self)
        other._cache = cache
        self._observed, other._observed = fork_dict(self._observed)
        self._freed, other._freed = fork_dict(self._freed)
        self._pods_of, other._pods_of = fork_dict(self._pods_of, copy_of_dict)
        other._created = {kind: dict(actions) for kind, actions in self._created.items()}
        other._planned = {key: [copy(e) for e in planned] for key, planned in self._planned.items()}
        other._entries = {entry.action.id: entry for entry in other.entries()}
        return other

    def pending(self) -> Iterator[Action]:
        """The actions that have not settled."""
        for entry in self.entries():
            yield entry.action

    def entry(self, action_id: int) -> OverlayEntry | None:
        """The action of that number, if it has not settled."""
        return self._entries.get(action_id)

    def entries(self, kind: str = "") -> Iterator[OverlayEntry]:
        """What has not settled, of one kind of object if given."""
        for key, planned in self._planned.items():
            if not kind or key[0] == kind:
                yield from planned

    def observed(self) -> Mapping[ObjectKey, KubeObject | None]:
        """The objects of which the view differs from the cluster, as the cluster shows them.

        None: the cluster has no such object.
        """
        return self._observed

    def planned(self, key: ObjectKey) -> Iterator[Action]:
        """What is planned for one object and has not settled."""
        for entry in self._planned.get(key, ()):
            yield entry.action

    def created(self, kind: str) -> Iterator[Action]:
        """What is planned to be made of a kind, and has not settled."""
        yield from self._created.get(kind, {}).values()

    def shown(self, kind: str, key: Key) -> KubeObject | None:
        """The object as the cluster shows it, or None."""
        for known in (self._observed, self._freed):
            if (kind, key) in known:
                return known[kind, key]
        return self._cache.get(kind, key)

    def applied(self) -> None:
        """The cache has taken in all that this has returned so far."""
        self._freed.clear()

    def view(self, key: ObjectKey, seen: KubeObject | None = None) -> KubeObject | None:
        """The object with all that is planned for it; `seen`: as it was seen just now."""
        return laid_over(seen or self.shown(*key), self._planned.get(key, ()))

    def _note_pod(self, key: ObjectKey, pod: KubeObject | None) -> None:
        if isinstance(pod, Pod):
            self._pods_of.setdefault(pod.spec.node_name, {})[key] = None

    def _forget(self, key: ObjectKey) -> None:
        """Nothing is planned for the object any more."""
        self._planned.pop(key, None)
        if key in self._observed:
            self._freed[key] = self._observed.pop(key)
        pod = self._freed.get(key) or self._cache.get(*key)
        if isinstance(pod, Pod) and (others := self._pods_of.get(pod.spec.node_name)) is not None:
            others.pop(key, None)
            if not others:
                del self._pods_of[pod.spec.node_name]

    def _show(self, key: ObjectKey, view: KubeObject | None, cause: Action | None) -> list[Event]:
        if not self._planned.get(key):
            self._forget(key)
        kind, name = key
        return [Put(kind, view, cause) if view is not None else Gone(kind, name, cause)]
