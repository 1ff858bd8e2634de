"""Runs the parts of a daemon in this process, on a stream server in another one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.gate import KINDS, NEEDS
from kubectl_nodelife.daemon.journal import Journal, open_journal
from kubectl_nodelife.daemon.process import import_all
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.clock import DaemonClock, steady_ns
from kubectl_nodelife.live.kubeconfig import Cluster, User
from kubectl_nodelife.live.requests import DAEMON_PACING, resource_of
from kubectl_nodelife.live.source import ListWatchSource
from kubectl_nodelife.live.target import Target

_BEAT_SECONDS = 0.05


class Stalls:
    """How late the event loop resumed a sleeping task: the longest time, and how often over 100 ms.

    `longest_own_s` counts no more than the CPU time of this process in that time: on a busy
    machine other processes take the rest.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the counts."""
        self.longest_s = 0.0
        self.longest_own_s = 0.0
        self.over_100_ms = 0

    async def run(self) -> None:
        """Sleep and read the clock, until cancelled."""
        while True:
            before, worked_before = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_BEAT_SECONDS)
            late = time.perf_counter() - before - _BEAT_SECONDS
            own = min(late, time.thread_time() - worked_before)
            self.longest_s = max(self.longest_s, late)
            self.longest_own_s = max(self.longest_own_s, own)
            self.over_100_ms += late > 0.1


class Running:
    """The parts of the daemon that a bench reads."""

    def __init__(self, decisions: DecisionTask, journal: Journal, client: Client) -> None:
        self.decisions = decisions
        self.journal = journal
        self.client = client
        self.stalls = Stalls()


@contextlib.asynccontextmanager
async def running(nodes: int, pods: int, seed: int, settings: Settings) -> AsyncIterator[Running]:
    """A daemon that begins to read as soon as this is entered."""
    import_all()
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench._stream_server", str(nodes), str(pods), str(seed)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    told: dict[str, Any] = json.loads(await server.stdout.readline())
    cluster = Cluster(server=told["url"], certificate_authority_data=told["authority"])
    target = Target("bench", "default", "bench", "", cluster, User())
    with tempfile.TemporaryDirectory() as folder:
        client = Client(Session(target, {}))
        journal = open_journal(str(Path(folder) / "journal.db"))
        source = ListWatchSource(client, [resource_of(kind) for kind in KINDS], DAEMON_PACING)
        clock = DaemonClock(lambda: client.clock.now_ns(steady_ns()))
        decisions = DecisionTask(source, clock, journal.ledger, settings, list(NEEDS))
        one = Running(decisions, journal, client)
        parts = (source.run(), decisions.run(), journal.run(clock.now_ns), one.stalls.run())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            yield one
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await journal.close()
            await client.close()
            with contextlib.suppress(ProcessLookupError):
                server.kill()
            await server.wait()
