"""The API server of the virtual cluster: objects, and the events that its watchers have yet to get.

It holds the same partial objects that a real cluster's objects decode to. Every change is queued as
an event for the engine, which sees it in the next tick at the same instant: what a controller reads
is older than what it has just written, as in a real cluster. The parts of the cluster that react to
pods and nodes (scheduler, kubelets, owners) are called at once. Left out on purpose: resource
versions, and garbage collection beyond what a deleted owner leaves.

Names and uids of the objects that are made here are unique, and the same in every run.

What the simulated cluster does by itself is recorded with the controllers' own actions
(`DeletePod`, `AddTaints`, `SetNodeConditions`, …) under the name `cluster`; actions that the
controllers do not have are defined here.

The fields that the API server itself writes into an object that is created or updated follow the
strategies of pkg/registry/apps/daemonset and pkg/registry/core/pod and the defaults of
pkg/apis/apps/v1, as far as a decision here reads them: generations, how a DaemonSet is updated, and
that a new pod is Pending. Of the admission plugins there are DefaultTolerationSeconds, for pods,
and those of `workloads.admission`, which refuse; nodes stay exactly as written.

Besides admission it checks before it applies an action: names that are taken, an owner that must
live, a collision that was counted already. That follows the registry of kube-apiserver, and what
upstream's controllers read right before they write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final, Protocol, Self, TypeVar, cast

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import (
    Action,
    ActionNumbers,
    AdoptObject,
    CreateControllerRevision,
    CreatePod,
    DeletePod,
    Detail,
    PodAction,
    RaiseCollisionCount,
    RecordEvent,
    of_pod,
)
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import (
    ConditionsChange,
    ConditionsChanged,
    Event,
    Gone,
    Heartbeats,
    Put,
)
from kubectl_nodelife.engine.settings import NEWEST, parse_profile
from kubectl_nodelife.kube import wellknown, workload
from kubectl_nodelife.kube.deletion import delete_pod, is_let_go
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, Toleration, same_but_for_conditions
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.taints import default_tolerations
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.sim.timeline import Agenda
from kubectl_nodelife.workloads.admission import DECIDING_KINDS, Admission
from kubectl_nodelife.workloads.owners import LABEL_POD_TEMPLATE_HASH
from kubectl_nodelife.workloads.pod_classes import MADE_UID_ENDS, pods_among


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
    if not action.check or not isinstance(old, workload.DaemonSet):
        return ""
    return "" if old.status.collision_count == action.seen else "the count was raised already"


PRECONDITIONS: Final[dict[type[Action], Callable[[Cache, Action, KubeObject | None], str]]] = {
    CreatePod: _exists,
    CreateControllerRevision: _exists,
    AdoptObject: _owner_gone,
    RaiseCollisionCount: _collision_counted,
}
"""Action -> the check: "" or why it refuses. It is given the objects, and the action's own."""


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
    """A uid for the number-th object made; `kind` keeps several series of numbers apart."""
    return f"{number:08x}-{kind & 0xFFFF:04x}{MADE_UID_ENDS}"


_MADE = made_uid(0)[8:]
_HEX = re.compile(r"[0-9a-f]{8}")

CLUSTER = "cluster"
"""The controller name in records of what the scenario or the simulated cluster itself did."""

Object = TypeVar("Object", bound=KubeObject)
PodListener = Callable[[Pod | None, Pod | None, Action | None], None]
NodeListener = Callable[[Node | None, Node | None, Action | None], None]
ConditionsListener = Callable[[Sequence[ConditionsChange]], None]
ObjectListener = Callable[[str, KubeObject | None, KubeObject | None], None]


_LISTENERS = ("_pod_listeners", "_conditions_listeners", "_node_listeners", "_object_listeners")


class RunRecorder(Protocol):
    """Records what was decided and done."""

    def write(self, now_ns: int, action: Action) -> None:
        """Note one action."""

    def write_all(self, now_ns: int, actions: Sequence[Action]) -> None:
        """Note what was decided together."""


class Api:
    """Objects by kind and key with the indexes of a cache; `now_ns` is the virtual clock.

    `journal`: None: what was done is not recorded.
    `profile`: the release of the API server, and of what runs beside it.
    `numbers`: for the actions of the cluster, and of the engine that runs on it.
    `admission`: what is refused before it is stored. `default_tolerations`: what pods get when they
    are made or changed here, their status aside; `stamped`: what the pods of t=0 got.
    """

    def __init__(
        self, journal: RunRecorder | None, now_ns: int, store: Cache | None = None
    ) -> None:
        self.now_ns = now_ns
        self.store = Cache() if store is None else store
        self.admission = Admission(self.store)
        self.profile = parse_profile(NEWEST)
        self.default_tolerations = self.stamped = DefaultTolerationSeconds()
        self.pending: list[Event] = []
        self.numbers = ActionNumbers()
        self._journal = journal
        self._pod_listeners: list[PodListener] = []
        self._conditions_listeners: list[ConditionsListener] = []
        self._node_listeners: list[NodeListener] = []
        self._object_listeners: list[ObjectListener] = []
        self.changes = 0
        """How often an object was added, deleted or changed."""
        self._created = 0

    def on_pod(self, listener: PodListener) -> None:
        """Have `listener` called when a pod is added or deleted, or more of it changes than its
        conditions.
        """
        self._pod_listeners.append(listener)

    def on_pod_conditions(self, listener: ConditionsListener) -> None:
        """Have `listener` called when only the conditions of some pods change."""
        self._conditions_listeners.append(listener)

    def on_node(self, listener: NodeListener) -> None:
        """Have `listener` called on each change of a node."""
        self._node_listeners.append(listener)

    def on_object(self, listener: ObjectListener) -> None:
        """Have `listener` called on each change of an object of another kind: (kind, old, new)."""
        self._object_listeners.append(listener)

    def forget_listeners(self) -> None:
        """Remove all listeners."""
        for name in _LISTENERS:
            getattr(self, name).clear()

    def serve(self, service: Key, ready: bool) -> None:
        """A Service has no ready endpoint any more, or one again: webhooks are called by it."""
        if self.admission.calls(service):
            serving = {**self.admission.serving, service: ready}
            self.admission = Admission(self.store, serving)

    def fork(self, journal: RunRecorder) -> Self:
        """A copy with the same objects; its own listeners are yet to be set (`listen_as`)."""
        other = copy(self)
        other.store, other._journal = self.store.fork(), journal
        other.admission = self.admission.fork(other.store)
        other.pending, other.numbers = list(self.pending), copy(self.numbers)
        return other

    def listen_as(self, of_this_world: Callable[[Any], Any]) -> None:
        """In a fork: call its own parts from now on, and no longer those of the world that it was
        forked from.
        """
        for name in _LISTENERS:
            setattr(self, name, [of_this_world(listener) for listener in getattr(self, name)])

    def note(self, action: Action) -> Action:
        """Record an action of the cluster itself."""
        self.numbers.ensure(action)
        if self._journal is not None:
            self._journal.write(self.now_ns, action)
        return action

    def note_all(self, actions: Sequence[Action]) -> None:
        """Record what was decided together."""
        if self._journal is not None:
            self._journal.write_all(self.now_ns, actions)

    def put(self, kind: str, obj: KubeObject, cause: Action | None = None) -> None:
        """Store an object as it now is, and call the listeners."""
        meta = obj.metadata
        old = self.store.set(kind, (meta.namespace, meta.name), obj)
        self._changed(Put(kind, obj, cause), old, obj)

    def update(self, kind: str, old: KubeObject, new: KubeObject, cause: Action | None) -> None:
        """Store what somebody's update made of an object; a pod that waited for its last finalizer
        alone is gone (`is_let_go`).
        """
        if isinstance(new, Pod) and is_let_go(old.metadata, new.metadata):
            self.drop(kind, new.key, cause)
        else:
            self.put(kind, new, cause)

    def delete_pod(self, pod: Pod, because: str, cause: Action | None = None) -> None:
        """Delete a pod that is not terminating yet: it terminates, or is gone at once."""
        done = self.note(deletion(pod, because, cause))
        marked = delete_pod(pod, self.now_ns)
        if marked is None:
            self.drop("Pod", pod.key, done)
        else:
            self.put("Pod", marked, done)

    def put_heartbeats(self, event: Heartbeats) -> None:
        """A kubelet renews its Lease on another schedule from now on."""
        self.store.apply(event, self.now_ns)
        self.pending.append(event)

    def put_conditions(self, changes: list[ConditionsChange]) -> None:
        """Store pods of which only the conditions changed, and call the listeners once."""
        for _, pod, _ in changes:
            self.store.replace_pod(pod)
        self.changes += len(changes)
        self.pending.append(ConditionsChanged(changes))
        for listener in self._conditions_listeners:
            listener(changes)

    def drop(self, kind: str, key: Key, cause: Action | None = None) -> KubeObject | None:
        """Remove an object, and call the listeners; returns the removed object."""
        old = self.store.set(kind, key, None)
        if old is not None:
            self._changed(Gone(kind, key, cause), old, None)
        return old

    def _changed(self, event: Put | Gone, old: Any, new: Any) -> None:
        """An object, which is stored, has changed so."""
        self.changes += 1
        self.pending.append(event)
        kind, cause = event.kind, event.cause
        if kind == "Pod":
            if old is None or new is None or not same_but_for_conditions(old, new):
                for on_pod in self._pod_listeners:
                    on_pod(old, new, cause)
            else:
                for on_conditions in self._conditions_listeners:
                    on_conditions(((old, new, cause),))
        elif kind == "Node":
            for on_node in self._node_listeners:
                on_node(old, new, cause)
        else:
            if kind == "Lease":
                self.store.apply(event, self.now_ns)  # its renewal, too
            if kind in DECIDING_KINDS:
                self.admission = Admission(self.store, self.admission.serving)
            for on_object in self._object_listeners:
                on_object(kind, old, new)

    def leave_out_names_in_use(self) -> None:
        """Give no name and no uid that an object has which an earlier play made: the cluster may
        be a snapshot of one."""
        most = self._created
        for pod in pods_among(self.store, lambda summary: summary.made):
            uid = pod.metadata.uid
            if uid[8:] == _MADE and _HEX.fullmatch(uid[:8]):
                most = max(most, int(uid[:8], 16))
        self._created = most

    def new_name(self, generate_name: str, namespace: str = "") -> tuple[str, str]:
        """A name such as `generateName` gets, and a uid, both unique."""
        while True:
            self._created += 1
            name = generate_name + name_suffix(self._created)
            if (namespace, name) not in self.store.pods:
                return name, made_uid(self._created)

    def fill_in(self, obj: Object) -> Object:
        """The object with what the API server sets at creation if missing: name, uid, time."""
        meta = obj.metadata
        name, uid = self.new_name(meta.generate_name, meta.namespace)
        meta = replace(
            meta,
            name=meta.name or name,
            uid=meta.uid or uid,
            creation_timestamp=meta.creation_timestamp or whole_seconds(self.now_ns),
        )
        return replace(obj, metadata=meta)


class ForkedWorld(Protocol):
    """A world as its parts see it in which they are copied. The parts before theirs are there."""

    api: Api
    agenda: Agenda


class WorldPart:
    """What acts in the world by its API and its agenda."""

    def __init__(self, api: Api, agenda: Agenda) -> None:
        self._api = api
        self._agenda = agenda

    def fork(self, world: ForkedWorld) -> Self:
        """The same for a fork of the world."""
        other = copy(self)
        other._api, other._agenda = world.api, world.agenda
        return other


class MakePod(PodAction, frozen=True, kw_only=True, gc=False):
    """A pod is created, by an owner in place of a lost one or by hand; `node` is "" where it fits
    on no node.
    """

    node: str
    owner: str
    owner_kind: str
    revision: str = ""

    def records(self) -> Iterator[tuple[str, Detail]]:
        """CreatePod."""
        yield "CreatePod", {"node": self.node, "owner": self.owner, "revision": self.revision}


class BindPod(RecordEvent, frozen=True, kw_only=True, gc=False):
    """The scheduler's Event of a pod that had to wait, and is bound to a node."""

    node: str


Templated = (
    workload.ReplicaSet | workload.StatefulSet | workload.ReplicationController | workload.DaemonSet
)
"""What makes pods from a template that a play reads."""

_HASH_LABELS = (LABEL_POD_TEMPLATE_HASH, wellknown.LABEL_CONTROLLER_REVISION_HASH)


def creation(pod: Pod, because: str, cause: Action | None = None) -> MakePod:
    """The cluster creates that pod."""
    meta = pod.metadata
    owner, labels = controller_of(meta), meta.labels or {}
    return MakePod(
        controller=CLUSTER,
        because=because,
        cause=cause,
        **of_pod(pod),
        node=pod.spec.node_name,
        owner=owner.name if owner is not None else "",
        owner_kind=owner.kind if owner is not None else "",
        revision=next((labels[key] for key in _HASH_LABELS if key in labels), ""),
    )


def deletion(
    pod: Pod, because: str, cause: Action | None, grace_period_seconds: int | None = None
) -> DeletePod:
    """The cluster deletes a pod; with a grace period of 0 its kubelet has stopped it."""
    return DeletePod(
        controller=CLUSTER,
        because=because,
        cause=cause,
        **of_pod(pod),
        grace_period_seconds=grace_period_seconds,
    )


def event_record(
    obj: KubeObject | tuple[str, str, str],
    reason: str,
    because: str,
    *,
    cause: Action | None = None,
    warning: bool = False,
) -> RecordEvent:
    """A record for which the contract has no other kind, as an Event on `obj`.

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


TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class DefaultTolerationSeconds(msgspec.Struct, frozen=True):
    """The admission plugin of that name, with the values of kube-apiserver's two flags in seconds.

    Follows plugin/pkg/admission/defaulttolerationseconds: a pod that is created or updated, its
    status aside, gets a toleration with these seconds of each of the two taints without one.
    """

    not_ready_seconds: int = 300
    unreachable_seconds: int = 300

    def admit(self, pod: Pod) -> Pod:
        """The pod with the tolerations that it lacks; the same object where it lacks none."""
        given = pod.spec.tolerations
        tolerations = default_tolerations(
            given,
            not_ready_seconds=self.not_ready_seconds,
            unreachable_seconds=self.unreachable_seconds,
        )
        if len(tolerations) == len(given):
            return pod
        return replace(pod, spec=replace(pod.spec, tolerations=tolerations))

    def unstamped(self, pod: Pod, template: Mapping[str, Any]) -> Pod:
        """The pod without the plugin's tolerations; the same object where it has none of them.

        `template`: its owner's, with the tolerations asked for; where it was not read, those with
        exactly the plugin's seconds count as the plugin's.
        """
        given = pod.spec.tolerations
        asked = _asked_for(template)
        own = tuple(t for t in given if not self._is_stamp(t, asked))
        if len(own) == len(given):
            return pod
        return replace(pod, spec=replace(pod.spec, tolerations=own))

    def _is_stamp(self, toleration: Toleration, asked: frozenset[str] | None) -> bool:
        if asked is not None and toleration.key in asked:
            return False
        seconds = {
            wellknown.TAINT_NODE_NOT_READY: self.not_ready_seconds,
            wellknown.TAINT_NODE_UNREACHABLE: self.unreachable_seconds,
        }.get(toleration.key)
        return (
            seconds is not None
            and (asked is not None or toleration.toleration_seconds == seconds)
            and toleration.toleration_seconds is not None
            and toleration.operator == "Exists"
            and toleration.effect == wellknown.NO_EXECUTE
        )


def template_of(owner: KubeObject | None) -> Mapping[str, Any]:
    """The template that the owner makes its pods from; empty where that was not read."""
    return owner.spec.template if isinstance(owner, Templated) else {}


def _asked_for(template: Mapping[str, Any]) -> frozenset[str] | None:
    """The keys of the tolerations that a template asks for; None where there is no template."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return None
    tolerations = spec.get("tolerations") or ()
    return frozenset(t.get("key", "") for t in tolerations if isinstance(t, dict))


def as_created(obj: Object) -> Object:
    """The object as a POST leaves it; one that has a generation already was created before."""
    if isinstance(obj, Pod) and not obj.status.phase:
        return cast(Object, replace(obj, status=replace(obj.status, phase="Pending")))
    if not isinstance(obj, workload.DaemonSet):
        return obj
    obj = cast(Object, replace(obj, spec=workload.default_daemon_set_spec(obj.spec)))
    if obj.metadata.generation:
        return obj
    annotations = {TEMPLATE_GENERATION: "1", **(obj.metadata.annotations or {})}
    return replace(obj, metadata=replace(obj.metadata, generation=1, annotations=annotations))


def as_updated(old: KubeObject, new: KubeObject) -> KubeObject:
    """The object as a PATCH leaves it: a changed spec or template is a new generation. A template
    of a cluster that was read has the defaults of every pod spec, one of a scenario may lack them.
    """
    if not isinstance(old, workload.DaemonSet) or not isinstance(new, workload.DaemonSet):
        return new
    new = replace(new, spec=workload.default_daemon_set_spec(new.spec))
    meta = replace(new.metadata, generation=old.metadata.generation)
    stored, was = (workload.default_pod_template(obj.spec.template) for obj in (new, old))
    if stored != was or replace(new.spec, template=old.spec.template) != old.spec:
        meta = replace(meta, generation=meta.generation + 1)
    if stored != was:
        number = int((old.metadata.annotations or {}).get(TEMPLATE_GENERATION, "0") or 0)
        annotations = {**(meta.annotations or {}), TEMPLATE_GENERATION: str(number + 1)}
        meta = replace(meta, annotations=annotations)
    return replace(new, metadata=meta)


def refusal(obj: KubeObject) -> str:
    """Why the API server would reject the object, "" if it would not.

    Checks only what would make a controller loop, and what no daemon pod may have. Follows
    `ValidateDaemonSetSpec`.
    """
    if not isinstance(obj, workload.DaemonSet):
        return ""
    meta = obj.spec.template.get("metadata")
    labels = meta.get("labels") if isinstance(meta, dict) else None
    if not isinstance(labels, dict) or not matches(obj.spec.selector, labels):
        return "spec.selector does not match the labels of spec.template"
    spec = obj.spec.template.get("spec")
    policy = spec.get("restartPolicy") if isinstance(spec, dict) else None
    if policy not in (None, "", "Always"):
        return (
            f'spec.template.spec.restartPolicy: Unsupported value: "{policy}":'
            ' supported values: "Always"'
        )
    return ""
