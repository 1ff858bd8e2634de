"""Answers that are small on the wire and large in memory, or that never end."""

import asyncio
import resource
import time
from pathlib import Path

import pytest

from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.live.listwatch import (
    MOST_LINE_BYTES,
    MalformedLine,
    WatchStream,
    most_line_bytes,
    read_all,
)
from kubectl_nodelife.live.requests import Resource
from kubectl_nodelife.live.target import MAX_RESPONSE_BYTES, parse_size
from tests.hostile import sicknesses
from tests.hostile.test_gentle import client, following
from tests.loopback import until
from tests.raw_server import raw_server

NODES = Resource(kind_named("Node"))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def test_a_gzip_bomb_ends_at_the_limit(tmp_path: Path) -> None:
    """300 MiB in 300 KB of gzip: with a limit of 16 MiB it costs about as much."""
    async with raw_server() as server:
        server.sickness = sicknesses.gzip_bomb(300)
        before = peak_bytes()
        async with client(server, tmp_path, max_response_size="16Mi") as ours:
            with pytest.raises(Failed, match=r"longer than 16 MiB.*--max-response-size"):
                await read_all(ours, NODES)
        assert peak_bytes() - before < 120 << 20


async def test_the_limit_can_be_raised(tmp_path: Path) -> None:
    async with raw_server() as server:
        server.sickness = sicknesses.gzip_bomb(30)
        async with client(server, tmp_path, max_response_size="64Mi") as ours:
            assert await read_all(ours, NODES) == []


def test_the_limit_is_a_quantity() -> None:
    assert parse_size(None) == MAX_RESPONSE_BYTES
    assert parse_size("2Gi") == 2 << 30
    for text in ("0", "-1Mi", "much"):
        with pytest.raises(BadInput, match="--max-response-size"):
            parse_size(text)


async def test_an_endless_watch_line_ends(tmp_path: Path) -> None:
    """The kind fails by name, the loop goes on meanwhile, and other kinds are watched."""
    async with raw_server() as server:

        async def sick(request: sicknesses.Request) -> bool:
            return request.plural == "pods" and await sicknesses.endless_line(request)

        server.sickness = sick
        async with following(server, tmp_path) as seen:
            stalls = []

            async def feel() -> None:
                while True:
                    began = time.monotonic()
                    await asyncio.sleep(0.01)
                    stalls.append(time.monotonic() - began)

            feeling = asyncio.create_task(feel())
            states = seen.source.states
            await until(lambda: "longer than 32 MiB" in states["Pod"].error)
            feeling.cancel()
            assert states["Node"].phase == "watching"
            assert max(stalls) < 2


def test_a_long_line_costs_what_it_is_long() -> None:
    """Twice the line is about twice the time: it was put together anew with every piece."""

    def seconds(pieces: int) -> float:
        stream: WatchStream[Pod] = WatchStream(Pod)
        began = time.perf_counter()
        for _ in range(pieces):
            list(stream.feed(b"a" * 4096))
        return time.perf_counter() - began

    seconds(100)
    assert seconds(8_000) < 12 * seconds(2_000) + 0.05


def test_the_limit_of_a_line_is_raised_with_that_of_an_answer() -> None:
    assert most_line_bytes(MAX_RESPONSE_BYTES) == most_line_bytes(1) == MOST_LINE_BYTES
    raised = most_line_bytes(parse_size("1Gi"))
    stream: WatchStream[Pod] = WatchStream(Pod, most_bytes=raised)
    for _ in range(raised >> 20):
        assert list(stream.feed(b"a" * (1 << 20))) == []
    with pytest.raises(MalformedLine, match="longer than 64 MiB: --max-response-size"):
        list(stream.feed(b"a"))


def test_a_line_has_a_limit() -> None:
    stream: WatchStream[Pod] = WatchStream(Pod)
    with pytest.raises(MalformedLine, match="longer than 32 MiB"):
        for _ in range(MOST_LINE_BYTES // (1 << 20) + 1):
            list(stream.feed(b"a" * (1 << 20)))
