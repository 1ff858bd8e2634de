"""Carries single actions out, each awaited by its caller.

`LiveCarrier` drives the live executor: intent on disk, gate, guard, conversation. `ServerDryRun`
sends the one request that the action is as a server-side dry run. What comes back is a `Result`; of
code `executor.HELD` where nothing was sent because a guard held it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.daemon.enforce.recorder import IntentJournal
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Result, request_of
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.executor import HELD as HELD
from kubectl_nodelife.live.executor import LiveExecutor
from kubectl_nodelife.live.executor_port import ControllerWriter, ExecutorPort, Recorder
from kubectl_nodelife.sim.kubectl.cluster import client_bucket

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


class LiveCarrier:
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
        self._cache = Cache()
        self._numbers = itertools.count(1)
        self._ends: dict[int, asyncio.Future[Result]] = {}
        port = ExecutorPort(
            self._cache,
            session.guard,
            session.view,
            IntentJournal(session.intents, session.now_ns, lambda: 0),
            _Ends(self._ends, on_held, on_answer),
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
        """Send nothing more; what still waits ends with HELD."""
        await self._executor.stop()
        for end in self._ends.values():
            if not end.done():
                end.set_result(Result(HELD, "given up"))


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


def make_carrier(session: ActSession, on_held: OnHeld = lambda action, because: None) -> Carrier:
    """The writes that the order asks for, at kubectl's rate."""
    if session.order.dry_run:
        return ServerDryRun(session)
    return LiveCarrier(session, client_bucket(), on_held)


class _Ends(Recorder):
    """Passes each end to its waiter."""

    def __init__(
        self, ends: dict[int, asyncio.Future[Result]], on_held: OnHeld, on_answer: OnAnswer
    ) -> None:
        self._ends = ends
        self._on_held = on_held
        self._on_answer = on_answer

    def held(self, action: Action, because: str, until_ns: int) -> None:
        self._on_held(action, because)

    def answered(self, action: Action, answer: Answer, took_s: float) -> None:
        self._on_answer(action, answer)

    def ended(self, action: Action, result: Result, now_ns: int) -> None:
        end = self._ends.pop(action.id, None)
        if end is not None and not end.done():
            end.set_result(result)
