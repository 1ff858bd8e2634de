"""What a user sees of the daemon, on a sandbox, in whole processes; faults included."""

from __future__ import annotations

import asyncio
import json
import os
import signal

from tests.daemon.user import Said, User, user
from tests.loopback import play, sandbox

FLAGS = {
    "node-monitor-period": "500ms",
    "node-monitor-grace-period": "3s",
    "node-eviction-rate": "10",
}
SET = [f"--set={flag}={value}" for flag, value in FLAGS.items()]
HEARTBEATS = "sandbox.nodelife.dev/heartbeats"


def silence(served: object, name: str, how: str = "stop") -> None:
    """Stop or start a node's kubelet, as annotating it with kubectl does."""
    collection = served.cluster.api.served.collections["Node"]  # type: ignore[attr-defined]
    document = collection.entries[("", name)].document()
    document["metadata"].setdefault("annotations", {})[HEARTBEATS] = how
    served.cluster.api.write(collection.resource, document)  # type: ignore[attr-defined]


async def watching(one: User) -> None:
    """A daemon that has watched for longer than a grace period."""
    await one.ok("daemon", "start", *SET)

    async def warm() -> bool:
        health = await one.health()
        return bool(health["synced"]) and not health["cold"]

    await one.until(warm)


def test_from_the_first_look_to_the_end() -> None:
    async def test() -> None:
        async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
            first = await one.run("status")
            assert "a first look" in first.err and "a1 " in first.out
            assert (await one.json("status"))["source"]["kind"] == "direct"
            none = await one.run("daemon", "status")
            assert (none.code, none.err) == (3, "no daemon runs\n")
            assert (await one.run("changes")).err == (
                "error: no daemon runs for this cluster; run: kubectl nodelife daemon start\n"
            )

            began = await one.ok("daemon", "start")
            assert began.startswith(f"watching sandbox ({served.url}): 4 nodes, ")
            second = await one.run("status")
            assert "first look" not in second.err
            assert "cold: the daemon has only begun to watch" in second.err
            source = (await one.json("status"))["source"]
            assert (source["kind"], source["context"], source["synced"]) == (
                "daemon",
                "sandbox",
                True,
            )
            assert source["server"] == served.url
            again = await one.run("daemon", "start")
            assert (again.code, again.out) == (0, "")
            assert "a daemon runs already for this cluster (pid " in again.err

            health = await one.health()
            assert health["controllers"] == [
                "node-lifecycle",
                "taint-eviction",
                "daemonset",
                "pod-gc",
            ]
            explained = await one.ok("explain", "node", "a1")
            assert explained.startswith("What state is it in?\n  healthy:")
            assert "began: version" in await one.ok("daemon", "logs")

            pid = health["pid"]
            await one.ok("daemon", "restart")
            assert (await one.health())["pid"] != pid
            assert (await one.run("daemon", "stop")).code == 0
            assert (await one.run("daemon", "status")).code == 3
            assert (await one.run("daemon", "stop")).err == "no daemon runs\n"

    play(test)


def test_would_becomes_confirmed_where_controllers_run() -> None:
    async def test() -> None:
        controllers = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc", "pod-status")
        async with (
            sandbox(controllers=controllers, flags=FLAGS) as served,
            user(served.kubeconfig) as one,
        ):
            await watching(one)
            silence(served, "a1")

            async def settled() -> list[dict[str, object]]:
                items = (await one.json("changes", "node", "a1"))["items"]
                words = {(i["action"], i["outcome"]) for i in items}
                done = {("SetNodeCondition", "confirmed"), ("AddTaint", "confirmed")} <= words
                return items if done and not any(o == "would" for _, o in words) else []

            items = await one.until(settled)
            assert {i["mode"] for i in items} == {"dry-run"}
            shown = await one.ok("status", "a1")
            assert "Unknown" in shown and "unreachable:NoExecute" in shown

    play(test)


def test_would_stays_where_none_run_and_nothing_is_ever_written() -> None:
    async def test() -> None:
        async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
            served.server.faults.fail_writes = True
            await watching(one)
            silence(served, "a1")
            silence(served, "a2")

            async def planned() -> list[dict[str, object]]:
                items = (await one.json("changes", "--outcome", "would"))["items"]
                taints = [i for i in items if i["action"] == "AddTaint"]
                return items if len(taints) == 4 else []

            items = await one.until(planned)
            nodes = [i for i in items if i["action"] == "SetNodeCondition"]
            assert {i["object"]["name"] for i in nodes} == {"a1", "a2"}
            assert nodes[0]["patch"]["method"] == "PATCH"
            assert nodes[0]["patch"]["path"].endswith("/status")
            status = await one.ok("status", "a1")
            assert "overdue" in status and "SetNodeCondition Ready=Unknown now" in status
            silence(served, "a1", "start")
            silence(served, "a2", "start")

            async def withdrawn() -> bool:
                found = (await one.json("changes"))["items"]
                return {i["outcome"] for i in found} == {"superseded"}

            await one.until(withdrawn)
            await one.ok("daemon", "stop")
            assert served.server.faults.writes_seen == []
            assert set(served.server.requests) <= {"list", "watch", "get", ""}

    play(test)


async def lines_of(process: asyncio.subprocess.Process, wanted: str) -> str:
    """What a going command has printed up to the line that holds the words."""
    assert process.stdout is not None
    text = ""
    while wanted not in text.rpartition("\n")[0].rpartition("\n")[2]:
        line = (await process.stdout.readline()).decode()
        assert line, f"it ended: {text}"
        text += line
    return text


def test_watching_status_and_changes() -> None:
    async def test() -> None:
        async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
            alone = await one.run("status", "-w")
            assert alone.code == 2 and "watching is the daemon's work" in alone.err
            await watching(one)
            status = await one.start("status", "-w")
            changes = await one.start("changes", "-w", "-o", "json")
            try:
                await lines_of(status, "b2")
                silence(served, "a1")
                table = await lines_of(status, "overdue")
                assert table.splitlines()[-1].startswith("a1 ")
                text = await lines_of(changes, '"AddTaint"')
                first = json.loads(text.splitlines()[0])
                assert first["kind"] == "Change"
                assert first["apiVersion"] == "nodelife.dev/v1alpha1"
                silence(served, "a1", "start")
                text = await lines_of(changes, '"superseded"')
            finally:
                for process in (status, changes):
                    process.kill()
                    await process.wait()

    play(test)


# Faults


def test_two_daemons_at_once() -> None:
    async def test() -> None:
        async with sandbox() as served, user(served.kubeconfig) as one:
            said = await asyncio.gather(*(one.run("daemon", "start") for _ in range(3)))
            assert [s.code for s in said] == [0, 0, 0]
            assert sum(s.out.startswith("watching sandbox") for s in said) == 1
            assert sum("a daemon runs already" in s.err for s in said) == 2
            assert len((await one.json("daemon", "status"))["items"]) == 1

    play(test)


def test_kill_9_loses_nothing_and_the_next_daemon_goes_on() -> None:
    async def test() -> None:
        async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
            await watching(one)
            silence(served, "a1")

            async def told() -> list[dict[str, object]]:
                items = (await one.json("changes"))["items"]
                return items if any(i["action"] == "AddTaint" for i in items) else []

            before = await one.until(told)
            os.kill((await one.health())["pid"], signal.SIGKILL)

            async def ended() -> Said | None:
                said = await one.run("daemon", "status")
                return said if said.code == 3 else None

            said = await one.until(ended)
            assert "ended" in said.out and "it ended without saying so" in said.err
            left = await one.run("changes", "-o", "json")
            assert "this is what the last one has left" in left.err
            after = json.loads(left.out)["items"]
            assert {i["id"] for i in before} <= {i["id"] for i in after}
            await watching(one)
            items = (await one.json("changes"))["items"]
            assert {i["id"] for i in before} <= {i["id"] for i in items}
            assert max(i["id"] for i in items) >= max(i["id"] for i in before)

    play(test)


def test_the_api_server_goes_and_comes_back() -> None:
    async def test() -> None:
        async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
            await watching(one)
            await served.hang_up()
            blind = await one.warned("status", of="no working watch of")
            assert "nothing is decided" in blind
            assert (await one.run("status")).out.count("True") == 4, "what was seen last stays"
            said = await one.run("status", "--no-daemon")
            assert said.code == 3 and "the API server cannot be reached" in said.err
            await asyncio.sleep(4)
            assert (await one.json("changes"))["items"] == []
            await served.listen()
            cold = await one.warned("status", of="cold: nothing was seen for", seconds=60)
            assert "no node is called lost" in cold
            assert (await one.json("changes"))["items"] == []

    play(test)


def test_a_kind_that_may_not_be_read_is_said_each_time() -> None:
    async def test() -> None:
        async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
            served.server.faults.forbid = {"pods"}
            direct = await one.run("status")
            assert "Pod cannot be read" in direct.err and "evictions: not evaluated" in direct.err
            await one.ok("daemon", "start", *SET)
            through = await one.run("status")
            assert "Pod cannot be read" in through.err
            assert "not evaluated: when taints evict pods" in through.err
            served.server.faults.forbid = {"nodes"}
            none = await one.run("status", "--no-daemon")
            assert none.code == 1 and none.err.splitlines()[-1].startswith("error: nodes: ")
            assert "kubectl nodelife rbac" in none.err

    play(test)


def test_a_list_that_takes_a_minute() -> None:
    async def test() -> None:
        async with sandbox() as served, user(served.kubeconfig) as one:
            served.server.faults.watch_list = False
            served.server.faults.list_latency_s = {"nodes": 60.0}
            began = await one.run("daemon", "start")
            assert began.out.startswith("started, still reading sandbox")
            said = await one.run("status")
            assert said.code == 3
            assert "the daemon has not read the nodes yet (" in said.err
            assert "Node: listing" in said.err and "--no-daemon" in said.err
            assert (await one.ok("daemon", "status")).splitlines()[1].split()[2] == "reading"

    play(test)


def test_pods_that_take_longer_are_said_to_be_missing() -> None:
    async def test() -> None:
        async with sandbox() as served, user(served.kubeconfig) as one:
            served.server.faults.watch_list = False
            served.server.faults.list_latency_s = {"pods": 60.0}
            await one.ok("daemon", "start")
            said = await one.run("status")
            assert said.code == 0 and said.out.count(" True ") == 4
            assert "still reading: Pod: listing" in said.err
            assert (await one.json("status"))["source"]["synced"] is False

    play(test)
