"""Opens a breaker for each bug of ours that shows while we enforce.

A controller at which we failed writes no more before a person says so. Where the fault is in what
all of them need, such as the detection of other writers or the cache, none of them does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final

from kubectl_nodelife.daemon.quarantine_log import log_bug
from kubectl_nodelife.engine.guard import FAULT, Breaker, Guard
from kubectl_nodelife.engine.quarantine import Bug, words

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
