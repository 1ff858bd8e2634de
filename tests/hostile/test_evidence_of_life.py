"""A Lease watch that lives and tells nothing calls no node lost: the Leases are read past it."""

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.daemon.user import SET, user
from tests.objects import lease, node
from tests.raw_server import RawServer, Request, raw_server

NODES = [f"n{number}" for number in range(6)]


def alive_now(name: str) -> list[dict[str, Any]]:
    """A node and its Lease, with signs of life of this very moment."""
    now = time.time_ns()
    return [node(name, heartbeat=now, since=now), lease(name, now)]


async def bookmarks_only(request: Request) -> bool:
    """The watch of Leases is open and polite, and holds every renewal back."""
    if request.plural != "leases" or not request.is_watch:
        return False
    await request.begin_watch()
    if request.query.get("sendInitialEvents"):
        for obj in request.server.objects("leases"):
            await request.event("ADDED", obj)
    annotations = {"k8s.io/initial-events-end": "true"}
    while True:
        meta = {"resourceVersion": str(request.server.version), "annotations": annotations}
        await request.event("BOOKMARK", {"metadata": meta})
        await asyncio.sleep(0.5)


async def renewing(server: RawServer, names: list[str]) -> None:
    while True:
        for name in names:
            server.put(lease(name, time.time_ns()))
        await asyncio.sleep(0.4)


async def look_on(folder: Path, dead: list[str]) -> None:
    """Six nodes renew their Leases, but for the dead; of the watch nobody hears it."""
    objects = [made for name in NODES for made in alive_now(name)]
    folder.mkdir()
    async with raw_server(objects) as server, user(server.kubeconfig(folder)) as someone:
        server.sickness = bookmarks_only
        alive = [name for name in NODES if name not in dead]
        beating = asyncio.create_task(renewing(server, alive))
        await someone.begin(*SET)
        began = time.monotonic()
        await asyncio.sleep(10)
        items = (await someone.json("changes"))["items"]
        conditions = [i for i in items if i["action"].startswith("SetNodeCondition")]
        lost = {i["object"]["name"] for i in conditions}
        assert lost == set(dead), items
        asked = [r for r in server.asked("leases", began) if not r.is_watch]
        reads = [r for r in asked if "fieldSelector" not in r.query]  # the manager's Lease has one
        assert 0 < len(reads) <= 2 + (time.monotonic() - began)
        log = await someone.ok("daemon", "logs")
        assert "brings no renewals: it is opened anew" in log
        beating.cancel()


async def test_a_watch_of_bookmarks_only_is_not_believed(tmp_path: Path) -> None:
    """Two daemons beside one another: all alive, and one dead. Grace period: 3 s."""
    async with asyncio.TaskGroup() as group:
        group.create_task(look_on(tmp_path / "all-alive", []))
        group.create_task(look_on(tmp_path / "one-dead", ["n0"]))
