"""The journal of writes: what was about to be sent is on disk before its first byte is sent.

A row is an action as data with its target, uid, resourceVersion and lease epoch; its state goes
`intent`, `sent`, and then `applied`, `failed` or `unknown`. Rows are written with full sync, all
that wait in one batch. After a crash every `intent` and `sent` is settled by reading the object,
never by sending again. The file is locked, and never moved aside: one that cannot be written, that
was replaced or that refuses a row stops all enforcing.

A journal that was begun before it was known which cluster it is of was moved to the cluster's
folder, under another name (`daemon.process`). What it left open is settled as well, and what it
says that only a person ends, a pause or a breaker, holds on.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.daemon.paths import file_inode, lock_file, open_private
from kubectl_nodelife.engine.calls import Answer, Get
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.times import HOUR_NS

INTENT, SENT, APPLIED, FAILED, UNKNOWN = "intent", "sent", "applied", "failed", "unknown"
SCHEMA: Final = 1
WRITES: Final = ".writes.db"
"""How the names of journals of writes end."""

CLUSTER_MARK: Final = "kube-system-uid"
"""The mark that keeps the uid of the cluster that a journal is of."""

RETENTION_NS: Final = 7 * 24 * HOUR_NS
_SAVED_EVERY_S: Final = 0.5
_PRUNED_EVERY_S: Final = 600.0
_TRIED_EVERY_S: Final = 2.0
"""So often a mark is written where nothing else is: in a quiet cluster a disk that can no longer be
written would show at the next write alone, when another should have led for long."""
_TRIED: Final = "last tried"
_PRAGMAS: Final = ("journal_mode = WAL", "synchronous = FULL")

T = TypeVar("T")
End = tuple[str, int, str, str, int]
"""State, code, message, new resourceVersion, id."""

_AT_ONCE: Final = (64, 16, 4, 1)
"""Rows of one statement. The thread of the journal gives up the interpreter at each statement, and
waits up to 5 ms to have it again while decisions are taken: one for each row would be an age.
"""

_COLUMNS = (
    "time_ns INTEGER NOT NULL, controller TEXT NOT NULL, action TEXT NOT NULL, "
    "kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL, "
    "version TEXT NOT NULL, digest TEXT NOT NULL, epoch INTEGER NOT NULL"
)


class Intent(NamedTuple):
    """A write that is about to be sent. `digest`: SHA-256 of method, path and body, "" where a read
    comes first. `epoch`: leaseTransitions of the Lease that allows it.
    """

    time_ns: int
    controller: str
    action: str
    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    digest: str
    epoch: int


class Unsettled(NamedTuple):
    """A write whose end is not known."""

    id: int
    state: str
    intent: Intent


class Intents:
    """The journal of writes, on disk before the first byte of each is sent.

    `error`: why nothing may be sent, "" where all is well. `has_unsettled`: some
    write's end may be unknown; `unknown_ends`: how many were noted as that so far.

    A full disk may pass; any other error is final, and only a new start looks at the file again.
    """

    def __init__(self, path: str) -> None:
        """Raises Refused where the file cannot be had for us alone."""
        self.path = path
        self.error = ""
        self._lock = _lock(path)
        try:
            self._db = open_private(path, _PRAGMAS, _make_tables)
            (highest,) = self._db.execute("SELECT coalesce(max(id), 0) FROM writes").fetchone()
        except (sqlite3.Error, OSError) as error:
            os.close(self._lock)
            raise Refused(
                f"the journal of writes cannot be used: {error}",
                on=path,
                remedy="move it aside, and enforcing begins with an empty one",
            ) from None
        self._first_id = self._next_id = int(highest) + 1
        self.has_unsettled = True
        self.unknown_ends = 0
        self._inode = file_inode(path)
        self._final = False
        self._tries = 0
        self._one_at_a_time = threading.Lock()  # `mark` must not join a batch that may fail
        self._thread = ThreadPoolExecutor(1, "writes")
        self._rows: list[tuple[Any, ...]] = []
        self._ends: list[End] = []
        self._waiting: list[asyncio.Future[str]] = []

    async def begin(self, intent: Intent) -> int:
        """Bring the intent to the disk, with all others that wait; its id. Raises OSError."""
        number, self._next_id = self._next_id, self._next_id + 1
        self._rows.append((number, *intent, INTENT))
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._write_waiting, loop)  # what one slice decided comes together
        stored: asyncio.Future[str] = loop.create_future()
        self._waiting.append(stored)
        if error := await stored:
            raise OSError(error)
        return number

    def note(
        self, number: int, state: str, code: int = 0, message: str = "", version: str = ""
    ) -> None:
        """The write is sent, or has ended; goes to the disk with the next batch."""
        self._ends.append((state, code, message[:500], version, number))
        if state == UNKNOWN:
            self.has_unsettled = True
            self.unknown_ends += 1

    async def flush(self) -> None:
        """Bring the ends that wait to the disk."""
        ends, self._ends = self._ends, []
        failed: sqlite3.Error | None = None
        try:
            await self._in_thread(self._write, [], ends)
        except sqlite3.Error as error:
            failed = error
        self._note_saved(failed, ends)

    async def run(self, now_ns: Callable[[], int]) -> None:
        """Bring ends to the disk, try the disk, and drop what is old, until cancelled."""
        tried_s = pruned_s = 0.0
        while True:
            await asyncio.sleep(_SAVED_EVERY_S)
            tried_s, pruned_s = tried_s + _SAVED_EVERY_S, pruned_s + _SAVED_EVERY_S
            if self._ends or self.error or tried_s >= _TRIED_EVERY_S:
                tried_s = 0.0
                await self.flush()
            if pruned_s >= _PRUNED_EVERY_S:
                pruned_s = 0.0
                with contextlib.suppress(sqlite3.Error):
                    await self._in_thread(self._prune, now_ns() - RETENTION_NS)

    def unsettled(self) -> list[Unsettled]:
        """The writes that an earlier process left open, and those without an answer; a state that
        is none is one of these.
        """
        names = ", ".join(Intent._fields)
        rows = self._db.execute(
            f"SELECT id, state, {names} FROM writes "
            "WHERE state = ? OR state NOT IN (?, ?) AND id < ? ORDER BY id",
            (UNKNOWN, APPLIED, FAILED, self._first_id),
        )
        return [Unsettled(row[0], row[1], Intent(*row[2:])) for row in rows.fetchall()]

    def mark(self, name: str, value: str | None = None) -> str:
        """A word kept with the journal, such as the cluster's uid; `value`: keep this from now.

        Raises sqlite3.Error where it cannot be kept.
        """
        with self._one_at_a_time:
            if value is not None:
                self._db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (name, value))
            row = self._db.execute("SELECT value FROM marks WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    async def close(self) -> None:
        """Bring the rest to the disk and close."""
        await self.flush()
        await self._in_thread(self._db.close)
        self._thread.shutdown()
        os.close(self._lock)

    def _write_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bring the intents that wait to the disk; each waiter gets why its intent is not there, ""
        where it is. Without a task between: in a burst each turn of the loop takes some ms.
        """
        rows, self._rows = self._rows, []
        waiting, self._waiting = self._waiting, []
        ends, self._ends = self._ends, []

        def written(batch: Future[None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(resolve, batch.exception())

        def resolve(error: BaseException | None) -> None:
            if error is None or isinstance(error, sqlite3.Error):
                self._note_saved(error, ends)
                error = None
            for stored in waiting:
                if stored.done():
                    continue  # its action was given up
                if error is not None:
                    stored.set_exception(error)
                else:
                    stored.set_result(self.error)

        self._thread.submit(self._write, rows, ends).add_done_callback(written)

    def _note_saved(self, error: sqlite3.Error | None, ends: list[End]) -> None:
        """Take in a batch's outcome. Its ends are tried again; its intents are not sent."""
        self.error = str(error) if error is not None else ""
        if error is not None:
            self._final = self._final or not isinstance(error, sqlite3.OperationalError)
            self._ends = ends + self._ends

    def _write(self, rows: list[tuple[Any, ...]], ends: list[End]) -> None:
        if self._final:
            raise sqlite3.DatabaseError(self.error)
        if file_inode(self.path) != self._inode:
            raise sqlite3.DatabaseError("the file was deleted, or replaced by another")
        last = list({end[-1]: end for end in ends}.values())
        with self._one_at_a_time, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for some in _parts(rows):
                self._db.execute(_insert(len(some)), list(chain.from_iterable(some)))
            for some in _parts(last):
                self._db.execute(_update(len(some)), list(chain.from_iterable(some)))
            if not rows and not last:
                self._tries += 1
                self._db.execute(
                    "INSERT OR REPLACE INTO marks VALUES (?, ?)", (_TRIED, str(self._tries))
                )

    def _prune(self, before_ns: int) -> None:
        with self._one_at_a_time:
            self._db.execute(
                "DELETE FROM writes WHERE time_ns < ? AND state IN (?, ?)",
                (before_ns, APPLIED, FAILED),
            )

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)


def _parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """The rows in parts of at most _AT_ONCE, and these of few different lengths."""
    at = 0
    while at < len(rows):
        size = next(size for size in _AT_ONCE if size <= len(rows) - at)
        yield rows[at : at + size]
        at += size


@cache
def _insert(rows: int) -> str:
    marks = ", ".join("?" * (len(Intent._fields) + 2))
    names = f"id, {', '.join(Intent._fields)}, state"
    return f"INSERT INTO writes ({names}) VALUES {', '.join([f'({marks})'] * rows)}"


@cache
def _update(rows: int) -> str:
    """Of rows that differ in their ids."""
    return (
        "WITH ended (state, code, message, new_version, id) AS "
        f"(VALUES {', '.join(['(?, ?, ?, ?, ?)'] * rows)}) "
        "UPDATE writes SET (state, code, message, new_version) = (SELECT state, code, message, "
        "new_version FROM ended WHERE ended.id = writes.id) WHERE id IN (SELECT id FROM ended)"
    )


def _lock(path: str) -> int:
    """The file's lock, held until it is closed. Raises Refused."""
    try:
        number = lock_file(f"{path}.lock")
    except OSError as error:
        raise Refused(
            f"the journal of writes cannot be made: {error.strerror}",
            on=path,
            remedy="enforcing needs a folder for its journal that can be written",
        ) from None
    if number is None:
        raise Refused("another process enforces with this journal", on=path, remedy="stop it first")
    return number


def _make_tables(db: sqlite3.Connection) -> None:
    """Raises sqlite3.Error for a file that is damaged or of another version."""
    db.text_factory = lambda text: text.decode(errors="replace")  # of a damaged row as well
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version not in (0, SCHEMA):
        raise sqlite3.OperationalError(f"its version is {version}, ours is {SCHEMA}")
    db.execute(
        f"CREATE TABLE IF NOT EXISTS writes (id INTEGER PRIMARY KEY, {_COLUMNS}, "
        "state TEXT NOT NULL, code INTEGER NOT NULL DEFAULT 0, "
        "message TEXT NOT NULL DEFAULT '', new_version TEXT NOT NULL DEFAULT '')"
    )
    db.execute("CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.OperationalError(f"it is damaged: {verdict}")


ReadTarget = Callable[[Get], Awaitable[Answer]]

AGAIN_S: Final = 10.0
_CREATES: Final = ("CreatePod", "CreateControllerRevision")
_KINDS: Final = frozenset(kind.name for kind in KINDS)
_DELETES: Final = ("DeletePod", "DeleteControllerRevision", "EvictPod")


def moved_journals(path: str) -> list[Intents]:
    """The moved journals beside the journal of that name. Raises Refused where one is of no use."""
    stem = path.removesuffix(WRITES)
    return [Intents(journal) for journal in sorted(glob.glob(f"{glob.escape(stem)}.*{WRITES}"))]


async def settle_moved(own: Intents, moved: Intents, read: ReadTarget) -> int:
    """Settle what a moved journal left open; how many writes stay open all the same.

    Of another cluster's nothing can be known.
    """
    if (cluster := moved.mark(CLUSTER_MARK)) in ("", own.mark(CLUSTER_MARK)):
        await settle_unsettled(moved, read)
    elif moved.unsettled():
        log.warning("%s is of another cluster (%s)", moved.path, cluster)
    return len(moved.unsettled())


async def settle_all(own: Intents, moved: list[Intents], read: ReadTarget) -> None:
    """Settle what earlier processes have left open in these journals; `moved` are closed after."""
    await settle_unsettled(own, read)
    while moved:
        journal = moved.pop()
        try:
            if unsettled := await settle_moved(own, journal, read):
                log.warning("%s: the outcome of %d writes is unknown", journal.path, unsettled)
        finally:
            await journal.close()


async def settle_later(intents: Intents, read: ReadTarget) -> None:
    """Settle what could not be read before, and writes of ours whose end is not known, until
    cancelled.
    """
    while True:
        await asyncio.sleep(AGAIN_S)
        if intents.has_unsettled:
            await settle_unsettled(intents, read)


async def settle_unsettled(intents: Intents, read: ReadTarget) -> None:
    """Read each object; nothing is sent again. What cannot be read stays open for the next time.

    `has_unsettled` stays true until all of it has been read, and where an end becomes unknown
    meanwhile.
    """
    unknown_before = intents.unknown_ends
    await intents.flush()  # what was noted last is looked at, too
    is_open = bool(intents.error)
    for write in intents.unsettled():
        intent = write.intent
        if intent.kind not in _KINDS:  # the row is damaged: what was written is not known
            is_open = True
            continue
        answer = await read(Get(intent.kind, (intent.namespace, intent.name)))
        if answer.code == NOT_FOUND:
            state = "applied" if _is_a(intent, _DELETES) else "failed"
            intents.note(write.id, state, NOT_FOUND, "there is no such object")
        elif answer.ok and answer.obj is not None:
            version = answer.obj.metadata.resource_version
            moved = bool(intent.version) and version != intent.version
            going = answer.obj.metadata.deletion_timestamp is not None
            done = moved or _is_a(intent, _CREATES) or (going and _is_a(intent, _DELETES))
            state = "applied" if done else "failed"
            intents.note(write.id, state, 0, "settled by reading the object", version)
        else:
            is_open = True
    await intents.flush()
    intents.has_unsettled = is_open or intents.unknown_ends != unknown_before


def _is_a(intent: Intent, names: tuple[str, ...]) -> bool:
    return any(f'"type":"{name}"' in intent.action for name in names)
