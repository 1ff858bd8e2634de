"""A decision task's input: its queue of messages, and one source's news for several tasks.

The messages are watches, orders, outcomes, and Leases read anew. A source (`live.source`) has one
queue; `Tee` gives its news to each task that opens a feed of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from kubectl_nodelife.daemon.lease_check import LeasesRead
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.live.news import KindState, News
from kubectl_nodelife.live.source import ListWatchSource

_MOST_WAITING = 1_000


class ChangeSettings(NamedTuple):
    """An order: go on with these settings. `done` is resolved once they are in force."""

    settings: Settings
    done: asyncio.Future[None] | None = None


class ManagerBegan(NamedTuple):
    """Another kube-controller-manager leads since then, by the daemon's clock, and has nothing of
    what the one before it remembered.
    """

    at_ns: int
    holder: str


Message = News | ChangeSettings | ManagerBegan | Outcome | LeasesRead


class Feed(Protocol):
    """Where news come from; `live.source.ListWatchSource` is one."""

    @property
    def queue(self) -> asyncio.Queue[Message]:
        """The news, in order for each kind; orders and outcomes are put there as well."""

    @property
    def states(self) -> Mapping[str, KindState]:
        """How it stands with each kind."""

    def relist(self, kinds: Iterable[str]) -> None:
        """List these kinds anew, over fresh connections."""


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
        """Pass news on until cancelled."""
        while True:
            news = await self._source.queue.get()
            while any(feed.queue.qsize() > _MOST_WAITING for feed in self._feeds):
                await asyncio.sleep(0.02)
            for feed in self._feeds:
                feed.queue.put_nowait(news)
