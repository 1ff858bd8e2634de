"""A kind's raw objects from the API server, page by page. GET only.

Unlike `live.listing` nothing is kept: a page is handed on and forgotten. Where the token of a list
expires on the way, the list is begun anew and what was handed on already is left out; the pages
are then not of one version, which a snapshot over minutes is not anyway.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from kubectl_nodelife.errors import Failed
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.requests import PAGE_SIZE, Resource, list_url

_MOST_EXPIRIES: Final = 3


class _RawPageMeta(msgspec.Struct, rename="camel"):
    continue_: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: int | None = None


class _SnapshotPage(msgspec.Struct):
    metadata: _RawPageMeta = msgspec.field(default_factory=_RawPageMeta)
    items: list[dict[str, Any]] | None = None


async def count(client: Client, resource: Resource) -> int:
    """About how many objects there are, as far as the server tells. Raises as `pages`."""
    page = _decode(await client.read(list_url(resource, limit=1)), resource)
    return len(page.items or ()) + (page.metadata.remaining_item_count or 0)


async def pages(
    client: Client, resource: Resource, limit: int = PAGE_SIZE
) -> AsyncIterator[list[dict[str, Any]]]:
    """All objects, each with apiVersion and kind in front. Raises ApiError, Unreachable, Failed."""
    head = {"apiVersion": resource.kind.api_version, "kind": resource.kind.name}
    seen: set[tuple[str, str]] = set()
    token, expiries = "", 0
    while True:
        try:
            body = await client.read(list_url(resource, limit=limit, continue_=token))
        except ApiError as error:
            if not (error.gone and token) or expiries == _MOST_EXPIRIES:
                raise
            token, expiries = "", expiries + 1
            continue
        page = _decode(body, resource)
        new = [{**head, **item} for item in page.items or () if _key(item) not in seen]
        seen.update(map(_key, new))
        yield new
        token = page.metadata.continue_ or ""
        if not token:
            return


def _key(item: dict[str, Any]) -> tuple[str, str]:
    metadata = item.get("metadata") or {}
    return metadata.get("namespace", ""), metadata.get("name", "")


def _decode(body: bytes, resource: Resource) -> _SnapshotPage:
    try:
        return msgspec.json.decode(body, type=_SnapshotPage)
    except msgspec.MsgspecError as error:
        raise Failed(f"the server's list cannot be decoded: {error}", on=str(resource)) from None
