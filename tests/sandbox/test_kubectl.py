"""The real kubectl works against the sandbox."""

import asyncio
import json
import time

from kubectl_nodelife.sandbox.cluster import HEARTBEATS
from tests.loopback import KUBECTL, environment_of, kubectl, needs_kubectl, sandbox, until

ALL = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc")

BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: tight, namespace: NAMESPACE}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: APP}}}
"""


@needs_kubectl
async def test_get_shows_tables() -> None:
    async with sandbox() as served:
        nodes = (await kubectl(served, "get", "nodes")).splitlines()
        assert nodes[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
        assert [line.split()[:2] for line in nodes[1:]] == [
            ["a1", "Ready"],
            ["a2", "Ready"],
            ["b1", "Ready"],
            ["b2", "Ready"],
        ]
        wide = await kubectl(served, "get", "pods", "-A", "-o", "wide", "-l", "app=agent-0")
        assert {line.split()[7] for line in wide.splitlines()[1:]} == {"a1", "a2", "b1", "b2"}
        one = json.loads(await kubectl(served, "get", "node", "a1", "-o", "json"))
        assert one["kind"] == "Node"


@needs_kubectl
async def test_describe_node_tells_lease_pods_and_events() -> None:
    async with sandbox(controllers=ALL) as served:
        await until(lambda: served.cluster.api.served.get("Lease", ("kube-node-lease", "a1")))
        text = await kubectl(served, "describe", "node", "a1")
        assert "HolderIdentity:  a1" in text
        assert "agent-0-" in text
        assert "RegisteredNode" in text


@needs_kubectl
async def test_cordon_taint_label_and_back() -> None:
    async with sandbox() as served:
        node = served.cluster.api.store.nodes
        await kubectl(served, "cordon", "a1")
        assert node["a1"].spec.unschedulable
        await kubectl(served, "uncordon", "a1")
        assert not node["a1"].spec.unschedulable
        await kubectl(served, "taint", "nodes", "a1", "x=y:NoSchedule")
        assert node["a1"].has_taint("x", "NoSchedule")
        await kubectl(served, "taint", "nodes", "a1", "x-")
        assert not node["a1"].spec.taints
        await kubectl(served, "label", "node", "a1", "mark=here")
        assert "a1" in await kubectl(served, "get", "nodes", "-l", "mark=here", "-o", "name")


@needs_kubectl
async def test_watch_shows_changes_as_they_come() -> None:
    async with sandbox() as served:
        assert KUBECTL is not None
        watching = await asyncio.create_subprocess_exec(
            KUBECTL,
            *("get", "nodes", "-w"),
            env=environment_of(served),
            stdout=asyncio.subprocess.PIPE,
        )
        assert watching.stdout is not None
        try:
            for _ in range(5):
                await watching.stdout.readline()
            await kubectl(served, "cordon", "b2")
            line = (await watching.stdout.readline()).decode()
            assert line.split()[:2] == ["b2", "Ready,SchedulingDisabled"]
        finally:
            watching.kill()
            await watching.wait()


@needs_kubectl
async def test_drain_empties_a_node_and_waits_for_a_budget() -> None:
    async with sandbox() as served:
        store = served.cluster.api.store
        pod = next(p for p in store.pods_on("a1") if not p.name.startswith("agent"))
        app = (pod.metadata.labels or {})["app"]
        budget = BUDGET.replace("NAMESPACE", pod.namespace).replace("APP", app)
        await kubectl(served, "create", "-f", "-", stdin=budget)
        flags = ("--ignore-daemonsets", "--force", "--delete-emptydir-data")
        text = await kubectl(served, "drain", "a1", *flags, "--timeout", "2s", check=False)
        assert "Cannot evict pod as it would violate the pod's disruption budget" in text
        await kubectl(served, "delete", "pdb", "tight", "-n", pod.namespace)
        await kubectl(served, "drain", "a1", *flags, "--timeout", "20s")
        assert {p.name.partition("-")[0] for p in store.pods_on("a1")} == {"agent"}
        assert store.nodes["a1"].spec.unschedulable


@needs_kubectl
async def test_delete_of_pods_nodes_and_owners() -> None:
    async with sandbox(controllers=ALL) as served:
        store = served.cluster.api.store
        pod = next(p for p in store.pods.values() if p.name.startswith("agent"))
        await kubectl(served, "delete", "pod", pod.name, "-n", pod.namespace)
        assert pod.key not in store.pods
        await kubectl(served, "delete", "node", "b2")
        assert "b2" not in store.nodes
        await kubectl(served, "delete", "ds", "agent-0", "-n", "kube-system")
        await until(lambda: not any(p.name.startswith("agent") for p in store.pods.values()))


@needs_kubectl
async def test_our_controllers_take_a_silent_node_down_and_back() -> None:
    async with sandbox(controllers=ALL) as served:
        nodes = served.cluster.api.store.nodes
        await kubectl(served, "annotate", "node", "a1", f"{HEARTBEATS}=stop")
        unreachable = ("node.kubernetes.io/unreachable", "NoExecute")
        await until(lambda: nodes["a1"].has_taint(*unreachable))
        assert "NotReady" in await kubectl(served, "get", "node", "a1")
        events = await kubectl(served, "get", "events", "-A")
        assert "NodeNotReady" in events
        await kubectl(served, "annotate", "node", "a1", "--overwrite", f"{HEARTBEATS}=start")
        await until(lambda: not nodes["a1"].spec.taints)
        assert "NotReady" not in await kubectl(served, "get", "node", "a1")


@needs_kubectl
async def test_scenario_events_happen_in_real_time() -> None:
    event = {"at": "300ms", "cordon": {"nodes": ["a1"]}}
    started = time.monotonic()
    async with sandbox(events=[event]) as served:
        await until(lambda: served.cluster.api.store.nodes["a1"].spec.unschedulable)
        assert time.monotonic() - started >= 0.3
