"""A Lease watch that lives and tells nothing calls no node lost: the Leases are read past it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from kubectl_nodelife.kube.times import format_micro_time, format_time
from tests.daemon.user import SET, user
from tests.hostile.server import Hostile, Request, hostile
from tests.loopback import play

NODES = [f"n{number}" for number in range(6)]


def node(name: str) -> dict[str, Any]:
    now = format_time(time.time_ns())
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [ready]},
    }


def lease(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"renewTime": format_micro_time(time.time_ns()), "leaseDurationSeconds": 40},
    }


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


async def renewing(server: Hostile, names: list[str]) -> None:
    while True:
        for name in names:
            server.put(lease(name))
        await asyncio.sleep(0.4)


async def look_on(folder: Path, dead: list[str]) -> None:
    """Six nodes renew their Leases, but for the dead; of the watch nobody hears it."""
    objects = [make(name) for name in NODES for make in (node, lease)]
    folder.mkdir()
    async with hostile(objects) as server, user(server.kubeconfig(folder)) as someone:
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


def test_a_watch_of_bookmarks_only_is_not_believed(tmp_path: Path) -> None:
    """Two daemons beside one another: all alive, and one dead. Grace period: 3 s."""

    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(look_on(tmp_path / "all-alive", []))
            group.create_task(look_on(tmp_path / "one-dead", ["n0"]))

    play(test)
