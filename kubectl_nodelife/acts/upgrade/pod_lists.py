"""Lists of a node's pods, for a drain that is over only on a list newer than its claim.

A watch does not say how far behind it is, and resource versions of nodes and pods need not be of
one count. So the pods of the node are listed, as `kubectl drain` does after its cordon, and what
the cache shows holds from that moment on, once it has seen each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final
from urllib.parse import urlencode

import msgspec

from kubectl_nodelife.acts.upgrade.live_cache import LiveCache
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.live.client import Client

AGAIN_SECONDS: Final = 0.5
AGAIN_AFTER_ERROR_SECONDS: Final = 5.0


class _Meta(msgspec.Struct):
    namespace: str
    name: str
    uid: str


class _Item(msgspec.Struct):
    metadata: _Meta


class _List(msgspec.Struct):
    items: list[_Item]


class PodLists:
    """See the module. `listed_ns`: as `UpgradeView.pods_listed_ns`."""

    def __init__(self, client: Client, cache: LiveCache) -> None:
        self.listed_ns: dict[str, int] = {}
        self._client = client
        self._cache = cache
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def follow(self, nodes: Collection[str]) -> None:
        """List the pods of these nodes, and of no others any more."""
        for name in self._tasks.keys() - set(nodes):
            self._tasks.pop(name).cancel()
        for name in nodes:
            if name not in self._tasks or self._tasks[name].done():
                self._tasks[name] = asyncio.create_task(self._list(name))

    async def _list(self, node: str) -> None:
        """List until all that is listed is known."""
        query = urlencode({"fieldSelector": f"spec.nodeName={node}"})
        while True:
            asked_ns = self._cache.clock.now_ns()
            try:
                body = await self._client.read(f"/api/v1/pods?{query}")
                found = msgspec.json.decode(body, type=_List)
            except (NodelifeError, msgspec.MsgspecError):
                await asyncio.sleep(AGAIN_AFTER_ERROR_SECONDS)
                continue
            if all(self._knows(item.metadata) for item in found.items):
                self.listed_ns[node] = asked_ns
                return
            await asyncio.sleep(AGAIN_SECONDS)

    def _knows(self, meta: _Meta) -> bool:
        pod = self._cache.cache.pod(meta.namespace, meta.name)
        return pod is not None and pod.uid == meta.uid
