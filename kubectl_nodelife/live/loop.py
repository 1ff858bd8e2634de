"""The loop in real time: an asyncio task of the same shape as `engine.engine.drive`.

Decisions are taken in slices of some 10 ms with a pause between, so that a burst (a zone lost at
once is 50,000 actions) never holds up an answer. The daemon's decision task and the sandbox run it.
Answers that take long are made in such slices as well (`sliced`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterable
from typing import Final, Protocol, TypeVar

from kubectl_nodelife.engine.engine import Host, Tick

T = TypeVar("T")

SLICE_S: Final = 0.01
"""How long the loop works without a pause. A timer may be late by two such slices."""


class LiveSource(Protocol):
    """Says what happened and what time it is, when it is so far."""

    async def next(self, due_ns: int | None) -> Iterable[Tick]:
        """Wait until something happened, or until `due_ns`. The ticks to take, made one by one."""


class TimeSlices:
    """Measures how long the event loop was ours. `longest_s`: the longest stretch so far; `turns`:
    how many there were.
    """

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self.longest_s = 0.0
        self.turns = 0
        self._slice_s = slice_s
        self._began = time.perf_counter()

    def begin(self) -> None:
        """A stretch of work begins."""
        self.turns += 1
        self._began = time.perf_counter()

    def note(self) -> None:
        """Take the present stretch into account."""
        self.longest_s = max(self.longest_s, time.perf_counter() - self._began)

    async def pause(self) -> None:
        """Let others have the loop when it was long enough ours."""
        if time.perf_counter() - self._began > self._slice_s:
            self.note()
            await asyncio.sleep(0)
            self.begin()


async def play(ticks: Iterable[Tick], host: Host, slices: TimeSlices) -> None:
    """Take ticks through the host, in slices."""
    for now_ns, events in ticks:
        for _ in host.step(now_ns, events):
            await slices.pause()
        await slices.pause()


async def drive(source: LiveSource, host: Host, slices: TimeSlices) -> None:
    """Drive the host in real time until cancelled."""
    while True:
        ticks = await source.next(host.next_due())
        slices.begin()
        await play(ticks, host, slices)
        slices.note()


async def sliced(steps: Generator[None, None, T]) -> T:
    """Run a generator of small steps, with pauses between, to what it returns."""
    began = time.perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if time.perf_counter() - began > SLICE_S:
            await asyncio.sleep(0)
            began = time.perf_counter()
