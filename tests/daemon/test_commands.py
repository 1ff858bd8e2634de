"""What a user sees of the daemon, on a sandbox, in whole processes; faults included."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.daemon.user import FLAGS, PATIENT, SET, Said, User, lines_of, silence, user
from tests.loopback import sandbox


async def test_from_the_first_look_to_the_end() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        first = await one.run("status")
        assert "a first look" in first.err and "a1 " in first.out
        assert (await one.json("status"))["source"]["kind"] == "direct"
        none = await one.run("daemon", "status")
        assert (none.code, none.err) == (3, "no daemon runs\n")
        assert (await one.run("changes")).err == (
            "error: no daemon runs for this cluster; run: kubectl nodelife daemon start\n"
        )

        began = (await one.begin()).out
        late = f"started, still reading sandbox ({served.url})"
        assert began.startswith((f"watching sandbox ({served.url}): 4 nodes, ", late))
        second = await one.run("status")
        assert "first look" not in second.err
        assert "warming up: the daemon has just started" in second.err
        source = (await one.json("status"))["source"]
        assert (source["kind"], source["context"], source["synced"]) == ("daemon", "sandbox", True)
        assert source["server"] == served.url
        again = await one.run("daemon", "start")
        assert (again.code, again.out) == (0, "")
        assert "a daemon runs already for this cluster (pid " in again.err
        other = await one.run("daemon", "start", "--set=node-monitor-grace-period=9m")
        assert other.code == 1, other
        assert "it was started without --set=node-monitor-grace-period=9m; end it" in other.err

        health = await one.health()
        assert health["controllers"] == ["node-lifecycle", "pod-gc", "taint-eviction", "daemonset"]
        explained = await one.ok("explain", "node", "a1")
        assert explained.startswith("Node a1 is healthy:")
        assert "began: version" in await one.ok("daemon", "logs")

        pid = health["pid"]
        await one.ok("daemon", "restart")
        assert (await one.health())["pid"] != pid
        assert (await one.run("daemon", "stop")).code == 0
        assert (await one.run("daemon", "status")).code == 3
        assert (await one.run("daemon", "stop")).err == "no daemon runs\n"


async def test_would_becomes_confirmed_where_controllers_run() -> None:
    controllers = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc", "pod-status")
    async with (
        sandbox(controllers=controllers, flags=FLAGS) as served,
        user(served.kubeconfig) as one,
    ):
        await one.watching()
        silence(served, "a1")

        async def settled() -> list[dict[str, object]]:
            items = (await one.json("changes", "node", "a1"))["items"]
            words = {(i["action"], i["outcome"]) for i in items}
            done = {("SetNodeCondition", "confirmed"), ("AddTaint", "confirmed")} <= words
            return items if done and not any(o == "would" for _, o in words) else []

        items = await one.until(settled)
        assert {i["mode"] for i in items} == {"dry-run"}

        async def is_shown() -> bool:  # the taint NoExecute comes after NoSchedule
            shown = await one.ok("status", "a1")
            return "Unknown" in shown and "unreachable:NoExecute" in shown

        assert await one.until(is_shown)


async def test_would_stays_where_none_run_and_nothing_is_ever_written() -> None:
    async with sandbox(flags=PATIENT) as served, user(served.kubeconfig) as one:
        served.server.faults.fail_writes = True
        await one.watching(PATIENT)
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

        async def overdue() -> bool:
            status = await one.ok("status", "a1")
            return "overdue" in status and "Ready=Unknown now" in status

        await one.until(overdue)  # a pass of the cluster's own may come a period later
        silence(served, "a1", "start")
        silence(served, "a2", "start")

        async def withdrawn() -> bool:
            found = (await one.json("changes"))["items"]
            return {i["outcome"] for i in found} == {"superseded"}

        await one.until(withdrawn)
        await one.ok("daemon", "stop")
        assert served.server.faults.writes_seen == []
        assert set(served.server.requests) <= {"list", "watch", "get", ""}


async def test_watching_status_and_changes() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        alone = await one.run("status", "-w")
        assert alone.code == 2 and "watching is the daemon's work" in alone.err
        await one.watching()
        status = await one.start("status", "-w")
        changes = await one.start("changes", "-w", "-o", "json")
        try:
            await lines_of(status.stdout, "b2")
            silence(served, "a1")
            table = await lines_of(status.stdout, "overdue")
            assert table.splitlines()[-1].startswith("a1 ")
            text = await lines_of(changes.stdout, '"AddTaint"')
            first = json.loads(text.splitlines()[0])
            assert first["kind"] == "Change"
            assert first["apiVersion"] == "nodelife.dev/v1alpha1"
            silence(served, "a1", "start")
            text = await lines_of(changes.stdout, '"superseded"')
            await one.ok("daemon", "stop")
            for process in (status, changes):
                _, err = await process.communicate()
                assert (process.returncode, "error: the daemon has ended" in err.decode()) == (
                    3,
                    True,
                )
        finally:
            for process in (status, changes):
                if process.returncode is None:
                    process.kill()
                    await process.wait()


# Faults


async def test_two_daemons_at_once() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        said = await asyncio.gather(*(one.run("daemon", "start") for _ in range(3)))
        assert [s.code for s in said] == [0, 0, 0]
        assert sum(s.out.startswith(("watching", "started")) for s in said) == 1
        assert sum("a daemon runs already" in s.err for s in said) == 2
        assert len((await one.json("daemon", "status"))["items"]) == 1


async def test_kill_9_loses_nothing_and_the_next_daemon_goes_on() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        await one.watching()
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
        assert "the journal is what the last one has left" in left.err
        after = json.loads(left.out)["items"]
        assert {i["id"] for i in before} <= {i["id"] for i in after}
        await one.watching()
        items = (await one.json("changes"))["items"]
        assert {i["id"] for i in before} <= {i["id"] for i in items}
        assert max(i["id"] for i in items) >= max(i["id"] for i in before)


async def test_the_api_server_goes_and_comes_back() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        await one.watching()
        watch = await one.start("status", "-w")
        try:
            await lines_of(watch.stdout, "b2")
            await served.hang_up()
            blind = await lines_of(watch.stderr, "nothing is decided")
            assert "as last seen" in blind
            assert (await one.run("status")).out.count("True") == 4, "what was seen last stays"
            said = await one.run("status", "--no-daemon")
            assert said.code == 3 and "the API server cannot be reached" in said.err
            await asyncio.sleep(4)  # longer than the grace period
            assert (await one.json("changes"))["items"] == []
            await served.listen()
            cold = await lines_of(watch.stderr, "warming up: nothing was seen for")
            assert "no node is called lost" in cold
            assert (await one.json("changes"))["items"] == []
        finally:
            watch.kill()
            await watch.wait()


async def test_a_kind_that_may_not_be_read_is_said_each_time() -> None:
    async with sandbox(flags=FLAGS) as served, user(served.kubeconfig) as one:
        served.server.faults.forbid = {"pods"}
        direct = await one.run("status")
        assert "Pod cannot be read: when pods are evicted is not evaluated (" in direct.err
        await one.begin(*SET)
        await one.warned(
            "status", of=("Pod cannot be read", "not evaluated: when taints evict pods")
        )
        await one.ok("daemon", "stop")
        served.server.faults.forbid = {"nodes"}
        began = await one.run("daemon", "start")
        assert began.out.startswith("started, and may not read the nodes of sandbox"), began
        assert (await one.run("status")).err.splitlines()[-1].startswith("error: the daemon: ")
        at_work = await one.run("daemon", "status")
        assert at_work.code == 1 and "is not at work: sandbox: not watching" in at_work.out
        while "without Node (" not in await one.ok("daemon", "logs"):  # it looks at itself at times
            await asyncio.sleep(0.5)
        none = await one.run("status", "--no-daemon")
        assert none.code == 1 and none.err.splitlines()[-1].startswith("error: nodes: ")
        assert "kubectl nodelife rbac" in none.err


async def test_a_list_that_takes_minutes() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        served.server.faults.watch_list = False
        served.server.faults.list_latency_s = {"nodes": 600.0}
        began = await one.run("daemon", "start")
        assert began.out.startswith("started, still reading sandbox")
        said = await one.run("status")
        assert said.code == 3
        assert "the daemon has not read the nodes yet (" in said.err
        assert "Node: listing" in said.err and "--no-daemon" in said.err
        assert (await one.ok("daemon", "status")).splitlines()[-1].split()[2] == "reading"


async def test_pods_that_take_longer_are_said_to_be_missing() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        served.server.faults.watch_list = False
        served.server.faults.list_latency_s = {"pods": 600.0}
        await one.ok("daemon", "start")
        await one.warned("status", of="still reading: Pod: listing")
        said = await one.run("status")
        assert said.code == 0 and said.out.count(" True ") == 4
        assert (await one.json("status"))["source"]["synced"] is False


@pytest.mark.parametrize("flag", ["--set=nonsense=1", "--profile=v1.3"])
async def test_a_mistake_ends_a_start_as_it_ends_a_run(tmp_path: Path, flag: str) -> None:
    """The child's error crosses to the command whole: same sentence, same exit code."""
    one = User(tmp_path, str(tmp_path / "kubeconfig"))
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": ""}}
    document = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    run, start = await one.run("daemon", "run", flag), await one.run("daemon", "start", flag)
    assert (start.code, start.err) == (run.code, run.err) and run.code == 2
