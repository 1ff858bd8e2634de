"""List and watch of a real API server: both ways to begin, an outage, a refusal, and only reads."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.news import REFUSED, WATCHING
from kubectl_nodelife.live.requests import Resource, WatchPacing
from kubectl_nodelife.live.source import ListWatchSource
from kubectl_nodelife.live.target import find_target
from tests.loopback import until
from tests.real.control_plane import ControlPlane, control_plane
from tests.source_reader import Seen

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
PACE = WatchPacing(first_backoff_s=0.1, last_backoff_s=0.5, refused_s=0.5, page_size=10)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with control_plane() as running:
        for number in range(3):
            running.api.create(NODES, {"metadata": {"name": f"n{number}"}})
        for number in range(25):
            running.api.create(PODS, pod(f"p{number:02}"))
        yield running


def pod(name: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": "registry.example/i"}]
    return {"metadata": {"name": name}, "spec": {"nodeName": "n1", "containers": containers}}


@contextlib.asynccontextmanager
async def following(
    plane: ControlPlane, *kinds: str, watch_list: bool = True, user: str | None = None
) -> AsyncIterator[tuple[Seen, Client]]:
    target = find_target(Connection(kubeconfig=str(plane.kubeconfig), impersonate=user), {})
    client = Client(Session(target, {}))
    resources = [Resource(kind_named(kind)) for kind in kinds]
    seen = Seen(ListWatchSource(client, resources, PACE, watch_list=watch_list))
    tasks = [asyncio.create_task(seen.source.run()), asyncio.create_task(seen.read())]
    try:
        yield seen, client
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


def agrees(plane: ControlPlane, seen: Seen) -> bool:
    """True if pods and nodes are known as the server has them."""
    for kind, path in (("Node", NODES), ("Pod", "/api/v1/pods")):
        there = {
            (item["metadata"].get("namespace", ""), item["metadata"]["name"]): item["metadata"][
                "resourceVersion"
            ]
            for item in plane.api.get(path)["items"]
        }
        if there != seen.versions(kind):
            return False
    return True


@pytest.mark.parametrize("watch_list", [True, False], ids=["watch-list", "pages"])
async def test_what_is_there_and_what_comes(plane: ControlPlane, watch_list: bool) -> None:
    async with following(plane, "Node", "Pod", watch_list=watch_list) as (seen, client):
        await until(lambda: agrees(plane, seen))
        name = f"late-{watch_list}".lower()
        plane.api.create(PODS, pod(name))
        await until(lambda: agrees(plane, seen))
        plane.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        await until(lambda: agrees(plane, seen))
        assert seen.listed.count("Pod") == 1
        assert client.clock.known


async def test_a_user_without_rights_is_refused_each_kind(plane: ControlPlane) -> None:
    async with following(plane, "Node", "Pod", user="nobody") as (seen, _):
        states = seen.source.states
        await until(lambda: all(state.phase == REFUSED for state in states.values()))
        assert 'User "nobody" cannot' in states["Node"].error


async def test_an_api_server_that_is_gone_for_a_while(plane: ControlPlane) -> None:
    async with following(plane, "Node", "Pod") as (seen, _):
        states = seen.source.states
        await until(lambda: all(state.phase == WATCHING for state in states.values()))
        await asyncio.to_thread(plane.restart, "kube-apiserver")
        await asyncio.to_thread(
            plane.api.merge, f"{NODES}/n0", {"metadata": {"labels": {"a": "b"}}}
        )
        await until(lambda: agrees(plane, seen))
        await until(lambda: any(p.gap_ns > 100_000_000 for p in seen.phases))


def test_nothing_was_written_by_us(plane: ControlPlane) -> None:
    time.sleep(1)  # the audit log is written in batches
    writers = {entry.get("userAgent", "") for entry in plane.audit()}
    assert "tests" in writers
    assert not any(writer.startswith("kubectl-nodelife") for writer in writers)
