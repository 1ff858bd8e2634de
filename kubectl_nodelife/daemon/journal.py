"""Keeps the changes: in memory at first, then in the file, from where listeners get them.

Batches are written several times a second, in a thread of its own, so that a slow disk never blocks
the loop. A listener gets a change once it is in the file, which also keeps the texts that no
decision needs: the request and the action as data (a zone that is lost plans 100,000 changes, and
they are most of what a change weighs). While the file cannot be written (a full disk) changes wait
in memory, up to a limit, and status says so; without any file (a read-only home) the whole journal
is in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kubectl_nodelife.daemon.changes import ChangeFilter, ChangeRecord, Settlement, Store
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.errors import Failed

T = TypeVar("T")

Batches = AsyncIterator[list[ChangeRecord]]
_Listener = asyncio.Queue[list[ChangeRecord] | None]
"""Batches of changes; None: too many came to keep them."""

FLUSH_SECONDS: Final = 0.2
PRUNE_SECONDS: Final = 60.0

_MOST_WAITING = 100_000
_RETRY_SECONDS = 2.0
_LISTENER_QUEUE = 600  # batches: two minutes
_IN_MEMORY = "changes are kept in memory, and lost when the daemon ends"


class TooSlow(Failed):
    """A listener did not take its changes in time."""


class Journal:
    """Keeps changes in memory and in its file, and hands them to listeners.

    `error` is what the last writing failed with, "" when all is well.

    `lost`: the file is not the one that was there before (moved aside, or in memory), and why.
    """

    def __init__(self, store: Store, lost: str = "") -> None:
        self.store = store
        self.warning = self.lost = lost
        self.error = ""
        self.dropped = 0
        self.ledger = Ledger(store.next_id(), store.still_open(), store.next_action())
        self._thread = ThreadPoolExecutor(1, "journal")
        self._writing = asyncio.Lock()
        self._waiting: list[ChangeRecord] = []
        self._settlements: list[Settlement] = []
        self._retry_at = 0.0
        self._listeners: set[_Listener] = set()

    def waiting(self) -> int:
        """How many changes are not in the file."""
        return len(self._waiting)

    def fault(self) -> str:
        """Why nothing may be enforced with this journal, "" where it is whole and is written."""
        return self.lost or self.error

    async def run(self, now_ns: Callable[[], int]) -> None:
        """Write batches until cancelled."""
        prune_at = time.monotonic() + PRUNE_SECONDS
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()
            if time.monotonic() > prune_at:
                prune_at = time.monotonic() + PRUNE_SECONDS
                await self._prune(now_ns())

    async def flush(self, *, insist: bool = False) -> None:
        """Bring everything noted so far to the file, if it can be written. `insist`: try even if
        the last attempt has only just failed.
        """
        async with self._writing:
            new, settled, changed = self.ledger.take_batch()
            self._waiting += new
            self._settlements += settled
            if self._waiting or self._settlements:
                await self._write(insist)
            if changed:
                self._notify(changed)

    async def select(self, wanted: ChangeFilter, limit: int | None = None) -> list[ChangeRecord]:
        """The changes noted so far, those included that could not be written."""
        await self.flush()
        try:
            selected = await self._in_thread(self.store.select, wanted, limit)
        except sqlite3.DatabaseError as error:
            if not _is_broken(error):
                raise
            await self._begin_anew(str(error))
            selected = []
        if self.store.unreadable:
            self.warning = f"{self.store.unreadable} rows of the journal cannot be read: left out"
        if self._waiting:
            numbers = {change.id for change in selected}
            selected += [c for c in self._waiting if wanted.takes(c) and c.id not in numbers]
        return selected if limit is None else selected[-limit:]

    @contextlib.contextmanager
    def following(self, wanted: ChangeFilter | None = None) -> Iterator[Batches]:
        """Changes as they come from now on, and again whenever one of them has another outcome;
        without their requests (`with_requests`). All of them unless some are `wanted`.

        To take the next raises TooSlow where more came than are kept for a listener.
        """
        listener: _Listener = asyncio.Queue(_LISTENER_QUEUE)
        self._listeners.add(listener)
        try:
            yield _batches(listener, wanted or ChangeFilter())
        finally:
            self._listeners.discard(listener)

    async def with_requests(self, changes: Sequence[ChangeRecord]) -> list[ChangeRecord]:
        """Copies of changes that a listener got, with their requests as the file has them."""
        bare = [change.id for change in changes if not change.patch]
        read: dict[int, str] = {}
        with contextlib.suppress(sqlite3.Error):  # `flush` deals with what is wrong with the file
            read = await self._in_thread(self.store.requests, bare) if bare else {}
        return [replace(c, patch=c.patch or read.get(c.id, "")) for c in changes]

    async def close(self) -> None:
        """Write what is left and close the file."""
        with contextlib.suppress(sqlite3.Error):
            await self.flush(insist=True)
            await self._in_thread(self.store.close)
        self._thread.shutdown()

    async def _write(self, insist: bool) -> None:
        if self.error and not insist and time.monotonic() < self._retry_at:
            self._shed()
            return
        try:
            if self.store.replaced():
                await self._begin_anew("it was deleted, or replaced by another")
            await self._in_thread(
                self.store.write, self._waiting, self._settlements, self.ledger.numbers.next_id
            )
        except sqlite3.Error as error:
            if _is_broken(error):
                await self._begin_anew(str(error))
            self.error = str(error)
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self._shed()
            return
        self.error = ""
        for change in self._waiting:
            change.patch = change.data = ""  # the file has them
        self._waiting, self._settlements = [], []

    async def _begin_anew(self, why: str) -> None:
        """Go on in a new file; what is left of the other one is moved aside."""
        path = self.store.path
        with contextlib.suppress(sqlite3.Error):
            await self._in_thread(self.store.close)
        try:
            aside = _move_aside(path)
            self.store = await self._in_thread(Store, path)
        except (sqlite3.Error, OSError):
            self.store = await self._in_thread(Store, ":memory:")
            self.warning = self.lost = f"the journal {path} was lost ({why}): {_IN_MEMORY}"
            return
        self.warning = f"the journal was broken ({why}); a new one was begun"
        self.warning += f", what is left of the old one is {aside}" if aside else ""
        self.lost = self.warning

    def _shed(self) -> None:
        """Memory has a limit as well: the oldest go, counted."""
        excess = len(self._waiting) - _MOST_WAITING
        if excess > 0:
            del self._waiting[:excess]
            self.dropped += excess
            oldest = self._waiting[0].id
            self._settlements = [s for s in self._settlements if s.id >= oldest]

    def _notify(self, changed: list[ChangeRecord]) -> None:
        for listener in list(self._listeners):
            try:
                listener.put_nowait(changed)
            except asyncio.QueueFull:
                self._listeners.discard(listener)
                while not listener.empty():
                    listener.get_nowait()
                listener.put_nowait(None)

    async def _prune(self, now_ns: int) -> None:
        async with self._writing:
            with contextlib.suppress(sqlite3.Error):
                while await self._in_thread(self.store.prune, now_ns):
                    await asyncio.sleep(0)

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)


async def _batches(listener: _Listener, wanted: ChangeFilter) -> Batches:
    while (batch := await listener.get()) is not None:
        if chosen := [change for change in batch if wanted.takes(change)]:
            yield chosen
    raise TooSlow("more changes came than were read", remedy="ask again with --since")


def open_journal(path: str) -> Journal:
    """The journal in that file, moved aside where it is broken; in memory where none can be
    made.
    """
    if path == ":memory:":
        return Journal(Store(path), lost="no folder for the journal can be made: " + _IN_MEMORY)
    try:
        journal = Journal(Store(path))
        if journal.store.unreadable:
            journal.warning = "some rows of the journal cannot be read: left out"
        return journal
    except (sqlite3.DatabaseError, OSError) as error:
        warning = f"cannot use the journal {path} ({error})"
        if _is_broken(error):
            with contextlib.suppress(OSError, sqlite3.Error):
                aside = _move_aside(path)
                return Journal(Store(path), lost=f"the journal was broken and is now {aside}")
    return Journal(Store(":memory:"), lost=f"{warning}: {_IN_MEMORY}")


def _is_broken(error: Exception) -> bool:
    """True if the file is damaged or no journal of ours.

    SQLite's word for that has no class of its own. The others are the system's (a full disk), or
    mean that one row is refused (IntegrityError): the file and all that it holds stay in place.
    """
    return type(error) is sqlite3.DatabaseError


def _move_aside(path: str) -> str:
    """Give the file and its log other names; the new name, "" where there was none."""
    aside = f"{path}.broken-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    moved = False
    for end in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(path + end, aside + end)
            moved = True
    return aside if moved else ""
