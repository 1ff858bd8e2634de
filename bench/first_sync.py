"""The daemon's first reading of a cluster: decoding, indexes, joining the controllers.

`cpuSeconds` is this process's alone; the API server is another one, and `wallSeconds` is bounded by
how fast that one sends. `residentBytes`: the daemon's memory once it is synced.
"""

from __future__ import annotations

import asyncio
import time

from bench import Stopwatch
from bench._daemon import Running, running
from kubectl_nodelife.daemon.server import resident_bytes
from kubectl_nodelife.engine.settings import make_settings


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """From the first request to the first decision."""
    return asyncio.run(_run(nodes, pods, seed, stopwatch))


async def _run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    before = resident_bytes()
    async with running(nodes, pods, seed, make_settings("newest")) as one:
        with stopwatch:
            await one.decisions.synced.wait()
        cache = one.decisions.host.cache
        assert (len(cache.nodes), len(cache.heartbeats)) == (nodes, nodes)
        return {
            "podsRead": len(cache.pods),
            "residentBytes": resident_bytes(),
            "residentBeforeBytes": before,
            "statusMilliseconds": await _status_milliseconds(one),
        }


async def _status_milliseconds(one: Running) -> float:
    """How long the answer to `status` takes the daemon, the text included; the best of five."""
    from kubectl_nodelife.commands.answering.for_daemon import make_answers
    from kubectl_nodelife.daemon.cluster_view import Sources, WatchedCluster

    cluster = WatchedCluster("bench", "bench", one.client.server)
    answers, _ = make_answers(Sources(cluster, one.client, one.decisions, one.journal))
    took = []
    for _ in range(5):
        began = time.perf_counter()
        await answers["status"]({})
        took.append(time.perf_counter() - began)
    return round(min(took) * 1000, 1)
