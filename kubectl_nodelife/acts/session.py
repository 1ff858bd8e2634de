"""A one-off act: its session, and how its single actions are carried out.

The session has checks, a journal of its own, the kill switch and the guard. Of enforce.md: the rows
of section 3 that are marked for one-off acts, the gate of section 5 without Lease and watches, of
section 6 the breaker for errors and the total, and section 7 with a journal of writes beside the
daemon's.

Each action is awaited by its caller. `LiveCarrier` drives the live executor: intent on disk, gate,
guard, conversation. `ServerDryRun` sends the one request that the action is as a server-side dry
run. What comes back is a `Result`; of code NOT_SENT where nothing was sent because a guard held it.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.daemon.changes import ACTS_PATTERN
from kubectl_nodelife.daemon.enforce.recorder import IntentJournal
from kubectl_nodelife.daemon.intents import Intents, settle_moved, settle_unsettled
from kubectl_nodelife.daemon.paths import folder_of_cluster
from kubectl_nodelife.daemon.permissions import Right
from kubectl_nodelife.daemon.preflight import ClusterChecks, KillSwitch, check_transport
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Result, request_of
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.engine.guard import Caps, Guard, WriteConditions
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.errors import Failed, Refused
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.clock import MonotonicClock, ServerClock, steady_ns
from kubectl_nodelife.live.executor import LiveExecutor
from kubectl_nodelife.live.executor_port import ControllerWriter, ExecutorPort, Recorder
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.live.writer import REQUEST_SECONDS, Writer, WritingSession
from kubectl_nodelife.sim.kubectl.conversation import client_bucket

Show = Callable[[str], None]
"""Receives lines for people."""

MAX_WRITES: Final = 500
ASK_FOR_RIGHTS: Final = "ask for them, or use --as with a user who has them"
ACT_CAPS: Final = Caps(None, None, None, None, nodes_gone_share=None)
MOST_ACTS: Final = 9
"""So many acts of one user may be under way on a cluster, each with a journal of its own."""


class ActOrder(msgspec.Struct, frozen=True):
    """A person's order. `act`: `repair`, `drain`, `upgrade` and so on, in whose name it is
    written.

    `groups`: API groups that must be served, such as `policy/v1`. `dry_run`: the API server checks
    and admits each write, and stores nothing. `caps`: the guard's, besides `max_writes`.
    `request_s`: so long a request may take; `needs_clock`: whether ages are by the server's clock.
    `grant`: what to do where rights are missing.
    """

    act: str
    rights: tuple[Right, ...]
    groups: tuple[str, ...] = ()
    max_writes: int = MAX_WRITES
    dry_run: bool = False
    insecure: bool = False
    caps: Caps = ACT_CAPS
    request_s: float = REQUEST_SECONDS
    needs_clock: bool = False
    grant: str = ""


class ActSession:
    """An act that may write. `reader` reads, `writer` writes; `now_ns` is the server's clock,
    `monotonic_ns` one that nobody can set, for guard, pauses and limits.
    """

    def __init__(
        self, order: ActOrder, target: Target, environ: Mapping[str, str], intents: Intents
    ) -> None:
        self.order = order
        self.target = target
        self.intents = intents
        self.guard = Guard(msgspec.structs.replace(order.caps, total=order.max_writes))
        self._clock = ServerClock()
        self._session = WritingSession(target, environ)
        self.monotonic_ns = unset = MonotonicClock(self.now_ns).now_ns
        limit_s = order.request_s
        self.reader = Writer(self._session, order.act, unset, self._clock, request_s=limit_s)
        self.writer = Writer(
            *(self._session, order.act, unset, self._clock),
            dry_run=order.dry_run,
            request_s=limit_s,
        )
        self.kill_switch = KillSwitch(self.reader, unset, self.now_ns)
        self.checks = ClusterChecks(target, self.reader, intents, self.kill_switch)

    def now_ns(self) -> int:
        """The present by the API server's clock, by ours before it has said anything."""
        server_ns = self._clock.now_ns(steady_ns())
        return time.time_ns() if server_ns is None else server_ns

    async def check(self, warn: Show) -> None:
        """All that must hold before the first write. Raises Refused, Unreachable."""
        order = self.order
        check_transport(self.target, warn, insecure=order.insecure)
        checks = self.checks
        await checks.right_cluster()
        await checks.versions(order.groups)
        await checks.permission(order.rights, order.grant or ASK_FOR_RIGHTS, warn)
        await checks.kill_switch_absent()
        if order.needs_clock:
            await checks.clock_agrees()

    def view(self) -> WriteConditions:
        """The state of this moment, for the guard."""
        return WriteConditions(
            kill_switch_absent_ns=self.kill_switch.surely_absent_ns(),
            kill_switch_present=self.kill_switch.present,
            journal_error=self.intents.error,
        )

    async def close(self) -> None:
        """Close the connections and the journal."""
        await self.intents.close()
        await self._session.close()


@contextlib.asynccontextmanager
async def act_session(
    order: ActOrder,
    target: Target,
    environ: Mapping[str, str],
    identity: str,
    warn: Show,
) -> AsyncIterator[ActSession]:
    """Check everything, then yield a session that may write.

    `warn` receives warnings. Raises Refused, Unreachable.
    """
    session = ActSession(order, target, environ, open_journal(environ, identity))
    tasks: list[asyncio.Task[None]] = []
    try:
        await session.check(warn)
        await settle_unsettled(session.intents, session.reader.call)
        await _settle_others(session, warn)
        loop = asyncio.get_running_loop()
        watching = (session.kill_switch.run(), session.intents.run(session.now_ns))
        tasks = [loop.create_task(work) for work in watching]
        yield session
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await session.close()


async def _settle_others(session: ActSession, warn: Show) -> None:
    """Settle what acts before this one have left open, those of moved journals among them."""
    own = session.intents
    for path in sorted(glob.glob(f"{glob.escape(os.path.dirname(own.path))}/{ACTS_PATTERN}")):
        if path == own.path:
            continue
        try:
            other = Intents(path)
        except Refused:
            continue  # an act that is under way
        try:
            if unsettled := await settle_moved(own, other, session.reader.call):
                warn(f"{path}: the outcome of {unsettled} writes is unknown")
        finally:
            await other.close()


def open_journal(environ: Mapping[str, str], identity: str) -> Intents:
    """The first journal of acts that no other act holds. Raises Refused."""
    try:
        folder = folder_of_cluster(dict(environ), identity)
    except Failed as error:
        raise Refused(
            f"{error.what}: there is no folder for a journal, and without one nothing is written",
            on=error.on,
            remedy=error.remedy or "set NODELIFE_STATE_DIR to a folder of yours",
        ) from None
    for number in range(1, MOST_ACTS):
        try:
            return Intents(acts_path(folder, number))
        except Refused as refused:
            if "another process" not in refused.what:
                raise
    return Intents(acts_path(folder, MOST_ACTS))


def acts_path(folder: str, number: int) -> str:
    """The journal of writes of the n-th act that is under way."""
    return f"{folder}/acts-{number}.writes.db"


PATIENCE_NS: Final = 5 * SECOND_NS
"""An action that a guard holds for longer is decided anew, or given up."""

OnHeld = Callable[[Action, str], None]
OnAnswer = Callable[[Action, Answer], None]


class Carrier(Protocol):
    """Carries one action out at a time that its caller chooses."""

    async def carry_out(self, action: Action, seen: KubeObject) -> Result:
        """The outcome. `seen`: the object that was decided on."""

    async def stop(self) -> None:
        """Send nothing more, and wait for what is on its way."""


class LiveCarrier(Recorder):
    """Carries out one action on a real cluster while its caller waits.

    `on_held`, `on_answer`: receive why something waits, and each answer.
    """

    def __init__(
        self,
        session: ActSession,
        bucket: TokenBucket,
        on_held: OnHeld = lambda action, because: None,
        on_answer: OnAnswer = lambda action, answer: None,
    ) -> None:
        self._now_ns = session.now_ns
        self._on_held, self._on_answer = on_held, on_answer
        self._cache = Cache()
        self._numbers = itertools.count(1)
        self._ends: dict[int, asyncio.Future[Result]] = {}
        port = ExecutorPort(
            self._cache,
            session.guard,
            session.view,
            IntentJournal(session.intents, session.now_ns, lambda: 0),
            self,
            session.now_ns,
            session.monotonic_ns,
            PATIENCE_NS,
        )
        writing = ControllerWriter(session.writer, bucket)
        self._executor = LiveExecutor(port, {session.order.act: writing})

    async def carry_out(self, action: Action, seen: KubeObject) -> Result:
        """Carry it out, however long its conversation takes."""
        kind, key = action.target
        self._cache.set(kind, key, seen)
        numbered = replace(action, id=next(self._numbers))
        end: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._ends[numbered.id] = end
        self._executor.start(numbered, self._now_ns())
        return await end

    async def stop(self) -> None:
        """Send nothing more; what still waits ends with NOT_SENT."""
        await self._executor.stop()
        for end in self._ends.values():
            if not end.done():
                end.set_result(Result(NOT_SENT, "given up"))

    def held(self, action: Action, because: str, until_ns: int) -> None:
        self._on_held(action, because)

    def answered(self, action: Action, answer: Answer, took_s: float) -> None:
        self._on_answer(action, answer)

    def ended(self, action: Action, result: Result, now_ns: int) -> None:
        end = self._ends.pop(action.id, None)
        if end is not None and not end.done():
            end.set_result(result)


class ServerDryRun:
    """Asks the API server what it would answer to an action (`dryRun=All`)."""

    def __init__(self, session: ActSession) -> None:
        self._session = session

    async def carry_out(self, action: Action, seen: KubeObject) -> Result:
        """Send it as a dry run, once."""
        assert self._session.order.dry_run
        request = request_of(action, seen, self._session.now_ns())
        if request is None:
            return Result(200)
        answer = await self._session.writer.send(request, action.target[0], retry=False)
        return Result(answer.code, answer.message, answer.reason, answer.ok, answer.obj)

    async def stop(self) -> None:
        """Nothing is on its way."""


def make_carrier(
    session: ActSession,
    on_held: OnHeld = lambda action, because: None,
    on_answer: OnAnswer = lambda action, answer: None,
) -> Carrier:
    """The writes that the order asks for, at kubectl's rate."""
    if session.order.dry_run:
        return ServerDryRun(session)
    return LiveCarrier(session, client_bucket(), on_held, on_answer)
