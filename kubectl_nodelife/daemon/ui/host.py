"""Opens the live page when it is asked for, and closes it when it is not looked at any more.
Tells it what happens in the other clusters of its user (`OtherClusters`).

The socket exists from the first `ui` until `ui --stop`, until its time is over, or until no page
has been open for ten minutes. What serves it is imported by the first `ui`.

Its port is kept in a file, and taken again by the next daemon, so that tabs which are still open go
on as soon as one of them has a session. Sessions are not kept: while no daemon runs, another user
could listen at the port, and be sent the session of an open tab.

The other clusters are those that other daemons of that user watch on this machine. They are found
in the private folder of sockets, and each is asked on its own. No session, token or credential goes
from one to another: the page learns a sentence, and where the other page is, which asks for a
session of its own.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from importlib import import_module
from socket import socket
from typing import TYPE_CHECKING, Any, Final

from kubectl_nodelife.daemon import client
from kubectl_nodelife.daemon.cluster_view import Sources
from kubectl_nodelife.daemon.instance import Instance, instances
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.daemon.paths import check_private
from kubectl_nodelife.daemon.server import Answer, Query, Stream
from kubectl_nodelife.errors import BadInput, NodelifeError
from kubectl_nodelife.live.loop import sliced

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.ui.endpoint import PageEndpoint
    from kubectl_nodelife.daemon.ui.live_feed import LiveFeed
    from kubectl_nodelife.outlook.live_wall import LiveWall
    from kubectl_nodelife.outlook.situation import Situation

UNSEEN_SECONDS: Final = 600.0
LEAST_PORT: Final = 1024
MOST_PORT: Final = 65_535
_LOOK_SECONDS: Final = 1.0

Always = Callable[[str, Callable[[], Coroutine[Any, Any, None]]], Coroutine[Any, Any, None]]
"""Runs a part again and again, whatever happens to it."""


class PageHost:
    """Opens the live page when it is asked for, and closes it when nobody looks any more.

    `answers`, `streams`: the daemon's, by question.
    """

    def __init__(
        self,
        sources: Sources,
        answers: Mapping[str, Answer],
        streams: Mapping[str, Stream],
        always: Always,
        is_busy: Callable[[], bool] = lambda: False,
        port_file: str = "",
    ) -> None:
        """`is_busy`: True while the cluster is written to, which goes before. `port_file`: where
        the port is kept; "": nowhere.
        """
        self._is_busy, self._port_file = is_busy, port_file
        self._sources = sources
        self._feed: LiveFeed | None = None
        self._answers, self._streams = answers, streams
        self._always = always
        self._endpoint: PageEndpoint | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._seen_at = self._until = 0.0
        self._wall: LiveWall | None = None
        self._judging = asyncio.Lock()

    async def situation(self, query: Query) -> dict[str, Any]:
        """What happens in this cluster, in a sentence, and where its page is ("": closed), for the
        page of another. Raises NotReadYet.
        """
        told = self._feed.situation if self._feed is not None else None
        if told is None:
            told = await self._judged()
        words = {"level": told.level, "sentence": told.sentence}
        return {"context": self._sources.cluster.context, **words, "url": self.url}

    async def _judged(self) -> Situation:
        """What happens, while no page shows it."""
        await asyncio.to_thread(import_module, "kubectl_nodelife.outlook.live_wall")
        from kubectl_nodelife.outlook.live_wall import LiveWall
        from kubectl_nodelife.outlook.works import works_of

        async with self._judging:
            self._wall = self._wall or LiveWall()
            view = self._sources.view()
            frame = await sliced(self._wall.steps(view, works_of(view.cache)))
        assert frame.situation is not None
        return frame.situation

    def orders(self) -> dict[str, Answer]:
        """The orders that the daemon's user may give on its own socket."""
        return {"ui": self._order_open, "ui-stop": self._order_stop}

    @property
    def url(self) -> str:
        """Where the page is; "": it is closed."""
        return f"http://127.0.0.1:{self._endpoint.port}/" if self._endpoint is not None else ""

    @property
    def listeners(self) -> int:
        """How many pages listen to the stream."""
        return len(self._feed.broadcast.subscribers) if self._feed is not None else 0

    def state(self) -> dict[str, Any]:
        """Its part of `daemon status`; {} while it is closed."""
        if self._endpoint is None:
            return {}
        sessions, readers = self._endpoint.sessions.count(), self.listeners
        return {"ui": {"url": self.url, "sessions": sessions, "readers": readers}}

    async def close(self) -> None:
        """Listen no more, end all sessions."""
        endpoint, self._endpoint = self._endpoint, None
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._tasks = []
        if endpoint is not None:
            log.info("the page is closed")
            await endpoint.close()

    async def _order_open(self, query: Query) -> dict[str, Any]:
        """Open it, if it is not open, and give a token for one browser. Raises BadInput."""
        port = _number(query, "port")
        if port and not LEAST_PORT <= port <= MOST_PORT:
            raise BadInput(f"port {port} is not allowed: {LEAST_PORT} to {MOST_PORT}", on="--port")
        if self._endpoint is not None and port not in (0, self._endpoint.port):
            raise BadInput(
                f"the page is open on port {self._endpoint.port}",
                on="--port",
                remedy="run first: kubectl nodelife ui --stop",
            )
        endpoint = self._endpoint or await self._open(port, _number(query, "lasts"))
        read_only = bool(_number(query, "readOnly"))
        token = endpoint.sessions.token(read_only=read_only)
        self._seen_at = time.monotonic()
        lasts_s = endpoint.sessions.token_seconds(read_only=read_only)
        ends = endpoint.sessions.is_full(read_only=read_only)
        return {"url": self.url, "token": token, "tokenSeconds": lasts_s, "endsOldest": ends}

    async def _open(self, port: int, seconds: int) -> PageEndpoint:
        """`seconds`: so long its sessions last, 0 for as long as they may."""
        await asyncio.to_thread(_import_server)
        from kubectl_nodelife.daemon.ui.endpoint import (
            SESSION_SECONDS,
            PageEndpoint,
            Sessions,
            listen,
        )
        from kubectl_nodelife.daemon.ui.live_feed import LiveFeed

        bound = self._listen_again(listen) if not port else listen(port)
        feed = self._feed = LiveFeed(self._sources, self._answers)
        lasts_s = min(float(seconds or SESSION_SECONDS), SESSION_SECONDS)
        sessions = Sessions(time.monotonic, lasts_s)
        endpoint = PageEndpoint(
            self._answers, self._streams, feed.broadcast, sessions, self._is_busy
        )
        await endpoint.start(bound)
        self._endpoint = endpoint
        self._until = time.monotonic() + lasts_s
        self._seen_at = time.monotonic()
        self._keep_port(endpoint.port)
        log.info("the page is open on port %d", endpoint.port)
        self._tasks = [
            asyncio.create_task(self._always("page", feed.run)),
            asyncio.create_task(self._watch_readers(feed)),
        ]
        return endpoint

    def _listen_again(self, listen: Callable[[int], list[socket]]) -> list[socket]:
        """At the port of the last time, where that is free, else at any."""
        try:
            with open(self._port_file, encoding="ascii") as file:
                port = int(file.read(8))
            if LEAST_PORT <= port <= MOST_PORT:
                return listen(port)
        except (OSError, ValueError, BadInput):
            pass
        return listen(0)

    def _keep_port(self, port: int) -> None:
        if self._port_file:
            with suppress(OSError), open(self._port_file, "w", encoding="ascii") as file:
                file.write(f"{port}\n")

    async def _order_stop(self, query: Query) -> dict[str, Any]:
        was = self.url
        await self.close()
        return {"closed": was}

    async def _watch_readers(self, feed: LiveFeed) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            if feed.broadcast.subscribers:
                self._seen_at = now
            if now > self._until or now > self._seen_at + UNSEEN_SECONDS:
                await self.close()
                return


def _import_server() -> None:
    """Import what takes longer than the loop may be held up."""
    for name in ("endpoint", "live_feed"):
        import_module(f"kubectl_nodelife.daemon.ui.{name}")


def _number(query: Query, key: str) -> int:
    """A number of the query, 0 where it has none. Raises BadInput."""
    text = (query.get(key) or ["0"])[-1]
    if not text.isdecimal() or len(text) > 9:
        raise BadInput(f"{text!r} is not a number", on=f"--{key}")
    return int(text)


MOST_ASKED: Final = 32
ASK_SECONDS: Final = 3.0
UNKNOWN: Final = "unknown"
"""The level of a cluster whose daemon does not say."""

_WORST_FIRST: Final = ("gone", "worse", "blind", UNKNOWN, "ours", "peace")
_MOST_TEXT: Final = 500
_PAGE: Final = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}/")


class OtherClusters:
    """Asks the other daemons. `cluster_uid`: of our own cluster, "" while it is not known."""

    def __init__(self, own: Instance, cluster_uid: Callable[[], str]) -> None:
        self._own, self._cluster_uid = own, cluster_uid

    async def answer(self, query: Query) -> dict[str, Any]:
        """The other clusters, each once, trouble first: context, server, level, sentence, url."""
        check_private(self._own.runtime)
        every = await asyncio.to_thread(instances, self._own.runtime)
        others = [one for one in every if one.identity != self._own.identity and one.is_taken()]
        asked = (asyncio.to_thread(_asked, one) for one in others[:MOST_ASKED])
        told = await asyncio.gather(*asked)
        return {"items": merged(told, self._cluster_uid())}


def _asked(other: Instance) -> Mapping[str, Any]:
    try:
        return client.ask(other.socket, "situation", ASK_SECONDS)
    except NodelifeError as error:
        sentence = f"Its daemon does not say what happens: {error.what}."
        return {**other.read_card(), "level": UNKNOWN, "sentence": sentence}


def merged(told: list[Mapping[str, Any]], own_uid: str) -> list[dict[str, str]]:
    """Answers of daemons as clusters, the worst first. A cluster that several watch, under other
    names, is told once, by the first that knows; one that is our own, not at all."""
    rank = {level: place for place, level in enumerate(_WORST_FIRST)}
    by_cluster: dict[str, dict[str, str]] = {}
    for each in sorted(told, key=lambda one: one.get("level") == UNKNOWN):
        uid, server = str(each.get("clusterUid") or ""), str(each.get("server") or "")
        if uid and uid == own_uid:
            continue
        context = _text(each.get("context"))
        cluster = by_cluster.get(uid or server or context)
        if cluster is not None:
            cluster["contexts"] += f", {context}"
            cluster["url"] = cluster["url"] or _page(each.get("url"))
            continue
        level = str(each.get("level"))
        by_cluster[uid or server or context] = {
            "contexts": context,
            "context": context,
            "server": server[:_MOST_TEXT],
            "level": level if level in rank else UNKNOWN,
            "sentence": _text(each.get("sentence")),
            "url": _page(each.get("url")),
        }
    return sorted(by_cluster.values(), key=lambda one: (rank[one["level"]], one["contexts"]))


def _text(value: object) -> str:
    return str(value or "")[:_MOST_TEXT]


def _page(value: object) -> str:
    """The address of a page on this machine; "" for any other."""
    return str(value) if _PAGE.fullmatch(str(value or "")) else ""
