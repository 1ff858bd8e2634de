"""`start --dry-run` on the sandbox: the whole story of a node, and not one write."""

import json

from kubectl_nodelife.sandbox.tls import Sandbox
from tests.acts.program import nodelife
from tests.loopback import client, sandbox

SETTINGS = ("--set", "node-monitor-grace-period=2s", "--set", "node-monitor-period=200ms")
QUICK = ("--soak", "1s", "--node-soak", "1s", "--ready-for", "1s", "--expect-work", "1s")
WORK = ("--run", "exit 1", "--target", "bootID=changed", "--canary-image", "pause")


async def versions(served: Sandbox) -> dict[str, str]:
    """The version of each node and pod, but for what kubelets renew."""
    async with client(served) as reader:
        found = json.loads(await reader.read("/api/v1/nodes"))["items"]
        specs = {
            n["metadata"]["name"]: json.dumps([n["spec"], n["metadata"]["labels"]]) for n in found
        }
        pods = json.loads(await reader.read("/api/v1/pods"))["items"]
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        others = json.loads(await reader.read(leases))["items"]
    return specs | {p["metadata"]["uid"]: "" for p in pods} | {"leases": str(len(others))}


async def test_a_dry_run_tells_the_whole_story_and_writes_nothing() -> None:
    generate = {"zones": 2, "nodesPerZone": 2, "podsPerNode": 2, "daemonSets": 1}
    sent: list[str] = []
    async with sandbox(generate=generate, record=sent) as served:
        before = await versions(served)
        words = ("start", "a1", *WORK, *QUICK, *SETTINGS, "--dry-run")
        ended = await nodelife(served.kubeconfig, served.folder, "upgrade", *words)
        assert ended.code == 0, ended.out + ended.err
        would = [line.partition(" (dry run) ")[2] for line in ended.out.splitlines()]
        deeds = [line.split(": ")[1] for line in would if line.startswith("node a1: ")]
        assert deeds[:-1] == [
            "cordoned, now Draining",
            "now Working",
            "work begins (--run)",
            "work ended (try 1, exit code 0)",
            "now Settling",
            "uncordoned, now Proving",
            "canary pod created",
            "canary pod deleted",
            "now Soaking",
            "now Done",
        ]
        assert any(line.startswith("pod ") and ": evicted" in line for line in would)
        assert "the run: now Finished" in ended.out
        assert await versions(served) == before
        for verb in ("plan", "status"):
            words = ("a1", *WORK) if verb == "plan" else ()
            ended = await nodelife(served.kubeconfig, served.folder, "upgrade", verb, *words)
            assert ended.code == 0, ended.err
        assert len(sent) > 20, "a record of nothing shows nothing"
        assert {request.split()[0] for request in sent} == {"GET"}, "not even a question"
