"""Lists: all objects of one kind, page by page, as of one version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.decode import decode_json
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import decode_time
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.requests import PAGE_SIZE, Resource, list_url

T = TypeVar("T", bound=KubeObject)


class Listing(NamedTuple):
    """All objects of a kind, and the version from which a watch goes on."""

    objects: list[KubeObject]
    resource_version: str


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


class _RawPage(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


async def read_all(
    client: Client, resource: Resource, progress: Callable[[int], None] | None = None
) -> list[KubeObject]:
    """All objects, as of one version. Raises ApiError, Unreachable, Failed.

    `progress` is told how many came with each page.
    """
    listing = await list_all(
        client, resource, on_page=lambda page: progress(len(page)) if progress else None
    )
    return listing.objects


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
        dec_hook=decode_time,
    )
    objects: list[KubeObject] = []
    tokens: set[str] = set()
    url = list_url(resource, limit=limit)
    while True:
        body = await client.read(url, retry=retry)
        try:
            page = decoder.decode(body)
        except msgspec.MsgspecError:
            page = _read_slowly(body, resource)
        items = page.items or []
        objects += items
        if on_page is not None:
            on_page(items)
        token = page.metadata.continue_
        if not token:
            return Listing(objects, page.metadata.resource_version)
        if not items or token in tokens:
            raise Failed("the server's list has no end", on=str(resource))
        tokens.add(token)
        url = list_url(resource, limit=limit, continue_=token)


def _read_slowly(body: bytes, resource: Resource) -> _Page[KubeObject]:
    """A page whose objects are not as strict as the fast way wants them. Raises Failed."""
    try:
        page = msgspec.json.decode(body, type=_RawPage)
        type_ = resource.kind.type
        return _Page(page.metadata, [decode_json(type_, item) for item in page.items or ()])
    except (msgspec.MsgspecError, InputError) as error:
        raise Failed(f"the server's list makes no sense: {error}", on=str(resource)) from None
