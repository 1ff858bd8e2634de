"""What the cluster would look like had our planned actions been carried out: the dry run's world.

Controllers feed one another through the API: a taint that one adds makes another evict. In a dry
run nothing is written, so planned changes are laid over what the cluster shows, and the engine's
cache holds the sum. The projection stands between the source and the engine: what the cluster shows
comes in by `observe`, what the controllers decide by `project`, and out come the events of the
projected view.

An action *settles* when the cluster shows the same change by another hand (confirmed), or when what
it was for is no longer so (superseded): its object is gone or another one, the kubelet speaks
again, or we ourselves take back what was never written. What was planned because of it falls with
it, and so do the plans for the pods of a node that is Ready again or has lost its taint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    MarkPodNotReady,
    RecordEvent,
    RemoveTaints,
    SetNodeConditions,
)
from kubectl_nodelife.engine.cache import NODE_LEASE_NAMESPACE, Cache, Key
from kubectl_nodelife.engine.events import Event, Gone, Heartbeats, Put
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.wellknown import NO_EXECUTE

CONFIRMED = "confirmed"
SUPERSEDED = "superseded"

ObjectKey = tuple[str, Key]


class Settled(msgspec.Struct, frozen=True):
    """How a planned action ended."""

    action: Action
    outcome: str
    at_ns: int
    why: str


class Projection:
    """Planned actions over observed objects. `cache` is the engine's, which holds the projected
    view.

    Only objects with a planned action are kept here as observed (None: the cluster has none).
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._observed: dict[ObjectKey, KubeObject | None] = {}
        self._planned: dict[ObjectKey, list[tuple[Action, int]]] = {}
        self._created: dict[str, dict[ObjectKey, Action]] = {}
        self._live: set[int] = set()
        self._led_to: dict[int, list[tuple[ObjectKey, Action]]] = {}
        self._fallen: list[Action] = []
        self.settled: list[Settled] = []

    def pending(self) -> Iterator[Action]:
        """The actions that have not settled."""
        for planned in self._planned.values():
            for action, _ in planned:
                yield action

    def observed(self) -> Mapping[ObjectKey, KubeObject | None]:
        """The objects of which the view differs from the cluster, as the cluster shows them.

        None: the cluster has no such object.
        """
        return self._observed

    def planned(self, key: ObjectKey) -> Iterator[Action]:
        """What is planned for one object and has not settled."""
        for action, _ in self._planned.get(key, ()):
            yield action

    def shown(self, kind: str, key: Key) -> KubeObject | None:
        """The object as the cluster shows it, or None."""
        if (kind, key) in self._observed:
            return self._observed[kind, key]
        return self._cache.get(kind, key)

    def observe(self, event: Event, now_ns: int) -> list[Event]:
        """What the view makes of an event of the cluster."""
        view: list[Event] = [event]
        if isinstance(event, Put):
            view = list(self._recognise(event, now_ns))
            recovered = self._recovered(event.obj) if event.kind == "Node" else None
            view += self._observe_object(event.kind, event.obj, event, now_ns)
            if recovered is not None:
                view += self._release_pods(event.obj.name, *recovered, now_ns)
        elif isinstance(event, Gone):
            view = self._observe_gone(event, now_ns)
        elif isinstance(event, Heartbeats):
            view += self._alive(event.node, now_ns)
        return [*view, *self._fall(now_ns)] if self._fallen else view

    def project(self, action: Action, now_ns: int) -> list[Event]:
        """Lay a decided action over the view. What it changes there comes back as an event."""
        if not action.writes or isinstance(action, RecordEvent):
            return []
        key = action.target
        view = self.view(key)
        after = action.effect(view, now_ns)
        if after is view or (view is not None and action.shown_by(view)):
            self._settle(action, CONFIRMED, now_ns, "nothing was left to change")
            return []
        self._observed.setdefault(key, view)
        self._note_causes(key, action)
        planned = self._planned.setdefault(key, [])
        if isinstance(action, RemoveTaints):
            self._take_back(action, planned, self._observed[key], now_ns)
        else:
            if action.replaces:
                self._give_way(action, planned, now_ns)
            self._add(planned, action, now_ns)
            if view is None:
                self._created.setdefault(key[0], {})[key] = action
        shown = self._show(key, after, action)
        return [*shown, *self._fall(now_ns)] if self._fallen else shown

    def view(self, key: ObjectKey) -> KubeObject | None:
        """The object with all that is planned for it. The cache may lag behind by one step."""
        view = self.shown(*key)
        for action, at_ns in self._planned.get(key, ()):
            view = action.effect(view, at_ns)
        return view

    def _observe_object(self, kind: str, obj: KubeObject, event: Put, now_ns: int) -> list[Event]:
        key = (kind, obj.key)
        alive = self._lease_renewed(obj, now_ns) if kind == "Lease" else []
        if key not in self._planned:
            return [event, *alive]
        self._observed[key] = obj
        kept = []
        view: KubeObject | None = obj
        for action, at_ns in self._planned[key]:
            verdict = _judge(action, obj)
            if verdict is not None:
                outcome, why = verdict
                self._settle(action, outcome, now_ns, why)
                continue
            kept.append((action, at_ns))
            view = action.effect(view, at_ns)
        self._keep(key, kept)
        return self._show(key, view, event.cause)

    def _observe_gone(self, event: Gone, now_ns: int) -> list[Event]:
        key = (event.kind, event.key)
        for action, _ in self._planned.pop(key, []):
            gone_is_its_end = action.effect(self._observed.get(key), now_ns) is None
            outcome = CONFIRMED if gone_is_its_end or _deletes(action) else SUPERSEDED
            self._settle(action, outcome, now_ns, f"{event.kind} {event.key[1]} is gone")
        self._observed.pop(key, None)
        return [event]

    def _recognise(self, event: Put, now_ns: int) -> Iterator[Event]:
        """An object that somebody created may be the one that we were going to create."""
        created = self._created.get(event.kind)
        if not created or self._cache.get(event.kind, event.obj.key) is not None:
            return
        for key, action in list(created.items()):
            if action.shown_by(event.obj):
                del created[key]
                self._planned.pop(key, None)
                self._observed.pop(key, None)
                self._settle(action, CONFIRMED, now_ns, f"{event.obj.name} was created")
                yield Gone(event.kind, key[1])
                return

    def _lease_renewed(self, lease: KubeObject, now_ns: int) -> list[Event]:
        if not isinstance(lease, Lease) or lease.namespace != NODE_LEASE_NAMESPACE:
            return []
        before = self._cache.get("Lease", lease.key)
        renewed = lease.spec.renew_time
        if not isinstance(before, Lease) or renewed is None or before.spec.renew_time is None:
            return []
        return self._alive(lease.name, now_ns) if renewed > before.spec.renew_time else []

    def _alive(self, node: str, now_ns: int) -> list[Event]:
        """The kubelet speaks again: had the conditions been written, it would now undo them."""
        key = ("Node", ("", node))
        planned = self._planned.get(key, [])
        losses = [entry for entry in planned if isinstance(entry[0], SetNodeConditions)]
        observed = self._observed.get(key)
        if not losses or not isinstance(observed, Node):
            return []
        why = f"the kubelet of {node} renewed its lease"
        return self._withdraw(key, losses, now_ns, why)

    def _recovered(self, node: KubeObject) -> tuple[bool, bool] | None:
        """(is Ready again, has lost a NoExecute taint) against what was shown; None: neither."""
        before = self.shown("Node", node.key)
        if not isinstance(before, Node) or not isinstance(node, Node) or not self._planned:
            return None
        ready = _is_ready(node) and not _is_ready(before)
        freed = any(
            t.effect == NO_EXECUTE and not node.has_taint(t.key, t.effect)
            for t in before.spec.taints
        )
        return (ready, freed) if ready or freed else None

    def _release_pods(self, node: str, ready: bool, freed: bool, now_ns: int) -> list[Event]:
        """What was planned for a node's pods and the cluster has not done is moot."""
        view: list[Event] = []
        for pod in self._cache.pods_on(node):
            key = ("Pod", pod.key)
            for entry in list(self._planned.get(key, ())):
                action = entry[0]
                if ready and isinstance(action, MarkPodNotReady):
                    view += self._withdraw(key, [entry], now_ns, f"node {node} is Ready again")
                elif freed and isinstance(action, DeletePod) and action.taints:
                    others = [e for e in self._planned.get(key, ()) if e[0].cause is action.cause]
                    view += self._withdraw(key, others, now_ns, f"node {node} has lost its taint")
        return view

    def _note_causes(self, key: ObjectKey, action: Action) -> None:
        """Under each planned action that led to this one."""
        cause = action.cause
        while cause is not None:
            if id(cause) in self._live:
                self._led_to.setdefault(id(cause), []).append((key, action))
            cause = cause.cause

    def _fall(self, now_ns: int) -> list[Event]:
        """What was planned because of an action that is superseded falls with it."""
        view: list[Event] = []
        while self._fallen:
            fallen = self._fallen.pop()
            for key, action in self._led_to.pop(id(fallen), ()):
                entries = [e for e in self._planned.get(key, ()) if e[0] is action]
                why = f"what led to it is no longer so: {fallen.because}"
                view += self._withdraw(key, entries, now_ns, why)
        return view

    def _withdraw(
        self, key: ObjectKey, entries: list[tuple[Action, int]], now_ns: int, why: str
    ) -> list[Event]:
        """Take plans for an object back, and show it without them."""
        if not entries:
            return []
        for action, _ in entries:
            self._settle(action, SUPERSEDED, now_ns, why)
            self._created.get(key[0], {}).pop(key, None)
        gone = {id(action) for action, _ in entries}
        kept = [entry for entry in self._planned[key] if id(entry[0]) not in gone]
        view = self._observed.get(key)
        for action, at_ns in kept:
            view = action.effect(view, at_ns)
        self._keep(key, kept)
        return self._show(key, view, None)

    def _take_back(
        self,
        action: RemoveTaints,
        planned: list[tuple[Action, int]],
        observed: KubeObject | None,
        now_ns: int,
    ) -> None:
        """Taints that only we had planned are no longer planned;

        what the cluster has is to be removed.
        """
        for entry in list(planned):
            added = entry[0]
            if isinstance(added, AddTaints) and all(
                any(t.matches(r) for r in action.taints) for t in added.taints
            ):
                planned.remove(entry)
                self._settle(added, SUPERSEDED, now_ns, action.because)
        if observed is not None and not action.shown_by(observed):
            self._add(planned, action, now_ns)
        else:
            self._settle(action, SUPERSEDED, now_ns, "the taint was never written")

    def _give_way(self, action: Action, planned: list[tuple[Action, int]], now_ns: int) -> None:
        """Earlier plans of the same kind are no longer what we would do."""
        for entry in [e for e in planned if type(e[0]) is type(action)]:
            planned.remove(entry)
            self._settle(entry[0], SUPERSEDED, now_ns, "a later one takes its place")

    def _keep(self, key: ObjectKey, planned: list[tuple[Action, int]]) -> None:
        if planned:
            self._planned[key] = planned
        else:
            self._planned.pop(key, None)

    def _show(self, key: ObjectKey, view: KubeObject | None, cause: Action | None) -> list[Event]:
        if not self._planned.get(key):
            self._planned.pop(key, None)
            self._observed.pop(key, None)
        kind, name = key
        return [Put(kind, view, cause) if view is not None else Gone(kind, name, cause)]

    def _add(self, planned: list[tuple[Action, int]], action: Action, now_ns: int) -> None:
        planned.append((action, now_ns))
        self._live.add(id(action))

    def _settle(self, action: Action, outcome: str, now_ns: int, why: str) -> None:
        self.settled.append(Settled(action, outcome, now_ns, why))
        self._live.discard(id(action))
        if id(action) in self._led_to:
            if outcome == SUPERSEDED:
                self._fallen.append(action)
            else:
                del self._led_to[id(action)]


def _judge(action: Action, obj: KubeObject) -> tuple[str, str] | None:
    """(outcome, why) where the object as the cluster shows it settles the action."""
    if action.uid and obj.uid and action.uid != obj.uid:
        return SUPERSEDED, "another object has the name now"
    if action.shown_by(obj):
        return CONFIRMED, "the cluster shows it"
    if isinstance(action, SetNodeConditions) and isinstance(obj, Node):
        posted = max((c.last_heartbeat_time or 0 for c in obj.status.conditions), default=0)
        known = max((c.last_heartbeat_time or 0 for c in action.conditions), default=0)
        if posted > known:
            return SUPERSEDED, "the kubelet posted its status"
    return None


def _is_ready(node: Node) -> bool:
    ready = node.ready()
    return ready is not None and ready.status == "True"


def _deletes(action: Action) -> bool:
    return type(action).__name__.startswith("Delete")
