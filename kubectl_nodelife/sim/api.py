"""The API server of the virtual cluster: objects, and what its watchers are yet to be told.

Holds the very slices that a real cluster's objects decode to. Every change is queued as an event
for the engine, which sees it in the next tick at the same instant: what a controller reads is older
than what it has just written, as in life. The parts of the cluster that react to pods and nodes
(scheduler, kubelets, owners) are told of a change at once. Left out on purpose: admission but for
the default tolerations of pods, resource versions, and garbage collection beyond what a deleted
owner leaves.

Names and uids of the objects that are made here are unlike any other, and the same in every run.

What the simulated cluster does by itself is recorded with the controllers' own actions
(`DeletePod`, `AddTaints`, `SetNodeConditions`, …) under the name `cluster`; here are the actions
that they have no word for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, Protocol, Self, TypeVar, cast

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, DeletePod, Detail, PodAction, RecordEvent
from kubectl_nodelife.engine.actions.identity import ActionNumbers
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import ConditionsChange, ConditionsChanged, Event, Gone, Put
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, same_but_for_conditions
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.sim.defaults import DefaultTolerationSeconds

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIXES = len(_LETTERS) ** 5
_PAIRS = [one + other for other in _LETTERS for one in _LETTERS]
_PAIR_COUNT = len(_PAIRS)
_STIR = 5_915_587  # coprime to _SUFFIXES: no suffix comes twice before all were used


def name_suffix(number: int) -> str:
    """Five letters such as `generateName` gets, for the number-th object made."""
    rest, first = divmod(number * _STIR % _SUFFIXES, _PAIR_COUNT)
    last, second = divmod(rest, _PAIR_COUNT)
    return _PAIRS[first] + _PAIRS[second] + _LETTERS[last]


def made_uid(number: int, kind: int = 0x51ED) -> str:
    """A uid for the number-th object made; `kind` keeps several countings apart."""
    return f"{number:08x}-{kind & 0xFFFF:04x}-4000-8000-000000000000"


CLUSTER = "cluster"
"""The controller name in records of what the scenario or the simulated cluster itself did."""

Object = TypeVar("Object", bound=KubeObject)
PodListener = Callable[[Pod | None, Pod | None, Action | None], None]
NodeListener = Callable[[Node | None, Node | None, Action | None], None]
ConditionsListener = Callable[[Sequence[ConditionsChange]], None]
ObjectListener = Callable[[str, KubeObject | None, KubeObject | None], None]


_LISTENERS = ("_pod_listeners", "_conditions_listeners", "_node_listeners", "_object_listeners")


class RunRecorder(Protocol):
    """Keeps what was decided and done."""

    def write(self, now_ns: int, action: Action) -> None:
        """Note one action."""


class Api:
    """Objects by kind and key with the indexes of a cache; `now_ns` is the virtual clock.

    `journal`: None: nobody reads what was done.
    `numbers`: for the actions of the cluster, and of the engine that runs on it.
    `admission`: what pods get that are made or changed here, their status aside; `stamped`: what
    those got that were there at t=0.
    """

    def __init__(
        self, journal: RunRecorder | None, now_ns: int, store: Cache | None = None
    ) -> None:
        self.now_ns = now_ns
        self.store = Cache() if store is None else store
        self.admission = self.stamped = DefaultTolerationSeconds()
        self.pending: list[Event] = []
        self.numbers = ActionNumbers()
        self._journal = journal
        self._pod_listeners: list[PodListener] = []
        self._conditions_listeners: list[ConditionsListener] = []
        self._node_listeners: list[NodeListener] = []
        self._object_listeners: list[ObjectListener] = []
        self.changes = 0
        """How often an object came, went or changed."""
        self._created = 0

    def on_pod(self, listener: PodListener) -> None:
        """Have `listener` called when a pod comes or goes, or more of it changes than its
        conditions.
        """
        self._pod_listeners.append(listener)

    def on_pod_conditions(self, listener: ConditionsListener) -> None:
        """Have `listener` called when of some pods nothing but the conditions changes."""
        self._conditions_listeners.append(listener)

    def on_node(self, listener: NodeListener) -> None:
        """Have `listener` called on each change of a node."""
        self._node_listeners.append(listener)

    def on_object(self, listener: ObjectListener) -> None:
        """Have `listener` called on each change of an object of another kind: (kind, old, new)."""
        self._object_listeners.append(listener)

    def forget_listeners(self) -> None:
        """Tell nobody any more."""
        for name in _LISTENERS:
            getattr(self, name).clear()

    def fork(self, journal: RunRecorder) -> Self:
        """Another one with the same objects, which nobody listens to yet (`listen_as`)."""
        other = copy(self)
        other.store, other._journal = self.store.fork(), journal
        other.pending, other.numbers = list(self.pending), copy(self.numbers)
        return other

    def listen_as(self, of_this_world: Callable[[Any], Any]) -> None:
        """In a fork: from now on its own parts listen, and no longer those of the world that it
        was forked from.
        """
        for name in _LISTENERS:
            setattr(self, name, [of_this_world(listener) for listener in getattr(self, name)])

    def note(self, action: Action) -> Action:
        """Write down something that the cluster itself did."""
        self.numbers.ensure(action)
        if self._journal is not None:
            self._journal.write(self.now_ns, action)
        return action

    def put(self, kind: str, obj: KubeObject, cause: Action | None = None) -> None:
        """Store an object as it now is, and tell everybody."""
        self.changes += 1
        meta = obj.metadata
        old = self.store.set(kind, (meta.namespace, meta.name), obj)
        self.pending.append(Put(kind, obj, cause))
        if type(obj) is Pod:
            before: Pod | None = old  # type: ignore[assignment]
            if before is None or not same_but_for_conditions(before, obj):
                self._tell_pod(before, obj, cause)
            else:
                for on_conditions in self._conditions_listeners:
                    on_conditions(((before, obj, cause),))
        elif type(obj) is Node:
            for listener in self._node_listeners:
                listener(cast("Node | None", old), obj, cause)
        else:
            for on_object in self._object_listeners:
                on_object(kind, old, obj)

    def put_conditions(self, changes: list[ConditionsChange]) -> None:
        """Store pods of which nothing but the conditions changed, and tell everybody once."""
        for _, pod, _ in changes:
            self.store.replace_pod(pod)
        self.changes += len(changes)
        self.pending.append(ConditionsChanged(changes))
        for listener in self._conditions_listeners:
            listener(changes)

    def drop(self, kind: str, key: Key, cause: Action | None = None) -> KubeObject | None:
        """Take an object out, and tell everybody; returns what was there."""
        old = self.store.set(kind, key, None)
        if old is None:
            return None
        self.changes += 1
        self.pending.append(Gone(kind, key, cause))
        if kind == "Pod":
            self._tell_pod(cast(Pod, old), None, cause)
        elif kind == "Node":
            for listener in self._node_listeners:
                listener(cast(Node, old), None, cause)
        else:
            for on_object in self._object_listeners:
                on_object(kind, old, None)
        return old

    def new_name(self, generate_name: str) -> tuple[str, str]:
        """A name such as `generateName` gets, and a uid, that nothing else has."""
        self._created += 1
        return generate_name + name_suffix(self._created), made_uid(self._created)

    def fill_in(self, obj: Object) -> Object:
        """The object with what the API server gives at creation where it lacks: name, uid, time."""
        meta = obj.metadata
        name, uid = self.new_name(meta.generate_name)
        meta = replace(
            meta,
            name=meta.name or name,
            uid=meta.uid or uid,
            creation_timestamp=meta.creation_timestamp or whole_seconds(self.now_ns),
        )
        return replace(obj, metadata=meta)

    def _tell_pod(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        for listener in self._pod_listeners:
            listener(old, new, cause)


class MakePod(PodAction, frozen=True, kw_only=True, gc=False):
    """A pod is made, by an owner in place of one that it lost or by hand; `node` is "" where it
    fits nowhere.
    """

    node: str
    owner: str
    revision: str = ""

    def records(self) -> Iterator[tuple[str, Detail]]:
        """CreatePod."""
        yield "CreatePod", {"node": self.node, "owner": self.owner, "revision": self.revision}


def deletion(
    pod: Pod, because: str, cause: Action | None, grace_period_seconds: int | None = None
) -> DeletePod:
    """The cluster deletes a pod; with a grace period of 0 its kubelet has stopped it."""
    meta = pod.metadata
    return DeletePod(
        controller=CLUSTER,
        because=because,
        cause=cause,
        namespace=meta.namespace,
        pod=meta.name,
        pod_uid=meta.uid,
        grace_period_seconds=grace_period_seconds,
    )


def told(
    obj: KubeObject | tuple[str, str, str],
    reason: str,
    because: str,
    *,
    cause: Action | None = None,
    warning: bool = False,
) -> RecordEvent:
    """A record for which the contract has no other word, as an Event on `obj`.

    `obj` is the object, or (kind, namespace, name).
    """
    if isinstance(obj, tuple):
        (kind, namespace, name), uid = obj, ""
    else:
        kind, (namespace, name), uid = type(obj).__name__, obj.key, obj.uid
    return RecordEvent(
        controller=CLUSTER,
        because=because,
        cause=cause,
        kind=kind,
        namespace=namespace,
        name=name,
        object_uid=uid,
        type="Warning" if warning else "Normal",
        reason=reason,
        message=because,
    )
