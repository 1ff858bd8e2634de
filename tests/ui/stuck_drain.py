"""A drain on the sandbox that cannot go on: a finalizer holds one pod, a budget another."""

import json
from typing import Any, NamedTuple

from kubectl_nodelife.sandbox.tls import Sandbox
from tests.loopback import kubectl

HELD = '{"metadata":{"finalizers":["example.com/hold"]}}'
BUDGET = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}


class StuckDrain(NamedTuple):
    """How many pods there are to move, and what guards one of them."""

    pods: int
    budget: str


async def begin_stuck_drain(served: Sandbox, node: str) -> StuckDrain:
    """Cordon the node and delete a pod, as one who drains it does."""
    found = json.loads(await kubectl(served, "get", "pods", "-A", "-o", "json"))
    mine = [pod["metadata"] for pod in found["items"] if _moves_from(pod, node)]
    held, guarded = mine[0], mine[-1]
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": guarded["labels"]}}
    metadata = {"name": "none-to-spare", "namespace": guarded["namespace"]}
    budget = json.dumps({**BUDGET, "metadata": metadata, "spec": spec})
    await kubectl(served, "apply", "-f", "-", stdin=budget)
    pod = ("pod", held["name"], "-n", held["namespace"])
    await kubectl(served, "patch", *pod, "--type=merge", "-p", HELD)
    await kubectl(served, "cordon", node)
    await kubectl(served, "delete", *pod, "--wait=false", "--grace-period=1")
    return StuckDrain(len(mine), f"{guarded['namespace']}/none-to-spare")


def _moves_from(pod: dict[str, Any], node: str) -> bool:
    owners = [owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())]
    return pod["spec"].get("nodeName") == node and "DaemonSet" not in owners
