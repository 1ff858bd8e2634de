"""A daemon that may open few files, and a thousand idle connections to its metrics.

Whoever leads: a node that is lost is called lost, by this daemon or by the one that stands by.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from kubectl_nodelife.sandbox.tls import Sandbox
from tests.daemon.user import PATIENT, User, silence, user
from tests.loopback import play, sandbox, until

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


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def ready(served: Sandbox, name: str) -> str:
    """The node's condition."""
    document = served.cluster.api.served.collections["Node"].entries[("", name)].document()
    return next(str(c["status"]) for c in document["status"]["conditions"] if c["type"] == "Ready")


async def called_lost(served: Sandbox, name: str) -> None:
    """Stop that kubelet, and wait for what follows."""
    silence(served, name)
    served.cluster.wake()
    await until(lambda: ready(served, name) == "Unknown", 90)


@contextlib.asynccontextmanager
async def two_daemons(most: int) -> AsyncIterator[tuple[Sandbox, User, User, int]]:
    """(the cluster, who leads and may open so many files, who stands by, the port of metrics)."""
    port = free_port()
    async with (
        sandbox(generate={"zones": 2, "nodesPerZone": 5, "podsPerNode": 1}) as served,
        user(served.kubeconfig) as first,
        user(served.kubeconfig) as second,
    ):
        with_descriptors(first, most)
        await first.begin(*ORDERS, f"--metrics-bind-address=127.0.0.1:{port}")

        async def leads() -> bool:
            return await enforcing(first)

        await first.until(leads)
        await second.begin(*ORDERS, "--wait")
        yield served, first, second, port


async def enforcing(one: User) -> bool:
    return bool((await one.health())["enforcement"]["enforcing"])


@pytest.mark.parametrize("most", [64, 256])
def test_a_thousand_idle_connections_do_not_end_enforcing(most: int) -> None:
    async def test() -> None:
        async with two_daemons(most) as (served, first, second, port):
            idle = idle_connections(port)
            held = await asyncio.to_thread(idle.__enter__)
            try:
                assert len(held) > IDLE // 2
                await called_lost(served, "a1")
                assert await enforcing(first) and not await enforcing(second)
            finally:
                idle.__exit__(None, None, None)

    play(test)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limit of a process is of Linux")
def test_a_leader_that_can_open_nothing_any_more_gives_its_lease_up() -> None:
    async def test() -> None:
        async with two_daemons(256) as (served, first, second, _):
            pid = (await first.health())["pid"]
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 256))

            async def leads() -> bool:
                return await enforcing(second)

            began = time.monotonic()
            await second.until(leads)
            assert time.monotonic() - began < 30
            await called_lost(served, "a1")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, 256))
            assert not await enforcing(first) and await enforcing(second)

    play(test)
