"""Says when enforcing begins and ends, by whose order, and which breaker opens and closes.

Each is an Event on our Lease, so that `kubectl describe` shows it to everybody, a row of the
journal of changes, and a line of the log. An Event that is lost is no failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import socket
from collections.abc import Callable
from typing import Final

from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.engine.actions import RecordEvent
from kubectl_nodelife.engine.guard import Breaker
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.lease import LeaseKeeper

BEGAN, ENDED = "EnforcingBegan", "EnforcingEnded"
OPENED, CLOSED = "BreakerOpened", "BreakerClosed"
_WARNINGS: Final = frozenset({ENDED, OPENED})
_FLUSH_S: Final = 2.0


class Announcer:
    """See the module."""

    def __init__(
        self, ledger: Ledger, sender: EventSender, keeper: LeaseKeeper, now_ns: Callable[[], int]
    ) -> None:
        self._ledger = ledger
        self._keeper = keeper
        self._now_ns = now_ns
        self._sender = sender
        self._begun = False

    def began(self, controllers: str) -> None:
        """The controllers decide from now on, for the first time or again."""
        if self._begun:
            return
        self._begun = True
        before = self._keeper.election.taken_from
        after = f", after {before}" if before else ""
        self._tell(BEGAN, f"{controllers} by order of {user_and_host()}{after}")

    def ended(self, because: str) -> None:
        """They do no longer."""
        if self._begun:
            self._begun = False
            self._tell(ENDED, because)

    def opened(self, breaker: Breaker) -> None:
        """Something is held back from now on."""
        self._tell(OPENED, f"{breaker.rule}: {breaker.because}")

    def closed(self, breaker: Breaker, how: str) -> None:
        """It is not any more."""
        self._tell(CLOSED, f"{breaker.rule}: {how}")

    async def run(self) -> None:
        """Send Events until cancelled."""
        await self._sender.run()

    async def flush(self) -> None:
        """Let what waits be sent, for two seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self._sender.sent()

    def _tell(self, reason: str, message: str) -> None:
        log.warning("%s: %s", reason, message)
        namespace, name = self._keeper.election.key
        event = RecordEvent(
            controller="enforce",
            because=message,
            cause=None,
            kind="Lease",
            namespace=namespace,
            name=name,
            object_uid=self._keeper.election.uid,
            type="Warning" if reason in _WARNINGS else "Normal",
            reason=reason,
            message=message,
        )
        self._ledger.note_done(event, self._now_ns())
        self._sender.put(event)


def user_and_host() -> str:
    """Who runs this process, and where."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user has no name
        user = "an unknown user"
    return f"{user} on {socket.gethostname()}"
