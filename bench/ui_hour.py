"""The live page in Chromium for an hour of changes: memory of its scripts and its stream's worker.

Every five minutes a zone of three is lost for two and comes back, with forty changes a second
meanwhile. Each minute garbage is collected, and the heap that is left is printed on standard error,
so that an interrupted run has printed what it measured.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from bench import BenchFailed, Stopwatch
from bench.ui import NODES, PODS, STEP_SECONDS, DarkZone, Told
from tests.ui.browser import Browser, browser

__all__ = ["NODES", "PODS", "run"]

HOUR_SECONDS = 3600.0
SAMPLE_SECONDS = 60.0
ROUND_SECONDS = 300.0
DARK_SECONDS = 120.0
KINDS = ("page", "shared_worker")


class Heaps:
    """The script heaps of a browser's targets, by the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0

    async def command(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """The result of a command; events are skipped."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_json(asked | ({"sessionId": session} if session else {}))
        while (told := await self._socket.receive_json()).get("id") != self._number:
            pass
        result: dict[str, Any] = told["result"]
        return result

    async def sessions(self) -> dict[str, str]:
        """Kind of target -> a session of it, of those that are measured."""
        found = (await self.command("Target.getTargets"))["targetInfos"]
        return {
            each["type"]: (
                await self.command("Target.attachToTarget", targetId=each["targetId"], flatten=True)
            )["sessionId"]
            for each in found
            if each["type"] in KINDS
        }

    async def megabytes(self, session: str) -> float:
        """The heap in use after garbage was collected."""
        await self.command("HeapProfiler.collectGarbage", session)
        used = await self.command("Runtime.getHeapUsage", session)
        return round((used["usedSize"] + used.get("backingStorageSize", 0)) / 1e6, 2)


@asynccontextmanager
async def heaps(window: Browser) -> AsyncIterator[Heaps]:
    """The heaps of a browser."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{window.debugger}/json/version") as answer:
            url = (await answer.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(url, max_msg_size=0) as socket:
            yield Heaps(socket)


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """One browser, for an hour. `seed` is not used."""
    return asyncio.run(_run(DarkZone(nodes, pods), stopwatch))


async def _run(zone: DarkZone, stopwatch: Stopwatch) -> dict[str, object]:
    told = Told(zone)
    samples: list[dict[str, float]] = []
    async with told.served() as url, browser() as window, heaps(window) as found:
        await window.look(1280, 900)
        await window.go(url)
        await window.until("return document.querySelectorAll('.zone').length === 3")
        sessions = await found.sessions()
        if set(sessions) != set(KINDS):
            raise BenchFailed(f"the browser has no other targets than {sorted(sessions)}")
        telling = asyncio.create_task(_tell(told))
        try:
            with stopwatch:
                began = time.monotonic()
                while (passed := time.monotonic() - began) < HOUR_SECONDS:
                    await asyncio.sleep(SAMPLE_SECONDS)
                    sample = {kind: await found.megabytes(sessions[kind]) for kind in KINDS}
                    samples.append(sample)
                    print(f"{passed + SAMPLE_SECONDS:.0f} s: {sample} MB", file=sys.stderr)
        finally:
            telling.cancel()
    return {
        f"{kind.replace('shared_w', 'w')}Megabytes{when}": value
        for kind in KINDS
        for when, value in (
            ("First", samples[0][kind]),
            ("Last", samples[-1][kind]),
            ("Most", max(sample[kind] for sample in samples)),
        )
    }


async def _tell(told: Told) -> None:
    """Send the present frame twice a second."""
    number = 0
    while True:
        began = time.monotonic()
        at_s = number * STEP_SECONDS % ROUND_SECONDS
        dark = at_s < DARK_SECONDS
        told.tell_frame(at_s if dark else None, changes=number + 1 if dark else 0)
        number += 1
        await asyncio.sleep(max(0.0, began + STEP_SECONDS - time.monotonic()))
