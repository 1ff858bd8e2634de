"""The fourteen recorded clusters of `tests/drains`, put up anew on a real control plane.

Workloads, budgets, finalizers and volumes, the flags and what is wrong with each are as recorded.
Different are, so that all live side by side on one control plane and end soon: namespaces and
nodes' names, a node selector of the set-up's own, one other node instead of two (it comes once all
pods are on the first), grace periods of one second instead of two (12 instead of 20 in
`long-grace`), limits of 7 to 9 seconds instead of 20 to 30, and kubelets that start a pod in one
second instead of two.
"""

from tests.real.drain_objects import Setup, bare_pod, budget, daemon_set, deployment, guarded

_TWO = {"a1": {}, "a2": {}}

FLAG_OF = {
    "bare-pod-without-force": "--force",
    "daemonset-without-flag": "--ignore-daemonsets",
    "emptydir-without-flag": "--delete-emptydir-data",
}
"""What kubectl refuses as it is -> the flag that its message and the plan name."""

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

STORIES = (
    Setup(
        "in-waves",
        guarded(deployment("web", 6), maxUnavailable=4),
        (6, 6),
        "--max-parallel=2",
        nodes={**_TWO, "a3": {}},
        later={"a4": {}, "a5": {}},
        drained=("a1", "a2", "a3"),
    ),
    Setup(
        "overtaken",
        guarded(deployment("web", 4), maxUnavailable=1),
        (4, 4),
        "--max-parallel=1",
        nodes=_TWO,
        later={"a3": {}},
        drained=("a1", "a2"),
    ),
    Setup("switched-off", guarded(deployment("web", 3), maxUnavailable=1), (3, 3)),
)
"""Drains of our own waves, and such as something happens to."""
