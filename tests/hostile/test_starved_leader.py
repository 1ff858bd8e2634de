"""A leader from which something is taken: descriptors, by a thousand idle connections or all of
them, and the disk.

It goes on, or gives its Lease up to the one that stands by. Whoever leads calls a lost node lost,
and each write is judged, as it arrives, by who holds the Lease.
"""

import asyncio
import contextlib
import math
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kubectl_nodelife.sandbox.tls import Sandbox
from tests.daemon.user import PATIENT, User, silence, user
from tests.hostile.holders import Holders, impersonating
from tests.loopback import free_port, sandbox, until

IDLE = 1_000
CONTROLLERS = "node-lifecycle,taint-eviction"
ORDERS = (
    f"--enforce={CONTROLLERS}",
    f"--assume-stopped={CONTROLLERS}",
    "--begin=restart",
    "--yes",
    *(f"--set={flag}={value}" for flag, value in PATIENT.items()),
)


def with_descriptors(one: User, most: int) -> None:
    """What this user starts may open so many files."""
    limited = f'ulimit -n {most}; exec "$@"'
    one.program = ["sh", "-c", limited, "sh", sys.executable, "-P", "-m", "kubectl_nodelife"]


@contextlib.contextmanager
def idle_connections(port: int) -> Iterator[list[socket.socket]]:
    """A thousand that say nothing, however many of them are cut."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * IDLE), hard))
    held: list[socket.socket] = []
    try:
        for _ in range(IDLE):
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", port), timeout=10))
        yield held
    finally:
        for one in held:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ready(served: Sandbox, name: str) -> str:
    """The node's condition."""
    document = served.cluster.api.served.collections["Node"].entries[("", name)].document()
    return next(str(c["status"]) for c in document["status"]["conditions"] if c["type"] == "Ready")


class Two:
    """Who leads, who stands by, and the cluster. `port`: of the leader's metrics."""

    def __init__(self, served: Sandbox, first: User, second: User, holders: Holders) -> None:
        self.served, self.first, self.second, self.holders = served, first, second, holders
        self.port = free_port()

    async def begin(self, most: int) -> None:
        """The leader may open so many files."""
        with_descriptors(self.first, most)
        await self.first.begin(*ORDERS, f"--metrics-bind-address=127.0.0.1:{self.port}")
        await until(lambda: self.holders.holder() == "first")
        await self.second.begin(*ORDERS, "--wait")

    async def called_lost(self, name: str) -> None:
        """Stop that kubelet, and wait for what follows."""
        silence(self.served, name)
        self.served.cluster.wake()
        await until(lambda: ready(self.served, name) == "Unknown", 90)


@contextlib.asynccontextmanager
async def two_daemons(folder: Path, most: int = 256) -> AsyncIterator[Two]:
    """Both are at work; in the end no write was of one without the Lease."""
    holders = Holders()
    cluster = {"zones": 2, "nodesPerZone": 5, "podsPerNode": 1}
    async with sandbox(generate=cluster, between=holders.middleware) as served:
        holders.watch(served)
        async with (
            user(impersonating(served.kubeconfig, "first", folder)) as first,
            user(impersonating(served.kubeconfig, "second", folder)) as second,
        ):
            two = Two(served, first, second, holders)
            await two.begin(most)
            yield two
            assert holders.broken == []


@pytest.mark.parametrize("most", [64, 256])
async def test_a_thousand_idle_connections_do_not_end_enforcing(most: int, tmp_path: Path) -> None:
    async with two_daemons(tmp_path, most) as two:
        idle = idle_connections(two.port)
        held = await asyncio.to_thread(idle.__enter__)
        try:
            assert len(held) > IDLE // 2
            await two.called_lost("a1")
            assert two.holders.holder() == "first" and not two.holders.wrote["second"]
        finally:
            idle.__exit__(None, None, None)


needs_prlimit = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="other processes have limits on Linux only"
)


@needs_prlimit
@pytest.mark.parametrize(
    "what, least, most_s",
    [
        pytest.param("RLIMIT_NOFILE", 3, math.inf, id="descriptors"),
        pytest.param("RLIMIT_FSIZE", 0, 1, id="a-disk-that-turns-read-only"),
    ],
)
async def test_a_leader_that_cannot_work_gives_its_lease_up(
    what: str, least: int, most_s: float, tmp_path: Path
) -> None:
    """The kernel refuses every write to a file, as on a disk that was remounted read-only; a real
    one cannot be while files are open.

    b1 is to be called lost in the seconds until it gives up. `most_s`: how long it may still write.
    Without a disk there is no intent, and so no write. The journal and the connections that are
    open already need no descriptor more: by these it renews its Lease, and writes while it has it.
    """
    async with two_daemons(tmp_path) as two:
        await two.called_lost("a2")
        pid, limit = (await two.first.health())["pid"], getattr(resource, what)
        before = resource.prlimit(pid, limit)
        silence(two.served, "b1")
        await asyncio.sleep(6.5)  # of the 8 that it has
        resource.prlimit(pid, limit, (least, before[1]))
        taken_at = time.monotonic()
        await until(lambda: two.holders.holder() == "second", 15)
        await two.called_lost("a1")
        await until(lambda: ready(two.served, "b1") == "Unknown")
        resource.prlimit(pid, limit, before)
        assert two.holders.wrote["first"] and two.holders.wrote["second"]
        assert two.holders.broken == []
        assert max(two.holders.wrote["first"]) < taken_at + most_s
        health = await two.first.health()
        assert not health["enforcement"]["enforcing"] and health["enforcement"]["because"]
