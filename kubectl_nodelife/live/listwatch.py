"""Lists, page by page as of one version, and watch streams: bytes in, events out. The holder of the
connection feeds a stream; tests feed it text. Several kinds are listed at once for a look at a
cluster, and for a daemon's answer those that it does not watch (`list_once`).

A stream is one JSON object a line, {"type", "object"}. ADDED, MODIFIED and DELETED carry an object,
BOOKMARK only a resource version (and, at the end of a WatchList's first part, the word that it was
the end), ERROR a Status. An object that cannot be read comes out as `Unreadable`, if it shows its
name; an event that shows none is passed over and counted. What is left of a line when the
connection ends is torn and dropped: the next watch begins at the last version that came whole.
"""

from __future__ import annotations

import asyncio
from asyncio import gather
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.codec import (
    CHECKS,
    UNDECODABLE,
    as_unreadable,
    decode_hook,
    decode_json,
    sift,
    unfit,
)
from kubectl_nodelife.kube.kinds import OPTIONAL_KINDS, Kind, kind_named, kind_of_type
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import (
    NAMELESS,
    InputError,
    Unreadable,
    identify,
    object_members,
    reason,
    split_list,
    text_member,
    version_of,
)
from kubectl_nodelife.live.client import ApiError, Client, Status, api_error
from kubectl_nodelife.live.requests import PAGE_SIZE, Resource, list_url, resource_of

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
                decoded = self._decode_slowly(line, error)
                if decoded is None:
                    continue
                event = decoded
                if isinstance(decoded.object, Unreadable):
                    self.resource_version = decoded.object.resource_version or self.resource_version
                    yield decoded
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
            unreadable = identify(kind_of_type(self._type), document, error)
            if unreadable is not None:
                return WatchEvent(type_, unreadable)
            self.nameless += 1
            self.nameless_because = reason(error)
            self.resource_version = version_of(document) or self.resource_version
            return None
        raise _error_in(line, error) from None


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


_FORBIDDEN: Final = 403
_NOT_SERVED: Final = 404


class Listing(NamedTuple):
    """All objects of a kind, the version from which a watch goes on, and what cannot be read."""

    objects: list[KubeObject]
    resource_version: str
    unreadable: list[Unreadable]


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    kind: str = ""
    items: list[T] | None = None
    unreadable: list[Unreadable] = []


class _RawPage(msgspec.Struct):
    metadata: _ListMeta
    kind: str = ""
    items: list[msgspec.Raw] | None = None


async def read_all(client: Client, resource: Resource) -> list[KubeObject]:
    """All objects, as of one version. Raises ApiError, Unreachable, Failed."""
    return (await list_all(client, resource)).objects


async def list_or_refusal(
    client: Client, resource: Resource, on_page: Callable[[list[KubeObject]], None] | None = None
) -> Listing | ApiError:
    """As `list_all`; nothing of a kind that the server does not serve, and the error (403) where it
    may not be listed. Raises ApiError for any other, Unreachable, Failed.
    """
    try:
        return await list_all(client, resource, on_page=on_page)
    except ApiError as error:
        if error.code == _NOT_SERVED:
            return Listing([], "", [])
        if error.code == _FORBIDDEN:
            return error
        raise


class _ApiResource(msgspec.Struct):
    name: str = ""


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource] = []


async def served(client: Client, kinds: Sequence[str]) -> list[str]:
    """The kinds without those behind feature gates that the API server does not serve. Asked of
    its discovery, which everybody may read: a list of what is not served is forbidden (403) to
    who has no right to it. Raises Unreachable.
    """
    gated = {kind: kind_named(kind) for kind in kinds if kind in OPTIONAL_KINDS}
    versions = list({kind.api_version for kind in gated.values()})
    plurals = await gather(*(_served_in(client, version) for version in versions))
    names = dict(zip(versions, plurals, strict=True))
    absent = {kind for kind, of_it in gated.items() if of_it.plural not in names[of_it.api_version]}
    return [kind for kind in kinds if kind not in absent]


async def _served_in(client: Client, version: str) -> set[str]:
    try:
        served = msgspec.json.decode(await client.read(f"/apis/{version}"), type=_ApiResourceList)
    except (ApiError, msgspec.MsgspecError):
        return set()
    return {resource.name for resource in served.resources}


async def read_leases(client: Client) -> list[KubeObject]:
    """The Leases of all nodes, of a list of its own. Raises ApiError, Unreachable, Failed."""
    return (await list_all(client, resource_of("Lease"), retry=False)).objects


async def list_all(
    client: Client,
    resource: Resource,
    *,
    limit: int = PAGE_SIZE,
    on_page: Callable[[list[KubeObject]], None] | None = None,
    retry: bool = True,
) -> Listing:
    """A consistent list in pages of `limit`. Raises ApiError, Unreachable, Failed.

    Where the list's token expires on the way it is asked for once more, in one piece. `on_page`
    is called with each page's objects; after such an expiry it is called with all once more.
    `retry` is `Client.read`'s.
    """
    try:
        return await _pages(client, resource, limit, on_page, retry)
    except ApiError as error:
        if not error.gone:
            raise
        return await _pages(client, resource, 0, on_page, retry)


async def _pages(
    client: Client,
    resource: Resource,
    limit: int,
    on_page: Callable[[list[KubeObject]], None] | None,
    retry: bool,
) -> Listing:
    type_ = resource.kind.type
    decoder: msgspec.json.Decoder[_Page[KubeObject]] = msgspec.json.Decoder(
        _Page[type_],  # type: ignore[valid-type]
        dec_hook=decode_hook(type_),
    )
    objects: list[KubeObject] = []
    tokens: set[str] = set()
    unreadable: list[Unreadable] = []
    url = list_url(resource, limit=limit)
    while True:
        body = await client.read(url, retry=retry)
        try:
            page = decoder.decode(body)
        except UNDECODABLE:
            page = _read_slowly(body, resource)
        if page.kind not in (f"{resource.kind.name}List", "List"):  # servers that aggregate: List
            what = page.kind[:40] or "JSON without a kind"
            raise Failed(f"a list is answered by {what}, not by the API server", on=str(resource))
        items, unfit = sift(page.items or [])
        objects += items
        unreadable += [*page.unreadable, *unfit]
        if on_page is not None:
            on_page(items)
        token = page.metadata.continue_
        if not token:
            return Listing(objects, page.metadata.resource_version, unreadable)
        if not (page.items or page.unreadable) or token in tokens:
            raise Failed("the server's list has no end", on=str(resource))
        tokens.add(token)
        url = list_url(resource, limit=limit, continue_=token)


def _read_slowly(body: bytes, resource: Resource) -> _Page[KubeObject]:
    """A page with objects that are not as strict as the fast way wants them. Raises Failed.

    One that cannot be read at all is set aside, even if it shows no name.
    """
    try:
        page, items = _split(body)
        read = [_read_item(resource.kind, item) for item in items]
    except (*UNDECODABLE, InputError) as error:
        raise Failed(f"the server's list cannot be decoded: {error}", on=str(resource)) from None
    objects = [obj for obj in read if not isinstance(obj, Unreadable)]
    aside = [one for one in read if isinstance(one, Unreadable)]
    return _Page(page.metadata, page.kind, objects, aside)


def _split(body: bytes) -> tuple[_RawPage, Iterable[bytes]]:
    """A page and its items undecoded. Raises one of UNDECODABLE."""
    try:
        page = msgspec.json.decode(body, type=_RawPage)
    except UNDECODABLE:  # an item that is not even JSON, or nested too deeply to be passed over
        split = split_list(body)
        return msgspec.json.decode(split.skeleton, type=_RawPage), split.items
    return page, map(bytes, page.items or ())


def _read_item(kind: Kind, item: bytes) -> KubeObject | Unreadable:
    """One item of a page."""
    try:
        return decode_json(kind.type, item)
    except InputError as error:
        return identify(kind, item, error) or Unreadable(kind.name, NAMELESS, reason(error))


class ListedOnce(NamedTuple):
    """The objects of these kinds. `unread`: kinds that may not be listed, and what the server says;
    `unreadable`: objects that cannot be decoded.
    """

    objects: list[KubeObject]
    unread: dict[str, str]
    unreadable: list[Unreadable]


async def list_once(
    client: Client,
    kinds: Sequence[str],
    fields: Mapping[str, str] = MappingProxyType({}),
    namespace: str = "",
    progress: Callable[[int], None] | None = None,
) -> ListedOnce:
    """All objects of these kinds, or those that `fields` selects (kind -> field selector), none of
    those that are not served; those with a namespace of that one, "" for all. `progress` receives
    how many came with each page. Raises ApiError, Failed, Unreachable.
    """
    kinds = await served(client, kinds)
    of = [resource_of(kind, namespace)._replace(fields=fields.get(kind, "")) for kind in kinds]
    on_page = None if progress is None else lambda page: progress(len(page))
    listed = await asyncio.gather(*(list_or_refusal(client, each, on_page) for each in of))
    listings = [each for each in listed if isinstance(each, Listing)]
    return ListedOnce(
        [obj for each in listings for obj in each.objects],
        {k: each.what for k, each in zip(kinds, listed, strict=True) if isinstance(each, ApiError)},
        [one for each in listings for one in each.unreadable],
    )
