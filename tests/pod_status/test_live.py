"""`audit` and `repair` on a cluster that is served: what they see, and that the patch is taken.

The patch goes through kubectl, as `repair` prints it, so that the server itself judges it.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.loopback import kubectl, needs_kubectl, sandbox
from tests.objects import condition, node, pod

LONG_AGO = format_time(time.time_ns() - 3600 * SECOND_NS)
CONTAINER = {"name": "c", "image": "example/c:1"}


def stuck_pod(**status: Any) -> dict[str, Any]:
    """A pod of node a1 that bears the mark of an outage an hour ago."""
    conditions = {"Initialized": "True", "Ready": "False", "ContainersReady": "True"}
    running = {"name": "c", "ready": True, "state": {"running": {"startedAt": LONG_AGO}}}
    return pod(
        "stuck",
        "a1",
        namespace="shop",
        uid="u-stuck",
        conditions=[condition(kind, word, changed=LONG_AGO) for kind, word in conditions.items()],
        status={"containerStatuses": [running], **status},
    )


def well_node() -> dict[str, Any]:
    """A node that has been Ready for an hour."""
    return node("a1", "True", "KubeletReady", since=LONG_AGO, uid="")


async def nodelife(served: Sandbox, *words: str) -> Any:
    """Our own program's answer as JSON."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kubectl_nodelife",
        *words,
        "-o",
        "json",
        env={"PATH": os.environ["PATH"], "HOME": served.folder, "KUBECONFIG": served.kubeconfig},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def test_a_look_at_a_live_cluster() -> None:
    async with sandbox(generate=None, objects=[well_node(), stuck_pod()]) as served:
        answer = await nodelife(served, "audit", "-A")
        assert answer["source"]["kind"] == "direct"
        assert [f["class"] for f in answer["findings"]] == ["stuck-not-ready"]
        assert (await nodelife(served, "audit"))["findings"] == []  # namespace default
        found = await nodelife(served, "audit", "-n", "shop")
        assert [f["name"] for f in found["findings"]] == ["stuck"]


async def test_two_looks_too_close_prove_nothing() -> None:
    async with sandbox(generate=None, objects=[well_node(), stuck_pod()]) as served:
        words = ("repair", "-n", "shop", "--dry-run=client", "--wait", "100ms")
        plan = await nodelife(served, *words)
        (step,) = plan["steps"]
        assert "not proven to have been so for 60s" in step["refusals"][0]


@needs_kubectl
async def test_the_patch_is_taken_once_and_then_refused() -> None:
    async with sandbox(generate=None, objects=[well_node(), stuck_pod()]) as served:
        (step,) = (await nodelife(served, "repair", "-n", "shop", "--dry-run=client"))["steps"]
        body = json.dumps(step["request"]["body"])
        patch = ("patch", "pod", "-n", "shop", "stuck", "--subresource=status", "-p", body)
        await kubectl(served, *patch)
        pod = json.loads(await kubectl(served, "get", "pod", "-n", "shop", "stuck", "-o", "json"))
        conditions = {c["type"]: c for c in pod["status"]["conditions"]}
        assert conditions["Ready"]["status"] == "True"
        assert conditions["ContainersReady"]["lastTransitionTime"] == LONG_AGO
        assert (await nodelife(served, "audit", "-A"))["findings"] == []
        again = await kubectl(served, *patch, check=False)
        assert "Conflict" in again or "modified" in again
