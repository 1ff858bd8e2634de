"""How an action is known in every process that decides it, by a key, and how it is kept as data.

A daemon that starts again decides much of what the one before it had decided, with other numbers
and often in other words. The key is made of the controller, the action's class, the object with its
uid, and the data that makes it that action; sentences, messages and instants of writing are left
out. What of the data counts is a row of `_DATA`, in line with what `shown_by` compares.

As data each class stands under its own name, so that a journal can keep actions and a restart read
them. An action is written without the actions that led to it. Instants are written as whole ns,
finer than the API's wire form, so that what is read is what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, reduce
from hashlib import blake2b
from operator import attrgetter, or_
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Taint

_KEY_BYTES: Final = 16

_encode = msgspec.json.Encoder(order="sorted").encode


def action_identity(action: Action) -> str:
    """The key, 32 hexadecimal digits; the same in every process that decides the same action.

    Two that differ only in `because`, `cause`, `id`, a message or an instant have the same key. An
    Event is that of the action which it reports, so there the cause counts.
    """
    data = _row(type(action))(action)
    key = (action.controller, type(action).__name__, action.target, action.uid, data)
    return blake2b(_encode(key), digest_size=_KEY_BYTES).hexdigest()


@cache
def _row(kind: type[Action]) -> Callable[[Any], Any]:
    """The row of the class, or of the nearest one above it. Raises KeyError for a class without."""
    for above in kind.__mro__:
        if above in _DATA:
            return _DATA[above]
    raise KeyError(f"{kind.__name__} has no row in _DATA: what tells two of them apart?")


def _nothing_more(_action: Action) -> None:
    """Class and object say all."""


def _taints(taints: Iterable[Taint]) -> list[tuple[str, str, str]]:
    return sorted((taint.key, taint.value, taint.effect) for taint in taints)


_DATA: Final[dict[type[Action], Callable[[Any], Any]]] = {
    actions.SetNodeConditions: lambda a: sorted((c.type, c.status) for c in a.conditions),
    actions.AddTaints: lambda a: _taints(a.taints),
    actions.RemoveTaints: lambda a: _taints(a.taints),
    actions.SetNodeLabels: attrgetter("labels"),
    actions.SetPodCondition: attrgetter(
        "condition.type", "condition.status", "condition.reason", "phase"
    ),
    actions.MarkPodNotReady: _nothing_more,
    actions.SetPodReason: attrgetter("reason"),
    actions.SetPodPhase: attrgetter("phase"),
    actions.DeletePod: attrgetter("grace_period_seconds", "force"),
    actions.RecordEvent: lambda a: (a.type, a.reason, action_identity(a.cause) if a.cause else ""),
    actions.SetZoneState: attrgetter("from_", "to", "rate"),
    actions.QueueNode: attrgetter("zone"),
    actions.UnqueueNode: attrgetter("zone"),
    actions.AfterWrites: attrgetter("key"),
    actions.ReadLeases: attrgetter("count"),
    actions.ScheduleEviction: attrgetter("due_ns", "toleration_seconds"),
    actions.CancelEviction: attrgetter("due_ns"),
    actions.CreatePod: attrgetter("node", "owner_uid", "revision"),
    actions.SetPodLabel: attrgetter("key", "value"),
    actions.AdoptObject: attrgetter("owner.uid"),
    actions.ReleaseObject: attrgetter("owner_uid"),
    actions.CreateControllerRevision: lambda a: (
        a.revision.revision,
        [owner.uid for owner in a.revision.metadata.owner_references],
    ),
    actions.UpdateControllerRevision: attrgetter("number", "hash_label"),
    actions.DeleteControllerRevision: attrgetter("number"),
    actions.UpdateDaemonSetStatus: attrgetter(
        *(f"status.{count}" for count in actions.STATUS_COUNTS)
    ),
    actions.RaiseCollisionCount: attrgetter("seen"),
    actions.EvictPod: attrgetter("grace_period_seconds"),
    actions.SetUnschedulable: attrgetter("unschedulable"),
    actions.SetPodReady: attrgetter("status"),
    actions.RollBackDaemonSet: attrgetter("revision"),
    actions.FailWithoutMark: _nothing_more,
    actions.NodeMarkPatch: attrgetter("from_", "to", "annotations", "labels"),
    actions.StartWork: attrgetter("try_", "mode"),
    actions.StopWork: attrgetter("try_"),
    actions.WorkDone: attrgetter("try_", "code"),
    actions.ForNode: attrgetter("node"),
    actions.UpdateRun: attrgetter("annotations"),
    actions.SetGate: attrgetter("gate", "holds"),
}
"""The data that distinguishes two actions of a class on one object."""


def _concrete(kind: type[Action]) -> list[type[Action]]:
    """The classes below that have none below them."""
    below = kind.__subclasses__()
    return [class_ for sub in below for class_ in _concrete(sub)] if below else [kind]


ACTION_CLASSES: Final[tuple[type[Action], ...]] = tuple(
    kind for kind in _concrete(Action) if kind.__module__.startswith(f"{__package__}.")
)
"""All that a controller or an order may decide."""


def encode_action(action: Action) -> bytes:
    """The action as JSON, without what led to it."""
    bare = replace(action, cause=None) if action.cause is not None else action
    return _encoder.encode({"action": bare})


def decode_action(data: bytes | str) -> Action:
    """The inverse. Raises msgspec.MsgspecError for what is no action."""
    action: Action = _decoder.decode(data).action
    return action


def _encode_time(value: Any) -> int:
    if isinstance(value, Time):
        return int(value)
    raise NotImplementedError(f"no encoding for {type(value)!r}")


def _decode_time(type_: type, value: Any) -> Any:
    if issubclass(type_, Time) and isinstance(value, int):
        return type_(value)
    raise NotImplementedError(f"no decoding for {type_!r}")


_AnyAction: Any = reduce(or_, ACTION_CLASSES)
_Row: Any = msgspec.defstruct("_Row", [("action", _AnyAction)])
_encoder = msgspec.json.Encoder(enc_hook=_encode_time)
_decoder = msgspec.json.Decoder(_Row, dec_hook=_decode_time)
