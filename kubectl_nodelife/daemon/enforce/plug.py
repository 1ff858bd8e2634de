"""Plugs enforcing into the daemon: its journal of writes, its orders, its line on stdout."""

from __future__ import annotations

from typing import Any, Protocol

from kubectl_nodelife.daemon.clock import DaemonClock
from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.enforce.enforcement import Enforcement
from kubectl_nodelife.daemon.enforce.pausing import Pause
from kubectl_nodelife.daemon.enforce.tee import Tee
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.journal import Journal
from kubectl_nodelife.daemon.options import Options
from kubectl_nodelife.daemon.preflight import Orders
from kubectl_nodelife.daemon.server import Answer, Query
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import BadInput, Refused
from kubectl_nodelife.kube.duration import parse_duration
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.target import Target


class EnforceHost(Protocol):
    """The parts of the daemon that enforcing stands on."""

    options: Options
    target: Target
    client: Client
    journal: Journal
    watcher: DecisionTask
    tee: Tee
    settings_said: list[str]

    async def settings(self, cache: Cache) -> Settings:
        """The settings in force."""
        ...


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
    return Enforcement(
        orders,
        daemon.target,
        daemon.options.environ,
        daemon.client,
        daemon.watcher.clock,
        daemon.tee,
        intents,
        daemon.journal.ledger,
        Pause(intents),
        daemon.settings,
        daemon.options.tell,
        lambda: daemon.settings_said,
        lambda: daemon.watcher.settings if daemon.watcher.synced.is_set() else None,
        daemon.journal.fault,
    )


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
