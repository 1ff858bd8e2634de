"""Clusters to drain. Pods carry labels that the kubelets of `kubelets` obey."""

from __future__ import annotations

from tests.real.drain_objects import (
    DELETION,
    HOST,
    ZONE,
    Setup,
    apart,
    bare_pod,
    budget,
    daemon_set,
    deployment,
    job,
    lonely_webhook,
    policy,
    spread,
    stateful_set,
    volumes,
    with_disks,
)

SLOWLY = {"start": "3"}
THREE = {"a1": {}, "a2": {}, "a3": {}}
ROLES = {"a1": {"role": "first"}, "a2": {"role": "second"}}

SETUPS = (
    # --- admission
    Setup(
        "policy-by-name",
        (
            deployment("web", 2),
            deployment("db", 2),
            *policy(
                "policy-by-name",
                validations=[
                    {
                        "expression": "!object.metadata.name.startsWith('db-')",
                        "message": "databases are moved by hand",
                    }
                ],
            ),
        ),
        pods=(4, 4),
    ),
    Setup(
        "policy-by-namespace",
        (
            deployment("web", 2),
            *policy(
                "policy-by-namespace",
                matchConditions=[
                    {"name": "real", "expression": "!has(object.deleteOptions.dryRun)"},
                    {"name": "web", "expression": "request.name.matches('^web-[a-z0-9-]+$')"},
                ],
                variables=[{"name": "of", "expression": "namespaceObject.metadata.labels"}],
                validations=[
                    {
                        "expression": "variables.of['kubernetes.io/metadata.name'] == 'elsewhere'",
                        "reason": "Forbidden",
                    }
                ],
            ),
        ),
        pods=(2, 2),
    ),
    Setup(
        "policy-that-holds",
        (
            deployment("web", 2),
            *policy(
                "policy-that-holds",
                matchConditions=[{"name": "api", "expression": "request.name.startsWith('api')"}],
                validations=[{"expression": "false"}],
            ),
        ),
        pods=(2, 2),
    ),
    Setup("webhook-gone", (deployment("web", 2), lonely_webhook("webhook-gone", "Fail")), (2, 2)),
    Setup(
        "webhook-ignored",
        (deployment("web", 2), lonely_webhook("webhook-ignored", "Ignore")),
        (2, 2),
    ),
    Setup(
        "namespace-deleted",
        (deployment("web", 2, terminationGracePeriodSeconds=8),),
        (2, 2),
        deletes_namespace=True,
    ),
    # --- where replacements can go
    Setup(
        "volumes-move",
        (
            *volumes("volumes-move", ("disk-db-0", "disk-db-1"), ZONE, "z1"),
            with_disks("volumes-move", "db", 2),
            budget("db", maxUnavailable=1),
        ),
        (2, 2),
        nodes={"a1": {ZONE: "z1"}},
        later={"a2": {ZONE: "z1"}, "a3": {ZONE: "z2"}},
    ),
    Setup(
        "volumes-stuck",
        (
            *volumes("volumes-stuck", ("disk-db-0", "disk-db-1"), ZONE, "z1"),
            with_disks("volumes-stuck", "db", 2),
            budget("db", maxUnavailable=1),
        ),
        (2, 2),
        "--timeout=8s",
        nodes={"a1": {ZONE: "z1"}},
        later={"a2": {ZONE: "z2"}},
    ),
    Setup(
        "volume-of-the-node",
        (
            *volumes("volume-of-the-node", ("disk-db-0",), HOST, "volume-of-the-node-a1"),
            with_disks("volume-of-the-node", "db", 1),
        ),
        (1, 1),
    ),
    Setup(
        "spread-over-cordoned",
        (
            deployment("web", 6, topologySpreadConstraints=spread("web")),
            budget("web", maxUnavailable=1),
        ),
        (6, 6),
        "--timeout=8s",
        nodes=THREE,
        later={},
    ),
    Setup(
        "spread-honours-taints",
        (
            deployment("web", 6, topologySpreadConstraints=spread("web", nodeTaintsPolicy="Honor")),
            budget("web", maxUnavailable=1),
        ),
        (6, 6),
        nodes=THREE,
        later={},
    ),
    Setup(
        "anti-affinity",
        (deployment("web", 3, affinity=apart("web")), budget("web", maxUnavailable=1)),
        (3, 3),
        "--timeout=6s",
        nodes=THREE,
        later={},
        drained=("a1", "a2"),
    ),
    Setup(
        "tolerates-the-cordon",
        (
            deployment(
                "web",
                2,
                tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
            ),
            budget("web", maxUnavailable=1),
        ),
        (2, 2),
        later={},
    ),
    # --- budgets
    Setup(
        "percentages",
        (
            deployment("web", 4, SLOWLY),
            budget("web", maxUnavailable="30%"),
            deployment("api", 3),
            budget("api", minAvailable="50%"),
        ),
        (7, 7),
    ),
    Setup(
        "stateful-set",
        (stateful_set("db", 3), budget("db", minAvailable=2)),
        (3, 3),
    ),
    Setup(
        "min-ready-seconds",
        (stateful_set("db", 3, {"minReadySeconds": 4}), budget("db", maxUnavailable=2)),
        (3, 3),
    ),
    Setup(
        "stops-early",
        (
            deployment("web", 2, {"stop": "1"}, terminationGracePeriodSeconds=20),
            budget("web", maxUnavailable=1),
        ),
        (2, 2),
    ),
    Setup(
        "times-out",
        (deployment("web", 3), budget("web", maxUnavailable=1)),
        (3, 3),
        "--timeout=7s",
    ),
    Setup(
        "always-allow",
        (
            deployment("web", 2, {"ready": "never"}),
            budget("web", minAvailable=2, unhealthyPodEvictionPolicy="AlwaysAllow"),
        ),
        (2, 0),
    ),
    Setup(
        "unready-beside-healthy",
        (
            deployment("web", 2, {"part": "all"}, nodeSelector={"role": "second"}),
            deployment(
                "broken", 1, {"part": "all", "ready": "never"}, nodeSelector={"role": "first"}
            ),
            budget("all", minAvailable=2, selector={"matchLabels": {"part": "all"}}),
        ),
        (3, 2),
        nodes=ROLES,
        later={},
    ),
    Setup(
        "bare-under-budget",
        (
            bare_pod("one", {"part": "all"}),
            bare_pod("two", {"part": "all"}),
            budget("all", maxUnavailable=1, selector={"matchLabels": {"part": "all"}}),
        ),
        (2, 2),
        "--force --timeout=6s",
    ),
    Setup(
        "one-is-pending",
        (
            deployment("web", 3, resources={"requests": {"cpu": "3"}}),
            budget("web", maxUnavailable=1),
        ),
        (2, 2),
        "--timeout=6s",
        later={},
    ),
    Setup(
        "sync-failed",
        (
            deployment("web", 1, {"part": "all"}),
            budget("all", maxUnavailable=1, selector={"matchLabels": {"part": "all"}}),
        ),
        (2, 2),
        "--timeout=6s",
        then=(job("batch", 1, {"part": "all"}),),
    ),
    # It says "still being processed" with Retry-After, and so kubectl does not notice its timeout.
    Setup(
        "never-synced",
        (job("batch", 2),),
        (2, 2),
        "--timeout=6s",
        then=(budget("batch", maxUnavailable=1),),
        stopped_after_s=12.0,
    ),
    Setup(
        "job-under-budget",
        (job("batch", 2), budget("batch", minAvailable=1)),
        (2, 2),
    ),
    Setup(
        "job-of-failed-pods",
        (
            job("batch", 2, podReplacementPolicy="Failed"),
            budget("batch", minAvailable=1),
        ),
        (2, 2),
    ),
    Setup(
        "job-over-its-limit",
        (job("batch", 2, backoffLimit=0), budget("batch", minAvailable=1)),
        (2, 2),
    ),
    # --- flags
    Setup(
        "pod-selector",
        (deployment("web", 2), deployment("api", 1), bare_pod("alone")),
        (4, 4),
        "--pod-selector=app=web",
    ),
    Setup(
        "disable-eviction",
        (
            deployment("web", 3, terminationGracePeriodSeconds=30),
            budget("web", minAvailable=3),
            budget("web2", minAvailable=3, selector={}),
        ),
        (3, 3),
        "--disable-eviction --grace-period=2",
    ),
    Setup(
        "skip-wait",
        (deployment("web", 1), bare_pod("held", finalizers=["example.com/hold"])),
        (2, 2),
        "--force --skip-wait-for-delete-timeout=3",
    ),
    Setup(
        "every-flag",
        (
            daemon_set("agent"),
            deployment("web", 2, volumes=[{"name": "scratch", "emptyDir": {}}]),
            bare_pod("alone"),
        ),
        (4, 4),
        as_printed=True,
    ),
    Setup(
        "first-node-refused",
        (
            deployment("web", 2, nodeSelector={"role": "second"}),
            bare_pod("alone", nodeSelector={"role": "first"}),
            deployment("api", 1, nodeSelector={"role": "first"}),
        ),
        (4, 4),
        nodes=ROLES,
        later={"a3": {"role": "second"}},
        drained=("a1", "a2"),
    ),
    Setup(
        "policy-on-deletion",
        (
            deployment("app", 1),
            deployment("kept", 1, {"keep": "true"}),
            deployment("web", 1),
            *policy(
                "policy-on-deletion",
                DELETION,
                matchConditions=[
                    {"name": "real", "expression": "request.subResource == ''"},
                    {"name": "kept", "expression": "'keep' in oldObject.metadata.labels"},
                ],
                validations=[{"expression": "object != null", "message": "keep it"}],
            ),
        ),
        (3, 3),
        "--disable-eviction",
    ),
    # --- pods that are over, or have not begun
    Setup(
        "completed",
        (
            job("batch", 1, {"ends": "Succeeded"}),
            bare_pod(
                "done",
                {"ends": "Succeeded"},
                restartPolicy="Never",
                volumes=[{"name": "scratch", "emptyDir": {}}],
            ),
            deployment("slow", 1, {"start": "3600"}),
            budget("slow", minAvailable=1),
            deployment("web", 1),
        ),
        (4, 1),
    ),
    # --- kubectl's own rate limit, and a kubelet that is gone
    Setup("many", (deployment("web", 24),), (24, 24)),
    Setup("kubelet-gone", (deployment("web", 1),), (1, 1), "--timeout=6s", silent="a1"),
)
