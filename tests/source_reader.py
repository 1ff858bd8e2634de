"""A reader of a live source's queue, which keeps what it was told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.news import KindPhase, ListNews, OtherCluster, WatchNews
from kubectl_nodelife.live.requests import Resource
from kubectl_nodelife.live.source import ListWatchSource


class Seen:
    """The objects as the source tells of them, and the phases that it went through."""

    def __init__(self, source: ListWatchSource) -> None:
        self.source = source
        self.objects: dict[str, dict[tuple[str, str], KubeObject]] = {}
        self.phases: list[KindPhase] = []
        self.listed: list[str] = []
        self.other_clusters: list[OtherCluster] = []

    async def read(self) -> None:
        """Read for ever."""
        while True:
            match await self.source.queue.get():
                case ListNews(kind, objects):
                    self.listed.append(kind)
                    self.objects[kind] = {obj.key: obj for obj in objects}
                case WatchNews(kind, events):
                    for event in events:
                        match event:
                            case Put():
                                self.objects[kind][event.obj.key] = event.obj
                            case Gone():
                                self.objects[kind].pop(event.key, None)
                case KindPhase() as phase:
                    self.phases.append(phase)
                case OtherCluster() as other:
                    self.other_clusters.append(other)

    def versions(self, kind: str) -> dict[tuple[str, str], str]:
        """The resourceVersion of each object of a kind."""
        known = self.objects.get(kind, {})
        return {key: obj.metadata.resource_version for key, obj in known.items()}


@contextlib.asynccontextmanager
async def following(
    ours: Client, kinds: Iterable[str], *pace: Any, **how: Any
) -> AsyncIterator[Seen]:
    """A source of these kinds and its reader, at work; `pace` and `how` are the source's."""
    source = ListWatchSource(ours, [Resource(kind_named(kind)) for kind in kinds], *pace, **how)
    seen = Seen(source)
    tasks = [asyncio.create_task(source.run()), asyncio.create_task(seen.read())]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
