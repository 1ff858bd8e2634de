"""Answers that take long are made in a forked child of the daemon, so that its loop goes on.

The child has the daemon's memory as it was at that instant, and nothing else of it: all sockets and
files are closed in it before it begins, so that it can neither read nor write the cluster or the
journal. It runs below the daemon's priority, for so many seconds and with so much memory more at
most; whom it forks itself ends with it. What it makes comes back through a pipe, a document a line:
how far it is, where it tells that, and the answer last. What it changes in memory stays its own.

The `Foreteller` plays the present in such a child for the daemon's own answers, what zones and
waiting nodes come to: only while so many nodes are silent that a zone's state changes, when nodes
have fallen silent, come to wait or gone on since the last play, and so seldom that it costs a tenth
of a core at most.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, suppress
from importlib import import_module
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from kubectl_nodelife.errors import Failed, NodelifeError, error_of
from kubectl_nodelife.live.loop import sliced
from kubectl_nodelife.outlook.node import Outlook
from kubectl_nodelife.outlook.taint_turns import Foretold
from kubectl_nodelife.outlook.view import ClusterView

MOST_AT_ONCE: Final = 2
SECONDS: Final = 60.0
PATIENCE_S: Final = 10.0
"""So long a question waits for its turn."""

MOST_BYTES: Final = 1 << 30

_LOOK_YOURSELF: Final = "look directly with --no-daemon"
_PIPE: Final = 3
_NICER: Final = 5
_LOOK_S: Final = 0.01
_ALARM_AFTER_S: Final = 1.0

Response = dict[str, Any]

Tell = Callable[[Response], None]
"""Hands over a document that comes before the answer."""

Ready = Callable[[], Awaitable[None]]

T = TypeVar("T")


class _Imports:
    """How many threads import a module now."""

    under_way = 0


async def imported(name: str) -> Any:
    """The module of that name, which a thread imports where it is not yet. No child begins
    meanwhile: it has the locks of modules as they are then and not the thread, so that it would
    wait for ever for a module that the thread has begun.
    """
    if name in sys.modules and not _Imports.under_way:
        return sys.modules[name]
    _Imports.under_way += 1
    try:
        return await asyncio.to_thread(import_module, name)
    finally:
        _Imports.under_way -= 1


class ForkedAnswers:
    """The children of one daemon: MOST_AT_ONCE of them, and a later question waits for its turn."""

    def __init__(
        self,
        seconds: float = SECONDS,
        most_bytes: int = MOST_BYTES,
        patience_s: float = PATIENCE_S,
        ready: Ready | None = None,
    ) -> None:
        """`ready`: what makes the daemon's memory ready before each child begins with it."""
        self.ready = ready
        self._seconds, self._most_bytes, self._patience_s = seconds, most_bytes, patience_s
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def answer(
        self, prepare: Callable[[], Awaitable[T]], make: Callable[[T], Response]
    ) -> Response:
        """The answer of `make`, in a child, from what `prepare` gets. Raises NodelifeError."""
        told = self.documents(prepare, lambda prepared, tell: make(prepared), self._seconds)
        async with aclosing(told):
            return [document async for document in told][-1]

    async def documents(
        self,
        prepare: Callable[[], Awaitable[T]],
        make: Callable[[T, Tell], Response],
        seconds: float,
    ) -> AsyncGenerator[Response]:
        """What `make` tells, as it comes, then its answer, within so many seconds. Raises
        NodelifeError.
        """
        try:
            async with asyncio.timeout(self._patience_s):
                await self._turns.acquire()
        except TimeoutError:
            what = f"{MOST_AT_ONCE} questions of this kind are being answered"
            remedy = f"try again in a moment, or {_LOOK_YOURSELF}"
            raise Failed(what, remedy=remedy) from None
        try:
            prepared = await prepare()
            if self.ready is not None:
                await self.ready()
            child = self._in_child(lambda tell: make(prepared, tell), seconds)
            async with aclosing(child):
                async for document in child:
                    yield document
        finally:
            self._turns.release()

    async def of_memory(self, make: Callable[[], Response]) -> Response:
        """The answer of `make`, in a child, from what the daemon holds. Raises NodelifeError."""

        async def nothing() -> None:
            """Nothing is read first."""

        return await self.answer(nothing, lambda _: make())

    async def _in_child(
        self, make: Callable[[Tell], Response], seconds: float
    ) -> AsyncGenerator[Response]:
        while _Imports.under_way:
            await asyncio.sleep(_LOOK_S)
        readable, writable = os.pipe()
        pid = os.fork()
        if pid == 0:
            _child(make, writable, seconds, self._most_bytes)
        with suppress(ProcessLookupError):
            os.setpgid(pid, pid)  # as the child does itself: whichever comes first
        os.close(writable)
        lines = _lines_of(readable, seconds)
        try:
            async with aclosing(lines):
                async for line in lines:
                    yield self._checked(line)
        except TimeoutError:
            what = f"the answer was not there after {seconds:g}s"
            raise Failed(what, remedy=_LOOK_YOURSELF) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # and whom it has forked itself
            await asyncio.shield(asyncio.to_thread(os.waitpid, pid, 0))

    def _checked(self, received: bytes) -> Response:
        try:
            response: Response = json.loads(received)
        except ValueError:
            what = "the process that made the answer has ended"
            raise Failed(what, remedy=_LOOK_YOURSELF) from None
        error = response.get("error")
        if error == "memory":
            what = f"the answer needs more than {self._most_bytes >> 20} MiB"
            raise Failed(what, remedy=_LOOK_YOURSELF)
        if error:
            raise error_of(error)
        return response


async def _lines_of(readable: int, seconds: float) -> AsyncGenerator[bytes]:
    """The lines that come through a pipe, which is closed then, and what is there at its end; for
    so many seconds. Raises TimeoutError.
    """
    reader = asyncio.StreamReader(limit=sys.maxsize)  # the child's memory has a limit of its own
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    pipe = os.fdopen(readable, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    line = b"\n"
    try:
        while line.endswith(b"\n"):
            async with asyncio.timeout_at(end_s):
                line = await reader.readline()
            yield line
    finally:
        transport.close()


def _child(make: Callable[[Tell], Response], writable: int, seconds: float, more: int) -> NoReturn:
    """Make the answer, write it to the pipe, and end without the daemon's own ending."""
    try:
        os.setpgid(0, 0)
        gc.freeze()  # what the daemon holds is never collected here, nor copied for it
        gc.disable()  # nor is what is made: the child ends with its answer
        _close_all_but(writable)
        _bound(seconds, more)
        with open(_PIPE, "wb") as pipe:

            def tell(document: Response) -> None:
                pipe.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")
                pipe.flush()

            pipe.write(_encoded(lambda: make(tell)))
    finally:
        os._exit(0)


def _encoded(make: Callable[[], Response]) -> bytes:
    try:
        return json.dumps(make(), ensure_ascii=False).encode()
    except NodelifeError as error:
        return json.dumps({"error": error.document()}).encode()
    except MemoryError:
        return b'{"error": "memory"}'
    except Exception as error:
        what = f"a bug of ours: {type(error).__name__}"
        return json.dumps({"error": Failed(what, remedy=_LOOK_YOURSELF).document()}).encode()


def _close_all_but(writable: int) -> None:
    """Nothing of the daemon stays open, and its signals mean nothing here."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    logging.disable(logging.CRITICAL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.dup2(writable, _PIPE)
    os.closerange(_PIPE + 1, os.sysconf("SC_OPEN_MAX"))


def _bound(seconds: float, more_bytes: int) -> None:
    """No more memory than that beside what is there, below the daemon; and not much longer than
    that where no daemon is left that ends it, and says that its time is over.
    """
    with open("/proc/self/statm", "rb") as statm:
        held = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + more_bytes, held + more_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_REAL, seconds + _ALARM_AFTER_S)
    os.nice(_NICER)


_EVERY_S: Final = 1.0
_SHARE: Final = 10
_STEP: Final = 64


class Foreteller:
    """Plays the present for the daemon's answers, again when that may say something else.

    `foretold`: what was last read off a play; None while no zone changes, or
    is not seen.
    """

    def __init__(self, look: Callable[[], ClusterView]) -> None:
        self.foretold: Foretold | None = None
        self.plays = 0
        self._look = look
        self._forked = ForkedAnswers()
        self._played: object = None

    async def run(self) -> None:
        """Play as things change, until cancelled."""
        while True:
            began = time.perf_counter()
            with suppress(NodelifeError):  # not read yet; or a child has ended
                await self.take()
            await asyncio.sleep(max(_EVERY_S, _SHARE * (time.perf_counter() - began)))

    async def take(self) -> None:
        """Play once more, if something has changed since the last play."""
        view = self._look()
        under_way = await sliced(_under_way(view.outlook)) if view.foretells else None
        if under_way is None:
            self.foretold = self._played = None
        elif under_way != self._played:
            self._played = under_way
            self.plays += 1
            answer = await self._forked.of_memory(self._play)
            self.foretold = msgspec.convert(answer["foretold"], Foretold | None)

    def _play(self) -> dict[str, Any]:
        return {"foretold": msgspec.to_builtins(self._look().outlook.foretell())}


def _under_way(outlook: Outlook) -> Generator[None, None, object]:
    """Which nodes are silent, come back or wait, and the zones' states; None: none changes."""
    silent: dict[str, str] = {}
    coming_back: dict[str, str] = {}
    for number, node in enumerate(list(outlook.cache.nodes.values())):
        if outlook.is_silent(node):
            silent[node.name] = outlook.zone_of(node)
        elif outlook.comes_back(node):
            coming_back[node.name] = outlook.zone_of(node)
        if number % _STEP == 0:
            yield
    if not outlook.a_zone_may_change(Counter(silent.values()), Counter(coming_back.values())):
        return None
    zones = outlook.memory.zones
    waiting = {name for queue in zones.queues.values() for name in queue.waiting()}
    return silent, coming_back, waiting, dict(zones.states)
