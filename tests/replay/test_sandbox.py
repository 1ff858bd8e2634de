"""A sandbox cluster with its controllers and a daemon: journal and Events are one timeline."""

from __future__ import annotations

from typing import Any

from tests.daemon.user import User, user
from tests.loopback import SHORT_FLAGS, play, sandbox

FLAGS = [f"--set={name}={value}" for name, value in SHORT_FLAGS.items()]
LOST = {"at": "15s", "kubelet": {"nodes": ["a1"], "heartbeats": "stop"}}


async def until_told(one: User) -> list[dict[str, Any]]:
    """The lines, once the journal and Events tell of the node that is lost."""

    async def told() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await one.json("replay"))["items"]
        both = [i for i in items if set(i["seenBy"]) >= {"journal", "event"}]
        return items if any(i["action"] == "AddTaint" for i in items) and both else []

    found: list[dict[str, Any]] = await one.until(told)
    return found


def test_a_node_that_falls_silent() -> None:
    async def test() -> None:
        controllers = ("node-lifecycle", "taint-eviction")
        async with (
            sandbox(controllers=controllers, events=[LOST]) as served,
            user(served.kubeconfig) as one,
        ):
            await one.ok("daemon", "start", *FLAGS)
            items = await until_told(one)
        lost = [i for i in items if i["detail"].startswith("Ready=Unknown")]
        assert [i["object"]["name"] for i in lost] == ["a1"]
        assert lost[0]["actor"] == {"kind": "controller", "name": "node-lifecycle"}
        assert set(lost[0]["seenBy"]) >= {"journal", "event"}
        assert not [
            i for i in items if i["action"] == "NodeNotReady" and i["object"]["kind"] == "Node"
        ]
        taints = [i for i in items if i["action"] == "AddTaint"]
        assert {t["object"]["name"] for t in taints} == {"a1"}
        assert all(items[t["cause"]]["id"] <= t["id"] for t in taints if t["cause"] is not None)

    play(test)
