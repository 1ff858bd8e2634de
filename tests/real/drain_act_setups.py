"""The fourteen recorded clusters of `tests/drains`, put up anew on a real control plane.

Time limits are shorter here. All but the namespaces and the nodes' names is as it was recorded.
"""

from __future__ import annotations

from tests.real.drain_objects import (
    Setup,
    bare_pod,
    budget,
    daemon_set,
    deployment,
    guarded,
)

_TWO = {"a1": {}, "a2": {}}

RECORDED = (
    Setup("bare-pod-with-force", (deployment("web", 1), bare_pod("alone")), (2, 2), "--force"),
    Setup("bare-pod-without-force", (deployment("web", 1), bare_pod("alone")), (2, 2)),
    Setup("budget-never", guarded(deployment("web", 2), minAvailable=2), (2, 2), "--timeout=7s"),
    Setup("budget-one-at-a-time", guarded(deployment("web", 3), maxUnavailable=1), (3, 3)),
    Setup("daemonset-without-flag", (deployment("web", 2), daemon_set("agent")), (3, 3)),
    Setup("dead-kubelet", (deployment("web", 2),), (2, 2), "--timeout=7s", silent="a1"),
    Setup(
        "emptydir-without-flag",
        (deployment("web", 1, volumes=[{"name": "scratch", "emptyDir": {}}]),),
        (1, 1),
    ),
    Setup(
        "finalizer-holds",
        (deployment("web", 1), bare_pod("held", finalizers=["example.com/hold"])),
        (2, 2),
        "--force --timeout=7s",
    ),
    Setup("long-grace", (deployment("web", 2, terminationGracePeriodSeconds=12),), (2, 2)),
    Setup("plain", (deployment("web", 3), daemon_set("agent")), (4, 4), "--ignore-daemonsets"),
    Setup(
        "replacement-cannot-land",
        guarded(deployment("web", 2), maxUnavailable=1),
        (2, 2),
        "--timeout=9s",
        later={},
    ),
    Setup(
        "two-budgets-on-one-pod",
        (
            deployment("ok", 2),
            deployment("web", 2),
            budget("p1", maxUnavailable=1, selector={"matchLabels": {"app": "web"}}),
            budget("p2", minAvailable=1, selector={"matchLabels": {"app": "web"}}),
        ),
        (4, 4),
        "--timeout=9s",
    ),
    Setup(
        "two-nodes-in-turn",
        guarded(deployment("web", 4), maxUnavailable=1),
        (4, 4),
        nodes=_TWO,
        later={"a3": {}},
        drained=("a1", "a2"),
    ),
    Setup(
        "unready-if-healthy-budget",
        guarded(deployment("web", 2, {"ready": "never"}), minAvailable=2),
        (2, 0),
        "--timeout=7s",
    ),
)
