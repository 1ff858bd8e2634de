"""One stream of server-sent events for all listeners.

The last events are kept, so that a listener that comes back goes on where it stopped, by the number
of the last event that it had; else it begins with a snapshot. One that does not read is dropped,
and takes a snapshot when it is back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

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
        made = Subscriber()
        missed = self._since(last_event)
        if missed is None:
            missed = self._first()
        if missed:
            made.put(missed, first=True)
        self.subscribers.add(made)
        self.wanted.set()
        return made

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
