"""The session of a one-off act: checks, a journal of its own, the kill switch, the guard.

Of enforce.md: the rows of section 3 that are marked for one-off acts, the gate of section 5 without
Lease and watches, of section 6 the breaker for errors and the total, and section 7 with a journal
of writes beside the daemon's.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import msgspec

from kubectl_nodelife.daemon.acts_journal import PATTERN
from kubectl_nodelife.daemon.cluster_checks import ClusterChecks, Right, check_transport
from kubectl_nodelife.daemon.enforce.kill_switch import KillSwitch
from kubectl_nodelife.daemon.enforce.settling import settle_moved, settle_unsettled
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.paths import journal_path
from kubectl_nodelife.engine.guard import Caps, Guard, WriteConditions
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.live.clock import MonotonicClock, ServerClock, steady_ns
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.live.writer import REQUEST_SECONDS, Writer, WritingSession

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
        await settle_unsettled(session.intents, session.reader)
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
    for path in sorted(glob.glob(f"{glob.escape(os.path.dirname(own.path))}/{PATTERN}")):
        if path == own.path:
            continue
        try:
            other = Intents(path)
        except Refused:
            continue  # an act that is under way
        try:
            if left := await settle_moved(own, other, session.reader):
                warn(f"{path}: the outcome of {left} writes is unknown")
        finally:
            await other.close()


def open_journal(environ: Mapping[str, str], identity: str) -> Intents:
    """The first journal of acts that no other act holds. Raises Refused."""
    folder = os.path.dirname(journal_path(dict(environ), identity))
    if not folder:
        raise Refused(
            "there is no folder for a journal, and without one nothing is written",
            on="journal",
            remedy="set NODELIFE_STATE_DIR to a folder of yours",
        )
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
