"""Kinds that the daemon does not watch, listed for one question, with the daemon's own rights."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import Unreadable
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.listing import read_or_refusal
from kubectl_nodelife.live.requests import resource_of


class ListedOnce(NamedTuple):
    """The objects of these kinds. `unread`: kinds that may not be listed, and what the server says;
    `unreadable`: objects that cannot be decoded.
    """

    objects: list[KubeObject]
    unread: dict[str, str]
    unreadable: list[Unreadable]


async def list_once(client: Client, kinds: Sequence[str]) -> ListedOnce:
    """All objects of these kinds, none of those that are not served. Raises ApiError, Failed,
    Unreachable.
    """
    aside: list[Unreadable] = []
    lists = await asyncio.gather(
        *(read_or_refusal(client, resource_of(kind), None, aside) for kind in kinds)
    )
    found = dict(zip(kinds, lists, strict=True))
    unread = {kind: each.what for kind, each in found.items() if isinstance(each, ApiError)}
    objects = [obj for each in found.values() if isinstance(each, list) for obj in each]
    return ListedOnce(objects, unread, aside)
