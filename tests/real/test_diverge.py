"""`diverge` beside the real control plane: quiet where all is well, and the right word where not.

One outage is watched by three daemons that assume different grace periods, so that one sees it as
due, one as early and one as late. Then a person with kubectl does what no controller does, and at
last kube-controller-manager is stopped (SIGSTOP) while a node is lost, and another takes over.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tests.daemon.user import User, user
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.kubelets import Kubelets

PERIOD, GRACE, RATE = "1s", "10s", "0.5"
PATIENCE_S = 90.0
PODS = "/api/v1/namespaces/default/pods"
TOLERATION = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 2,
}

Json = dict[str, Any]


def flags(grace: str = GRACE, rate: str = RATE) -> list[str]:
    values = {
        "node-monitor-period": PERIOD,
        "node-monitor-grace-period": grace,
        "node-eviction-rate": rate,
    }
    return [f"{name}={value}" for name, value in values.items()]


def manager() -> list[str]:
    """The flags of the controller manager."""
    return [f"--{flag}" for flag in flags()]


@contextlib.asynccontextmanager
async def watching(
    plane: ControlPlane, grace: str = GRACE, rate: str = RATE
) -> AsyncIterator[User]:
    """A user whose daemon assumes that, and has just begun to watch."""
    async with user(str(plane.kubeconfig)) as one:
        await one.ok("daemon", "start", *(f"--set={flag}" for flag in flags(grace, rate)))
        yield one


async def told(one: User, is_it: Callable[[Json], object], seconds: float = PATIENCE_S) -> Json:
    """The first answer of `diverge` of which that is true."""
    ends = time.monotonic() + seconds
    while not is_it(made := await one.json("diverge")):
        assert time.monotonic() < ends, f"diverge never said so; at last it said {made}"
        await asyncio.sleep(0.2)
    found: Json = made
    return found


def kinds(made: Json) -> list[str]:
    return [item["kind"] for item in made["items"]]


def setting(made: Json, flag: str = "node-monitor-grace-period") -> Json:
    return next((s for s in made["settings"] if s["flag"] == flag), {})


def is_tainted(plane: ControlPlane, *nodes: str) -> bool:
    found = (plane.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints") or [] for node in nodes)
    return all(any(t["effect"] == "NoExecute" for t in taints) for taints in found)


async def until(is_so: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(is_so):
            await asyncio.sleep(0.3)


def play(
    test: Callable[[ControlPlane, Kubelets], Awaitable[None]], nodes: int = 6, zones: int = 2
) -> None:
    """Run a test on a cluster of so many nodes, a pod on each."""
    with control_plane(controller_manager=manager()) as plane, Kubelets(plane.api) as kubelets:
        for number in range(nodes):
            zone = {"topology.kubernetes.io/zone": "ab"[number * zones // nodes]}
            kubelets.add_node(f"n{number}", zone)
            containers = [{"name": "c", "image": "registry.example/i"}]
            spec = {"nodeName": f"n{number}", "containers": containers, "tolerations": [TOLERATION]}
            plane.api.create(PODS, {"metadata": {"name": f"p{number}"}, "spec": spec})

        async def limited() -> None:
            async with asyncio.timeout(600):
                await test(plane, kubelets)

        asyncio.run(limited())


async def lose_one_after_another(plane: ControlPlane, kubelets: Kubelets) -> None:
    """Three nodes fall silent, each when the one before is tainted."""
    for node in ("n0", "n3", "n1"):
        kubelets.stop(node)
        await until(lambda node=node: is_tainted(plane, node))  # type: ignore[misc]
        await asyncio.sleep(2)  # the passes that call nodes lost must not be the same


def test_one_outage_seen_with_the_right_settings_and_with_others() -> None:
    async def test(plane: ControlPlane, kubelets: Kubelets) -> None:
        async with (
            watching(plane) as right,
            watching(plane, "16s") as longer,
            watching(plane, "3s") as shorter,
        ):
            first = await right.json("diverge")
            assert first["verdict"] in ("agrees", "not-evaluated")
            for one in (right, longer, shorter):
                made = await told(one, lambda m: m["verdict"] == "agrees")
                assert made["because"] == "nothing differs; no write was due"
            await lose_one_after_another(plane, kubelets)

            quiet = await told(right, lambda m: m["writes"]["onTime"] >= 12)
            assert (quiet["verdict"], quiet["items"]) == ("agrees", [])
            assert setting(quiet)["agrees"] is True
            for one, assumed in ((longer, "16s"), (shorter, "3s")):
                made = await told(one, setting)
                found = setting(made)
                assert (found["agrees"], found["assumed"]) == (False, assumed)
                assert found["low"] <= 10.5 and found["high"] >= 10, found
                assert made["items"][0]["kind"] == "settings"

            kubelets.start("n0", "n3", "n1")
            await until(lambda: not is_tainted(plane, "n0", "n3", "n1"))
            after = await right.json("diverge")
            assert (after["verdict"], after["items"]) == ("agrees", [])

    play(test)


async def a_person_does_things(plane: ControlPlane, one: User) -> None:
    """kubectl taints, cordons and deletes nodes; who it was is in managedFields."""
    plane.kubectl("taint", "node", "n2", "dedicated=x:NoExecute")
    plane.kubectl("cordon", "n2")
    plane.kubectl("delete", "node", "n5")
    made = await told(one, lambda m: len([i for i in m["items"] if i["note"]]) >= 3)
    notes = {
        i["action"]: (i["object"]["name"], i.get("by", {}).get("manager")) for i in made["items"]
    }
    assert notes["AddTaint"] == ("n2", "kubectl-taint")
    assert notes["Cordon"][0] == "n2" and notes["Cordon"][1].startswith("kubectl")
    assert notes["DeleteNode"] == ("n5", None)
    assert (made["verdict"], set(kinds(made))) == ("agrees", {"other-actor"})
    assert (await one.run("diverge", "--exit-code")).code == 0

    plane.kubectl("taint", "node", "n4", "node.kubernetes.io/unreachable:NoExecute")
    made = await told(one, lambda m: "extra" in kinds(m))
    assert made["items"][0]["by"]["manager"] == "kubectl-taint"
    assert made["verdict"] == "differs"
    await until(lambda: not is_tainted(plane, "n4"))  # the controller takes it off again


async def the_manager_stands_still(plane: ControlPlane, kubelets: Kubelets, one: User) -> None:
    """SIGSTOP while a node is lost; then another one takes its place."""
    plane.signal("kube-controller-manager", signal.SIGSTOP)
    try:
        kubelets.stop("n0")
        made = await told(one, lambda m: {"stalled", "missing"} <= set(kinds(m)))
        stalled = made["items"][0]
        assert (stalled["kind"], stalled["sure"]) == ("stalled", "certain")
        assert "it is stopped or has lost its lease (not renewed for " in made["because"]
        assert made["manager"]["staleSeconds"] > 10
        missing = next(i for i in made["items"] if i["kind"] == "missing")
        assert (missing["object"]["name"], missing["action"]) == ("n0", "SetNodeCondition")
        assert "longer than node-monitor-grace-period 10s" in missing["expectedBecause"]
        assert (await one.run("diverge", "--exit-code")).code == 4
        changes = (await one.json("changes", "node", "n0", "--outcome", "would"))["items"]
        assert any(c["action"] == "SetNodeCondition" for c in changes)
    finally:
        plane.signal("kube-controller-manager", signal.SIGCONT)
    plane.stop("kube-controller-manager")
    plane.start_controller_manager(*manager())
    made = await told(one, lambda m: "restarted" in kinds(m))
    await until(lambda: is_tainted(plane, "n0"))
    made = await told(one, lambda m: not {"stalled", "missing"} & set(kinds(m)))
    assert setting(made).get("agrees") is not False, "a stall is no longer grace period"


def test_a_person_and_a_manager_that_stands_still() -> None:
    async def test(plane: ControlPlane, kubelets: Kubelets) -> None:
        async with watching(plane) as one:
            await told(one, lambda m: m["verdict"] == "agrees")
            await a_person_does_things(plane, one)
            await the_manager_stands_still(plane, kubelets, one)

    play(test)


def test_a_controller_that_is_switched_off() -> None:
    """taint-eviction is off: nodes are called lost and tainted, and no pod is ever evicted."""

    async def test(plane: ControlPlane, kubelets: Kubelets) -> None:
        plane.stop("kube-controller-manager")
        off = "--controllers=*,-taint-eviction-controller"
        plane.start_controller_manager(off, *manager())
        async with watching(plane) as one:
            await told(one, lambda m: m["verdict"] == "agrees")
            kubelets.stop("n0")
            made = await told(one, lambda m: "disabled" in kinds(m), 150)
            assert made["items"][0]["controller"] == "taint-eviction"
            assert "(--controllers=-taint-eviction-controller) or stuck" in made["because"]
            differing = [i for i in made["items"] if not i["note"]]
            assert {i["controller"] for i in differing} == {"taint-eviction"}

    play(test)


def test_another_eviction_rate() -> None:
    """Half of a zone is lost at once; its nodes are tainted one after the other."""

    async def test(plane: ControlPlane, kubelets: Kubelets) -> None:
        async with watching(plane) as right, watching(plane, rate="0.05") as slower:
            for one in (right, slower):
                await told(one, lambda m: m["verdict"] == "agrees")
            kubelets.stop("n0", "n1", "n2", "n3")
            await until(lambda: is_tainted(plane, "n0", "n1", "n2", "n3"))
            made = await told(slower, lambda m: setting(m, "node-eviction-rate"))
            found = setting(made, "node-eviction-rate")
            assert (found["assumed"], found["agrees"]) == ("0.05", False)
            assert found["low"] <= 0.55 and found["high"] >= 0.45, found
            assert kinds(made) == ["settings"]
            quiet = await right.json("diverge")
            assert (quiet["verdict"], quiet["items"]) == ("agrees", [])

    play(test, nodes=8, zones=1)
