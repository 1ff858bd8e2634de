"""A sick server is asked seldom, and it is told why nothing is known.

client-go waits 0.8 to 1.6 s after a first failure, then twice as long each time. Today's limit is
two requests a second for each kind over any six seconds, whatever the server answers.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubectl_nodelife.daemon.gate import failing
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.listwatch import read_all
from kubectl_nodelife.live.news import FAILING, KindState
from kubectl_nodelife.live.requests import Resource, WatchPacing
from kubectl_nodelife.live.target import find_target
from kubectl_nodelife.live.transport import MOST_RETRY_AFTER_S, Backoff
from tests import source_reader
from tests.hostile import sicknesses
from tests.loopback import until
from tests.raw_server import RawServer, Sickness, raw_server
from tests.source_reader import Seen

SECONDS = 6.0
KINDS = ("Node", "Pod", "Lease")


@contextlib.asynccontextmanager
async def client(server: RawServer, folder: Path, **flags: str) -> AsyncIterator[Client]:
    target = find_target(Connection(kubeconfig=server.kubeconfig(folder), **flags), {})
    ours = Client(Session(target, {}))
    try:
        yield ours
    finally:
        await ours.close()


@contextlib.asynccontextmanager
async def following(
    server: RawServer, folder: Path, pace: WatchPacing | None = None
) -> AsyncIterator[Seen]:
    async with client(server, folder) as ours, source_reader.following(ours, KINDS, pace) as seen:
        yield seen


STORMS = [
    pytest.param(sicknesses.gone_lists, id="410-on-lists"),
    pytest.param(sicknesses.expired_watches, id="410-in-watches"),
    pytest.param(sicknesses.broken_after_the_first_event, id="410-after-a-WatchList"),
    pytest.param(sicknesses.ending_watches, id="watches-end-at-once"),
    pytest.param(sicknesses.nameless_events(), id="nameless-events"),
    pytest.param(sicknesses.failing(503, {"Retry-After": "0"}), id="503-retry-after-0"),
    pytest.param(sicknesses.failing(429, {"Retry-After": "0"}), id="429-retry-after-0"),
    pytest.param(
        sicknesses.failing(429, None, {"retryAfterSeconds": -5}), id="429-negative-retryAfter"
    ),
    pytest.param(sicknesses.failing(401), id="401"),
    pytest.param(sicknesses.failing(500), id="500"),
    pytest.param(sicknesses.endless_list, id="endless-list"),
    pytest.param(sicknesses.login_page, id="login-page"),
]


async def test_no_storm(tmp_path: Path) -> None:
    """All storms at once, each on a server of its own: it is waiting that takes the time."""

    async def storm(sickness: Sickness, folder: Path) -> dict[str, int]:
        folder.mkdir()
        async with raw_server() as server:
            server.sickness = sickness
            async with following(server, folder):
                await asyncio.sleep(SECONDS)
            plurals = {r.plural for r in server.requests}
            return {plural: len(server.asked(plural)) for plural in plurals}

    counts = await asyncio.gather(*(storm(row.values[0], tmp_path / str(row.id)) for row in STORMS))
    most = {str(row.id): max(found.values()) for row, found in zip(STORMS, counts, strict=True)}
    assert all(count <= 2 * SECONDS for count in most.values()), most
    assert all(len(found.keys() - {"namespaces"}) == len(KINDS) for found in counts)


async def test_a_long_retry_after_is_capped_and_told(tmp_path: Path) -> None:
    async with raw_server() as server:
        server.sickness = sicknesses.failing(503, {"Retry-After": "999999999999"})
        async with following(server, tmp_path) as seen:
            state = seen.source.states["Pod"]
            await until(lambda: state.retry_at_ns)
            left_s = (state.retry_at_ns - time.monotonic_ns()) / 1e9
            assert left_s <= MOST_RETRY_AFTER_S
            assert (state.phase, state.failures) == (FAILING, 1)
            assert "503" in state.error


async def test_an_event_that_names_nothing_is_told_and_costs_one_list(tmp_path: Path) -> None:
    async with raw_server() as server:
        server.sickness = sicknesses.nameless_events(open_s=30)
        async with following(server, tmp_path) as seen:
            state = seen.source.states["Pod"]
            await until(lambda: state.nameless == 2 and state.phase == "watching")
            await asyncio.sleep(1)
            assert len(server.asked("pods")) == 2, "the watch goes on, after one new list"
            assert "have no name" in failing({"Pod": state})[-1]


async def test_a_server_that_is_well_again_is_watched_again(tmp_path: Path) -> None:
    async with raw_server() as server:
        server.sickness = sicknesses.failing(503, {"Retry-After": "0"})
        async with following(server, tmp_path) as seen:
            await until(lambda: seen.source.states["Pod"].failures)
            server.sickness = None
            await until(lambda: all(s.phase == "watching" for s in seen.source.states.values()))
            assert all(s.failures == 0 and not s.error for s in seen.source.states.values())


def test_pauses_are_client_gos() -> None:
    backoff = Backoff()
    for least in (0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30):
        assert least <= backoff.next_s(0) <= 2 * least
    backoff.went_well()
    assert backoff.next_s(-7) <= 1.6
    assert backoff.next_s(20) == 20
    assert backoff.next_s(999999999999) == MOST_RETRY_AFTER_S


async def test_a_login_page_is_called_one(tmp_path: Path) -> None:
    async with raw_server() as server:
        server.sickness = sicknesses.login_page
        async with client(server, tmp_path) as ours:
            with pytest.raises(Failed, match=r"127\.0\.0\.1.*web page.*log in"):
                await read_all(ours, Resource(kind_named("Node")))


def test_daemon_status_tells_why_nothing_comes() -> None:
    states = {name: KindState(name) for name in ("Node", "Lease", "Pod")}
    for name in ("Lease", "Pod"):
        states[name].phase, states[name].error = FAILING, "API server (503): sick"
        states[name].retry_at_ns = time.monotonic_ns() + 20 * 10**9
    (line,) = failing(states)
    assert line == "not being watched: Lease, Pod: API server (503): sick (asked again in 20s)"
