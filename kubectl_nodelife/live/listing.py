"""Lists: all objects of one kind, page by page, as of one version."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.decode import UNDECODABLE, decode_hook, decode_json
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.kinds import Kind
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import NAMELESS, Unreadable, identify, reason, split_list
from kubectl_nodelife.kube.value_checks import sift
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.requests import PAGE_SIZE, Resource, list_url, resource_of

T = TypeVar("T", bound=KubeObject)

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


async def read_all(
    client: Client,
    resource: Resource,
    progress: Callable[[int], None] | None = None,
    aside: list[Unreadable] | None = None,
) -> list[KubeObject]:
    """All objects, as of one version. Raises ApiError, Unreachable, Failed.

    `progress` receives how many came with each page; `aside` takes what cannot be read.
    """
    listing = await list_all(
        client, resource, on_page=lambda page: progress(len(page)) if progress else None
    )
    if aside is not None:
        aside += listing.unreadable
    return listing.objects


async def read_or_refusal(
    client: Client,
    resource: Resource,
    progress: Callable[[int], None] | None = None,
    aside: list[Unreadable] | None = None,
) -> list[KubeObject] | ApiError:
    """As `read_all`; none of a kind that the server does not serve, and the error (403) where it
    may not be listed. Raises ApiError for any other, Unreachable, Failed.
    """
    try:
        return await read_all(client, resource, progress, aside)
    except ApiError as error:
        if error.code == _NOT_SERVED:
            return []
        if error.code == _FORBIDDEN:
            return error
        raise


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
        found = [_read_item(resource.kind, item) for item in items]
    except (*UNDECODABLE, InputError) as error:
        raise Failed(f"the server's list cannot be decoded: {error}", on=str(resource)) from None
    objects = [obj for obj in found if not isinstance(obj, Unreadable)]
    aside = [one for one in found if isinstance(one, Unreadable)]
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
