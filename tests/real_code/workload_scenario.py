"""What the scenarios of workloads share: their settings, their kubelets and their Ready nodes."""

import os
import random
from collections.abc import Sequence
from typing import Any

from kubectl_nodelife.engine.settings import NEWEST

Json = dict[str, Any]

RELEASE = os.environ.get("REAL_RELEASE", NEWEST)
"""The profile of the controllers that REAL_CONTROLLERS names."""

NO_LIMIT = {"kube-api-qps": "100000", "kube-api-burst": "200000"}
"""The fake client of the real code waits for no token."""


def scenario(
    name: str, seconds: int, flags: Json, kubelet: Json, objects: Sequence[Json], events: list[Json]
) -> Json:
    """A Scenario that lasts so long."""
    return {
        "apiVersion": "nodelife.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": name},
        "spec": {
            "profile": RELEASE,
            "flags": {**NO_LIMIT, **flags},
            "controllers": ["node-lifecycle", "taint-eviction", "daemonset", "pod-gc"],
            "duration": f"{seconds}s",
            "scheduler": "FewestPods",
            "kubelet": kubelet,
            "objects": objects,
            "events": events,
        },
    }


def some_kubelet(chance: random.Random) -> Json:
    """How kubelets behave: renewals lie off the monitor passes; starts and stops take some time."""
    return {
        "leaseRenewInterval": "5s",
        "leaseRenewPhase": "0.33s",
        "podStartDuration": f"{chance.choice([2, 5, 12])}s",
        "podStopDuration": f"{chance.choice([1, 4])}s",
    }


def ready_node(name: str) -> Json:
    """A node whose kubelet has said that it is Ready."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    meta = {"name": name}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"conditions": [ready]}}
