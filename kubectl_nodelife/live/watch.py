"""Watch streams: bytes in, events out. The holder of the connection feeds it; tests feed it
text.

A stream is one JSON object a line, {"type", "object"}. ADDED, MODIFIED and DELETED carry an object,
BOOKMARK only a resource version (and, at the end of a WatchList's first part, the word that it was
the end), ERROR a Status. An object that cannot be read comes out as `Unreadable`, if it shows its
name; an event that shows none is passed over and counted. What is left of a line when the
connection ends is torn and dropped: the next watch begins at the last version that came whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from kubectl_nodelife.kube.decode import UNDECODABLE, decode_hook, decode_json
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.kinds import kind_of_type
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import (
    Unreadable,
    identify,
    object_members,
    reason,
    text_member,
    version_of,
)
from kubectl_nodelife.kube.value_checks import CHECKS, as_unreadable, unfit
from kubectl_nodelife.live.client import ApiError, Status, api_error

MOST_LINE_BYTES = 32 << 20
"""For one event. An object of etcd has 1.5 MiB by default."""

_SHARE_OF_AN_ANSWER = 16

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

T = TypeVar("T", bound=KubeObject)


def most_line_bytes(max_response_bytes: int) -> int:
    """The longest event where an answer may take that much: --max-response-size raises both."""
    return max(MOST_LINE_BYTES, max_response_bytes // _SHARE_OF_AN_ANSWER)


class WatchEvent(msgspec.Struct, Generic[T], gc=False):
    """One line of a stream."""

    type: str
    object: T


class _Typed(msgspec.Struct):
    type: str
    object: msgspec.Raw


class MalformedLine(Exception):
    """A whole line that is no watch event; the connection is of no more use."""


class WatchStream(Generic[T]):
    """Parses one stream of one kind.

    `resource_version` is the newest one seen, from an object or a bookmark: where to go on.
    `initial_events_ended` turns true when a WatchList's first part is complete. `nameless`: so many
    events could not be read and had no name, the last of them `nameless_because`;
    `nameless_initially`: so many of them in that first part. `most_bytes`: the longest line that is
    taken.
    """

    def __init__(
        self, type_: type[T], resource_version: str = "", most_bytes: int = MOST_LINE_BYTES
    ) -> None:
        self.resource_version = resource_version
        self.initial_events_ended = False
        self.nameless = self.nameless_initially = 0
        self.nameless_because = ""
        self._decode: Callable[[bytes], WatchEvent[T]] = msgspec.json.Decoder(
            WatchEvent[type_],  # type: ignore[valid-type]
            dec_hook=decode_hook(type_),
        ).decode
        self._type = type_
        self._most_bytes = most_bytes
        self._torn: list[bytes] = []
        self._torn_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[WatchEvent[Any]]:
        """The events completed by this piece of the stream; bookmarks are kept to ourselves.

        Raises ApiError for an ERROR event (a 410 says `gone`), MalformedLine for what is no event.
        """
        decode, check = self._decode, CHECKS.get(self._type)
        for line in self._lines(chunk):
            if not line or line.isspace():
                continue
            try:
                event = decode(line)
            except UNDECODABLE as error:
                found = self._decode_slowly(line, error)
                if found is None:
                    continue
                event = found
                if isinstance(found.object, Unreadable):
                    self.resource_version = found.object.resource_version or self.resource_version
                    yield found
                    continue
            type_, obj = event.type, event.object
            if type_ == "ERROR":
                raise _error_in(line, None)
            if version := obj.metadata.resource_version:
                self.resource_version = version
            if type_ != "BOOKMARK":
                if check is not None:
                    try:
                        check(obj)
                    except Exception:  # the slow way says why
                        yield WatchEvent(type_, as_unreadable(obj, unfit(obj)))
                        continue
                yield event
            elif (event.object.metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true":
                self.initial_events_ended = True
                self.nameless_initially = self.nameless

    def _lines(self, chunk: bytes) -> list[bytes]:
        """The lines that this piece completes. Raises MalformedLine for one without an end."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines:
            lines[0] = b"".join([*self._torn, lines[0]])
            self._torn, self._torn_bytes = [], 0
        if rest:
            self._torn.append(rest)
            self._torn_bytes += len(rest)
        longest = max(self._torn_bytes, len(lines[0]) if lines else 0)
        if longest > self._most_bytes:
            what = f"one event is longer than {self._most_bytes >> 20} MiB"
            raise MalformedLine(f"{what}: --max-response-size would raise that")
        return lines

    def _decode_slowly(self, line: bytes, error: Exception) -> WatchEvent[Any] | None:
        """A line that is no plain event: an error, an object in which the API is lenient, or one
        that cannot be read; None where it does not even show its name.
        """
        try:
            typed = msgspec.json.decode(line, type=_Typed)
            if typed.type in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
                return WatchEvent(typed.type, decode_json(self._type, typed.object))
        except InputError as fault:
            error = fault
        except UNDECODABLE:
            pass
        return self._unreadable(line, error)

    def _unreadable(self, line: bytes, error: Exception) -> WatchEvent[Any] | None:
        """An event of an object that shows no more than its name, None where not even that.

        Raises ApiError, MalformedLine.
        """
        type_ = text_member(line, b"type")
        if type_ in ("ADDED", "MODIFIED", "DELETED"):
            document = dict(object_members(line)).get(b"object", b"")
            found = identify(kind_of_type(self._type), document, error)
            if found is not None:
                return WatchEvent(type_, found)
            self.nameless += 1
            self.nameless_because = reason(error)
            self.resource_version = version_of(document) or self.resource_version
            return None
        raise _error_in(line, error) from None

    @property
    def torn(self) -> bool:
        """True if part of a line has come whose end has not."""
        return any(part.strip() for part in self._torn)


def _error_in(line: bytes, cause: Exception | None) -> ApiError | MalformedLine:
    try:
        typed = msgspec.json.decode(line, type=_Typed)
        if typed.type == "ERROR":
            status = msgspec.json.decode(typed.object, type=Status)
            return api_error(status.code or 500, bytes(typed.object))
    except UNDECODABLE:
        pass
    return MalformedLine(
        f"a line that is no event ({reason(cause or 'an ERROR without a Status')})"
    )
