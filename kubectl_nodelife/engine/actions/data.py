"""Actions as data: each class under its own name, so that a journal can keep them and a restart
read them.

An action is written without the actions that led to it; of its cause the number is kept. Instants
are written as whole ns, finer than the API's wire form, so that what is read is what was decided.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.meta import Time


def _concrete(kind: type[Action]) -> list[type[Action]]:
    """The classes below that have none below them."""
    below = kind.__subclasses__()
    return [found for sub in below for found in _concrete(sub)] if below else [kind]


ACTION_CLASSES: Final[tuple[type[Action], ...]] = tuple(
    kind for kind in _concrete(Action) if kind.__module__.startswith(f"{__package__}.")
)
"""All that a controller or an order may decide."""


class RecordedAction(msgspec.Struct, frozen=True):
    """An action as a journal keeps it. `action.cause` is None; `cause_id`: its number, 0 for none.

    `decode_action` makes it.
    """

    action: Action
    cause_id: int = 0


def encode_action(action: Action) -> bytes:
    """The action as JSON."""
    cause_id = action.cause.id if action.cause is not None else 0
    bare = replace(action, cause=None) if action.cause is not None else action
    return _encoder.encode({"action": bare, "cause_id": cause_id})


def decode_action(data: bytes | str) -> RecordedAction:
    """The inverse. Raises msgspec.MsgspecError for what is no action."""
    row = _decoder.decode(data)
    return RecordedAction(row.action, row.cause_id)


def _encode_time(value: Any) -> int:
    if isinstance(value, Time):
        return int(value)
    raise NotImplementedError(f"no encoding for {type(value)!r}")


def _decode_time(type_: type, value: Any) -> Any:
    if issubclass(type_, Time) and isinstance(value, int):
        return type_(value)
    raise NotImplementedError(f"no decoding for {type_!r}")


_AnyAction: Any = reduce(or_, ACTION_CLASSES)
_Row: Any = msgspec.defstruct("_Row", [("action", _AnyAction), ("cause_id", int, 0)])
_encoder = msgspec.json.Encoder(enc_hook=_encode_time)
_decoder = msgspec.json.Decoder(_Row, dec_hook=_decode_time)
