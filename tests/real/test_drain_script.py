"""`drain-plan` by the documented dump, and its script run by sh with the real kubectl.

Two zones of two nodes. The script may have one node of a zone away at a time, takes it back after
its maintenance, and stops where a node cannot be drained any more.
"""

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acts.program import nodelife
from tests.real.audited import writes
from tests.real.control_plane import ControlPlane, control_plane, until
from tests.real.drain_objects import Setup, bare_pod, deployment, guarded
from tests.real.drain_runs import create, node_of, pods_of, prepare, ready_status
from tests.real.kubelets import Kubelets

ROOT = Path(__file__).parents[2]
ZONE = "topology.kubernetes.io/zone"
NODES = {name: {ZONE: name[0]} for name in ("a1", "a2", "b1", "b2")}
SHOP = Setup("shop", guarded(deployment("web", 4), maxUnavailable=2), (4, 4), nodes=NODES, later={})
DRAINED = [SHOP.node(name) for name in NODES]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with (
        control_plane(controller_manager=[], scheduler=True) as plane,
        Kubelets(plane.api, renew_every_s=5.0) as kubelets,
    ):
        prepare(plane, kubelets, (SHOP,))
        yield plane


def shell(plane: ControlPlane, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a text as a shell script, with the real kubectl in its PATH."""
    env = {
        "PATH": f"{plane.programs}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane.kubeconfig),
        "HOME": str(plane.folder),
        **environment,
    }
    return subprocess.run(
        ["sh", "-s"], input=text, env=env, cwd=plane.folder, capture_output=True, text=True
    )


def program(plane: ControlPlane, *words: str) -> str:
    ended = asyncio.run(nodelife(str(plane.kubeconfig), str(plane.folder), *words))
    assert ended.code == 0, ended
    return ended.out


def documented_dump() -> str:
    """The commands of docs/drain-plan.md that make a dump."""
    page = (ROOT / "docs" / "drain-plan.md").read_text()
    (found,) = re.findall(r"^    for kind in .*?> dump\.json$", page, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_documented_dump_can_be_called_ready(plane: ControlPlane) -> None:
    """The cluster has no webhooks and no policies, and their empty lists say so."""
    done = shell(plane, documented_dump())
    assert done.returncode == 0, done.stderr
    words = ("drain-plan", DRAINED[0], "-f", str(plane.folder / "dump.json"), "-o", "json")
    plan = json.loads(program(plane, *words))
    assert plan["notEvaluated"] == [] and plan["verdict"] == "ready"


def script(plane: ControlPlane, maintenance: str) -> str:
    words = ("--max-parallel", "2", "--max-per-zone", "1", "--maintenance", maintenance)
    return program(plane, "drain-plan", *DRAINED, *words, "-o", "commands")


def cordoned(plane: ControlPlane) -> list[str]:
    return [name for name in DRAINED if node_of(plane, name)["spec"].get("unschedulable")]


def is_whole(plane: ControlPlane) -> bool:
    """All pods of the workload are Ready again."""
    pods = [p for p in pods_of(plane, "shop") if p["metadata"].get("ownerReferences")]
    return len(pods) == 4 and all(ready_status(pod) == "True" for pod in pods)


def test_the_script_does_what_the_plan_says(plane: ControlPlane) -> None:
    text = script(plane, "2s")
    assert "kubectl --context=real drain" in text
    before = len(plane.audit())
    done = shell(plane, text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cordoned(plane) == [] and is_whole(plane)
    away: set[str] = set()
    for write in writes(plane.audit()[before:]):
        if write.resource == "nodes" and write.agent.startswith("kubectl/"):
            continue
        if write.subresource == "eviction" and write.accepted:
            away.add(write.name)
    assert away, "pods were evicted"
    assert one_of_a_zone_at_a_time(done.stdout)


def one_of_a_zone_at_a_time(told: str) -> bool:
    """By what kubectl printed: between "drained" and "uncordoned" a node is away."""
    away: set[str] = set()
    for name, what in re.findall(r"^node/(\S+) (drained|uncordoned)", told, re.MULTILINE):
        if what == "uncordoned":
            away.discard(name)
            continue
        away.add(name)
        zones = [NODES[gone.removeprefix("shop-")][ZONE] for gone in away]
        if len(zones) != len(set(zones)):
            return False
    return not away


def test_the_script_stops_where_a_node_cannot_be_drained(plane: ControlPlane) -> None:
    """Somebody starts a pod without a controller on a node of the first wave: kubectl refuses."""
    until(lambda: is_whole(plane), "the workload")
    text = script(plane, "2s")
    waves: list[Any] = re.findall(r"^  drain_all (.*)$", text, re.MULTILINE)
    first, second = waves[0].split(), waves[1].split()
    lonely = SHOP.placed((bare_pod("lonely"),))[0]
    lonely["spec"]["nodeName"] = first[0]
    create(plane, lonely)
    until(
        lambda: any(
            pod["metadata"]["name"] == "lonely" and ready_status(pod) == "True"
            for pod in pods_of(plane, "shop")
        ),
        "the lonely pod",
    )
    done = shell(plane, text)
    assert done.returncode == 1 and "declare no controller" in done.stderr
    assert "stopped (exit code 1) in wave 1" in done.stderr
    assert not any(f"node/{name} drained" in done.stdout for name in second)
    assert set(second) <= set(cordoned(plane)), "they were cordoned first, and stay so"

    plane.kubectl("delete", "pod", "lonely", "-n", "shop")
    done = shell(plane, text, FROM="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert cordoned(plane) == []


def test_a_drain_is_looked_back_on(plane: ControlPlane) -> None:
    """Played kubelets record no Events: what left is told by bindings, and by what came instead."""
    begun = time.time()
    node = max(DRAINED, key=lambda name: len(pods_on(plane, name)))
    left = pods_on(plane, node)
    plane.kubectl("drain", node)
    until(lambda: is_whole(plane), "the workload")
    since = f"{int(time.time() - begun) + 60}s"
    review = json.loads(program(plane, "replay", "--drain", node, "--since", since, "-o", "json"))
    assert review["cordoned"]["by"].startswith("kubectl")
    found = {pod["name"]: pod for pod in review["pods"]}
    assert left and left <= found.keys()
    assert all(found[name]["replacement"] and found[name]["node"] != node for name in left)
    (budget,) = review["budgets"]
    assert budget["name"] == "web" and "shortSeconds" in review["workloads"][0]


def pods_on(plane: ControlPlane, node: str) -> set[str]:
    """The names of the pods on the node."""
    return {
        pod["metadata"]["name"]
        for pod in pods_of(plane, "shop")
        if pod["spec"].get("nodeName") == node
    }
