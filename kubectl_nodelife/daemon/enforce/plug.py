"""Builds enforce mode for the daemon from its orders: journal of writes, output, pausing."""

from __future__ import annotations

import sqlite3
from typing import Any

from kubectl_nodelife.daemon.clock import DaemonClock
from kubectl_nodelife.daemon.enforce.enforcement import EnforceHost, Enforcement
from kubectl_nodelife.daemon.enforce.pausing import adopt
from kubectl_nodelife.daemon.enforce.settling import moved_journals
from kubectl_nodelife.daemon.intents import WRITES, Intents
from kubectl_nodelife.daemon.preflight import Orders
from kubectl_nodelife.daemon.server import Answer, Query
from kubectl_nodelife.errors import BadInput, Refused
from kubectl_nodelife.kube.duration import parse_duration


def make_enforcement(orders: Orders, daemon: EnforceHost) -> Enforcement:
    """Raises Refused where there is no journal that can be kept, or it has just been replaced, and
    where one that was moved cannot be looked into.
    """
    path = daemon.journal.store.path
    if fault := daemon.journal.fault():
        raise Refused(
            fault,
            on="journal",
            remedy="enforcing needs a journal on disk that is whole; look at it, then start again",
        )
    intents = Intents(path.removesuffix(".db") + WRITES)
    moved: list[Intents] = []
    try:
        moved = moved_journals(intents.path)
        for journal in moved:
            adopt(intents, journal)
    except sqlite3.Error as error:
        raise Refused(
            f"a pause or a breaker may be lost: {error}",
            on=intents.path,
            remedy="make room on the disk",
        ) from None
    daemon.journal.ledger.untold = frozenset(orders.controllers)
    return Enforcement(orders, daemon, intents, moved)


def pausing_orders(enforcement: Enforcement | None, clock: DaemonClock) -> dict[str, Answer]:
    """The orders `pause` and `resume` of the socket."""

    async def pause(query: Query) -> dict[str, Any]:
        if enforcement is None:
            raise BadInput("this daemon does not enforce: there is nothing to pause")
        text = (query.get("for") or [""])[0]
        until_ns = clock.now_ns() + parse_duration(text) if text else 0
        warning = enforcement.pause.begin(until_ns)
        return {"paused": enforcement.pause.because(clock.now_ns()), "warning": warning}

    async def resume(query: Query) -> dict[str, Any]:
        if enforcement is None:
            raise BadInput("this daemon does not enforce: there is nothing to resume")
        return {"resumed": True, "warning": enforcement.resume()}

    return {"pause": pause, "resume": resume}
