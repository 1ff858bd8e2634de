"""A watch that stays open and says nothing: what status says, and that nobody is called lost.

A daemon's inside on a sandbox in this process, since the daemon itself is patient for half a
minute.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

from kubectl_nodelife.daemon.changes import ChangeFilter
from kubectl_nodelife.daemon.cluster_view import Sources, WatchedCluster
from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.gate import KINDS, NEEDS
from kubectl_nodelife.daemon.journal import Journal, open_journal
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.clock import DaemonClock, steady_ns
from kubectl_nodelife.live.news import LISTING
from kubectl_nodelife.live.requests import WatchPacing, resource_of
from kubectl_nodelife.live.source import ListWatchSource
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.loopback import client, sandbox, until

GRACE_SECONDS = 8
PACE = WatchPacing(first_backoff_s=0.05, silence_by_kind={"Lease": 1.0})
FLAGS = {"node-monitor-period": "500ms", "node-monitor-grace-period": f"{GRACE_SECONDS}s"}


class Inside:
    """What a daemon would answer from."""

    def __init__(
        self, decisions: DecisionTask, source: ListWatchSource, journal: Journal, client: Client
    ) -> None:
        self.decisions = decisions
        self.source = source
        self.journal = journal
        cluster = WatchedCluster("0" * 20, "here", client.server)
        self._sources = Sources(cluster, client, decisions, journal)

    def said(self) -> str:
        """The warnings of status."""
        return "\n".join(self._sources.view().warnings)


@contextlib.asynccontextmanager
async def inside(served: Sandbox, folder: Path) -> AsyncIterator[Inside]:
    async with client(served) as ours:
        source = ListWatchSource(ours, [resource_of(kind) for kind in KINDS], PACE)
        clock = DaemonClock(lambda: ours.clock.now_ns(steady_ns()))
        journal = open_journal(str(folder / "journal.db"))
        settings = make_settings("v1.36", FLAGS)
        decisions = DecisionTask(source, clock, journal.ledger, settings, list(NEEDS))
        one = Inside(decisions, source, journal, ours)
        tasks = [asyncio.create_task(part) for part in (source.run(), decisions.run())]
        try:
            yield one
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await journal.close()


async def test_a_watch_that_hangs_is_said_and_calls_nobody_lost(tmp_path: Path) -> None:
    async with sandbox() as served, inside(served, tmp_path) as one:
        await one.decisions.synced.wait()
        served.server.faults.hang_watches.add("leases")
        # It is opened anew from where it was: a gap since its last sign of life, so that the
        # leases must be listed anew.
        await until(lambda: one.source.states["Lease"].phase == LISTING)
        held = re.compile(r"nothing was seen for \d+s: waiting for a new list of Lease")
        await until(lambda: held.search(one.said()))
        assert "nothing is decided" in one.said()
        await asyncio.sleep(GRACE_SECONDS)
        assert await one.journal.select(ChangeFilter()) == []
        served.server.faults.hang_watches.clear()
        await until(lambda: "warming up: nothing was seen for" in one.said())
        assert "nothing is decided" not in one.said()
        assert await one.journal.select(ChangeFilter()) == []
