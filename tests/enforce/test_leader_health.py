"""A leader that cannot work gives its Lease up, and none that can does.

With two daemons on one cluster: `tests/hostile/scenarios.py`, `the-leader-…`.
"""

import asyncio
import os
import resource
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.enforce.write_gate import (
    BLIND_NS,
    JOURNAL_NS,
    UNFIT_NS,
    LeaderHealth,
    can_open,
)
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.lease import LeaseKeeper
from tests.engine.test_election import LeaseServer

LOOK_S = 2


class Work:
    """A process at work; `turns`: whether its decision task makes any."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.error, self.blind, self.turns = "", "", True
        self.task: Any = SimpleNamespace(stands_still="", slices=SimpleNamespace(turns=0))
        self.health = LeaderHealth(lambda: self.task, lambda: self.error, lambda: self.now_ns)

    def after(self, seconds: float) -> str:
        """What is said when it was asked every other second for so long."""
        said = ""
        for _ in range(0, round(seconds), LOOK_S):
            self.now_ns += LOOK_S * SECOND_NS
            if self.task is not None:
                self.task.stands_still = self.blind
                self.task.slices.turns += self.turns
            said = self.health.why_unfit()
        return said


@pytest.mark.parametrize(
    "trouble, limit_ns, said",
    [
        pytest.param({"error": "disk full"}, JOURNAL_NS, "disk full", id="journal"),
        pytest.param({"turns": False}, UNFIT_NS, "make no turn", id="hangs"),
        pytest.param({"blind": "no working watch"}, BLIND_NS, "no working watch", id="blind"),
    ],
)
def test_trouble_counts_once_it_has_lasted(
    trouble: dict[str, Any], limit_ns: int, said: str
) -> None:
    work = Work()
    assert work.after(60) == ""
    well = {name: getattr(work, name) for name in trouble}
    for name, value in trouble.items():
        setattr(work, name, value)
    limit_s = limit_ns / SECOND_NS
    assert work.after(limit_s) == "", "for a moment"
    assert said in work.after(LOOK_S)
    for name, value in well.items():
        setattr(work, name, value)
    assert work.after(LOOK_S) == "", "it is over"


def test_one_that_waits_for_the_lease_needs_no_turn() -> None:
    work = Work()
    work.task, work.turns = None, False
    assert work.after(60) == ""
    work.error = "disk full"
    assert "disk full" in work.after(10)


def test_no_descriptors() -> None:
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    work = Work()
    highest = max(map(int, os.listdir("/proc/self/fd"))) if os.path.isdir("/proc/self/fd") else 64
    assert can_open()
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    opened = []
    try:
        while True:
            try:
                opened.append(os.dup(0))
            except OSError:
                break
        assert not can_open()
        said = work.after(UNFIT_NS / SECOND_NS + LOOK_S)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
        for number in opened:
            os.close(number)
    assert "no file or connection" in said and work.after(LOOK_S) == ""


async def test_the_lease_goes_once_nothing_is_on_its_way_and_is_not_tried_for_at_once() -> None:
    server = LeaseServer()
    clock = [1_000 * SECOND_NS]
    idle, unfit = [False], [""]

    class Api:
        async def call(self, call: Any, **_: Any) -> Answer:
            return server.answer(call)

    keeper = LeaseKeeper(cast(Any, Api()), lambda: clock[0], steady=lambda: clock[0], name="lease")
    keeper.why_unfit, keeper.is_idle = lambda: unfit[0], lambda: idle[0]
    assert await keeper.attempt()
    ours, unfit[0] = server.spec["holderIdentity"], "it hangs"
    running = asyncio.create_task(keeper.run())
    await asyncio.sleep(0.05)
    assert not keeper.leads(), "nothing is sent any more"
    assert server.spec["holderIdentity"] == ours, "a write is still on its way"
    idle[0] = True
    await asyncio.sleep(0.2)
    assert server.spec["holderIdentity"] == "" and keeper.error == "it hangs"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    unfit[0] = ""
    for later_s, leads in ((10, False), (6, True)):
        clock[0] += later_s * SECOND_NS
        running = asyncio.create_task(keeper.run())
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert keeper.leads() is leads
    assert not keeper.error
