"""What a user sees while machines, clocks, disks and the cluster misbehave, in whole processes."""

import asyncio
import json
import os
import resource
import shutil
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife import __version__
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.daemon.user import FLAGS, PATIENT, ROOT, User, lines_of, silence, user
from tests.loopback import sandbox


async def taints_planned(one: User) -> list[dict[str, Any]]:
    """The AddTaints that stand."""
    items = (await one.json("changes", "--outcome", "would"))["items"]
    return [item for item in items if item["action"] == "AddTaint"]


async def test_a_server_whose_clock_is_another() -> None:
    async with sandbox(flags=PATIENT) as served, user(served.kubeconfig) as one:
        served.server.faults.clock_skew_s = -3600.0
        await one.watching(PATIENT)
        said = await one.warned("status", of="ahead of the API server's")
        assert "ages use the server's" in said
        served.server.faults.clock_skew_s = 0.0
        await served.hang_up()
        await served.listen()  # new answers have a new date
        await one.warned("status", of="warming up: the API server's clock was set by +")
        assert (await one.json("changes"))["items"] == []


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="a full disk is simulated with Linux")
async def test_a_full_disk_is_said_and_nothing_told_is_lost() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        await one.watching()
        pid = (await one.health())["pid"]
        whole = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, whole[1]))
        silence(served, "a1")
        said = await one.warned("status", of="the journal cannot be written (")
        assert "changes are kept in memory, and lost if the daemon ends" in said
        kept = await one.until(lambda: taints_planned(one))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, whole)

        async def well() -> bool:
            return "journal" not in (await one.run("status")).err

        await one.until(well)
        await one.ok("daemon", "stop")
        left = json.loads((await one.run("changes", "-o", "json")).out)["items"]
        assert {c["id"] for c in kept} <= {c["id"] for c in left}


async def test_a_daemon_that_stood_still_for_longer_than_a_grace_period_calls_nobody_lost() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        await one.watching()
        pid = (await one.health())["pid"]
        os.kill(pid, signal.SIGSTOP)
        late = await one.run("status")
        assert late.code == 3 and "the daemon does not answer: no answer in time" in late.err
        assert "daemon restart" in late.err
        os.kill(pid, signal.SIGCONT)
        said = await one.run("status")
        assert said.code == 0 and said.out.count(" True ") == 4
        assert "warming up: this process stood still for" in said.err
        assert (await one.json("changes"))["items"] == []


async def test_a_storm_of_events_delays_nobody_and_changes_nothing() -> None:
    async with sandbox(flags=PATIENT) as served, user(served.kubeconfig) as one:
        await one.watching(PATIENT)
        storm = asyncio.create_task(blow(served))
        for _ in range(5):
            said = await one.run("status")
            assert said.code == 0 and said.out.count(" True ") == 4
        storm.cancel()
        mark(served, 1_000_000)

        async def seen() -> bool:
            return (await one.run("status", "-l", "storm=1000000")).out.count(" True ") == 4

        await one.until(seen)
        assert (await one.json("changes"))["items"] == []


def mark(served: Sandbox, number: int) -> None:
    """A label on each node, as a busy controller may put one."""
    collection = served.cluster.api.served.collections["Node"]
    for entry in list(collection.entries.values()):
        document = entry.document()
        document["metadata"].setdefault("labels", {})["storm"] = str(number)
        served.cluster.api.write(collection.resource, document)


async def blow(served: Sandbox) -> None:
    """Two hundred changes a second and more, for as long as it is let."""
    number = 0
    while True:
        number += 1
        mark(served, number)
        await asyncio.sleep(0.02)


async def test_a_node_deleted_and_made_anew_under_its_name() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        await one.watching()
        silence(served, "a1")
        await one.until(lambda: taints_planned(one))
        api = served.cluster.api
        collection = api.served.collections["Node"]
        document = collection.entries[("", "a1")].document()
        api.drop("Node", ("", "a1"))
        document["metadata"] = {
            "name": "a1",
            "labels": document["metadata"]["labels"],
            "uid": "another-a1",
        }
        api.write(collection.resource, document)

        async def withdrawn() -> bool:
            items = (await one.json("changes", "node", "a1"))["items"]
            first = [i for i in items if i["object"].get("uid") != "another-a1"]
            return bool(first) and all(i["outcome"] != "would" for i in first)

        async def healthy() -> bool:
            told = await one.ok("explain", "node", "a1")
            return told.startswith("Node a1 is healthy:")

        await one.until(withdrawn)
        await one.until(healthy)  # its kubelet's first renewal is told after the node


async def test_a_plugins_token_that_expires_is_fetched_again_and_ends_no_watch() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        config = json.loads(Path(served.kubeconfig).read_text())
        who = config["users"][0]["user"]
        counted = one.home / "ran"
        config["users"][0]["user"] = {"exec": short_lived(who["token"], counted)}
        own = one.home / "config"
        own.write_text(json.dumps(config))
        one.environ["KUBECONFIG"] = str(own)
        await one.watching()
        watches = served.server.requests["watch"]
        ran = len(counted.read_text())
        served.server.faults.cut_watches = 1  # one opens anew, with a token that is new too
        silence(served, "a1")
        await one.until(lambda: taints_planned(one))
        assert len(counted.read_text()) > ran
        # once more where the gap was longer than a monitor period, for a new list, and once
        # more where a renewal came with a list first
        assert served.server.requests["watch"] - watches in (1, 2, 3)


def short_lived(token: str, counted: Path) -> dict[str, Any]:
    """A credential plugin whose token is to be renewed at each request."""
    version = "client.authentication.k8s.io/v1"
    until = (datetime.now(UTC) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"token": token, "expirationTimestamp": until}
    document = {"kind": "ExecCredential", "apiVersion": version, "status": status}
    script = f"open({str(counted)!r}, 'a').write('x'); print({json.dumps(document)!r})"
    return {
        "apiVersion": version,
        "command": sys.executable,
        "args": ["-c", script],
        "interactiveMode": "Never",
    }


async def test_an_upgrade_that_takes_the_program_away_ends_no_daemon() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        old = one.home / "old"
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "kubectl_nodelife", old / "kubectl_nodelife", ignore=skipped)
        one.environ["PYTHONPATH"] = str(old)
        await one.watching()
        pid = (await one.health())["pid"]
        init = old / "kubectl_nodelife/__init__.py"
        init.write_text(init.read_text().replace(__version__, "99.1.0"))
        told = f"this daemon is {__version__}, and version 99.1.0 is installed now; run: "
        await one.warned("status", of=told + "kubectl nodelife daemon restart")
        shutil.rmtree(old)
        one.environ["PYTHONPATH"] = str(ROOT)
        removed = f"the program of this daemon (version {__version__}) was removed"
        await one.warned("status", of=removed)
        await one.warned("daemon", "status", of=removed)
        silence(served, "a1")
        await one.until(lambda: taints_planned(one))
        for args in (["status"], ["explain", "node", "a1"], ["changes", "-o", "yaml"]):
            said = await one.run(*args)
            assert (said.code, "first look" in said.err) == (0, False), said
        watch = await one.start("status", "-w")
        try:
            await lines_of(watch.stdout, "b2")
        finally:
            watch.kill()
            await watch.wait()
        assert (await one.health())["pid"] == pid
        await one.ok("daemon", "restart")
        assert (await one.health())["pid"] != pid
