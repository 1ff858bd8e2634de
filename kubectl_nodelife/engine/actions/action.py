"""The common part of all actions: which controller, why, what led to it, on which object, and the
number by which it is known while it is on its way.

There is a class for each API call and for each recorded decision. Each knows the words of its
records (contract: one record a condition, a taint, a label), why it was taken (`because`), the
action that led to it (`cause`), and, where it writes, its `effect` on the object: the simulated
world, the dry-run overlay and the check "does the cluster show it already" all use that function.

`writes` distinguishes a call to the API server from a decision that only concerns ourselves.

`created_object` is what the API server fills into an object that an action creates.

Here are also the decisions that change no object: a zone's state, a node's place in a queue, a
pod's eviction timer, and the Event by which a controller informs people of what it does. They are
recorded like writes, since all that is written later follows from them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from functools import cache
from typing import Any, ClassVar, TypedDict, final

import msgspec
from msgspec.structs import force_setattr, replace

from kubectl_nodelife.kube.codec import convert
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, NodeCondition, Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import whole_seconds

Detail = dict[str, Any]


def condition_detail(condition: NodeCondition | PodCondition) -> Detail:
    """The detail of a record about a condition."""
    c = condition
    detail: Detail = {"type": c.type, "status": c.status, "reason": c.reason}
    return {**detail, "message": c.message} if c.message else detail


@final
class Requeue(msgspec.Struct, frozen=True, gc=False):
    """Wake this controller for `key` at `at_ns`, strictly in the future.

    A controller that receives a change may also ask for this very instant: it is woken once all
    have received it, before any sees what they write.

    A later one for the same key replaces it. Not a record: waiting leaves no trace.
    """

    controller: str
    key: Hashable
    at_ns: int


class Action(
    msgspec.Struct, frozen=True, kw_only=True, gc=False, eq=False, tag=True, tag_field="action"
):
    """The common part of all actions. `target` is (kind, (namespace, name)) of the object acted on.

    `id`: the number that the engine gives when it yields the decision, unique in a journal's
    life (`identity`); 0 before that. Two actions are equal where they say the same, whatever their
    numbers.
    """

    writes: ClassVar[bool] = True
    replaces: ClassVar[bool] = False
    """True if a plan for the same object takes the place of an earlier one of this kind."""

    takes_time_only: ClassVar[bool] = False
    """True if it neither decides nor writes anything, and says only when what follows is due."""

    deletes: ClassVar[bool] = False
    """True if it asks for the object's deletion: it is done where no such object is there."""

    detail_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that its record shows, where it has one record under the name of its class."""

    controller: str
    because: str
    cause: Action | None = None
    id: int = 0

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        fields = (name for name in self.__struct_fields__ if name != "id")
        return all(getattr(self, name) == getattr(other, name) for name in fields)

    def __hash__(self) -> int:
        return hash((type(self), self.controller, self.because, self.target))

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """(kind, (namespace, name)) of the object that the action is about."""
        raise NotImplementedError

    def causes(self) -> Iterator[Action]:
        """The actions that led to it, the nearest one first."""
        cause = self.cause
        while cause is not None:
            yield cause
            cause = cause.cause

    @property
    def uid(self) -> str:
        """uid of the object as decided upon, "" where it is not known or does not matter."""
        return ""

    @property
    def word(self) -> str:
        """What it is called, in records and messages."""
        return type(self).__name__

    def records(self) -> Iterator[tuple[str, Detail]]:
        """(action word, detail) of each record, in order, as the Timeline contract names them."""
        yield self.word, {camel_case(name): getattr(self, name) for name in self.detail_fields}

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        """The object after the action, None for "gone"; the same object where nothing changes."""
        return obj

    def shown_by(self, obj: KubeObject) -> bool:
        """True if the object, as the cluster shows it, has this change already, whatever made it.

        Instants do not count: another writer stamps its own.
        """
        return self.effect(obj, 0) is obj


class ActionNumbers:
    """Counts from `next_id` on, so that a caller that keeps it never gives a number twice."""

    def __init__(self, next_id: int = 1) -> None:
        self.next_id = next_id

    def give(self, action: Action) -> Action:
        """The action with a new number: itself, or a copy where it has one already."""
        if action.id:
            action = replace(action)
        force_setattr(action, "id", self.next_id)
        self.next_id += 1
        return action

    def give_all(self, actions: list[Action]) -> None:
        """The same for a list, in its order; a copy takes the place of its action."""
        number = self.next_id
        for i, action in enumerate(actions):
            if action.id:
                actions[i] = action = replace(action)
            force_setattr(action, "id", number)
            number += 1
        self.next_id = number

    def ensure(self, action: Action) -> None:
        """Number the action unless it has been."""
        if not action.id:
            self.give(action)


class NodeAction(Action, frozen=True, kw_only=True, gc=False):
    """An action on a node."""

    node: str
    node_uid: str = ""

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """("Node", ("", name))"""
        return ("Node", ("", self.node))

    @property
    def uid(self) -> str:
        """The node's uid."""
        return self.node_uid

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        return self.node_after(obj) if isinstance(obj, Node) else obj

    def node_after(self, node: Node) -> Node:
        """The node after the action; the same object where nothing changes."""
        return node


class PodAction(Action, frozen=True, kw_only=True, gc=False):
    """An action on a pod.

    `if_node_gone` names a node that must not exist, `if_node_out_of_service` one that must be
    marked so and not Ready: before it writes, a live executor asks the API server for that node,
    and answers 409 where it is otherwise.
    """

    namespace: str
    pod: str
    pod_uid: str = ""
    if_node_gone: str = ""
    if_node_out_of_service: str = ""

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """("Pod", (namespace, name))"""
        return ("Pod", (self.namespace, self.pod))

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.pod_uid

    def effect(self, obj: KubeObject | None, now_ns: int) -> KubeObject | None:
        return self.pod_after(obj, now_ns) if isinstance(obj, Pod) else obj

    def pod_after(self, pod: Pod, now_ns: int) -> KubeObject | None:
        """The pod after the action, None for "gone"; the same object where nothing changes."""
        return pod


class ObjectAction(Action, frozen=True, kw_only=True, gc=False):
    """An action on an object of any kind."""

    kind: str
    name: str
    namespace: str = ""
    object_uid: str = ""

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """(kind, (namespace, name))"""
        return (self.kind, (self.namespace, self.name))

    @property
    def uid(self) -> str:
        """The object's uid."""
        return self.object_uid


class OriginFields(TypedDict):
    """Whose an action is, and why."""

    controller: str
    because: str
    cause: Action | None


class PodFields(TypedDict):
    """Which pod an action is on."""

    namespace: str
    pod: str
    pod_uid: str


class NodeFields(TypedDict):
    """Which node an action is on."""

    node: str
    node_uid: str


class ObjectFields(TypedDict):
    """Which object of its kind an action is on."""

    namespace: str
    name: str
    object_uid: str


def of_pod(pod: Pod) -> PodFields:
    """The fields of an action on the pod, as it was when that was decided."""
    meta = pod.metadata
    return {"namespace": meta.namespace, "pod": meta.name, "pod_uid": meta.uid}


def of_node(node: Node) -> NodeFields:
    """The fields of an action on the node."""
    return {"node": node.metadata.name, "node_uid": node.metadata.uid}


def of_object(obj: KubeObject) -> ObjectFields:
    """The fields of an action on the object, but for its kind."""
    meta = obj.metadata
    return {"namespace": meta.namespace, "name": meta.name, "object_uid": meta.uid}


@cache
def camel_case(field: str) -> str:
    """A field's name in the API's spelling; an underscore at the end only avoids a keyword."""
    first, *rest = field.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def created_uid(kind: str, namespace: str, name: str, now_ns: int) -> str:
    """A uid for an object that only we know of, the same in every run."""
    digest = hashlib.sha256(f"{kind}/{namespace}/{name}/{now_ns}".encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def created_object(obj: Any, kind: str, now_ns: int) -> Any:
    """The object with what the API server fills in at creation."""
    meta = obj.metadata
    created = whole_seconds(now_ns)
    uid = meta.uid or created_uid(kind, meta.namespace, meta.name, now_ns)
    return replace(obj, metadata=replace(meta, uid=uid, creation_timestamp=created))


def created_pod(manifest: dict[str, Any], now_ns: int) -> Pod:
    """The pod of a manifest as it is shown right after its creation: Pending."""
    pod = convert(manifest, Pod, "", "")
    pod = replace(pod, status=replace(pod.status, phase="Pending"))
    created: Pod = created_object(pod, "Pod", now_ns)
    return created


class SetZoneState(Action, frozen=True, kw_only=True, gc=False):
    """A zone's state and with it the rate at which its nodes are tainted, in nodes a second.

    `not_ready`, `nodes`: how many of the zone's nodes were not ready, and how many it had.
    """

    detail_fields: ClassVar[tuple[str, ...]] = ("zone", "from_", "to", "rate")

    writes: ClassVar[bool] = False

    zone: str
    from_: str
    to: str
    rate: float
    not_ready: int = 0
    nodes: int = 0

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """("Zone", ("", zone key))"""
        return ("Zone", ("", self.zone))


class _Pause(Action, frozen=True, kw_only=True, gc=False):
    """What takes time only. Not a record: waiting leaves no trace."""

    writes: ClassVar[bool] = False
    takes_time_only: ClassVar[bool] = True

    because: str = ""

    @property
    def target(self) -> tuple[str, tuple[str, str]]:
        """Nothing in the cluster."""
        return ("", ("", ""))

    def records(self) -> Iterator[tuple[str, Detail]]:
        """None."""
        yield from ()


class ReadLeases(_Pause, frozen=True, kw_only=True, gc=False):
    """So many Leases are read from the API server before what follows in the same part of a turn.

    Where requests take time it is spent; what they show was read when it was decided.
    """

    count: int = 1


class AfterWrites(_Pause, frozen=True, kw_only=True, gc=False):
    """Wake this controller for `key` once all that was decided before it in the same part of a turn
    has been carried out, whatever came of it.

    Where writes take time, as behind a client's rate limiter, the executor says when that is
    (`events.WritesDone`). Where nothing is sent they count as done at once.
    """

    key: tuple[str, str]


class QueueNode(NodeAction, frozen=True, kw_only=True, gc=False):
    """A node waits in its zone's queue for a NoExecute taint.

    In classic mode it waits for the eviction of its pods.
    """

    detail_fields: ClassVar[tuple[str, ...]] = ("zone",)

    writes: ClassVar[bool] = False

    zone: str


class UnqueueNode(NodeAction, frozen=True, kw_only=True, gc=False):
    """A node that waited no longer does, without having been tainted."""

    detail_fields: ClassVar[tuple[str, ...]] = ("zone",)

    writes: ClassVar[bool] = False

    zone: str


class ScheduleEviction(PodAction, frozen=True, kw_only=True, gc=False):
    """A pod will be deleted at `due_ns`, after `toleration_seconds` under the taints (0: now)."""

    writes: ClassVar[bool] = False

    due_ns: int
    toleration_seconds: int
    taints: tuple[Taint, ...] = ()

    def records(self) -> Iterator[tuple[str, Detail]]:
        """ScheduleEviction; `due` is made relative where the record is written."""
        yield (
            "ScheduleEviction",
            {"due_ns": self.due_ns, "tolerationSeconds": self.toleration_seconds},
        )


class CancelEviction(PodAction, frozen=True, kw_only=True, gc=False):
    """A scheduled eviction will not happen; `due_ns` is when it would have."""

    writes: ClassVar[bool] = False

    due_ns: int

    def records(self) -> Iterator[tuple[str, Detail]]:
        yield "CancelEviction", {"due_ns": self.due_ns}


class RecordEvent(ObjectAction, frozen=True, kw_only=True, gc=False):
    """An Event on an object. It never changes what a controller reads."""

    type: str = "Normal"
    reason: str
    message: str = ""

    def records(self) -> Iterator[tuple[str, Detail]]:
        detail: Detail = {"type": self.type, "reason": self.reason}
        if self.message:
            detail["message"] = self.message
        yield "RecordEvent", detail
