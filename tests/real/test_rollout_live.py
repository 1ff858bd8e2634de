"""Rolling updates and rollbacks by the real controller, watched live by the daemon in dry-run."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tests.daemon.user import User, user
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.kubelets import Kubelets
from tests.real.watched_acts import HEADER, compare

NODES = 5
SECONDS = 180.0
SETS = "/apis/apps/v1/namespaces/default/daemonsets"
STRATEGIES: dict[str, dict[str, Any]] = {
    "plain": {"maxUnavailable": 2},
    "surging": {"maxUnavailable": 0, "maxSurge": 1},
}


def daemon_set(name: str, image: int) -> dict[str, Any]:
    """A set on all nodes."""
    labels = {"app": name}
    pod = {
        "containers": [{"name": "c", "image": f"agent:{image}"}],
        "terminationGracePeriodSeconds": 1,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "revisionHistoryLimit": 1,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": STRATEGIES[name]},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def is_over(plane: ControlPlane) -> bool:
    """True if all sets have come to rest."""
    for found in plane.api.get(SETS)["items"]:
        status = found["status"]
        counts = [status.get(f) for f in ("updatedNumberScheduled", "numberAvailable")]
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return False
        if counts != [NODES, NODES] or status.get("currentNumberScheduled") != NODES:
            return False
    pods = plane.api.get("/api/v1/namespaces/default/pods")["items"]
    return len(pods) == NODES * len(STRATEGIES)


async def until(wanted: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + SECONDS
    while not await wanted():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.2)


async def story(plane: ControlPlane, one: User) -> None:
    """Sets come, are changed twice, and go back to where they were first."""

    async def over() -> bool:
        return is_over(plane)

    for image in (1, 2, 3):
        for name in STRATEGIES:
            if image == 1:
                plane.api.create(SETS, daemon_set(name, image))
            else:
                plane.api.merge(f"{SETS}/{name}", {"spec": daemon_set(name, image)["spec"]})
        await until(over)
    for name in STRATEGIES:
        await asyncio.to_thread(plane.kubectl, "rollout", "undo", f"daemonset/{name}")
    followed = await one.run("daemonset", "status", "ds", "plain", "-w", "--timeout", f"{SECONDS}s")
    assert followed.out.splitlines()[-1] == 'daemon set "plain" successfully rolled out', followed
    await until(over)


async def caught_up(plane: ControlPlane, one: User) -> list[dict[str, Any]]:
    """The changes, when the daemon has seen all that happened."""

    async def seen() -> bool:
        items = (await one.json("daemonset"))["items"]
        return all(item["counted"] == item["reported"] and not item["odd"] for item in items)

    await until(seen)
    found: list[dict[str, Any]] = (await one.json("changes"))["items"]
    return found


def test_each_act_of_the_real_controller_is_told_and_nothing_else() -> None:
    async def watch(plane: ControlPlane) -> list[dict[str, Any]]:
        async with user(str(plane.kubeconfig)) as one:
            await one.ok("daemon", "start")

            async def synced() -> bool:
                return bool((await one.health())["synced"])

            await until(synced)
            await story(plane, one)
            return await caught_up(plane, one)

    with (
        control_plane(controller_manager=(), scheduler=True) as plane,
        Kubelets(plane.api) as kubelets,
    ):
        for number in range(NODES):
            kubelets.add_node(f"n{number}")
        changes = asyncio.run(watch(plane))
        rows = compare(plane.audit(), changes)
    table = "\n".join([HEADER, *(row.line() for row in rows)])
    print(table)
    assert all(row.real for row in rows), table
    assert [(row.action, row.missed, row.extra) for row in rows if row.missed or row.extra] == []
    assert not [c for c in changes if c["controller"] == "daemonset" and c["outcome"] == "would"]
    writers = {entry.get("userAgent", "") for entry in plane.audit()}
    assert not any(writer.startswith("kubectl-nodelife") for writer in writers)
