"""The daemon with a quiet cluster, and then a zone whose kubelets all stop at once.

This measures the quiet time: 500 leases and 20 pods a second with 5,000 nodes. `corePercent` is
the share of one core. Then all kubelets of a zone stop together; `burst...` is about that: how many
changes were planned, the cost, and the longest time for which the loop was blocked. `...Own...`
leaves out the time in which other processes had the processor.
"""

from __future__ import annotations

import asyncio
import time

from bench import Stopwatch
from bench._daemon import Running, running
from kubectl_nodelife.daemon.server import resident_bytes
from kubectl_nodelife.engine.settings import make_settings

QUIET_SECONDS = 30.0
GRACE_SECONDS = 20
BURST_SECONDS = 30.0


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Sync, half a minute of quiet, a zone lost."""
    return asyncio.run(_run(nodes, pods, seed, stopwatch))


async def _run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    flags = {"node-monitor-grace-period": f"{GRACE_SECONDS}s"}
    async with running(nodes, pods, seed, make_settings("newest", flags)) as one:
        await one.decisions.synced.wait()
        await asyncio.sleep(5)
        one.stalls.forget()
        with stopwatch:
            await asyncio.sleep(QUIET_SECONDS)
        quiet = {
            "quietStallMilliseconds": round(one.stalls.longest_s * 1000, 1),
            "quietOwnStallMilliseconds": round(one.stalls.longest_own_s * 1000, 1),
        }
        figures = await _burst(one)
        return {
            "corePercent": round(100 * stopwatch.cpu_seconds / stopwatch.wall_seconds, 2),
            **quiet,
            "residentBytes": resident_bytes(),
            **figures,
        }


async def _burst(one: Running) -> dict[str, object]:
    """A zone's kubelets stop; until the grace period is over and what follows is planned."""
    await asyncio.sleep(max(0, (one.decisions.cold_until_ns - one.decisions.clock.now_ns()) / 1e9))
    one.stalls.forget()
    before = one.journal.ledger.next_id
    cpu = time.process_time()
    await one.client.read("/silence?zone=a")
    await asyncio.sleep(GRACE_SECONDS + 10 + BURST_SECONDS)
    lost = sum(
        node.ready() is not None and node.ready().status == "Unknown"  # type: ignore[union-attr]
        for node in one.decisions.host.cache.nodes.values()
    )
    return {
        "burstNodes": lost,
        "burstChanges": one.journal.ledger.next_id - before,
        "burstCpuSeconds": round(time.process_time() - cpu, 3),
        "burstStallMilliseconds": round(one.stalls.longest_s * 1000, 1),
        "burstOwnStallMilliseconds": round(one.stalls.longest_own_s * 1000, 1),
        "burstStallsOver100Milliseconds": one.stalls.over_100_ms,
    }
