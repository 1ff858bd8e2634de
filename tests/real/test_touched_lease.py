"""A silent node whose Lease somebody else wrote to is never lost from v1.37 on; the daemon says it.

A real kube-controller-manager is the judge: it calls the node beside it lost, keeps the one whose
Lease was annotated, and calls that one lost in the pass after its Lease is deleted. The daemon
foretells the one, and of the other who wrote to its Lease and that it is not called lost.
"""

import asyncio
import time
from typing import Any

from tests.daemon.user import User, user
from tests.real.audited import instant
from tests.real.control_plane import control_plane
from tests.real.kubelets import Kubelets
from tests.real.predictions_setups import GRACE_S, PERIOD_S, Ground
from tests.real.test_predictions import MANAGER, begin_to_watch

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
BUSY_S = 2.0  # what a pass of a busy machine may come late by


def ready(ground: Ground, node: str) -> str:
    conditions = ground.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return str(next(c["status"] for c in conditions if c["type"] == "Ready"))


async def until_unknown(ground: Ground, node: str, seconds: float) -> float:
    """Seconds until the real controller called the node lost."""
    began = time.monotonic()
    while await asyncio.to_thread(ready, ground, node) != "Unknown":
        assert time.monotonic() - began < seconds, f"{node} is not lost after {seconds} s"
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def foretold(one: User, node: str) -> list[dict[str, Any]]:
    """The changes of the node's Ready that the daemon told."""
    items = (await one.json("changes"))["items"]
    return [
        item
        for item in items
        if item["action"] == "SetNodeCondition"
        and item["object"]["name"] == node
        and item["detail"]["type"] == "Ready"
        and item["outcome"] != "superseded"
    ]


async def play(ground: Ground, one: User) -> None:
    await begin_to_watch(one)
    ground.stop("plain", "touched")
    await asyncio.sleep(2)  # no renewal is under way
    touch = {"metadata": {"annotations": {"somebody": "was here"}}}
    await asyncio.to_thread(ground.api.merge, f"{LEASES}/touched", touch)
    await until_unknown(ground, "plain", GRACE_S + 2 * PERIOD_S + BUSY_S)
    await asyncio.sleep(2 * GRACE_S)
    assert await asyncio.to_thread(ready, ground, "touched") == "True"
    assert len(await foretold(one, "plain")) == 1
    assert await foretold(one, "touched") == []
    said = await one.ok("explain", "node", "touched")
    assert "its Lease was changed by" in said, said
    assert "1.37 does not call it lost" in said, said

    deleted = time.time()
    await asyncio.to_thread(ground.api.delete, f"{LEASES}/touched")
    await until_unknown(ground, "touched", PERIOD_S + BUSY_S)

    async def told() -> bool:
        return bool(await foretold(one, "touched"))

    await one.until(told)
    (change,) = await foretold(one, "touched")
    assert -0.1 <= instant(change["time"]) - deleted <= PERIOD_S + BUSY_S, change


def test_a_touched_lease_is_foretold() -> None:
    with (
        control_plane(controller_manager=MANAGER) as plane,
        Kubelets(plane.api) as kubelets,
    ):
        ground = Ground(plane.api, kubelets)
        for node in ("well", "plain", "touched"):
            ground.node(node, "a")

        async def test() -> None:
            async with user(str(plane.kubeconfig)) as one:
                await play(ground, one)

        asyncio.run(test())
        plane.assert_running()
