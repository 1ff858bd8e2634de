"""Passes the news of one source on to several decision tasks, each with a queue of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from kubectl_nodelife.live.news import KindState
from kubectl_nodelife.live.source import ListWatchSource

_MOST_WAITING = 1_000


class TeeFeed:
    """One reader's feed (`decisions.Feed`)."""

    def __init__(self, source: ListWatchSource) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self._source = source

    @property
    def states(self) -> Mapping[str, KindState]:
        """How it stands with each kind."""
        return self._source.states

    def relist(self, kinds: Iterable[str]) -> None:
        """List these kinds anew; every reader gets the lists."""
        self._source.relist(kinds)


class Tee:
    """Gives each of the source's news to every reader; the slowest sets the pace."""

    def __init__(self, source: ListWatchSource) -> None:
        self._source = source
        self._feeds: list[TeeFeed] = []

    def open(self) -> TeeFeed:
        """A feed with all news from now on."""
        feed = TeeFeed(self._source)
        self._feeds.append(feed)
        return feed

    def close(self, feed: TeeFeed) -> None:
        """The reader has gone."""
        self._feeds.remove(feed)

    async def run(self) -> None:
        """Hand news on until cancelled."""
        while True:
            news = await self._source.queue.get()
            while any(feed.queue.qsize() > _MOST_WAITING for feed in self._feeds):
                await asyncio.sleep(0.02)
            for feed in self._feeds:
                feed.queue.put_nowait(news)
