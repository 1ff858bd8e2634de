"""What happens in a real cluster: every kind is listed once and watched (`kind_follower`).

News go to one queue of limited length, so that a slow reader slows the connections down instead of
filling the memory; it holds as much as comes in some ten seconds. The reader turns a `ListNews`
into events itself: only it knows what was there before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.kind_follower import KindFollower
from kubectl_nodelife.live.pacing import WatchPacing
from kubectl_nodelife.live.requests import Resource
from kubectl_nodelife.live.same_cluster import SameCluster


class ListWatchSource:
    """Follows the kinds and puts `News` on `queue` until it is cancelled."""

    def __init__(
        self,
        client: Client,
        resources: Iterable[Resource],
        pace: WatchPacing | None = None,
        *,
        watch_list: bool = True,
        queue_length: int = 1_000,
    ) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue(queue_length)  # others put orders in it, too
        self.cluster = same = SameCluster(client, self.queue)
        self._followers = [
            KindFollower(client, resource, self.queue, pace or WatchPacing(), watch_list, same)
            for resource in resources
        ]
        self.states = {f.state.kind: f.state for f in self._followers}

    def relist(self, kinds: Iterable[str]) -> None:
        """List these kinds anew, over fresh connections; the news come as ever."""
        wanted = set(kinds)
        for follower in self._followers:
            if follower.state.kind in wanted:
                follower.relist()

    async def run(self) -> None:
        """Follow all kinds; returns only by being cancelled, or raises a bug of ours."""
        async with asyncio.TaskGroup() as group:
            for follower in self._followers:
                group.create_task(follower.run(), name=f"follow {follower.resource}")
