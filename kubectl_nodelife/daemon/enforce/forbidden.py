"""Tells a 403 of admission, about one object, from a lost right, which opens the breaker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.engine.calls.call import FORBIDDEN
from kubectl_nodelife.engine.guard import Breaker, Guard, verb_of
from kubectl_nodelife.errors import NodelifeError, Refused


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
