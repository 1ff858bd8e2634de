"""A sandbox cluster and a daemon: journal and Events are one timeline, plans are ours alone."""

from typing import Any

from tests.daemon.user import PATIENT, User, silence, user
from tests.loopback import sandbox


async def lines(one: User, action: str, *words: str) -> list[dict[str, Any]]:
    """The replay's lines, once there are some of that action about node a1."""

    async def told() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await one.json("replay", *words))["items"]
        about = [i for i in items if i["action"] == action and i["object"]["name"] == "a1"]
        return items if about else []

    found: list[dict[str, Any]] = await one.until(told)
    return found


async def lost_and_said(one: User) -> list[dict[str, Any]]:
    """The lines, once the loss of a1 and its taints are known to the journal and from an Event."""
    items: list[dict[str, Any]] = (await one.json("replay"))["items"]
    seen = [set(i["seenBy"]) for i in items if i["detail"].startswith("Ready=Unknown")]
    tainted = any(i["action"] == "AddTaint" and i.get("outcome") == "confirmed" for i in items)
    return items if tainted and seen and {"journal", "event"} <= seen[0] else []


async def test_what_a_controller_did_and_said_is_one_line() -> None:
    controllers = ("node-lifecycle", "taint-eviction")
    async with (
        sandbox(controllers=controllers, flags=PATIENT) as served,
        user(served.kubeconfig) as one,
    ):
        await one.watching(PATIENT)
        silence(served, "a1")
        items = await one.until(lambda: lost_and_said(one))
    (lost,) = [i for i in items if i["detail"].startswith("Ready=Unknown")]
    assert lost["object"] == {"kind": "Node", "name": "a1"}
    assert lost["actor"] == {"kind": "controller", "name": "node-lifecycle"}
    said = [i for i in items if i["action"] == "NodeNotReady"]
    assert not [i for i in said if i["object"]["kind"] == "Node"]
    taints = [i for i in items if i["action"] == "AddTaint"]
    assert {t["object"]["name"] for t in taints} == {"a1"}
    assert lost["id"] in {t["cause"] for t in taints}


async def test_what_nobody_does_is_told_as_ours() -> None:
    async with sandbox(flags=PATIENT) as served, user(served.kubeconfig) as one:
        await one.watching(PATIENT)
        silence(served, "a1")
        items = await lines(one, "AddTaint", "node", "a1")
    planned = [i for i in items if i["action"] in ("SetNodeCondition", "AddTaint")]
    assert {i["outcome"] for i in planned} == {"would"}
    assert {i["actor"]["kind"] for i in planned} == {"us"}
