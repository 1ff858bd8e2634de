"""The overlay: planned actions laid over what the cluster shows, so that controllers see both.

Controllers feed one another through the API: a taint that one adds makes another evict. What is
planned and not written (in dry-run that is everything) would break this chain, so the engine's
cache holds the sum. The overlay stands between the source and the engine: what the cluster shows
comes in by `observe`, what the controllers decide by `project`, and out come the events of the
projected view. A controller whose writes are sent has no overlay: its cache holds what the cluster
shows, and nothing else.

An action *settles* when the cluster shows the change done by another (confirmed), or when what it
was for is no longer so (superseded): its object is gone or another one, the kubelet reports again,
or we ourselves take back what was never written. What was planned because of it falls with it, and
so do the plans for the pods of a node that is Ready again or without NoExecute taints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import msgspec

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import Event, Gone, Heartbeats, Put
from kubectl_nodelife.engine.settlement import (
    CONFIRMED,
    SUPERSEDED,
    OverlayEntry,
    laid_over,
    lost_premise,
    settle_action,
)
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE

ObjectKey = tuple[str, Key]


class SettledAction(msgspec.Struct, frozen=True):
    """How a planned action ended."""

    action: actions.Action
    outcome: str
    at_ns: int
    why: str


class Overlay:
    """Planned actions over observed objects, and how each comes to its end.

    `cache` is the engine's, which holds the projected view. Only objects with a planned action are
    kept here as observed (None: the cluster has none).
    """

    def __init__(self, cache: Cache, numbers: actions.ActionNumbers | None = None) -> None:
        """`numbers`: for actions that come without a number of the engine's."""
        self._cache = cache
        self._numbers = numbers or actions.ActionNumbers()
        self._observed: dict[ObjectKey, KubeObject | None] = {}
        self._freed: dict[ObjectKey, KubeObject | None] = {}  # the cache may still show plans
        self._planned: dict[ObjectKey, list[OverlayEntry]] = {}
        self._created: dict[str, dict[ObjectKey, actions.Action]] = {}
        self._pods_of: dict[str, dict[ObjectKey, None]] = {}  # node -> its pods with a plan
        self._entries: dict[int, OverlayEntry] = {}  # by the action's number
        self._led_to: dict[int, list[tuple[ObjectKey, actions.Action]]] = {}
        self._fallen: list[actions.Action] = []
        self.settled: list[SettledAction] = []

    def pending(self) -> Iterator[actions.Action]:
        """The actions that have not settled."""
        for entry in self.entries():
            yield entry.action

    def entries(self, kind: str = "") -> Iterator[OverlayEntry]:
        """The actions that have not settled, of one kind of object if given."""
        for key, planned in self._planned.items():
            if not kind or key[0] == kind:
                yield from planned

    def observed(self) -> Mapping[ObjectKey, KubeObject | None]:
        """The objects of which the view differs from the cluster, as the cluster shows them.

        None: the cluster has no such object.
        """
        return self._observed

    def planned(self, key: ObjectKey) -> Iterator[actions.Action]:
        """The actions for one object that have not settled."""
        for entry in self._planned.get(key, ()):
            yield entry.action

    def created(self, kind: str) -> Iterator[actions.Action]:
        """The creations of a kind that have not settled."""
        yield from self._created.get(kind, {}).values()

    def shown(self, kind: str, key: Key) -> KubeObject | None:
        """The object as the cluster shows it, or None."""
        for objects in (self._observed, self._freed):
            if (kind, key) in objects:
                return objects[kind, key]
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

    def _show(
        self, key: ObjectKey, view: KubeObject | None, cause: actions.Action | None
    ) -> list[Event]:
        if not self._planned.get(key):
            self._forget(key)
        kind, name = key
        return [Put(kind, view, cause) if view is not None else Gone(kind, name, cause)]

    def give_up(self, action: actions.Action, now_ns: int, why: str) -> list[Event]:
        """Take one plan back, and what was planned because of it. What the view makes of that."""
        return [*self._withdraw(action.target, [action], now_ns, why), *self._fall(now_ns)]

    def withdraw(self, planned: actions.Action, now_ns: int, why: str) -> list[Event]:
        """Take one plan back, and nothing that it led to; what the view makes of that."""
        self._led_to.pop(planned.id, None)
        return self._withdraw(planned.target, [planned], now_ns, why)

    def amend(self, by: actions.Action) -> list[Event]:
        """The plan of that number in other words, for the same object and of the same instant."""
        self._entries[by.id].action = by
        created = self._created.get(by.target[0], {})
        if by.target in created:
            created[by.target] = by
        return self._show(by.target, self.view(by.target), by)

    def observe(self, event: Event, now_ns: int) -> list[Event]:
        """The changes of the view by an event of the cluster."""
        view: list[Event] = [event]
        if isinstance(event, Put):
            view = list(self._recognise(event, now_ns))
            changed = event.kind == "Node" and self._is_news_for_pods(event.obj)
            view += self._observe_object(event.kind, event.obj, event, now_ns)
            if changed:
                view += self._release_pods(self.view(("Node", event.obj.key), event.obj), now_ns)
        elif isinstance(event, Gone):
            view = self._observe_gone(event, now_ns)
        elif isinstance(event, Heartbeats):
            view += self._alive(event.node, now_ns)
        return [*view, *self._fall(now_ns)] if self._fallen else view

    def project(self, action: actions.Action, now_ns: int) -> list[Event]:
        """Lay a decided action over the view. What it changes there comes back as an event."""
        if not action.writes or isinstance(action, actions.RecordEvent):
            return []
        self._numbers.ensure(action)
        key = action.target
        view = self.view(key)
        after = action.effect(view, now_ns)
        if after is view or (view is not None and action.shown_by(view)):
            shown = self.shown(*key)
            outcome = CONFIRMED if shown is None or action.shown_by(shown) else SUPERSEDED
            self._settle(action, outcome, now_ns, "nothing was left to change")
            return []
        if view is not None and action.deletes and self.shown(*key) is None:
            return self._take_back_whole(key, action, now_ns)
        if why := self._groundless(action, view):
            self._settle(action, SUPERSEDED, now_ns, why)
            return []
        self._observed.setdefault(key, view)
        self._note_pod(key, view or after)
        self._note_causes(key, action)
        planned = self._planned.setdefault(key, [])
        released: list[Event] = []
        if isinstance(action, actions.RemoveTaints):
            if self._take_back(action, planned, self._observed[key], now_ns):
                released = self._release_pods(after, now_ns)
        else:
            if action.replaces:
                self._give_way(action, planned, now_ns)
            self._add(planned, action, now_ns)
            if view is None:
                self._created.setdefault(key[0], {})[key] = action
        events = [*self._show(key, after, action), *released]
        return [*events, *self._fall(now_ns)] if self._fallen else events

    def _observe_object(self, kind: str, obj: KubeObject, event: Put, now_ns: int) -> list[Event]:
        key = (kind, obj.key)
        alive = self._lease_renewed(obj, now_ns) if kind == "Lease" else []
        if key not in self._planned:
            if key in self._freed:
                self._freed[key] = obj
            return [event, *alive]
        self._observed[key] = obj
        entries = []
        view: KubeObject | None = obj
        for entry in self._planned[key]:
            verdict = settle_action(entry.action, obj)
            if verdict is not None:
                self._settle(entry.action, verdict[0], now_ns, verdict[1])
                continue
            entries.append(entry)
            view = entry.action.effect(view, entry.at_ns)
        self._planned[key] = entries
        return self._show(key, view, event.cause)

    def _observe_gone(self, event: Gone, now_ns: int) -> list[Event]:
        key = (event.kind, event.key)
        for action in list(self.planned(key)):
            gone_is_its_end = action.effect(self._observed.get(key), now_ns) is None
            outcome = CONFIRMED if gone_is_its_end or action.deletes else SUPERSEDED
            self._settle(action, outcome, now_ns, f"{event.kind} {event.key[1]} is gone")
        self._forget(key)
        if key in self._freed:
            self._freed[key] = None
        return [event]

    def _recognise(self, event: Put, now_ns: int) -> Iterator[Event]:
        """An object that appears may be the one that we were going to create."""
        created = self._created.get(event.kind)
        if not created or self._cache.get(event.kind, event.obj.key) is not None:
            return
        for key, action in list(created.items()):
            if action.shown_by(event.obj):
                del created[key]
                for planned in list(self.planned(key)):
                    outcome = CONFIRMED if planned.id == action.id else SUPERSEDED
                    self._settle(planned, outcome, now_ns, f"{event.obj.name} was created")
                self._forget(key)
                yield Gone(event.kind, key[1])
                return

    def _lease_renewed(self, lease: KubeObject, now_ns: int) -> list[Event]:
        if not isinstance(lease, Lease) or lease.namespace != NAMESPACE_NODE_LEASE:
            return []
        before = self._cache.get("Lease", lease.key)
        renewed = lease.spec.renew_time
        if not isinstance(before, Lease) or renewed is None or before.spec.renew_time is None:
            return []
        return self._alive(lease.name, now_ns) if renewed > before.spec.renew_time else []

    def _alive(self, node: str, now_ns: int) -> list[Event]:
        """The kubelet reports again: had the conditions been written, it would now undo them."""
        key = ("Node", ("", node))
        losses = [plan for plan in self.planned(key) if isinstance(plan, actions.SetNodeConditions)]
        observed = self._observed.get(key)
        if not losses or not isinstance(observed, Node):
            return []
        why = f"the kubelet of {node} renewed its lease"
        return self._withdraw(key, losses, now_ns, why)

    def _is_news_for_pods(self, node: KubeObject) -> bool:
        """True if a node came, or has another Ready status or other taints than were shown."""
        before = self.shown("Node", node.key)
        if node.metadata.name not in self._pods_of or not isinstance(node, Node):
            return False
        if not isinstance(before, Node) or before.uid != node.uid:
            return True
        return before.spec.taints != node.spec.taints or before.is_ready != node.is_ready

    def _release_pods(self, node: KubeObject | None, now_ns: int) -> list[Event]:
        """Look again at plans for a node's pods that the cluster has not done: they may be moot."""
        assert isinstance(node, Node)
        view: list[Event] = []
        for key in list(self._pods_of.get(node.name, ())):
            pod = cast("Pod | None", self._observed.get(key))
            for entry in list(self._planned.get(key, ())):
                if why := lost_premise(entry.action, pod, node):
                    view += self._withdraw(key, [entry.action], now_ns, why)
        return view

    def _groundless(self, action: actions.Action, view: KubeObject | None) -> str:
        """Why a decision on a pod does not stand from the beginning: a plan that was withdrawn may
        look to a controller as if the pod had come to the node only now.
        """
        if not isinstance(view, Pod):
            return ""
        node = self.view(("Node", ("", view.spec.node_name)))
        return lost_premise(action, view, node) if isinstance(node, Node) else ""

    def _note_causes(self, key: ObjectKey, action: actions.Action) -> None:
        """Under each planned action that led to this one."""
        cause = action.cause
        while cause is not None:
            if cause.id in self._entries:
                self._led_to.setdefault(cause.id, []).append((key, action))
            cause = cause.cause

    def _fall(self, now_ns: int) -> list[Event]:
        """Drop the plans that an action caused which is superseded."""
        view: list[Event] = []
        while self._fallen:
            fallen = self._fallen.pop()
            for key, action in self._led_to.pop(fallen.id, ()):
                why = f"what led to it is no longer so: {fallen.because}"
                view += self._withdraw(key, [action], now_ns, why)
        return view

    def _withdraw(
        self, key: ObjectKey, plans: Iterable[actions.Action], now_ns: int, why: str
    ) -> list[Event]:
        """Take plans for an object back that have not settled, and show it without them."""
        ids = {action.id for action in plans}
        planned = self._planned.get(key, ())
        gone = [entry.action for entry in planned if entry.action.id in ids]
        if not gone:
            return []
        for action in gone:
            self._settle(action, SUPERSEDED, now_ns, why)
        self._created.get(key[0], {}).pop(key, None)
        standing = [entry for entry in planned if entry.action.id not in ids]
        view = laid_over(self._observed.get(key), standing)
        self._planned[key] = standing
        events = self._show(key, view, None)
        if isinstance(view, Node):
            events += self._release_pods(view, now_ns)
        return events

    def _take_back_whole(self, key: ObjectKey, action: actions.Action, now_ns: int) -> list[Event]:
        """An object that only we had planned is no longer planned, nor what was to become of it."""
        self._settle(action, SUPERSEDED, now_ns, "what it takes back was never written")
        view = self._withdraw(key, self.planned(key), now_ns, action.because)
        return [*view, *self._fall(now_ns)]

    def _take_back(
        self,
        action: actions.RemoveTaints,
        planned: list[OverlayEntry],
        observed: KubeObject | None,
        now_ns: int,
    ) -> bool:
        """Taints that only we had planned are no longer planned; what the cluster has is to be
        removed. Whether there were any of the first kind.
        """
        taken_back = False
        for entry in list(planned):
            added = entry.action
            if isinstance(added, actions.AddTaints) and all(
                any(t.matches(r) for r in action.taints) for t in added.taints
            ):
                planned.remove(entry)
                taken_back = True
                self._settle(added, SUPERSEDED, now_ns, action.because)
        if observed is not None and not action.shown_by(observed):
            self._add(planned, action, now_ns)
        else:
            self._settle(action, SUPERSEDED, now_ns, "the taint was never written")
        return taken_back

    def _give_way(self, action: actions.Action, planned: list[OverlayEntry], now_ns: int) -> None:
        """Earlier plans of the same kind are no longer what we would do."""
        for entry in [e for e in planned if type(e.action) is type(action)]:
            planned.remove(entry)
            self._settle(entry.action, SUPERSEDED, now_ns, "a later one takes its place")

    def _add(self, planned: list[OverlayEntry], action: actions.Action, now_ns: int) -> None:
        shown = self._observed.get(action.target) if action.replaces else None
        if shown is not None and action.shown_by(shown):
            self._settle(action, SUPERSEDED, now_ns, "the cluster shows it still")
            return
        entry = self._entries[action.id] = OverlayEntry(action, now_ns)
        planned.append(entry)

    def _settle(self, action: actions.Action, outcome: str, now_ns: int, why: str) -> None:
        self.settled.append(SettledAction(action, outcome, now_ns, why))
        self._entries.pop(action.id, None)
        if action.id in self._led_to:
            if outcome == CONFIRMED:
                del self._led_to[action.id]
            else:
                self._fallen.append(action)
