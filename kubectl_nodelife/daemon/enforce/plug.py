"""Plugs enforcing into the daemon: its journal of writes, its orders, its line on stdout."""

from __future__ import annotations

from typing import Any

from kubectl_nodelife.daemon.clock import DaemonClock
from kubectl_nodelife.daemon.enforce.enforcement import EnforceHost, Enforcement
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.preflight import Orders
from kubectl_nodelife.daemon.server import Answer, Query
from kubectl_nodelife.errors import BadInput, Refused
from kubectl_nodelife.kube.duration import parse_duration


def make_enforcement(orders: Orders, daemon: EnforceHost) -> Enforcement:
    """Raises Refused where there is no journal that can be kept, or it has just been replaced."""
    path = daemon.journal.store.path
    if fault := daemon.journal.fault():
        raise Refused(
            fault,
            on="journal",
            remedy="enforcing needs a journal on disk that is whole; look at it, then start again",
        )
    intents = Intents(path.removesuffix(".db") + ".writes.db")
    daemon.journal.ledger.untold = frozenset(orders.controllers)
    return Enforcement(orders, daemon, intents)


def pausing_orders(enforcement: Enforcement | None, clock: DaemonClock) -> dict[str, Answer]:
    """The orders `pause` and `resume` of the socket."""

    async def pause(query: Query) -> dict[str, Any]:
        if enforcement is None:
            raise BadInput("this daemon does not enforce: there is nothing to pause")
        text = (query.get("for") or [""])[0]
        until_ns = clock.now_ns() + parse_duration(text) if text else 0
        enforcement.pause.begin(until_ns)
        return {"paused": enforcement.pause.because(clock.now_ns())}

    async def resume(query: Query) -> dict[str, Any]:
        if enforcement is None:
            raise BadInput("this daemon does not enforce: there is nothing to resume")
        enforcement.resume()
        return {"resumed": True}

    return {"pause": pause, "resume": resume}
