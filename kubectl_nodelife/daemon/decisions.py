"""The daemon's decision task: the one place from which the engine is touched.

News of the watches, new settings, outcomes of actions and the passing of time come through one
queue. Each batch becomes ticks for the host, which `live.loop` plays in slices of some 10
ms, so that a burst (a zone lost is 50,000 actions) never holds up an answer; nothing interrupts a
batch.

No decision is taken while a required watch (Node, Lease, Pod) is down, and after a suspend, a gap,
a stop of this process or a change of the server's clock none before each kind has been listed anew
(`gate`). What is seen meanwhile is held: the last event of each object, and all outcomes. The node
lifecycle controller then warms up besides: silence so far counts for nothing, and no node is called
lost before a full grace period has been watched.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from kubectl_nodelife.daemon.controller_host import ControllerHost
from kubectl_nodelife.daemon.gate import (
    ChangeSettings,
    Feed,
    GatedFeed,
    ManagerBegan,
    Message,
    events_of,
    runnable,
)
from kubectl_nodelife.daemon.lease_check import LeaseCheck, LeasesRead, ReadLeases
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.daemon.logs import fill, log, log_bug, take_in
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Tick
from kubectl_nodelife.engine.events import Gone, Outcome, Put, Unreadable
from kubectl_nodelife.engine.quarantine import Bug
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.clock import DaemonClock
from kubectl_nodelife.live.loop import drive, play
from kubectl_nodelife.live.news import ListNews, News, OtherCluster, WatchNews

_BATCH = ("decisions", "a batch")
_EVENTS_AT_ONCE = 100

_THRESHOLDS: Final = (5_000, 5, 1_000_000_000)

Key = tuple[str, str]
Seen = tuple[int | None, Sequence[Put | Gone | Unreadable | Outcome]]
"""When something was seen, None for now, and what."""


class DecisionTask(GatedFeed):
    """The task that feeds the engine, and the only one that touches it.

    `is_first_look`: it is cold since it has just begun, so that the controllers that it follows
    know more of the silence than it does. `slices.longest_s`: the longest time without a pause
    since synced.
    """

    def __init__(
        self,
        feed: Feed,
        clock: DaemonClock,
        ledger: Ledger,
        settings: Settings,
        controllers: Iterable[str],
        read_settings: Callable[[Cache], Awaitable[Settings]] | None = None,
        host: Any = None,
        read_leases: ReadLeases | None = None,
    ) -> None:
        """`read_settings` is asked for the settings each time before the controllers begin,
        `read_leases` for all Leases of nodes before a node is called lost. `host`: that of a task
        that enforces, instead of one that plans only.
        """
        super().__init__(feed, clock, settings)
        self.host: ControllerHost = ControllerHost(ledger) if host is None else host
        self.leases = LeaseCheck(read_leases, clock, feed.queue)
        self.synced = asyncio.Event()
        self.is_first_look = False
        self.last_news_ns = 0
        self._names = list(controllers)
        self._read_settings = read_settings
        self._missing: frozenset[str] = frozenset()
        self.held = EventBuffer()
        self.on_bug: Callable[[Bug], None] = log_bug
        self._decided_ns = 0
        self._anew_because = ""  # why the controllers begin anew as soon as they may decide
        self._manager: ManagerBegan | None = None

    @property
    def stands_still(self) -> str:
        """Why nothing is decided now, "" for no reason."""
        return self.gate.closed_because or self.leases.waiting

    def shown_ns(self) -> int:
        """The instant that answers are of: now, or while nothing is decided the last news, since
        silence after it says nothing about a node; never after the last decision.
        """
        now_ns = self.clock.now_ns()
        if not self.stands_still:
            return now_ns
        return min(self._decided_ns or now_ns, self.last_news_ns or now_ns, now_ns)

    def running(self) -> list[str]:
        """The controllers that are looked at."""
        engine = self.host.engine
        return [c.name for c in engine.controllers] if engine is not None else []

    async def change_settings(self, settings: Settings) -> None:
        """Order other settings; returns once they are in force."""
        done = asyncio.get_running_loop().create_future()
        await self.feed.queue.put(ChangeSettings(settings, done))
        await done

    # The loop

    async def run(self) -> None:
        """Follow the feed until cancelled."""
        gc.disable()  # the first lists only make objects that stay
        async with asyncio.TaskGroup() as group:
            group.create_task(self.gate.watch_for_standstill())
            group.create_task(self._drive())

    async def _drive(self) -> None:
        """The loop. A bug of ours ends a batch and not the loop: all begins anew on new lists."""
        while True:
            try:
                await drive(self, self.host, self.slices)
            except Exception as error:
                quarantine = self.host.cache.quarantine
                bug = quarantine.failed(*_BATCH, error, self.clock.now_ns())
                self.on_bug(bug)
                await asyncio.sleep(bug.retry_ns() / SECOND_NS)
                self._anew_because = because = f"a bug of ours ({bug.what()})"
                self._note_cold(because)
                self.gate.demand_all(because)

    async def next(self, due_ns: int | None) -> Iterable[Tick]:
        """Wait for messages, or until a controller is due. What is to be decided then."""
        messages = await self.gather(None if self.stands_still else due_ns)
        self.slices.begin()
        self.gate.note_running()
        return await self._receive(messages)

    async def take(self, messages: Iterable[Message]) -> None:
        """Take in messages, and let the controllers decide what is due."""
        await play(await self._receive(messages), self.host, self.slices)

    async def _receive(self, messages: Iterable[Message]) -> Iterable[Tick]:
        """Take in messages; the ticks that follow from them, to be played before the next."""
        self._check_clocks()
        seen: list[Seen] = []
        for item in messages:
            if isinstance(item, ChangeSettings):
                self._change_settings(item)
            elif isinstance(item, ManagerBegan):
                if self.host.engine is not None:
                    self._manager = item  # ours begin anew as its controllers did
                    self._anew_because = f"{item.holder} began as the kube-controller-manager"
            elif isinstance(item, Outcome):
                seen.append((None, [item]))
            elif isinstance(item, LeasesRead):
                seen.append((None, self._leases_read(item, seen)))
            else:
                now_ns = self.clock.now_ns()
                if isinstance(item, ListNews | WatchNews):
                    self.last_news_ns = now_ns
                self.host.note(item, now_ns)
                seen = await self._note(item, seen)
        if self.host.engine is None:
            self._fill(seen)
            if self.unread() or self.gate.other_cluster:
                return ()
            return await self._begin("the daemon has just started")
        missing = frozenset(self.out_of_reach())
        if missing != self._missing:
            self._missing, self._anew_because = missing, "what may be read has changed"
        held_back = bool(self.stands_still)
        if not self.gate.may_decide(missing) or self._must_wait():
            self.held.add(seen)
            return ()
        if because := self._anew_because or self.gate.clock_set:
            return await self._begin_anew(because, seen)
        if held_back:
            if self.is_cold(self.clock.now_ns()):
                self._watch_afresh(self.cold_because)  # silence counts from the newest lists
            self.held.add(seen)
            return chain(self._caught_up(), self._due())
        return chain(self._ticks(seen), self._due())

    async def _note(self, item: News, seen: list[Seen]) -> list[Seen]:
        """The list of what was seen so far, with this news."""
        if isinstance(item, WatchNews):
            return [*seen, (self._instant(item.seen_ns), item.events)]
        if isinstance(item, ListNews):
            # a list is newer than what was seen of the kind before it, and complete
            kind = item.kind
            others = [
                (at, [e for e in events if isinstance(e, Outcome) or e.kind != kind])
                for at, events in seen
            ]
            self.held.listed(kind)
            return [*others, (None, await self._listed(item))]
        if isinstance(item, OtherCluster) or self.host.engine is not None:
            self._note_watch(item)
        return seen

    # Ticks

    def _ticks(self, seen: Iterable[Seen]) -> Iterator[Tick]:
        """Ticks of the events that were seen, in small batches, or one where the host asks for it.

        Each event counts from when it came. Where we are behind, nothing falls due in the time that
        is still to be read: a heartbeat that waits in the queue is no silence.
        """
        if self.host.one_instant and not self.gate.waiting():
            if together := [event for _, events in seen for event in events]:
                yield self._decision_ns(None), together
            return
        for at_ns, events in seen:
            for position in range(0, len(events), _EVENTS_AT_ONCE):
                batch = events[position : position + _EVENTS_AT_ONCE]
                self._check_clocks()
                # this machine slept while we were deciding, or a grace period is over by now
                if self.gate.waiting() or self._must_wait(in_batch=True):
                    self.held.add([(None, batch)])
                else:
                    yield self._decision_ns(at_ns), batch

    def _caught_up(self) -> Iterator[Tick]:
        """Ticks of the events that were held back, all taken in before anything falls due."""
        engine = self.host.engine
        assert engine is not None
        held = self.held.pop()
        engine.timers_wait = True
        try:
            yield from self._ticks([(None, held)])
        finally:
            engine.timers_wait = False

    def _due(self) -> Iterator[Tick]:
        """Wake the controllers that are due, unless there is more to take in first."""
        self._check_clocks()
        if self.feed.queue.empty() and not self.gate.waiting() and not self._must_wait():
            yield self._decision_ns(None), ()
        if self.clock.now_ns() > self.cold_until_ns + 2 * self.settings.node_monitor_period_ns:
            self.host.settle_inherited(self.clock.now_ns())
            self.host.cache.quarantine.worked(*_BATCH)

    def _decision_ns(self, at_ns: int | None) -> int:
        """The instant by which to decide on something seen then (None: now); never goes back."""
        now_ns = self.clock.now_ns()
        self._decided_ns = now_ns if at_ns is None else max(self._decided_ns, min(at_ns, now_ns))
        return self._decided_ns

    def _instant(self, seen_ns: int) -> int | None:
        """When the watch said it, by the daemon's clock; None: now."""
        return self.clock.at_ns(seen_ns) if seen_ns else None

    def _change_settings(self, order: ChangeSettings) -> None:
        """Go on with other settings: clocks and queues stay, unless it is another release."""
        settings = order.settings
        before, self.settings = self.settings, settings
        lifecycle = self.host.lifecycle
        if self.host.engine is None or before == settings:
            pass
        elif (before.profile, before.gates) != (settings.profile, settings.gates):
            self._anew_because = "the settings name another release or other gates"
        elif lifecycle is not None:
            lifecycle.settings = settings
            lifecycle.memory.change_settings(settings, self.clock.now_ns())
        if order.done is not None and not order.done.done():
            order.done.set_result(None)
        changed = before.flags != settings.flags
        if self.host.warms_up_anew and changed and self.host.engine is not None:
            self._watch_afresh("the settings have changed")

    def begin_anew(self, because: str) -> None:
        """Withdraw what was decided with the next news, and let the controllers begin anew."""
        self._anew_because = because

    # Leases past the watch

    def _must_wait(self, *, in_batch: bool = False) -> bool:
        engine = self.host.engine
        if in_batch and engine is not None and engine.timers_wait:
            return False  # nothing falls due before all of it is taken in
        return self.leases.must_wait(self.host.lifecycle, self.host.cache)

    def _leases_read(self, read: LeasesRead, seen: list[Seen]) -> list[Put | Gone | Outcome]:
        """Renewals that the watch has not shown; a watch that should have is built anew."""
        shown = self.held.newest_leases(seen)
        newer, lies = self.leases.take(read, self.host.lifecycle, self.host.cache, shown)
        if read.is_older:
            because = "Leases are older than the watch has shown: the cluster's data were restored"
            log.warning("%s: all is listed anew", because)
            self.gate.demand_all(because)
        elif lies:
            log.warning("the watch of Leases brings no renewals: it is opened anew")
            self.feed.relist(["Lease"])
        return [Put("Lease", lease) for lease in newer]

    # Lists, and the beginning

    def _fill(self, seen: Iterable[Seen]) -> None:
        for _, events in seen:
            take_in(self.host.cache, events, self.clock.now_ns())

    async def _listed(self, listed: ListNews) -> list[Put | Gone | Unreadable]:
        """A list as what has changed since; the first one goes into the cache as it is."""
        is_first = self._note_list(listed, self.host.cache)
        if is_first and self.host.engine is None:
            fill(self.host.cache, listed.objects, self.clock.now_ns())
            return []
        return await events_of(listed, self.host, self.slices)

    async def _begin(self, because: str) -> Iterable[Tick]:
        """Join the running controllers on what was read."""
        self._missing, self._anew_because = frozenset(self.out_of_reach()), ""
        if self._read_settings is not None:
            self.settings = await self._read_settings(self.host.cache)
        manager, self._manager = self._manager, None
        restarted = manager is not None and not self.host.shows_taints_of(manager.at_ns)
        self.host.join(self.settings, runnable(self._names, self._missing), restarted=restarted)
        collect_seldom()
        self.gate.begin()
        self._decided_ns = 0
        watched_ns = self.cold_since_ns
        self._note_cold(because)
        self.is_first_look = not self.synced.is_set() and manager is None
        return self._first_ticks(manager.at_ns if manager is not None else None, watched_ns)

    def _first_ticks(self, began_ns: int | None, watched_ns: int) -> Iterator[Tick]:
        """Two: DaemonSets only ask for a turn in the first, and look at every node in the next.

        The first is as of `began_ns`, when those that are followed began, where that was seen.
        """
        for as_of_ns in (began_ns, None):
            self._check_clocks()
            if self.gate.waiting():  # this machine slept while they were about to begin
                self._anew_because = self.cold_because
                return
            yield self._decision_ns(as_of_ns), ()
            if as_of_ns is not None:
                self.host.began_at(as_of_ns, watched_ns, self.clock.now_ns())
        if not self.synced.is_set():
            self.slices.longest_s = 0.0
            self.synced.set()

    async def _begin_anew(self, because: str, seen: list[Seen]) -> Iterable[Tick]:
        """Everything planned is withdrawn, and the controllers are joined once more. What came in
        together with the news of another manager may be its doing, and comes after it.
        """
        self.host.withdraw(self.clock.now_ns(), because)
        seen = [(None, self.held.pop()), *seen]
        if self._manager is None:
            self._fill(seen)
            seen = []
        for kind in self.out_of_reach():
            self.host.forget(kind)
            self.read.discard(kind)
        return chain(await self._begin(because), self._ticks(seen))

    # Watches and clocks

    def _check_clocks(self) -> None:
        """Warm up anew after a time of which nothing is known."""
        if self.host.engine is not None:
            super()._check_clocks()

    def _time_passed_unseen(self) -> None:
        self.host.time_passed_unseen()

    def _watch_afresh(self, because: str) -> None:
        """Warm up: silence so far counts for nothing."""
        if self.host.lifecycle is not None:
            self.host.lifecycle.memory.watch_afresh(self.clock.now_ns())
        self._note_cold(because)

    def _note_cold(self, because: str) -> None:
        super()._note_cold(because)
        self.is_first_look = False
        if self.host.begins_warm() and not self.synced.is_set():
            self.cold_until_ns = self.cold_since_ns


def collect_seldom() -> None:
    """Set what was read aside for the garbage collector, and from now on look at new objects only.

    A full collection would look at everything for a third of a second, and find next to nothing:
    objects of the cluster refer to no others in circles. What was set aside before is looked at
    once more: the controllers that began then, and all that they knew, may be gone by now.
    """
    gc.enable()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


class EventBuffer:
    """Keeps what is seen while no decision is taken: last events and all outcomes. `objects`:
    (kind, key) -> the last event about the object.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, tuple[str, str]], Put | Gone | Unreadable] = {}
        self._outcomes: list[Outcome] = []

    def add(self, seen: Iterable[Seen]) -> None:
        """Keep these until the controllers may go on."""
        for _, events in seen:
            for event in events:
                if isinstance(event, Outcome):
                    self._outcomes.append(event)
                else:
                    self.objects[event.target] = event

    def listed(self, kind: str) -> None:
        """A list of the kind holds all that was held of it, and newer."""
        self.objects = {key: event for key, event in self.objects.items() if key[0] != kind}

    def newest_leases(self, seen: Iterable[Seen]) -> dict[Key, KubeObject]:
        """The newest of each Lease that came, and is not in the cache yet: held back, or just
        `seen`.
        """
        events = chain(self.objects.values(), *(events for _, events in seen))
        return {e.obj.key: e.obj for e in events if isinstance(e, Put) and e.kind == "Lease"}

    def pop(self) -> list[Put | Gone | Unreadable | Outcome]:
        """The events that were held, outcomes first; none is held any more."""
        held = [*self._outcomes, *self.objects.values()]
        self._outcomes, self.objects = [], {}
        return held
