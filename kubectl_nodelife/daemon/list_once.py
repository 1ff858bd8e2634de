"""Lists kinds once: for a look at a cluster, and for a daemon's answer those that it does not
watch, with its own rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import Unreadable
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.listwatch import read_or_refusal, served
from kubectl_nodelife.live.requests import resource_of


class ListedOnce(NamedTuple):
    """The objects of these kinds. `unread`: kinds that may not be listed, and what the server says;
    `unreadable`: objects that cannot be decoded.
    """

    objects: list[KubeObject]
    unread: dict[str, str]
    unreadable: list[Unreadable]


ListKinds = Callable[[Sequence[str], Mapping[str, str]], Coroutine[Any, Any, ListedOnce]]
"""Of kinds, some by a field selector (kind -> selector)."""


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
    aside: list[Unreadable] = []
    kinds = await served(client, kinds)
    lists = await asyncio.gather(
        *(
            read_or_refusal(
                client,
                resource_of(kind, namespace)._replace(fields=fields.get(kind, "")),
                progress,
                aside,
            )
            for kind in kinds
        )
    )
    found = dict(zip(kinds, lists, strict=True))
    unread = {kind: each.what for kind, each in found.items() if isinstance(each, ApiError)}
    objects = [obj for each in found.values() if isinstance(each, list) for obj in each]
    return ListedOnce(objects, unread, aside)
