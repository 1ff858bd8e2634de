"""`daemonset` and `rollout` on a live cluster: through the daemon, and at first sight."""

import asyncio
import contextlib
import json
from typing import Any

from kubectl_nodelife.sandbox.tls import Sandbox
from tests.daemon.user import User, user
from tests.loopback import edited, sandbox, until
from tests.objects import workload

LABELS = {"app": "agent"}
AGENT = workload(
    "DaemonSet",
    "agent",
    namespace="tools",
    uid="agent-1",
    metadata={"generation": 1},
    pods={"containers": [{"name": "c", "image": "agent:1"}], "terminationGracePeriodSeconds": 1},
    updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
)
IN_TOOLS = ("-n", "tools")
VERBS = [
    ("daemonset",),
    ("daemonset", "-A"),
    ("daemonset", "agent", "--nodes"),
    ("daemonset", "status", "daemonset", "agent"),
    ("daemonset", "history", "ds", "agent"),
]


def cluster(**spec: Any) -> contextlib.AbstractAsyncContextManager[Sandbox]:
    """Four nodes and the set, which a DaemonSet controller looks after."""
    agent = {**AGENT, "spec": {**AGENT["spec"], **spec}}
    generate = {"zones": 2, "nodesPerZone": 2, "podsPerNode": 0, "daemonSets": 0}
    return sandbox(controllers=["daemonset"], objects=[agent], generate=generate)


def change(served: Sandbox, image: str) -> None:
    """Somebody gives the set another image."""
    with edited(served, "DaemonSet", "agent", "tools") as agent:
        agent["spec"]["template"]["spec"]["containers"][0]["image"] = image
        agent["metadata"]["generation"] += 1


def forget(served: Sandbox) -> None:
    """Somebody deletes the set."""
    collection = served.cluster.api.served.collections["DaemonSet"]
    served.cluster.api.remove(collection.resource, ("tools", "agent"))


def is_rolled_out(served: Sandbox, revision: int) -> bool:
    """True if the set has come to rest, with so many revisions behind it."""
    collections = served.cluster.api.served.collections
    entry = collections["DaemonSet"].entries.get(("tools", "agent"))
    assert entry is not None
    document = entry.document()
    status = document.get("status", {})
    numbers = [e.document()["revision"] for e in collections["ControllerRevision"].entries.values()]
    return (
        status.get("observedGeneration") == document["metadata"]["generation"]
        and [status.get(f) for f in ("updatedNumberScheduled", "numberAvailable")] == [4, 4]
        and max(numbers, default=0) == revision
    )


async def rolled_out(served: Sandbox, revision: int, one: User | None = None) -> None:
    """Wait for that; with `one` also until that user's daemon has seen it."""
    await until(lambda: is_rolled_out(served, revision), 30.0)

    async def seen() -> bool:
        assert one is not None
        rows = (await one.json("daemonset", "history", "ds", "agent", *IN_TOOLS))["revisions"]
        return bool(rows and rows[-1]["revision"] == revision and rows[-1]["pods"] == 4)

    if one is not None:
        await one.until(seen)


def without_source(document: dict[str, Any]) -> dict[str, Any]:
    """What must be the same whoever looks."""
    return {k: v for k, v in document.items() if k not in ("source", "warnings")}


async def test_the_daemon_and_a_first_look_say_the_same() -> None:
    async with cluster() as served, user(served.kubeconfig) as one:
        await rolled_out(served, 1)
        first = await one.run("daemonset", "agent", *IN_TOOLS)
        assert "a first look" in first.err and "4 nodes should run it" in first.out
        await one.ok("daemon", "start")
        await rolled_out(served, 1, one)
        for verb in VERBS:
            told = await one.json(*verb, *IN_TOOLS)
            direct = await one.json(*verb, *IN_TOOLS, "--no-daemon")
            assert told["source"]["kind"] == "daemon"
            assert direct["source"]["kind"] == "direct"
            assert without_source(told) == without_source(direct), verb
        assert (await one.run("daemonset", "agent", *IN_TOOLS, "-o", "wide")).err == ""
        quiet = await one.run("daemonset", "-n", "nowhere")
        assert (quiet.out, quiet.err) == ("", "No resources found in nowhere namespace\n")
        assert "NAMESPACE" not in await one.ok("daemonset", "-A", "--no-headers")


async def test_an_update_is_followed_to_its_end_and_back() -> None:
    async with cluster() as served, user(served.kubeconfig) as one:
        await one.ok("daemon", "start")
        await rolled_out(served, 1, one)
        change(served, "agent:2")
        followed = await one.run("daemonset", "status", "ds", "agent", *IN_TOOLS, "-w")
        assert (followed.code, followed.err) == (0, "")
        assert followed.out.splitlines()[-1] == 'daemon set "agent" successfully rolled out'
        await rolled_out(served, 2, one)
        undo = await one.json("daemonset", "undo", "ds", "agent", "--dry-run", *IN_TOOLS)
        assert (undo["toRevision"], undo["dryRun"]) == (1, True)
        assert undo["effects"][1] == "4 pods to be replaced, 0 with that revision already"
        change(served, "agent:1")
        words = ("daemonset", "status", "ds", "agent", *IN_TOOLS, "-w", "-o", "json")
        decoder, text, done = json.JSONDecoder(), await one.ok(*words), []
        while text:
            document, end = decoder.raw_decode(text)
            done.append(document["done"])
            text = text[end:].lstrip()
        assert done[-1] is True and not any(done[:-1])
        await rolled_out(served, 3, one)


async def test_a_wait_ends_with_the_set_or_with_its_time() -> None:
    async with cluster(minReadySeconds=3600) as served, user(served.kubeconfig) as one:
        await one.ok("daemon", "start")
        words = ("daemonset", "status", "ds", "agent", *IN_TOOLS, "-w")
        late = await one.run(*words, "--timeout", "1s")
        assert (late.code, late.err) == (
            1,
            "error: daemonset tools/agent: timed out waiting for the condition\n",
        )
        waiting = await one.start(*words)
        assert waiting.stdout is not None
        assert b"Waiting for daemon set" in await waiting.stdout.readline()
        forget(served)
        _, err = await asyncio.wait_for(waiting.communicate(), 30)
        assert err.decode() == "error: daemonset tools/agent: object has been deleted\n"
        assert waiting.returncode == 1


async def test_what_cannot_be_answered() -> None:
    async with cluster() as served, user(served.kubeconfig) as one:
        direct = await one.run("daemonset", "status", "ds", "agent", *IN_TOOLS, "-w")
        assert (direct.code, direct.err) == (
            2,
            "error: --watch: watching is the daemon's work; run: kubectl nodelife daemon start\n",
        )
        for start in (False, True):
            if start:
                await one.ok("daemon", "start")
            missing = await one.run("daemonset", "agnt", *IN_TOOLS)
            assert missing.code == 1
            assert missing.err.endswith(
                'error: daemonsets.apps "tools/agnt" not found; did you mean tools/agent?\n'
            )
        elsewhere = await one.run("daemonset", "agent", "-n", "nowhere")
        assert "it is in namespace tools: use -n" in elsewhere.err
        assert (await one.run("daemonset", "--now", "2026-01-01T00:00:00Z")).code == 2
        timeout = await one.run("daemonset", "status", "agent", "--watch=false", "--timeout=1s")
        assert (timeout.code, timeout.err) == (2, "error: --timeout: is for --watch\n")


async def test_what_may_not_be_read_is_left_open() -> None:
    async with cluster() as served, user(served.kubeconfig) as one:
        await rolled_out(served, 1)
        for kind in ("nodes", "pods", "controllerrevisions"):
            served.server.faults.forbid = {kind}
            await what_is_known_without(kind, one)
        served.server.faults.forbid = {"daemonsets"}
        counts = await one.run("daemonset", "agent", *IN_TOOLS, "-o", "json")
        assert (counts.code, counts.out) == (1, "")
        assert "cannot list resource" in counts.err
        assert "see 'kubectl nodelife rbac'" in counts.err


async def what_is_known_without(kind: str, one: User) -> None:
    """What the verbs say of the set if these objects may not be read."""
    counts = await one.run("daemonset", "agent", *IN_TOOLS, "-o", "json")
    assert "cannot be read (" in counts.err, kind
    (item,) = json.loads(counts.out)["items"]
    nodes = await one.run("daemonset", "agent", "--nodes", *IN_TOOLS)
    history = await one.run("daemonset", "history", "ds", "agent", *IN_TOOLS)
    status = await one.ok("daemonset", "status", "ds", "agent", *IN_TOOLS)
    assert status.startswith('daemon set "agent" successfully rolled out'), kind
    if kind == "controllerrevisions":
        assert (nodes.code, history.code) == (0, 1)
        assert "no ControllerRevisions were read" in history.err
        assert item["counted"]["numberReady"] == 4
    else:
        assert (nodes.code, history.code) == (1, 0), kind
        assert f"no {kind} were read, so that no node can be judged" in nodes.err
        assert item["counted"] is None, kind
        assert f"no {kind} were read" in status


async def test_a_daemon_that_may_not_read_sets_says_so() -> None:
    async with cluster() as served, user(served.kubeconfig) as one:
        served.server.faults.forbid = {"daemonsets"}
        await one.ok("daemon", "start")
        said = await one.run("daemonset", "-A")
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("error: daemonsets.apps: ")
        assert "cannot watch resource" in said.err and "rbac" in said.err
