"""The live page's cost to the daemon of a quiet cluster: with no page, with one, with sixteen.

Shares of a core are CPU time of this process, in which the daemon's parts run; readers of the
stream are in a process of their own. `...More` is above the daemon without a page. `...OwnStall`:
the longest time for which the work of this process blocked the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

from bench import BenchFailed, Stopwatch
from bench._daemon import Running, running
from kubectl_nodelife.daemon.cluster_view import Sources, WatchedCluster
from kubectl_nodelife.daemon.server import resident_bytes
from kubectl_nodelife.daemon.ui.endpoint import PageEndpoint, Sessions, listen
from kubectl_nodelife.daemon.ui.live_feed import LiveFeed
from kubectl_nodelife.engine.settings import make_settings

QUIET_SECONDS: Final = 30.0
SETTLING_SECONDS: Final = 8.0
READERS: Final = (1, 16)

READ: Final = """
import socket, sys, threading
port, session, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def read():
    with socket.create_connection(("127.0.0.1", port)) as one:
        lines = ["GET /api/v1/stream HTTP/1.1", f"Host: 127.0.0.1:{port}"]
        lines.append(f"X-Nodelife-Session: {session}")
        one.sendall("\\r\\n".join((*lines, "", "")).encode())
        while one.recv(65536):
            pass
for _ in range(count):
    threading.Thread(target=read).start()
"""


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Sync, half a minute without a page, with one, with sixteen."""
    return asyncio.run(_run(nodes, pods, seed, stopwatch))


async def _run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    async with running(nodes, pods, seed, make_settings("newest")) as one:
        await one.decisions.synced.wait()
        await asyncio.sleep(SETTLING_SECONDS)
        with stopwatch:
            alone = await _share(one)
        held = resident_bytes()
        figures: dict[str, object] = {"corePercent": round(100 * alone, 2)}
        async with _page(one) as (feed, endpoint, sessions):
            for count in READERS:
                await _nobody(feed)
                async with _readers(endpoint, sessions, count):
                    while len(feed.broadcast.subscribers) < count:
                        await asyncio.sleep(0.1)
                    await asyncio.sleep(SETTLING_SECONDS)
                    with stopwatch:
                        share = await _share(one)
                    if len(feed.broadcast.subscribers) != count:
                        raise BenchFailed(f"of {count} readers some are gone")
                    stall = round(one.stalls.longest_own_s * 1000, 1)
                figures |= {
                    f"corePercentMore{count}": round(100 * (share - alone), 2),
                    f"megabytesMore{count}": round((resident_bytes() - held) / 1e6, 1),
                    f"milliseconds{count}OwnStall": stall,
                }
            figures["quietBytesMinute"] = await _bytes_a_minute(feed)
        return figures


async def _bytes_a_minute(feed: LiveFeed) -> int:
    """The bytes a minute that a reader of a quiet cluster is sent, after the snapshot."""
    await _nobody(feed)
    reader = feed.broadcast.join()
    if reader is None:
        raise BenchFailed("there are too many readers")
    await reader.take(1.0)
    await asyncio.sleep(60.0)
    told = len(await reader.take(1.0))
    feed.broadcast.leave(reader)
    return told


async def _nobody(feed: LiveFeed) -> None:
    """Wait until the server has noticed that the readers of before are gone."""
    while feed.broadcast.subscribers:
        await asyncio.sleep(0.1)


async def _share(one: Running) -> float:
    """The share of a core, measured for a while."""
    one.stalls.forget()
    before, began = time.process_time(), time.monotonic()
    await asyncio.sleep(QUIET_SECONDS)
    return (time.process_time() - before) / (time.monotonic() - began)


@contextlib.asynccontextmanager
async def _page(one: Running) -> AsyncIterator[tuple[LiveFeed, PageEndpoint, Sessions]]:
    """The page's server and its feed, connected as the daemon connects them."""
    cluster = WatchedCluster("bench", "bench", "bench")
    feed = LiveFeed(Sources(cluster, one.client, one.decisions, one.journal), {})
    sessions = Sessions(time.monotonic)
    endpoint = PageEndpoint({}, {}, feed.broadcast, sessions)
    await endpoint.start(listen(0))
    task = asyncio.create_task(feed.run())
    try:
        yield feed, endpoint, sessions
    finally:
        task.cancel()
        await endpoint.close()


@contextlib.asynccontextmanager
async def _readers(endpoint: PageEndpoint, sessions: Sessions, count: int) -> AsyncIterator[None]:
    """So many readers, in a process of their own."""
    session = sessions.begin(sessions.token())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", READ, str(endpoint.port)),
        *(str(session), str(count)),
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()
