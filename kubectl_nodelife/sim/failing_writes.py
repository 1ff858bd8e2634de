"""Writes that the API server fails, as a scenario lists them: `failingWrites`.

Each entry selects writes by controller, verb, kind and name, and gives the answer, how often and
when. The verb is that of the request which a live run would send. Random draws depend on the seed
and the number of the write, so that equal runs fail at equal writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import msgspec

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.calls.conversations import request_of
from kubectl_nodelife.engine.events import NO_ANSWER
from kubectl_nodelife.kube.kinds import find_resource, kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.sim.fields import (
    FieldPath,
    Fields,
    count,
    describe,
    duration_ns,
    given,
    items,
    mapping,
    nearest,
    one_of,
    text,
)

VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
LOST: Final = "lost"
UNREACHABLE: Final = "unreachable"
CODES: Final = (403, 404, 409, 422, 429, 500, 502, 503, 504)
EVICTION: Final = "Eviction"

_LARGEST_SEED = (1 << 48) - 1
_MOST_TIMES = 1_000_000


class FailingWrite(msgspec.Struct, frozen=True):
    """The writes that fail; "" is any. `applied`: the server applied it and the answer was lost.

    `times`: how many fail, None: all; `probability`: of each. From `from_ns` after the start on,
    before `until_ns`.
    """

    controller: str = ""
    verb: str = ""
    kind: str = ""
    name: str = ""
    code: int = 500
    message: str = ""
    applied: bool = False
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    from_ns: int = 0
    until_ns: int | None = None


class InjectedFault(msgspec.Struct, frozen=True):
    """The failure of one call: the code of the answer, whether the server still applied the call
    (the answer was lost), and how much later the answer comes.
    """

    code: int
    message: str = ""
    applied: bool = False
    delay_ns: int = 0


class FailingWrites:
    """The entries of one run, with how often each has hit."""

    def __init__(self, entries: Sequence[FailingWrite], start_ns: int) -> None:
        self._entries = tuple(entries)
        self._start_ns = start_ns
        self._seen = [0] * len(self._entries)
        self._hits = [0] * len(self._entries)

    def fork(self) -> FailingWrites:
        """A copy with the same counts."""
        other = copy(self)
        other._seen, other._hits = list(self._seen), list(self._hits)
        return other

    def fault(self, action: Action, seen: KubeObject | None, now_ns: int) -> InjectedFault | None:
        """The failure of a write of an object, stored as `seen`; None where it succeeds."""
        verb, kind = _verb_and_kind(action, seen, now_ns)
        for i, entry in enumerate(self._entries):
            if self._hits_now(i, entry, now_ns) and _names(entry, action, verb, kind):
                self._seen[i] += 1
                if _draw(entry.seed, self._seen[i]) < entry.probability:
                    self._hits[i] += 1
                    message = entry.message or _message(entry.code, verb, action)
                    return InjectedFault(entry.code, message, entry.applied)
        return None

    def _hits_now(self, i: int, entry: FailingWrite, now_ns: int) -> bool:
        at_ns = now_ns - self._start_ns
        if at_ns < entry.from_ns or (entry.until_ns is not None and at_ns >= entry.until_ns):
            return False
        return entry.times is None or self._hits[i] < entry.times


def _names(entry: FailingWrite, action: Action, verb: str, kind: str) -> bool:
    return (
        entry.controller in ("", action.controller)
        and entry.verb in ("", verb)
        and entry.kind in ("", kind)
        and entry.name in ("", action.target[1][1])
    )


def _verb_and_kind(action: Action, seen: KubeObject | None, now_ns: int) -> tuple[str, str]:
    request = request_of(action, seen, now_ns)
    kind = action.target[0]
    if request is None:
        return "patch", kind
    return VERBS[request.method], EVICTION if request.path.endswith("/eviction") else kind


def _draw(seed: int, number: int) -> float:
    """A number from 0 to 1 that depends only on these two."""
    digest = blake2b(f"{seed}/{number}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / (1 << 48)


def _message(code: int, verb: str, action: Action) -> str:
    """The message of a server that answers with that code."""
    kind, (_, name) = action.target
    resource = f'{kind_named(kind).plural} "{name}"'
    modified = "the object has been modified; please apply your changes to the latest version"
    return {
        NO_ANSWER: "the connection to the server was lost",
        403: f"{resource} is forbidden",
        404: f"{resource} not found",
        409: f"{resource} already exists"
        if verb == "create"
        else f"Operation cannot be fulfilled on {resource}: {modified} and try again",
        422: f'{kind} "{name}" is invalid',
        429: "the server has received too many requests and has asked us to try again later",
        500: "Internal error occurred",
        504: "Timeout: request did not complete within the allotted timeout",
    }.get(code, "the server is currently unable to handle the request")


def read_failing_writes(
    value: Any, at: FieldPath, controllers: Sequence[str]
) -> tuple[FailingWrite, ...]:
    """The entries of the field. Raises BadInput."""
    return items(value, at, partial(_read_entry, controllers=controllers))


def _read_entry(value: Any, at: FieldPath, controllers: Sequence[str]) -> FailingWrite:
    fields: Fields = {"controller": ("controller", partial(one_of, words=controllers)), **_FIELDS}
    entry = mapping(value, at, ("code", *fields))
    if "code" not in entry:
        raise at.key("code").fault("the field is missing", "name the answer, such as 409 or lost")
    code, applied = _read_code(entry["code"], at.key("code"))
    return FailingWrite(code=code, applied=applied, **given(entry, at, fields))


def _read_code(value: Any, at: FieldPath) -> tuple[int, bool]:
    """(the code, whether the server applied the write)"""
    if value in (LOST, UNREACHABLE):
        return NO_ANSWER, value == LOST
    if isinstance(value, bool) or value not in CODES:
        codes = ", ".join(map(str, CODES))
        raise at.fault(f"found {describe(value)}", f"give {codes}, {LOST} or {UNREACHABLE}")
    return int(value), False


def _read_kind(value: Any, at: FieldPath) -> str:
    word = text(value, at)
    if word == EVICTION:
        return word
    kind = find_resource(word)
    if kind is None:
        written = ("Node", "Pod", EVICTION, "DaemonSet", "ControllerRevision")
        raise at.fault(f"{word} is not a kind that is simulated", nearest(word, written))
    return kind.name


def _read_probability(value: Any, at: FieldPath) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise at.fault(f"found {describe(value)}", "give a number above 0, at most 1")
    return float(value)


_FIELDS: Final[Fields] = {
    "verb": ("verb", partial(one_of, words=tuple(VERBS.values()))),
    "kind": ("kind", _read_kind),
    "name": ("name", text),
    "message": ("message", text),
    "times": ("times", partial(count, least=1, most=_MOST_TIMES)),
    "probability": ("probability", _read_probability),
    "seed": ("seed", partial(count, most=_LARGEST_SEED)),
    "from": ("from_ns", duration_ns),
    "until": ("until_ns", duration_ns),
}
