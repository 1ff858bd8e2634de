"""What a user sees of `diverge`, on sandboxes whose controllers differ from what is assumed."""

import asyncio
import functools
import json
import time
from collections.abc import Callable
from typing import Any

import yaml

from tests import loopback
from tests.daemon.user import User, silence, user
from tests.loopback import edited, sandbox

FLAGS = {
    "node-monitor-period": "500ms",
    "node-monitor-grace-period": "3s",
    "node-eviction-rate": "10",
}
ALL = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc", "pod-status")
PATIENCE_S = 150.0


play = functools.partial(loopback.play, seconds=300.0)


async def watch(one: User, **flags: str) -> None:
    """A daemon that assumes the flags above, or others, and is no longer cold."""
    assumed = {**FLAGS, **{name.replace("_", "-"): value for name, value in flags.items()}}
    await one.ok("daemon", "start", *(f"--set={flag}={text}" for flag, text in assumed.items()))
    await told(one, lambda made: made["verdict"] == "agrees")


async def told(one: User, is_it: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The first answer of which that is true."""
    ends = time.monotonic() + PATIENCE_S
    while not is_it(made := await one.json("diverge")):
        assert time.monotonic() < ends, f"diverge never said so; at last it said {made}"
        await asyncio.sleep(0.2)
    found: dict[str, Any] = made
    return found


def kinds(made: dict[str, Any]) -> list[str]:
    return [item["kind"] for item in made["items"]]


async def test_without_a_daemon_one_line_says_how_to_start_one() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        for words in (("diverge",), ("diverge", "-w")):
            said = await one.run(*words)
            assert (said.code, said.out) == (3, "")
            assert said.err == (
                "error: no daemon runs for this cluster, and only one that watches can see it; "
                "run: kubectl nodelife daemon start\n"
            )
        assert (await one.run("diverge", "--since", "soon")).code == 2
        assert (await one.run("diverge", "--since", "0s")).code == 2


async def test_nobody_runs_the_controllers() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        served.server.faults.fail_writes = True
        await watch(one)
        following = await one.start("diverge", "-w")
        try:
            assert following.stdout is not None
            first = await asyncio.wait_for(following.stdout.readline(), PATIENCE_S)
            assert first == b"agrees: nothing differs; no write was due\n"
            silence(served, "a1")
            made = await told(one, lambda m: "stalled" in kinds(m))
            second = await asyncio.wait_for(following.stdout.readline(), 9)
            assert second.startswith(b"differs: SetNodeCondition Ready=Unknown on a1 is due for ")
            while b"kube-controller-manager has made no write for " not in second:
                second = await asyncio.wait_for(following.stdout.readline(), 9)
        finally:
            following.kill()
            await following.wait()
        assert kinds(made) == ["stalled", "missing"]
        assert made["manager"]["error"] == "there is no lease kube-system/kube-controller-manager"
        assert made["items"][0]["sure"] == "likely"
        await every_form_says_so(one)


async def every_form_says_so(one: User) -> None:
    said = await one.run("diverge", "--exit-code")
    assert said.code == 4
    assert said.out.startswith("differs: kube-controller-manager has made no write for ")
    lines = said.out.splitlines()
    assert lines[2].split() == ["FINDING", "OBJECT", "EXPECTED", "SEEN", "BY", "SURE", "MESSAGE"]
    assert lines[3].split()[:2] == ["stalled", "Lease/kube-system/kube-controller-manager"]
    assert lines[4].split()[:2] == ["missing", "Node/a1"]
    wide = await one.ok("diverge", "-o", "wide")
    assert "EXPECTED BECAUSE" in wide and "longer than node-monitor-grace-period 3s" in wide
    assert yaml.safe_load(await one.ok("diverge", "-o", "yaml"))["kind"] == "Divergence"
    assert (await one.ok("diverge", "-o", "name")).splitlines() == [
        "lease/kube-system/kube-controller-manager",
        "node/a1",
    ]
    assert json.loads(await one.ok("diverge", "-o", "json"))["verdict"] == "differs"
    assert not (await one.ok("diverge", "--no-headers")).splitlines()[2].startswith("FINDING")


async def test_controllers_as_assumed_are_quiet_and_others_are_inferred() -> None:
    flags = {**FLAGS, "node-monitor-grace-period": "10s"}
    async with (
        sandbox(controllers=ALL, flags=flags) as served,
        user(served.kubeconfig) as right,
        user(served.kubeconfig) as wrong,
    ):
        await watch(right, node_monitor_grace_period="10s")
        await watch(wrong, node_monitor_grace_period="20s")
        silence(served, "a1")
        await told(right, lambda m: m["writes"]["onTime"] >= 2)
        silence(served, "b1")
        made = await told(wrong, lambda m: m["settings"])
        (grace,) = made["settings"]
        assert (grace["assumed"], grace["agrees"]) == ("20s", False)
        assert 9 <= grace["high"] <= 12, grace
        assert kinds(made) == ["settings"]
        quiet = await right.json("diverge")
        assert (quiet["items"], quiet["verdict"]) == ([], "agrees")


async def test_another_eviction_rate_is_inferred() -> None:
    generate = {"zones": 1, "nodesPerZone": 8, "podsPerNode": 1, "daemonSets": 0}
    flags = {**FLAGS, "node-eviction-rate": "0.5"}
    async with (
        sandbox(controllers=ALL, flags=flags, generate=generate) as served,
        user(served.kubeconfig) as one,
    ):
        await watch(one, node_eviction_rate="0.05")
        for name in ("a1", "a2", "a3", "a4"):
            silence(served, name)
        made = await told(one, lambda m: any("rate" in s["flag"] for s in m["settings"]))
        (rate,) = (s for s in made["settings"] if "rate" in s["flag"])
        assert (rate["flag"], rate["assumed"]) == ("node-eviction-rate", "0.05")
        assert 0.3 <= float(rate["likely"]) <= 0.7, rate
        assert kinds(made) == ["settings"]


async def test_somebody_else_taints_and_deletes_nodes() -> None:
    async with (
        sandbox(controllers=ALL, flags=FLAGS) as served,
        user(served.kubeconfig) as one,
    ):
        await watch(one)
        taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        with edited(served, "Node", "a1") as node:
            node["spec"]["taints"] = [taint]
        with edited(served, "Node", "a2") as node:
            node["spec"]["unschedulable"] = True
        made = await told(one, lambda m: len(m["items"]) >= 2)
        assert set(kinds(made)) == {"other-actor"}
        assert (made["verdict"], all(i["note"] for i in made["items"])) == ("agrees", True)
        messages = {i["object"]["name"]: i["message"] for i in made["items"]}
        assert messages["a1"].endswith(":NoSchedule (Karpenter)")
        assert messages["a2"] == "a2 was cordoned"
        assert made["because"].endswith("2 notes on others")
