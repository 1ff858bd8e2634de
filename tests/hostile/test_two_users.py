"""Two users enforce one cluster; each write is judged, as it arrives, by who holds the Lease.

One is halted in the middle of its work and goes on later, and the other is killed.
"""

import asyncio
import os
import signal
import time
from pathlib import Path

from tests.daemon.user import User, user
from tests.enforce.observer import Rules, broken_rules
from tests.hostile.enforce_soak import CLUSTER, GRACE_S, KUBELET, ORDERS, Cluster, going
from tests.hostile.holders import Holders, impersonating
from tests.loopback import play, sandbox
from tests.real.journal_judge import followed_nothing

HALTED_S = 25.0
WORKS_S = 15.0


async def pid_of(one: User) -> int:
    return int((await one.health())["pid"])


def test_of_two_users_one_writes_whatever_happens_to_the_other(tmp_path: Path) -> None:
    async def test() -> None:
        holders = Holders()
        async with sandbox(generate=CLUSTER, kubelet=KUBELET, between=holders.middleware) as served:
            log = holders.watch(served)
            cluster = Cluster(served, log, seed=3)
            config = served.kubeconfig
            async with (
                user(impersonating(config, "ann", tmp_path)) as ann,
                user(impersonating(config, "bob", tmp_path)) as bob,
                going(cluster.note, cluster.flap, cluster.churn),
            ):
                await ann.begin(*ORDERS)
                await ann.until(lambda: _holds(holders, "ann"))
                refused = await bob.run("daemon", "start", *ORDERS)
                assert refused.code == 5 and "holds it; stop that one" in refused.err, refused
                await bob.begin(*ORDERS, "--wait")
                await asyncio.sleep(WORKS_S)
                pid, halted_at = await pid_of(ann), time.monotonic()
                os.kill(pid, signal.SIGSTOP)
                await bob.until(lambda: _holds(holders, "bob"))
                await asyncio.sleep(max(0.0, halted_at + HALTED_S - time.monotonic()))
                os.kill(pid, signal.SIGCONT)
                await asyncio.sleep(WORKS_S)
                assert holders.holder() == "bob"
                os.kill(await pid_of(bob), signal.SIGKILL)
                before = len(holders.wrote["ann"])
                await ann.until(lambda: _holds(holders, "ann"))
                await asyncio.sleep(WORKS_S)
                assert holders.broken == []
                assert len(holders.wrote["bob"]) > 10 and len(holders.wrote["ann"]) > before > 10
                log.note_changes()
                assert broken_rules(log.entries, Rules(grace_s=GRACE_S, delay_s=1.0)) == []
                for one in (ann, bob):
                    assert followed_nothing(one.home) == []

    play(test, 400)


async def _holds(holders: Holders, who: str) -> bool:
    return holders.holder() == who
