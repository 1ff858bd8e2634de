"""`upgrade start --detach` on the sandbox: a leader in the background, asked and ended by words."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

from kubectl_nodelife.sandbox.tls import Sandbox
from tests.acts.program import Ended, nodelife
from tests.loopback import play, sandbox

SETTINGS = ("--set", "node-monitor-grace-period=2s", "--set", "node-monitor-period=200ms")
WORK = ("--wait", "--target", "label:upgraded=yes", "--canary-image", "pause")
START = ("start", "a1", *WORK, *SETTINGS, "--lease-duration", "4s", "--yes", "--detach")


async def upgrade(served: Sandbox, *words: str) -> Ended:
    return await nodelife(served.kubeconfig, served.folder, "upgrade", *words)


async def status(served: Sandbox) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await upgrade(served, "status", "-o", "json")).out)
    return found


def is_running(pid: int) -> bool:
    """True if the process is there and no zombie of the test's container."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def test_a_detached_leader_is_in_a_session_of_its_own_and_ends_when_it_is_asked_to() -> None:
    async def run() -> None:
        generate = {"zones": 2, "nodesPerZone": 2, "podsPerNode": 1, "daemonSets": 1}
        async with sandbox(generate=generate) as served:
            ended = await upgrade(served, *START)
            assert ended.code == 0, ended.out + ended.err
            pid = int(ended.out.partition("by process ")[2].split()[0])
            log = Path(ended.out.partition("its log: ")[2].split()[0])
            try:
                assert "upgrade pause" in ended.out and "upgrade abort" in ended.out
                assert os.getsid(pid) == pid, "Ctrl-C in this terminal does not reach it"
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                assert b"upgraded=yes" not in words, "work and policy are no arguments"
                assert stat.S_IMODE(log.stat().st_mode) == 0o600
                found = await status(served)
                assert found["leader"]["alive"] and found["phase"] == "Running"
                assert str(pid) in found["leader"]["holder"]
                other = ("resume", "--detach", "--canary-image", "other", *SETTINGS)
                refused = await upgrade(served, *other)
                assert refused.code == 5 and "is alive" in refused.err, refused.out + refused.err
                told = await upgrade(served, "abort", "--now", "--because", "enough")
                assert told.code == 0, told.err
                ends = time.monotonic() + 60
                while is_running(pid):
                    assert time.monotonic() < ends, log.read_text()
                    await asyncio.sleep(0.2)
            finally:
                if is_running(pid):
                    os.kill(pid, 9)
            found = await status(served)
            assert found["phase"] == "Aborted" and not found["leader"]["holder"]
            assert "run" in log.read_text()

    play(run)


def test_a_run_that_nobody_leads_is_resumed_in_the_background() -> None:
    async def run() -> None:
        generate = {"zones": 2, "nodesPerZone": 2, "podsPerNode": 1, "daemonSets": 1}
        async with sandbox(generate=generate) as served:
            began = await upgrade(served, *START)
            first = int(began.out.partition("by process ")[2].split()[0])
            os.kill(first, 9)
            image = ("--canary-image", "pause")
            words = ("--wait", "--soak", "1s", *image, *SETTINGS, "--lease-duration", "4s")
            ended = await upgrade(served, "resume", "--detach", *words)
            assert ended.code == 0, ended.out + ended.err
            pid = int(ended.out.partition("by process ")[2].split()[0])
            try:
                found = await status(served)
                assert str(pid) in found["leader"]["holder"] and found["leader"]["epoch"] == 1
            finally:
                os.kill(pid, 9)

    play(run)
