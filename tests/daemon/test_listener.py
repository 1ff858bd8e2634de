"""Ports: nobody's connections use up the process, or keep others out."""

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import pytest
from aiohttp import web

from kubectl_nodelife.daemon import listener
from kubectl_nodelife.daemon.listener import (
    MOST_CONNECTIONS,
    MOST_OF_ANOTHER,
    OWN,
    BoundedListener,
    LocalPeers,
    Rate,
    Rates,
    room_for_connections,
)
from tests.loopback import until
from tests.other_user import another_user, needs_another_user

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def served(is_busy: Callable[[], bool] = lambda: False) -> AsyncIterator[BoundedListener]:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    app = web.Application()
    app.router.add_get("/", hello)
    app.router.add_get("/slow", slow)
    made = BoundedListener(app, is_busy=is_busy)
    await made.start([socket.create_server(("127.0.0.1", 0))])
    try:
        yield made
    finally:
        await made.close()


def connections_of(one: BoundedListener) -> int:
    one._forget_ended()
    return len(one._held)


async def connect(to: BoundedListener) -> Connection:
    return await asyncio.open_connection(*to._sockets[0].getsockname())


async def ask(to: BoundedListener, path: str = "/", by: Connection | None = None) -> int:
    """The status of an answer; 0: the connection was closed."""
    try:
        reader, writer = by or await connect(to)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        line = await reader.readline()
        if by is None:
            writer.close()
        return int(line.split()[1]) if line else 0
    except ConnectionError:
        return 0


async def close(held: list[Connection]) -> None:
    for _, writer in held:
        writer.close()


async def test_a_thousand_idle_connections_leave_descriptors_and_let_others_in() -> None:
    """A thousand of them took all descriptors: watches broke, and enforcing ended."""
    async with served() as one:
        idle = [await connect(one) for _ in range(1_000)]
        assert connections_of(one) <= MOST_CONNECTIONS
        assert await ask(one) == 200, "one that says nothing makes room"
        await close(idle)


async def test_no_room_is_made_by_cutting_what_is_being_answered() -> None:
    async with served() as one:
        asking = [asyncio.create_task(ask(one, "/slow")) for _ in range(MOST_CONNECTIONS)]
        await until(lambda: sum(held.serving for held in one._held.values()) == len(asking))
        assert await ask(one) == 0
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_silence_ends_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(listener, "IDLE_SECONDS", 0.3)
    async with served() as one:
        reader, writer = await connect(one)
        writer.write(b"GET / HTTP/1.1\r\nHost: ")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        kept = await connect(one)
        assert await ask(one, by=kept) == 200
        await until(lambda: not connections_of(one))


@pytest.mark.parametrize("others", [1, 4, 40])
async def test_no_other_peer_keeps_anybody_out(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of some other peers opens all that it can."""
    came = count()
    next_peer: list[str] = []

    def peer_of(self: LocalPeers, accepted: Any, address: Any) -> str:
        return next_peer[0] if next_peer else f"10.0.0.{next(came) % others}"

    monkeypatch.setattr(LocalPeers, "peer_of", peer_of)

    async with served() as one:
        idle = [await connect(one) for _ in range(200)]
        await asyncio.sleep(2)
        counts = [held.peer for held in one._held.values()]
        assert len(counts) <= MOST_CONNECTIONS
        assert max(counts.count(peer) for peer in counts) <= MOST_OF_ANOTHER
        for peer in ("192.168.0.1", OWN):
            next_peer[:] = [peer]
            assert await ask(one) == 200, f"{peer} is let in"
        await close(idle)


async def test_whoever_has_gone_already_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPeers, "peer_of", lambda *_: "")
    async with served() as one:
        assert await ask(one) == 0 and not connections_of(one)


def test_each_peer_has_a_rate_of_its_own() -> None:
    now_s = [0.0]
    rates = Rates({True: Rate(100, 3), False: Rate(10, 3)}, lambda: now_s[0])
    assert [rates.wait_s("uid 1") for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert rates.wait_s("uid 2") == 0 and rates.wait_s(OWN) == 0, "others have theirs"
    now_s[0] = 0.2
    assert rates.wait_s("uid 1") == pytest.approx(0.1)
    now_s[0] = 60.0
    assert [rates.wait_s("uid 1") for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


async def test_a_flood_of_another_peer_is_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPeers, "peer_of", lambda *_: "uid 1")
    async with served() as one:
        kept = [await connect(one) for _ in range(8)]
        began = time.monotonic()

        async def flood(by: Connection) -> int:
            asked = 0
            while time.monotonic() - began < 2 and await ask(one, by=by):
                reader = by[0]
                asked += 1
                while (await reader.readline()).strip():
                    pass
                await reader.read(5)
            return asked

        asked = sum(await asyncio.gather(*map(flood, kept)))
        assert 40 <= asked <= 110, "forty at once, and twenty a second"


async def test_writes_to_the_cluster_go_first() -> None:
    busy = [True]
    async with served(lambda: busy[0]) as one:
        asking = asyncio.create_task(ask(one))
        await asyncio.sleep(0.4)
        assert not asking.done()
        busy[0] = False
        assert await asking == 200
        busy[0] = True
        began = time.monotonic()
        assert await ask(one) == 200 and time.monotonic() - began > 0.9, "but not for ever"


@pytest.mark.parametrize("soft, room", [(256, 16), (100, 4), (1024, 64), (1 << 20, 64)])
def test_descriptors_are_kept_back(soft: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, soft))
    assert room_for_connections() == room


@needs_another_user
async def test_a_second_user_of_this_machine_keeps_nobody_out() -> None:
    async with served() as one:
        address = one._sockets[0].getsockname()

        def holds() -> None:
            held = []
            while True:
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(address))

        with another_user(holds):
            await until(lambda: any(h.peer != OWN for h in one._held.values()))
            for _ in range(5):
                assert await ask(one) == 200
                await asyncio.sleep(0.05)
            peers = [held.peer for held in one._held.values()]
            assert peers.count("uid 65534") <= MOST_OF_ANOTHER
