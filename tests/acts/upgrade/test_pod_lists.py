"""Lists of a node's pods: what the cache shows holds once it has seen all that was listed."""

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kubectl_nodelife.acts.upgrade import live_cache
from kubectl_nodelife.acts.upgrade.live_cache import PodLists
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.live.client import ApiError


class Server:
    """Answers with the pods p0, p1, …; `fails` the first time."""

    def __init__(self, pods: int, *, fails: bool = False) -> None:
        self.pods, self.fails, self.asked = pods, fails, list[str]()
        self.spec: Any = {}

    async def read(self, url: str, *, retry: bool) -> bytes:
        self.asked.append(url)
        if self.fails and len(self.asked) == 1:
            raise ApiError(500, "no")
        items = [meta(number) for number in range(self.pods)]
        listed = [{"metadata": m, "spec": self.spec} for m in items]
        return msgspec.json.encode({"kind": "PodList", "metadata": {}, "items": listed})


def meta(number: int) -> dict[str, str]:
    return {"namespace": "shop", "name": f"p{number}", "uid": f"u{number}"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_cache, "AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(live_cache, "AGAIN_AFTER_ERROR_SECONDS", 0.001)


def lists_of(server: Server, cache: Cache) -> PodLists:
    """Its clock counts readings."""
    clock = SimpleNamespace(now_ns=count(1).__next__)
    return PodLists(cast(Any, server), cast(Any, SimpleNamespace(cache=cache, clock=clock)))


def know(cache: Cache, number: int) -> None:
    pod = Pod(metadata=ObjectMeta(**meta(number)))
    cache.set("Pod", pod.key, pod)


async def until_listed(lists: PodLists) -> None:
    async with asyncio.timeout(5):
        while not lists.listed_ns:
            await asyncio.sleep(0)


async def test_a_list_counts_from_when_it_was_asked_for_and_all_of_it_is_known() -> None:
    cache, server = Cache(), Server(pods=2)
    know(cache, 0)
    lists = lists_of(server, cache)
    lists.follow({"x"})
    while len(server.asked) < 3:
        await asyncio.sleep(0.001)
    assert not lists.listed_ns, "the watch has not told of p1"
    know(cache, 1)
    asked = len(server.asked)
    await until_listed(lists)
    assert lists.listed_ns == {"x": len(server.asked)} and len(server.asked) >= asked
    assert server.asked[0] == "/api/v1/pods?limit=500&fieldSelector=spec.nodeName%3Dx"


async def test_a_list_that_fails_is_asked_for_again() -> None:
    server = Server(pods=0, fails=True)
    lists = lists_of(server, Cache())
    lists.follow({"x"})
    await until_listed(lists)
    assert lists.listed_ns == {"x": 2}


async def test_a_list_with_a_pod_that_cannot_be_read_says_nothing() -> None:
    cache, server = Cache(), Server(pods=1)
    know(cache, 0)
    server.spec = "none"
    lists = lists_of(server, cache)
    lists.follow({"x"})
    while len(server.asked) < 3:
        await asyncio.sleep(0.001)
    assert not lists.listed_ns
    server.spec = {}
    await until_listed(lists)


async def test_who_asks_again_gets_a_newer_list_and_who_asks_no_more_none() -> None:
    cache, server = Cache(), Server(pods=0)
    lists = lists_of(server, cache)
    lists.follow({"x"})
    await until_listed(lists)
    await asyncio.sleep(0.01)
    assert len(server.asked) == 1
    lists.listed_ns.clear()
    lists.follow({"x"})
    await until_listed(lists)
    assert lists.listed_ns == {"x": 2}
    lists.follow({"y"})
    lists.follow(())
    await asyncio.sleep(0.01)
    assert "y" not in lists.listed_ns
