"""Makes what the live page shows, while it is open: frames of the wall, changes, works.

All of it is called in the daemon's loop, in slices. A look that takes long is followed by a longer
pause, so that it costs a tenth of a core at most. What works in progress wait for is asked of the
daemon's own answers: plans of drains are made in a child of the daemon, roll-outs in a thread; each
question is asked again after a while, and after ten times as long as its answer took.

All listeners have one stream of server-sent events (`Broadcast`). The last events are kept, so that
a listener that comes back goes on where it stopped, by the number of the last event that it had;
else it begins with a snapshot. One that does not read is dropped, and takes a snapshot when it is
back.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from typing import Any, Final

import msgspec

from kubectl_nodelife.daemon.changes import ChangeFilter, ChangeRecord
from kubectl_nodelife.daemon.cluster_view import Sources
from kubectl_nodelife.daemon.journal import TooSlow
from kubectl_nodelife.daemon.server import Answer, Query
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.service import Service
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.loop import sliced
from kubectl_nodelife.outlook.live_wall import LiveFrame, LiveWall, delta
from kubectl_nodelife.outlook.situation import Situation
from kubectl_nodelife.outlook.works import (
    WorkDetails,
    WorkInProgress,
    WorkKey,
    WorkTracker,
    details_of_drain,
    details_of_roll_out,
    details_of_upgrade,
    key_of,
)

FRAME_SECONDS: Final = 0.5
TICK_SECONDS: Final = 1.0
WORKS_SECONDS: Final = 2.0
HARM_SECONDS: Final = 1.0
SERVICES_SECONDS: Final = 60.0
MOST_CHANGES: Final = 200
HAPPENED_NS: Final = 3600 * SECOND_NS
_SHARE: Final = 10

SNAPSHOT, DELTA, TICK, WAITING = "snapshot", "delta", "tick", "waiting"
"""The events of the stream. `tick`: the daemon is there, and nothing differs; `waiting`: there is
nothing to show yet, and why."""

EVERY_SECONDS: Final[Mapping[str, float]] = {"Upgrade": 5.0, "DaemonSet": 5.0, "Node": 15.0}
"""How often is asked, by the kind of work."""
MOST_ASKED: Final = 8
"""Works of a kind of which details are shown."""
_LOOK_SECONDS: Final = 1.0


_SHOWN = "controller", "action", "kind", "namespace", "name", "outcome", "reason", "cause", "node"
"""The fields that are shown of a change of the last hour, beside id, `atS`: when, on the stream's
clock, and `taint`: which one."""


class LiveFeed:
    """Makes the events of the live page: frames of the wall, changes, works.

    `answers`: the daemon's, by question.
    """

    def __init__(self, sources: Sources, answers: Mapping[str, Answer]) -> None:
        self._sources = sources
        self._services: list[Service] = []
        self._services_until_s = 0.0
        self._wall = LiveWall()
        self._published: LiveFrame | None = None
        self._works: list[WorkInProgress] = []
        self._works_at = 0.0
        self._details = WorksFeed(answers, sources.now_ns)
        self._happened: dict[int, ChangeRecord] = {}
        self._fresh: dict[int, ChangeRecord] = {}
        self._ticked_at = 0.0
        self.broadcast = Broadcast(self._snapshot)

    @property
    def situation(self) -> Situation | None:
        """What happens, as the listeners see it; None where nobody listens, or nothing is seen."""
        if self._published is None or not self.broadcast.subscribers:
            return None
        return self._published.situation

    async def run(self) -> None:
        """Publish what there is, as long as there are listeners, until cancelled."""
        while True:
            await self.broadcast.wanted.wait()
            beside = [
                asyncio.create_task(self._follow()),
                asyncio.create_task(self._look_whom_it_harms()),
                asyncio.create_task(self._details.run(lambda: self._works)),
            ]
            try:
                while self.broadcast.wanted.is_set():
                    for task in beside:
                        if task.done():
                            task.result()
                    began = time.thread_time()
                    await self._frame()
                    cost_s = time.thread_time() - began
                    await asyncio.sleep(max(FRAME_SECONDS, _SHARE * cost_s))
            finally:
                for task in beside:
                    task.cancel()

    async def _frame(self) -> None:
        try:
            view = self._sources.view()
            frame = await sliced(self._wall.steps(view, self._works))
        except NodelifeError as error:  # not even the nodes were read
            self._published = None
            self.broadcast.whisper(WAITING, {"what": str(error)})
            return
        works = self._works
        if time.monotonic() > self._works_at + WORKS_SECONDS:
            self._works_at = time.monotonic()
            followed, now_ns = self._details.followed, view.outlook.now_ns
            works = followed.works(view.cache, now_ns, self._wall.instant)
        self._publish(frame, works, view.source.get("age"))

    def _publish(self, frame: LiveFrame, works: list[WorkInProgress], age_s: float | None) -> None:
        fresh, self._fresh = self._fresh, {}
        self._happened |= fresh
        before, works_before = self._published, self._works
        if before is None or not frame.follows(before):
            self._published, self._works = frame, works
            document = self._snapshot()
            assert document is not None
            self.broadcast.publish(SNAPSHOT, document)
            return
        self._published, update = delta(before, frame)
        self._works = works
        if works != works_before:
            update["works"] = works
        if fresh:
            update["changes"] = self._as_rows(fresh.values())
        if update:
            self.broadcast.publish(DELTA, {"now": frame.now_s, **update})
        if time.monotonic() > self._ticked_at + TICK_SECONDS:
            self._ticked_at = time.monotonic()
            self.broadcast.whisper(TICK, {"now": frame.now_s, "age": age_s})

    def _snapshot(self) -> dict[str, Any] | None:
        """The document that a new listener begins with."""
        if self._published is None:
            return None
        changes = self._as_rows(self._happened.values())
        more = {"epochS": self._wall.epoch_s, "works": self._works, "changes": changes}
        return self._published.snapshot() | more

    def _as_rows(self, changes: Iterable[ChangeRecord]) -> list[dict[str, Any]]:
        return [
            {"id": change.id, "atS": self._wall.instant(change.time_ns)}
            | {name: getattr(change, name) for name in _SHOWN}
            | {"outcome": change.told_outcome, "taint": _taint(change)}
            for change in sorted(changes, key=lambda change: change.id)
        ]

    async def _look_whom_it_harms(self) -> None:
        """While nodes are silent or lost; Services are not watched, and listed once a while."""
        while True:
            cost_s = 0.0
            if self._wall.is_harmed:
                await self._list_services()
                with suppress(NodelifeError):  # not read any more
                    view, began = self._sources.view(), time.thread_time()
                    now_ns = view.outlook.now_ns
                    await sliced(self._wall.harm_steps(view.cache, self._services, now_ns))
                    cost_s = time.thread_time() - began
            await asyncio.sleep(max(HARM_SECONDS, _SHARE * cost_s))

    async def _list_services(self) -> None:
        """As before, where they may not be listed now."""
        if time.monotonic() < self._services_until_s:
            return
        self._services_until_s = time.monotonic() + SERVICES_SECONDS
        with suppress(NodelifeError):
            listed = await self._sources.list_kinds(["Service"])
            self._services = [each for each in listed.objects if isinstance(each, Service)]

    # Changes

    async def _follow(self) -> None:
        """Keep the newest changes of the last hour."""
        while True:
            with suppress(TooSlow), self._sources.journal.following() as batches:
                wanted = ChangeFilter(since_ns=self._sources.now_ns() - HAPPENED_NS)
                self._take(await self._sources.journal.select(wanted, MOST_CHANGES))
                async for batch in batches:
                    self._take(batch)

    def _take(self, changes: Sequence[ChangeRecord]) -> None:
        """Take what is news, and forget the oldest."""
        newest = {change.id for change in nlargest(MOST_CHANGES, changes, key=lambda c: c.id)}
        for change in changes:
            before = self._fresh.get(change.id) or self._happened.get(change.id)
            if before is None and change.id not in newest:
                continue
            if before is None or before.outcome != change.outcome:
                # A copy: the ledger's own record changes when the change is settled.
                self._fresh[change.id] = msgspec.structs.replace(change)
        for number in sorted(self._happened.keys() | self._fresh.keys())[:-MOST_CHANGES]:
            self._happened.pop(number, None)
            self._fresh.pop(number, None)


def _taint(change: ChangeRecord) -> str:
    """The taint that is put on or taken off, such as `unreachable:NoExecute`; "": none is."""
    if change.action not in ("AddTaint", "RemoveTaint"):
        return ""
    detail = msgspec.json.decode(change.detail, type=dict[str, Any])
    return f"{detail['key'].removeprefix('node.kubernetes.io/')}:{detail['effect']}"


class WorksFeed:
    """Asks the daemon's own answers what works in progress wait for, while the page is open.
    `now_ns`: by the API server's clock.
    """

    def __init__(self, answers: Mapping[str, Answer], now_ns: Callable[[], int]) -> None:
        self.followed = WorkTracker()
        self._answers = answers
        self._now_ns = now_ns
        self._due = dict.fromkeys(EVERY_SECONDS, 0.0)

    async def run(self, works: Callable[[], Sequence[WorkInProgress]]) -> None:
        """Ask as long as it is not cancelled. `works`: those of now."""
        while True:
            all_works = works()
            for kind, every_s in EVERY_SECONDS.items():
                mine = [key_of(work) for work in all_works if work.kind == kind][:MOST_ASKED]
                began = time.monotonic()
                if mine and began >= self._due[kind]:
                    await self._ask(kind, mine)
                    took_s = time.monotonic() - began
                    self._due[kind] = began + max(every_s, _SHARE * took_s)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _ask(self, kind: str, keys: Sequence[WorkKey]) -> None:
        if kind == "Upgrade":
            await self._take(keys, "upgrade", {}, lambda answer: [details_of_upgrade(answer)])
        elif kind == "Node":
            names = [name for _, _, name in keys]
            plans = {"node": names}
            await self._take(
                keys, "drains", plans, lambda answer: [details_of_drain(p) for p in answer["items"]]
            )
        else:
            for key in keys:
                query = {"about": ["status"], "namespace": [key[1]], "name": [key[2]]}
                query["output"] = ["json"]
                await self._take(
                    [key], "daemonset", query, lambda answer: [details_of_roll_out(answer)]
                )

    async def _take(
        self,
        keys: Sequence[WorkKey],
        question: str,
        query: Query,
        read: Callable[[dict[str, Any]], list[WorkDetails]],
    ) -> None:
        """Take the answer; where there is none, that is what is shown of the works."""
        now_ns = self._now_ns()
        try:
            answer = await self._answers[question](query)
        except NodelifeError as error:
            details = [
                WorkDetails(None, [("what it waits for is not known", str(error), None)], [])
            ]
            details *= len(keys)
        else:
            text = answer.get("text")
            details = read(msgspec.json.decode(text) if isinstance(text, str) else answer)
        for key, each in zip(keys, details, strict=True):
            self.followed.take(key, each, now_ns)


MOST_EVENTS: Final = 512
MOST_LISTENERS: Final = 16
MOST_UNREAD_BYTES: Final = 1 << 20

_json = msgspec.json.Encoder()


class Subscriber:
    """The chunks that one listener has not read yet. `dropped`: it reads too slowly."""

    def __init__(self) -> None:
        self.dropped = False
        self._chunks: deque[bytes] = deque()
        self._unread = 0
        self._came = asyncio.Event()

    def put(self, chunk: bytes, *, first: bool = False) -> None:
        """Keep that for it. `first`: it counts for nothing, since it was asked for."""
        self._chunks.append(chunk)
        self._unread += 0 if first else len(chunk)
        if self._unread > MOST_UNREAD_BYTES:
            self.dropped = True
        self._came.set()

    def drop(self) -> None:
        """End it: there is nothing more."""
        self.dropped = True
        self._came.set()

    async def take(self, seconds: float) -> bytes:
        """All that it has not read; b"" where nothing came in that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._came.wait()
        except TimeoutError:
            return b""
        self._came.clear()
        taken = b"".join(self._chunks)
        self._chunks.clear()
        self._unread = 0
        return taken


class Broadcast:
    """One stream of server-sent events, sent to each listener.

    `snapshot` makes the document that a new listener begins with; None: there is
    none yet, and the next event is one.
    """

    def __init__(self, snapshot: Callable[[], dict[str, Any] | None]) -> None:
        self._snapshot = snapshot
        self._run = secrets.token_hex(4)
        self._number = 0
        self._events: deque[tuple[int, bytes]] = deque(maxlen=MOST_EVENTS)
        self._kept: tuple[int, bytes] = (-1, b"")
        self.subscribers: set[Subscriber] = set()
        self.wanted = asyncio.Event()

    def join(self, last_event: str = "") -> Subscriber | None:
        """A new listener; None: there are too many."""
        if len(self.subscribers) >= MOST_LISTENERS:
            return None
        subscriber = Subscriber()
        missed = self._since(last_event)
        if missed is None:
            missed = self._first()
        if missed:
            subscriber.put(missed, first=True)
        self.subscribers.add(subscriber)
        self.wanted.set()
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """It listens no more."""
        self.subscribers.discard(subscriber)
        if not self.subscribers:
            self.wanted.clear()

    def close(self) -> None:
        """End all of them: there is nothing more."""
        for subscriber in self.subscribers:
            subscriber.drop()

    def publish(self, event: str, document: dict[str, Any]) -> None:
        """Send to all, and keep it for listeners that come back."""
        self._number += 1
        chunk = self._chunk(event, document)
        self._events.append((self._number, chunk))
        self._give(chunk)

    def whisper(self, event: str, document: dict[str, Any]) -> None:
        """Send to those that listen now; it is not kept."""
        self._give(b"event: %b\ndata: %b\n\n" % (event.encode(), _json.encode(document)))

    def _give(self, chunk: bytes) -> None:
        for subscriber in list(self.subscribers):
            if not subscriber.dropped:
                subscriber.put(chunk)

    def _chunk(self, event: str, document: dict[str, Any]) -> bytes:
        number = f"{self._run}-{self._number}".encode()
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (number, event.encode(), _json.encode(document))

    def _first(self) -> bytes:
        """The snapshot, made once for all that come before the next event."""
        if self._kept[0] != self._number:
            document = self._snapshot()
            if document is None:
                return b""
            self._kept = self._number, self._chunk("snapshot", document)
        return self._kept[1]

    def _since(self, last_event: str) -> bytes | None:
        """The events after that one; None: they are not kept, or it is of another run."""
        run, _, number = last_event.partition("-")
        if run != self._run or not number.isdecimal() or len(number) > 18:
            return None
        last = int(number)
        if last > self._number or (self._events and last < self._events[0][0] - 1):
            return None
        if last < self._number and not self._events:
            return None
        return b"".join(chunk for at, chunk in self._events if at > last)
