"""Steps of conversations: the uid check, a write with its lost answer, and whole values as JSON.

A write whose answer did not come, or came as a 5xx, may have been done all the same: the object is
read before anything else is decided, and what is found done counts as done.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Any

from msgspec.structs import FieldInfo, fields

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.calls.call import (
    CONFLICT,
    NOT_FOUND,
    OK,
    Answer,
    Body,
    Call,
    Get,
    Precondition,
    Result,
    Uid,
    Version,
    Write,
)
from kubectl_nodelife.kube.encode import encode
from kubectl_nodelife.kube.meta import ApiStruct, KubeObject

Conversation = Generator[Call, Answer, Result]
"""Yields calls and is sent the answer to each; a WaitUntil is answered with the time."""

UNCHANGED = Result(OK)


def failed(answer: Answer, fresh: KubeObject | None = None) -> Result:
    """The end that an answer means which is no success."""
    return Result(answer.code, answer.message, answer.reason, fresh=fresh)


def is_another(action: Action, obj: KubeObject) -> bool:
    """True if the object is not the one that was decided upon."""
    return bool(action.uid and obj.uid and action.uid != obj.uid)


def another(action: Action) -> Result:
    """The end where another object has the name now: the one that was meant is gone."""
    kind, key = action.target
    where = "/".join(part for part in key if part)
    return Result(NOT_FOUND, f"{kind} {where} is another object now", "NotFound")


def same(action: Action, seen: KubeObject | None) -> tuple[Precondition, ...]:
    """The object is the one decided upon."""
    uid = action.uid or (seen.uid if seen is not None else "")
    return (Uid(uid),) if uid else ()


def as_seen(action: Action, seen: KubeObject | None) -> tuple[Precondition, ...]:
    """The object is the one decided upon, and has not changed since."""
    return (*same(action, seen), *unchanged(seen))


def unchanged(seen: KubeObject | None) -> tuple[Precondition, ...]:
    """The object has not changed since it was seen."""
    version = seen.metadata.resource_version if seen is not None else ""
    return (Version(version),) if version else ()


def read(action: Action, *, quorum: bool) -> Generator[Call, Answer, Answer | Result]:
    """The action's object as the API server has it; a Result where it is gone or unreadable."""
    kind, key = action.target
    answer = yield Get(kind, key, quorum)
    if not answer.ok or answer.obj is None:
        return failed(answer)
    return another(action) if is_another(action, answer.obj) else answer


def write(action: Action, call: Write) -> Conversation:
    """Make the call once. After an answer that proves nothing the object is read."""
    answer = yield call
    if answer.ok:
        return Result(answer.code, changed=True, fresh=answer.obj)
    if not answer.is_ambiguous:
        return failed(answer)
    found = yield Get(*action.target)
    replaced = found.obj is not None and is_another(action, found.obj)
    if found.code == NOT_FOUND or replaced:
        gone = action.effect(found.obj, found.now_ns) is None
        end = another(action) if replaced else failed(found)
        return Result(OK, changed=True) if gone else end
    if found.obj is None:
        return failed(answer)
    done = is_done(action, found.obj, found.now_ns)
    return Result(OK, changed=True, fresh=found.obj) if done else failed(answer, found.obj)


def is_done(action: Action, obj: KubeObject, now_ns: int) -> bool:
    """True if the object is as the action would leave it."""
    return action.effect(obj, now_ns) is obj or action.shown_by(obj)


def conflict(message: str, fresh: KubeObject | None = None) -> Result:
    """The end where the object is no longer what the decision was taken on."""
    return Result(CONFLICT, message, "Conflict", fresh=fresh)


def whole(value: ApiStruct) -> Body:
    """A part of an object with each of its fields, null and empty ones too.

    A strategic merge keeps what a patch does not name; this replaces what was there.
    """
    encoded = encode(value)
    full: Body = {}
    for field in _fields(type(value)):
        empty: Any = None if field.default is None else getattr(value, field.name)
        full[field.encode_name] = encoded.get(field.encode_name, empty)
    return full


@cache
def _fields(type_: type[ApiStruct]) -> tuple[FieldInfo, ...]:
    """msgspec works them out anew each time, from the annotations."""
    return fields(type_)
