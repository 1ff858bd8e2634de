"""Sends a controller's Events, in order, beside its writes and never ahead of them.

Follows client-go/tools/record/event.go (`recordToSink`): so many may wait and more
are dropped; a refusal is final; without a connection twelve tries ten seconds apart. Losing one is
no failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kubectl_nodelife.engine.actions import RecordEvent
from kubectl_nodelife.engine.calls import Patch
from kubectl_nodelife.engine.calls.call import NO_ANSWER, NOT_FOUND
from kubectl_nodelife.engine.correlator import Correlated, Correlator
from kubectl_nodelife.live.writer import Writer

MOST_WAITING: Final = 2_000
"""Upstream's thousand, and as many again since ours let writes go first."""

TRIES: Final = 12
RETRY_SECONDS: Final = 10.0


class EventSender:
    """One controller's sender. `admitted` waits for a token, and says whether writing is allowed
    at that moment. `dropped`: how many were lost.
    """

    def __init__(
        self, writer: Writer, now_ns: Callable[[], int], admitted: Callable[[], Awaitable[bool]]
    ) -> None:
        self.dropped = 0
        self._writer = writer
        self._now_ns = now_ns
        self._admitted = admitted
        self._correlator = Correlator()
        self._queue: asyncio.Queue[tuple[RecordEvent, int]] = asyncio.Queue(MOST_WAITING)

    def put(self, event: RecordEvent) -> None:
        """Have it sent in its turn."""
        try:
            self._queue.put_nowait((event, self._now_ns()))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            event, at_ns = await self._queue.get()
            found = self._correlator.correlate(event, at_ns)
            if found is not None:
                await self._send(found)
            self._queue.task_done()

    async def sent(self) -> None:
        """Wait until nothing waits any more."""
        await self._queue.join()

    async def _send(self, found: Correlated) -> None:
        call = found.call
        for _ in range(TRIES):
            if not await self._admitted():
                self.dropped += 1
                return
            answer = await self._writer.call(call)
            if answer.code == NOT_FOUND and isinstance(call, Patch):
                answer = await self._writer.call(found.instead)
            if answer.code != NO_ANSWER:
                self.dropped += not answer.ok
                return
            await asyncio.sleep(RETRY_SECONDS)
        self.dropped += 1
