"""One consistent list of a kind, in pages, for whoever looks once and does not watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import decode_time
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.requests import Resource, list_url

T = TypeVar("T")


class _ListMeta(msgspec.Struct, rename="camel"):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


async def read_all(
    client: Client, resource: Resource, progress: Callable[[int], None] | None = None
) -> list[KubeObject]:
    """All objects, as of one version. Raises ApiError, Unreachable, Failed.

    Where the list's token expires on the way it is asked for once more, in one piece. `progress` is
    told how many came with each page.
    """
    type_: Any = resource.kind.type
    decoder: msgspec.json.Decoder[_Page[KubeObject]] = msgspec.json.Decoder(
        _Page[type_], dec_hook=decode_time
    )
    try:
        return await _pages(client, resource, decoder, list_url(resource), progress)
    except ApiError as error:
        if not error.gone:
            raise
        return await _pages(client, resource, decoder, list_url(resource, limit=0), progress)


async def _pages(
    client: Client,
    resource: Resource,
    decoder: msgspec.json.Decoder[_Page[KubeObject]],
    url: str,
    progress: Callable[[int], None] | None,
) -> list[KubeObject]:
    objects: list[KubeObject] = []
    while True:
        try:
            page = decoder.decode(await client.read(url))
        except msgspec.MsgspecError as error:
            raise Failed(f"the server's list makes no sense: {error}", on=str(resource)) from None
        objects += page.items or ()
        if progress is not None:
            progress(len(page.items or ()))
        if not page.metadata.continue_:
            return objects
        url = list_url(resource, continue_=page.metadata.continue_)
