"""Holds a Lease: tries for it, renews it in time, gives it up at the end.

Before it is made, or taken from another, it is asked whether this is still the cluster that was
meant: another one may have come to the same address, and must not be written to.

A holder that cannot do its work sends nothing more, and gives the Lease up once nothing that it
sent is on its way any more. It then gives way for as long as a Lease lasts.

The rules are `engine/election.py`; this is the loop around them, with a client and timeouts of its
own. Time is by the clock that counts suspend: after a suspend, SIGSTOP or stall over the renew
deadline `leads` is False before anything else can run.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.engine.calls import Answer, Get, Post, Replace
from kubectl_nodelife.engine.calls.call import CONFLICT, NO_ANSWER, NOT_FOUND
from kubectl_nodelife.engine.election import CLIENT_GO, JITTER, Election, ElectionTerms
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.clock import steady_ns
from kubectl_nodelife.live.writer import Writer

NAMESPACE: Final = "kube-system"
_LOOK_S: Final = 0.1


def new_identity() -> str:
    """Host name and a UUID that is new with each process."""
    return f"{socket.gethostname()}_{uuid.uuid4()}_{os.getpid()}"


async def _any_cluster() -> str:
    """No cluster was meant in particular."""
    return ""


class LeaseKeeper:
    """Keeps one Lease from `run` to its cancellation. `error`: why the last attempt came to
    nothing. `why_wrong_cluster`: why this is not the cluster that was meant, "" where it is.
    `why_unfit`: why another should lead, "" where none need. `is_idle`: whether no write is on its
    way.
    """

    def __init__(
        self,
        writer: Writer,
        stamp_ns: Callable[[], int],
        namespace: str = NAMESPACE,
        steady: Callable[[], int] = steady_ns,
        *,
        name: str,
        terms: ElectionTerms = CLIENT_GO,
    ) -> None:
        self.election = Election(namespace, name, new_identity(), terms)
        self.error = ""
        self.why_wrong_cluster: Callable[[], Awaitable[str]] = _any_cluster
        self.why_unfit: Callable[[], str] = lambda: ""
        self.is_idle: Callable[[], bool] = lambda: True
        self._gives_up = False
        self._again_ns = 0
        self._held_uid = ""
        self._writer = writer
        self._stamp_ns = stamp_ns
        self._steady = steady

    def leads(self) -> bool:
        """True if a write may be sent now."""
        return not self._gives_up and self.election.leads(self._steady())

    def is_over(self) -> bool:
        """True if another may write by now."""
        return self.election.is_over(self._steady())

    def held_by_another(self) -> bool:
        """True if another held it when it was last seen, and nothing has gone wrong since."""
        holder = self.election.holder
        return not self.leads() and not self.error and holder not in ("", self.election.identity)

    async def attempt(self) -> bool:
        """Acquire or renew once. After the renew deadline it is an acquisition."""
        if not self.leads():
            self.election.lose()
        held = await self._converse(self.election.attempt(self._steady(), self._stamp_ns()))
        if self.election.unreadable:
            self.error = f"it cannot be understood, {self.election.unreadable}: another holds it"
        if not self.leads():
            self.election.lose()
        self._held_uid = self.election.uid if held else ""
        return held

    async def run(self) -> None:
        """Try for it and renew it, until cancelled."""
        while True:
            if why := self.why_unfit():
                await self._give_up(why)
            leads = self._steady() >= self._again_ns and await self.attempt()
            retry_s = self.election.terms.retry_period_ns / SECOND_NS
            await asyncio.sleep(retry_s if leads else retry_s * (1 + random.random() * JITTER))

    async def release(self) -> bool:
        """Give it up."""
        return await self._converse(self.election.release(self._stamp_ns()))

    async def _give_up(self, why: str) -> None:
        """Lead no more, and do not try to for as long as a Lease lasts."""
        self._again_ns = self._steady() + self.election.terms.lease_duration_ns
        self._gives_up = True
        try:
            while not (self.is_idle() or self.is_over()):
                await asyncio.sleep(_LOOK_S)
            await self.release()
        finally:
            self._gives_up = False
            self.election.lose()
            self.error = why

    async def _converse(self, conversation: Generator[Any, Answer, bool]) -> bool:
        timeout_s = self.election.terms.request_timeout_ns / SECOND_NS
        try:
            call = next(conversation)
            while True:
                answer = await self._refused(call)
                answer = answer or await self._writer.call(call, timeout_s=timeout_s)
                expected = CONFLICT if isinstance(call, Post) else NOT_FOUND
                if not answer.ok and answer.code not in (expected, CONFLICT):
                    self.error = answer.message
                elif answer.ok:
                    self.error = ""
                call = conversation.send(replace(answer, now_ns=self._steady()))
        except StopIteration as end:
            return bool(end.value)

    async def _refused(self, call: Get | Post | Replace) -> Answer | None:
        """The answer to what is not sent: a first write to another cluster's Lease. Else None."""
        if isinstance(call, Get):
            return None
        uid = (call.body.get("metadata") or {}).get("uid")
        if isinstance(call, Replace) and uid == self._held_uid:
            return None
        why = await self.why_wrong_cluster()
        return Answer(NO_ANSWER, message=why) if why else None
