"""Opens breakers for what goes wrong on our own side while we enforce: a bug of ours, a lost right.

A controller at which we failed writes no more before a person says so. Where the fault is in what
all of them need, such as the detection of other writers or the cache, none of them does. A 403 of
admission, about one object, opens nothing; a 403 for a right that was taken away does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final

from kubectl_nodelife.daemon.quarantine_log import log_bug
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.engine.calls.call import FORBIDDEN
from kubectl_nodelife.engine.guard import FAULT, Breaker, Guard, verb_of
from kubectl_nodelife.engine.quarantine import Bug, words
from kubectl_nodelife.errors import NodelifeError, Refused

PAUSE_S: Final = 5.0
"""For so long nothing is tried again after a bug."""


class FaultBreaker:
    """Opens the guard's breakers. `controllers`: those that enforce."""

    def __init__(
        self, guard: Guard, controllers: Collection[str], now_ns: Callable[[], int]
    ) -> None:
        self._guard = guard
        self._controllers = controllers
        self._now_ns = now_ns

    def note(self, bug: Bug) -> None:
        """An exception was contained."""
        log_bug(bug)
        controller = bug.controller if bug.controller in self._controllers else ""
        because = (
            f"a bug of ours: {bug.controller} at {words(bug.about)} ({bug.what()}): nothing of "
            f"{controller or 'any controller'} is sent"
        )
        self._guard.open(Breaker(FAULT, because, self._now_ns(), controller=controller))

    async def contain(self, what: str, part: Coroutine[Any, Any, None]) -> None:
        """Do it; where it fails, nothing is sent any more, and the daemon goes on."""
        try:
            await part
        except Exception as error:
            self.note(Bug(what, "a step of it", error, self._now_ns()))
            await asyncio.sleep(PAUSE_S)

    def part_ended(self, task: asyncio.Task[None]) -> None:
        """Called at the end of a task that must always run."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.note(Bug("enforcing", task.get_name(), error, self._now_ns()))


class ForbiddenCheck:
    """`ask` raises Refused where a right is missing that the controllers need."""

    def __init__(
        self, ask: Callable[[], Awaitable[None]], guard: Guard, now_ns: Callable[[], int]
    ) -> None:
        self._ask = ask
        self._guard = guard
        self._now_ns = now_ns
        self._asking: set[asyncio.Task[None]] = set()

    def note(self, action: Action, answer: Answer) -> None:
        """A request was answered."""
        if answer.code == FORBIDDEN and not answer.causes:
            task = asyncio.ensure_future(self._confirm(action, answer))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _confirm(self, action: Action, answer: Answer) -> None:
        try:
            await self._ask()
        except Refused as refused:
            because = f"{refused.what}; {answer.message}"  # what is wrong first: the rest is long
            self._guard.open(Breaker("forbidden", because, self._now_ns(), verb_of(action)))
        except NodelifeError:
            pass
