"""A sandbox cluster with a dead zone: what it answers live, and what its snapshot answers."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

from kubectl_nodelife.sandbox.listening import Sandbox
from tests.daemon.user import User, user
from tests.loopback import GENERATE, SHORT_FLAGS, client, play, sandbox

DEAD = {"at": "1s", "kubelet": {"selector": "topology.kubernetes.io/zone=b", "heartbeats": "stop"}}
FORCE = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")
NUMBER = re.compile(r"\d[\d.:smh]*")
FLAGS = [f"--set={name}={value}" for name, value in SHORT_FLAGS.items()]


def without_time(value: Any) -> Any:
    """The document less what goes on with time or tells where it is from."""
    gone = ("moment", "source", "warnings", "because", "origin", "profileOrigin", "evidence")
    if isinstance(value, dict):
        return {
            k: without_time(v)
            for k, v in value.items()
            if k not in gone and not k.endswith(("Seconds", "Age", "age", "since", "inSeconds"))
        }
    if isinstance(value, list):
        return [without_time(inner) for inner in value]
    return NUMBER.sub("#", value) if isinstance(value, str) else value


async def until_dead(served: Sandbox) -> None:
    """Zone b is Unknown, and each of its nodes has both taints."""
    async with client(served) as reader:

        async def dead() -> bool:
            items = json.loads(await reader.read("/api/v1/nodes"))["items"]
            return [len(n["spec"].get("taints", ())) for n in items].count(2) == 2

        ends = time.monotonic() + 30
        while not await dead():
            assert time.monotonic() < ends, "the zone did not die in time"
            await asyncio.sleep(0.1)


def test_the_snapshot_of_a_half_dead_cluster_answers_as_the_cluster() -> None:
    async def test() -> None:
        half_dead = sandbox(
            controllers=("node-lifecycle",),  # nothing is evicted between two looks
            events=[DEAD],
            generate={**GENERATE, "podsPerNode": 2},
        )
        async with half_dead as served, user(served.kubeconfig) as one:
            await until_dead(served)
            await one.ok("snapshot", "save", "s.json.gz")
            live, kept = await asyncio.gather(
                answers(one, "--no-daemon"), answers(one, "-f", "s.json.gz")
            )
        assert {n["ready"] for n in live["status"]["nodes"]} == {"True", "Unknown"}
        assert without_time(live) == without_time(kept)

    play(test)


async def answers(one: User, *where: str) -> dict[str, Any]:
    looks_itself = where if where[0] == "-f" else ()
    return {
        "status": await one.json("status", *where, *FLAGS),
        "audit": await one.json("audit", "-A", *looks_itself, *FLAGS),
        "drain-plan": await one.json("drain-plan", "a1", *FORCE, *looks_itself),
        "explain": await one.json("explain", "node", "b1", *where, *FLAGS),
    }
