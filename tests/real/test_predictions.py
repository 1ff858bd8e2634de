"""The daemon foretells, a real kube-controller-manager acts, and the audit log says who was right.

`predictions.py` compares, docs/predictions.md tells what it shows. What it cannot show: when the
monitor's passes and pod-gc's runs are, nobody knows before they are seen, so that a first write of
theirs may be off by one period; where the real controller was ahead there was no foretelling to
hold, and what is held is when ours was due. The cold period after the daemon's start is left out,
and so are the last moments.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.daemon.user import User, user
from tests.real.audited import instant, records
from tests.real.control_plane import MANAGER as OTHER_MANAGER
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.kubelets import Kubelets
from tests.real.predictions import Tally, Window, compare, table, twice
from tests.real.predictions_setups import (
    FLAGS,
    GRACE_S,
    PERIOD_S,
    Ground,
    SetUp,
    all_dark,
    at_once,
    in_the_middle,
    one_more,
    play,
    while_restarted,
    while_stopped,
)

CONTROLLERS = "node-lifecycle-controller,taint-eviction-controller,pod-garbage-collector-controller"
MANAGER = [
    *(f"--{flag}={value}" for flag, value in FLAGS.items()),
    f"--controllers={CONTROLLERS}",
    "--kube-api-qps=1000",  # else its own client would hold back the writes of a pass for seconds
    "--kube-api-burst=1000",
    "--leader-elect-lease-duration=60s",  # it shall outlive a restart of the API server
    "--leader-elect-renew-deadline=40s",
]
MANAGER_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"


def managers_release() -> str:
    """The release of the controller manager that NODELIFE_MANAGER names, such as v1.30, or "".

    The other programs are those of the usual release.
    """
    program = os.environ.get(OTHER_MANAGER)
    if not program:
        return ""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[-1].rpartition(".")[0]


SET = [f"--set={flag}={value}" for flag, value in FLAGS.items()]
if release := managers_release():
    SET.append(f"--profile={release}")  # the API server's own release says nothing of the manager

Json = dict[str, Any]


class Stand:
    """A control plane with kubelets, and the tallies of the set-ups played on it so far."""

    def __init__(self, plane: ControlPlane, ground: Ground) -> None:
        self.plane = plane
        self.ground = ground
        self.tallies: dict[str, Tally] = {}

    async def play(self, set_ups: Sequence[SetUp], seconds: float, one: User) -> None:
        """Play these and hold what the daemon, which is warm, says about each."""
        begin = time.time()
        await asyncio.to_thread(play, self.ground, set_ups, seconds)
        await self.hold(set_ups, begin, one)

    async def hold(self, set_ups: Sequence[SetUp], begin: float, one: User) -> None:
        """Hold what was told since `begin` against what was written."""
        found = (await one.json("changes"))["items"]
        told = [c for c in found if instant(c.get("settledTime", c["time"])) >= begin]
        end = time.time()
        await asyncio.sleep(1)  # the audit log is written in batches
        wrote = await asyncio.to_thread(self.written, begin, end)
        assert not list(twice(told))
        for set_up in set_ups:
            tally = compare(
                of(set_up.mark, wrote), of(set_up.mark, told), Window(begin, end, PERIOD_S)
            )
            self.tallies[set_up.title] = tally

    def written(self, begin: float, end: float) -> list[Json]:
        """The real controllers' writes, with instants since the epoch."""
        found = records(self.plane.audit(), begin, end - begin)
        return [{**record, "at": begin + record["at"]} for record in found]

    def check(self, *set_ups: SetUp) -> None:
        """Print the lines of these set-ups; nothing may be missed, and nothing unmatched."""
        rows = {one.title: self.tallies[one.title] for one in set_ups}
        lines = ["", *table(rows)]
        for title, tally in rows.items():
            lines += [f"  missed    {title}: {text}" for text in tally.missed]
            lines += [f"  unmatched {title}: {text}" for text in tally.unmatched]
        print("\n".join(lines))
        assert all(tally.matched for title, tally in rows.items() if "less than" not in title)
        assert not any(tally.missed or tally.unmatched for tally in rows.values()), "\n".join(lines)


def of(mark: str, found: Sequence[Json]) -> list[Json]:
    """What is about objects that bear this mark; all for none."""
    return [f for f in found if f["object"]["name"].startswith(mark)]


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with (
        control_plane(
            api_server=["--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds"],
            controller_manager=MANAGER,
        ) as plane,
        Kubelets(plane.api) as kubelets,
    ):
        ground = Ground(plane.api, kubelets)
        ground.node("well-1", "well")
        yield Stand(plane, ground)


async def begin_to_watch(one: User) -> None:
    """A daemon that has watched for longer than a grace period."""
    await one.ok("daemon", "start", *SET)
    await until_warm(one)


async def until_warm(one: User) -> None:
    async def warm() -> bool:
        health = await one.health()
        return bool(health["synced"]) and not health["cold"] and not health["standsStill"]

    await one.until(warm)


def test_what_happens_to_nodes_and_zones(stand: Stand) -> None:
    set_ups = list(at_once())
    for each in set_ups:
        each.prepare(stand.ground)

    async def test() -> None:
        async with user(str(stand.plane.kubeconfig)) as one:
            await begin_to_watch(one)
            await stand.play(set_ups, 100, one)

    asyncio.run(test())
    stand.check(*set_ups)


def test_all_lost(stand: Stand) -> None:
    set_up = all_dark()
    set_up.prepare(stand.ground)

    async def test() -> None:
        async with user(str(stand.plane.kubeconfig)) as one:
            await begin_to_watch(one)
            await stand.play([set_up], 46, one)

    asyncio.run(test())
    stand.check(set_up)


def test_a_daemon_that_begins_in_the_middle_of_an_outage(stand: Stand) -> None:
    set_up = in_the_middle()
    set_up.prepare(stand.ground)

    async def test() -> None:
        async with user(str(stand.plane.kubeconfig)) as one:
            playing = asyncio.create_task(asyncio.to_thread(play, stand.ground, [set_up], 62))
            await asyncio.sleep(GRACE_S + 8)
            await begin_to_watch(one)
            begin = time.time()
            await playing
            await stand.hold([set_up], begin, one)

    asyncio.run(test())
    stand.check(set_up)


def test_after_a_restart_of_the_api_server(stand: Stand) -> None:
    set_up = one_more("after a restart of the API server", "anew")
    set_up.prepare(stand.ground)

    async def test() -> None:
        async with user(str(stand.plane.kubeconfig)) as one:
            await begin_to_watch(one)
            await asyncio.to_thread(stand.plane.restart, "kube-apiserver")
            await asyncio.sleep(2 * GRACE_S)  # the daemon has noticed, and so have the kubelets
            await until_warm(one)
            await stand.play([set_up], 32, one)

    asyncio.run(test())
    stand.check(set_up)


def test_a_restart_of_the_controller_manager(stand: Stand) -> None:
    manager, plane = "kube-controller-manager", stand.plane
    plane.stop(manager)  # one whose lease is soon over takes its place
    plane.api.delete(MANAGER_LEASE)
    soon_over = ("--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=6s")
    plane.start_controller_manager(*MANAGER, *soon_over)
    set_up = while_restarted(lambda: plane.restart(manager))
    set_up.prepare(stand.ground)

    async def test() -> None:
        async with user(str(stand.plane.kubeconfig)) as one:
            await begin_to_watch(one)
            await stand.play([set_up], 72, one)
            health = await one.health()
            assert "began as the kube-controller-manager" in str(health["coldBecause"]), health

    asyncio.run(test())
    stand.check(set_up)


async def test_while_the_controller_manager_is_stopped_nothing_is_confirmed(stand: Stand) -> None:
    set_up = while_stopped()
    set_up.prepare(stand.ground)
    async with user(str(stand.plane.kubeconfig)) as one:
        await begin_to_watch(one)
        await asyncio.to_thread(stand.plane.stop, "kube-controller-manager")
        before = {c["id"] for c in (await one.json("changes"))["items"]}
        await asyncio.to_thread(play, stand.ground, [set_up], 24)
        told = (await one.json("changes"))["items"]
        since = [c for c in told if c["id"] not in before]
        words = {(c["action"], c["outcome"]) for c in since}
        wanted = ("SetNodeCondition", "AddTaint", "MarkPodNotReady", "DeletePod")
        assert {(action, "would") for action in wanted} <= words
        assert not [c for c in since if c["outcome"] == "confirmed"]
        stand.ground.start(*set_up.nodes["stopped"])

        async def withdrawn() -> bool:
            now = (await one.json("changes"))["items"]
            return all(c["outcome"] == "superseded" for c in now if c["id"] not in before)

        await one.until(withdrawn)
