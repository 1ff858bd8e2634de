"""The live loop: what the source says goes to the dry run, in slices that hold nobody up.

One task of the same shape as `engine.loop.drive`. News are gathered for some hundredths of a
second; decisions are taken in slices with a pause between, so that a zone lost at once, 50,000
actions, never holds up who asks. Nothing is ever written.

Without eyes nothing is decided: while Node, Lease or Pod has no working watch the controllers stand
still. After a gap longer than one monitor period, a suspend, a time in which this process was not
let run, and at the start they are *cold*:
silence so far counts for nothing, and no node that is not lost already is called lost before a full
grace period has been watched.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from kubectl_nodelife.daemon.clock import DRIFT_NS, DaemonClock
from kubectl_nodelife.daemon.dry_run import DryRun, same_version
from kubectl_nodelife.daemon.kinds import EYES, KindSight, out_of_reach, runnable
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Event, Gone, Put
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.source import Happened, Listed, News, Phase

SLICE_S: Final = 0.02
"""How long the loop works without a pause."""

_GATHER_S = 0.05
_LOOK_AROUND_S = 1.0
_EVENTS_AT_ONCE = 100
_PULSE_S = 0.25
_MOST_STANDSTILL_NS = 5 * SECOND_NS
_GC_THRESHOLDS = (5_000, 5, 1_000_000_000)


Seen = tuple[int | None, Sequence[Put | Gone]]
"""When something was seen, None for now, and what."""


class Feed(Protocol):
    """Where news come from; `live.source.Source` is one."""

    @property
    def queue(self) -> asyncio.Queue[News]:
        """The news, in order for each kind."""
        ...

    @property
    def states(self) -> Mapping[str, KindSight]:
        """How it stands with each kind."""
        ...


class Watcher:
    """See the module. `cold_until_ns`: before that no node is called lost for silence.

    `stands_still`: why nothing is decided now, "" for no reason. `busiest_s`: the longest time
    without a pause so far, once synced. `read`: the kinds whose first list has come.
    """

    def __init__(
        self,
        feed: Feed,
        clock: DaemonClock,
        ledger: Ledger,
        settings: Settings,
        controllers: Iterable[str],
        read_settings: Callable[[Cache], Awaitable[Settings]] | None = None,
    ) -> None:
        """`read_settings` is asked for the settings each time before the controllers begin."""
        self.feed = feed
        self.clock = clock
        self.settings = settings
        self.dry_run = DryRun(ledger)
        self.read: set[str] = set()
        self.synced = asyncio.Event()
        self.cold_since_ns = 0
        self.cold_until_ns = 0
        self.cold_because = ""
        self.stands_still = ""
        self.last_news_ns = 0
        self.busiest_s = 0.0
        self._names = list(controllers)
        self._read_settings = read_settings
        self._missing: frozenset[str] = frozenset()
        self._blind_since_ns: int | None = None
        self._held: dict[tuple[str, tuple[str, str]], Put | Gone] = {}
        self._decided_ns = 0
        self._slice_began = time.perf_counter()
        self._pulse = time.monotonic()
        self._stood_still_s = 0.0

    def is_cold(self, now_ns: int) -> bool:
        """Whether nodes are not yet called lost for silence."""
        return now_ns < self.cold_until_ns

    def running(self) -> list[str]:
        """The controllers that are looked at."""
        engine = self.dry_run.engine
        return [c.name for c in engine.controllers] if engine is not None else []

    def unread(self) -> list[str]:
        """The kinds whose first list is still to come."""
        beyond = out_of_reach(self.feed.states)
        return [k for k in self.feed.states if k not in self.read and k not in beyond]

    async def change_settings(self, settings: Settings) -> None:
        """Go on with other settings: clocks and queues stay, unless it is another release."""
        before, self.settings = self.settings, settings
        if self.dry_run.engine is None or before == settings:
            return
        lifecycle = self.dry_run.lifecycle
        if (before.profile, before.gates) != (settings.profile, settings.gates):
            await self._begin_anew("the settings name another release or other gates")
        elif lifecycle is not None:
            lifecycle.settings = settings
            lifecycle.memory.change_settings(settings, self.clock.now_ns())

    def watch_afresh(self, because: str) -> None:
        """Go cold: silence so far counts for nothing."""
        if self.dry_run.lifecycle is not None:
            self.dry_run.lifecycle.memory.watch_afresh(self.clock.now_ns())
        self._note_cold(because)

    # The loop

    async def run(self) -> None:
        """Follow the feed until cancelled."""
        gc.disable()  # the first lists only make objects that stay
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feel_pulse())
            while True:
                news = await self._gather()
                self._slice_began = time.perf_counter()
                self._note_standstill()
                await self.take(news)
                self._note_busy()

    async def take(self, news: Iterable[News]) -> None:
        """Take in news, and let the controllers decide what is due."""
        await self._look_at_clocks()
        seen: list[Seen] = []
        gap_ns = 0
        for item in news:
            self.last_news_ns = self.clock.now_ns()
            if isinstance(item, Happened):
                seen.append((self._instant(item.seen_ns), item.events))
            elif isinstance(item, Listed):
                seen.append((None, await self._listed(item)))
            elif isinstance(item, Phase) and item.kind in EYES:
                gap_ns = max(gap_ns, item.gap_ns)
        if self.dry_run.engine is None:
            self._fill(seen)
            if not self.unread():
                await self._begin("the daemon has only begun to watch")
            return
        if frozenset(out_of_reach(self.feed.states)) != self._missing:
            await self._begin_anew("what may be read has changed")
        if not self._can_see(gap_ns):
            self._hold(seen)
            return
        if self._held:
            self._hold(seen)
            seen = [(None, list(self._held.values()))]
            self._held = {}
        await self._decide(seen)

    async def _gather(self) -> list[News]:
        """News of the next some hundredths of a second; none where somebody is due before."""
        queue = self.feed.queue
        try:
            async with asyncio.timeout(self._patience_s()):
                news = [await queue.get()]
        except TimeoutError:
            return []
        await asyncio.sleep(_GATHER_S)
        while not queue.empty():
            news.append(queue.get_nowait())
        return news

    def _patience_s(self) -> float:
        """Until somebody is due, or a look at clocks and connections is."""
        engine = self.dry_run.engine
        due = engine.next_due() if engine is not None else None
        if due is None or self.stands_still:
            return _LOOK_AROUND_S
        return min(_LOOK_AROUND_S, max(0.0, (due - self.clock.now_ns()) / SECOND_NS))

    async def _decide(self, seen: Iterable[Seen]) -> None:
        """Bring what the cluster shows and what is due through the dry run.

        Each event counts from when it came. Where we are behind, nothing falls due in the time that
        is still to be read: a heartbeat that waits in the queue is no silence.
        """
        for at_ns, events in seen:
            for position in range(0, len(events), _EVENTS_AT_ONCE):
                await self._decide_at(at_ns, events[position : position + _EVENTS_AT_ONCE])
        if self.feed.queue.empty():
            await self._decide_at(None, [])
        if self.clock.now_ns() > self.cold_until_ns + 2 * self.settings.node_monitor_period_ns:
            self.dry_run.settle_inherited(self.clock.now_ns())

    async def _decide_at(self, at_ns: int | None, events: Sequence[Event]) -> None:
        now_ns = self.clock.now_ns()
        self._decided_ns = now_ns if at_ns is None else max(self._decided_ns, min(at_ns, now_ns))
        for _ in self.dry_run.step(self._decided_ns, events):
            await self._breathe()
        await self._breathe()

    def _instant(self, seen_ns: int) -> int | None:
        """When the watch said it, by the daemon's clock; None: now."""
        return self.clock.at_ns(seen_ns) if seen_ns else None

    def _hold(self, seen: Iterable[Seen]) -> None:
        """Keep the last word on each object until the controllers may go on."""
        for _, events in seen:
            for event in events:
                key = event.obj.key if isinstance(event, Put) else event.key
                self._held[event.kind, key] = event

    # Lists, and the beginning

    def _fill(self, seen: Iterable[Seen]) -> None:
        for _, events in seen:
            for event in events:
                self.dry_run.cache.apply(event, self.clock.now_ns())

    async def _listed(self, listed: Listed) -> list[Put | Gone]:
        """A list as what has changed since; the first one goes into the cache as it is."""
        kind = listed.kind
        first = kind not in self.read
        self.read.add(kind)
        if first and self.dry_run.engine is None:
            self.dry_run.cache.fill(listed.objects, self.clock.now_ns())
            return []
        events: list[Put | Gone] = []
        keys = set()
        for obj in listed.objects:
            keys.add(obj.key)
            before = self.dry_run.projection.shown(kind, obj.key)
            if before is None or not same_version(before, obj):
                events.append(Put(kind, obj))
            await self._breathe()
        for key in self.dry_run.shown_keys(kind):
            if key not in keys:
                events.append(Gone(kind, key))
        return events

    async def _begin(self, because: str) -> None:
        """Join the running controllers on what was read."""
        self._missing = frozenset(out_of_reach(self.feed.states))
        if self._read_settings is not None:
            self.settings = await self._read_settings(self.dry_run.cache)
        self.dry_run.join(self.settings, runnable(self._names, self._missing))
        _collect_seldom()
        self.clock.set()
        self._decided_ns = 0
        self._pulse, self._stood_still_s = time.monotonic(), 0.0
        self._note_cold(because)
        await self._decide([])
        await self._decide([])  # who only asked for a turn: DaemonSets look at every node once
        self.synced.set()

    async def _begin_anew(self, because: str) -> None:
        """Everything planned is withdrawn, and the controllers are joined once more."""
        self.dry_run.withdraw(self.clock.now_ns(), because)
        for kind in out_of_reach(self.feed.states):
            self.dry_run.forget(kind)
            self.read.discard(kind)
        await self._begin(because)

    # Eyes and clocks

    def _can_see(self, gap_ns: int) -> bool:
        """Whether all watches work. After too long a gap the controllers begin to watch afresh."""
        now_ns = self.clock.now_ns()
        blind = [kind for kind in EYES if kind not in self._missing and self._is_broken(kind)]
        if blind:
            if self._blind_since_ns is None:
                self._blind_since_ns = now_ns
            self.stands_still = f"no working watch of {', '.join(blind)}"
            return False
        if self._blind_since_ns is not None:
            gap_ns = max(gap_ns, now_ns - self._blind_since_ns)
            self._blind_since_ns, self.stands_still = None, ""
        if gap_ns > self.settings.node_monitor_period_ns:
            self.watch_afresh(f"nothing was seen for {gap_ns / SECOND_NS:.0f}s")
        return True

    def _is_broken(self, kind: str) -> bool:
        state = self.feed.states.get(kind)
        return state is not None and state.broken_since_ns is not None

    async def _look_at_clocks(self) -> None:
        slept_ns = self.clock.slept_ns()
        stood_still_s, self._stood_still_s = self._stood_still_s, 0.0
        if self.dry_run.engine is None:
            return
        if slept_ns:
            self.watch_afresh(f"this machine slept for {slept_ns / SECOND_NS:.0f}s")
        elif stood_still_s > self._standstill_s():
            self.watch_afresh(f"this process stood still for {stood_still_s:.0f}s")
        elif abs(self.clock.drift_ns()) > DRIFT_NS:
            drift_s = self.clock.drift_ns() / SECOND_NS
            await self._begin_anew(f"the API server's clock was set by {drift_s:+.0f}s")

    async def _feel_pulse(self) -> None:
        """Notice when this process gets no time at all: stopped, swapped out, a frozen machine."""
        while True:
            await asyncio.sleep(_PULSE_S)
            self._note_standstill()

    def _note_standstill(self) -> None:
        now = time.monotonic()
        self._stood_still_s = max(self._stood_still_s, now - self._pulse - _PULSE_S)
        self._pulse = now

    def _standstill_s(self) -> float:
        """How long may pass before silence that we could not hear counts for nothing."""
        settings = self.settings
        half_ns = settings.node_monitor_grace_period_ns // 2
        limit_ns = max(settings.node_monitor_period_ns, min(_MOST_STANDSTILL_NS, half_ns))
        return limit_ns / SECOND_NS

    def _note_cold(self, because: str) -> None:
        self.cold_since_ns = self.clock.now_ns()
        self.cold_until_ns = self.cold_since_ns + self.settings.node_monitor_grace_period_ns
        self.cold_because = because

    async def _breathe(self) -> None:
        """Let others have the loop when it was long enough ours."""
        if time.perf_counter() - self._slice_began > SLICE_S:
            self._note_busy()
            await asyncio.sleep(0)
            self._slice_began = time.perf_counter()

    def _note_busy(self) -> None:
        if self.synced.is_set():
            self.busiest_s = max(self.busiest_s, time.perf_counter() - self._slice_began)


def _collect_seldom() -> None:
    """Set what was read aside for the garbage collector, and from now on look at new objects only.

    A full collection would look at everything for a third of a second, and find next to nothing:
    objects of the cluster refer to no others in circles.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
