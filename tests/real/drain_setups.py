"""Clusters to drain. Pods carry labels that the kubelets of `kubelets` obey."""

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
    guarded,
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
    # Its pods are marked five seconds later.
    Setup(
        "namespace-deleted",
        (deployment("web", 2, terminationGracePeriodSeconds=4),),
        (2, 2),
        before=(("DELETE", "/api/v1/namespaces/namespace-deleted", None),),
    ),
    Setup(
        "namespace-going",
        (deployment("web", 2, terminationGracePeriodSeconds=12),),
        (2, 2),
        before=(("DELETE", "/api/v1/namespaces/namespace-going", None),),
        settles_s=8.0,
    ),
    Setup(
        "namespace-held",
        (bare_pod("held", finalizers=["example.com/hold"]),),
        (1, 1),
        "--force --timeout=4s",
        before=(("DELETE", "/api/v1/namespaces/namespace-held", None),),
        settles_s=8.0,
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
        guarded(deployment("web", 6, topologySpreadConstraints=spread("web")), maxUnavailable=1),
        (6, 6),
        "--timeout=8s",
        nodes=THREE,
        later={},
    ),
    Setup(
        "spread-honours-taints",
        guarded(
            deployment("web", 6, topologySpreadConstraints=spread("web", nodeTaintsPolicy="Honor")),
            maxUnavailable=1,
        ),
        (6, 6),
        nodes=THREE,
        later={},
    ),
    Setup(
        "anti-affinity",
        guarded(deployment("web", 3, affinity=apart("web")), maxUnavailable=1),
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
            *guarded(deployment("web", 4, SLOWLY), maxUnavailable="30%"),
            *guarded(deployment("api", 3), minAvailable="50%"),
        ),
        (7, 7),
    ),
    Setup("stateful-set", guarded(stateful_set("db", 3), minAvailable=2), (3, 3)),
    Setup(
        "min-ready-seconds",
        guarded(stateful_set("db", 3, {"minReadySeconds": 4}), maxUnavailable=2),
        (3, 3),
    ),
    Setup(
        "stops-early",
        guarded(
            deployment("web", 2, {"stop": "1"}, terminationGracePeriodSeconds=20), maxUnavailable=1
        ),
        (2, 2),
    ),
    Setup(
        "scaled-up-just-now",
        guarded(deployment("web", 1, {"start": "10"}), minAvailable=1),
        (1, 1),
        before=(
            (
                "PATCH",
                "/apis/apps/v1/namespaces/scaled-up-just-now/deployments/web",
                {"spec": {"replicas": 2}},
            ),
        ),
    ),
    Setup(
        "deleted-just-now",
        guarded(stateful_set("db", 2, terminationGracePeriodSeconds=12), maxUnavailable=1),
        (2, 2),
        before=(("DELETE", "/api/v1/namespaces/deleted-just-now/pods/db-0", None),),
    ),
    Setup("times-out", guarded(deployment("web", 3), maxUnavailable=1), (3, 3), "--timeout=7s"),
    # The third pod is evicted at its third try, after ten seconds.
    Setup(
        "time-runs-out",
        guarded(deployment("web", 3, terminationGracePeriodSeconds=12), maxUnavailable=1),
        (3, 3),
        "--timeout=16s",
    ),
    Setup(
        "time-suffices",
        guarded(
            deployment("web", 3, {"stop": "1"}, terminationGracePeriodSeconds=12), maxUnavailable=1
        ),
        (3, 3),
        "--timeout=16s",
    ),
    Setup(
        "always-allow",
        guarded(
            deployment("web", 2, {"ready": "never"}),
            minAvailable=2,
            unhealthyPodEvictionPolicy="AlwaysAllow",
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
        guarded(deployment("web", 3, resources={"requests": {"cpu": "3"}}), maxUnavailable=1),
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
        guarded(job("batch", 2), minAvailable=1),
        (2, 2),
    ),
    Setup(
        "job-of-failed-pods",
        guarded(job("batch", 2, podReplacementPolicy="Failed"), minAvailable=1),
        (2, 2),
    ),
    Setup(
        "job-over-its-limit",
        guarded(job("batch", 2, backoffLimit=0), minAvailable=1),
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
        "without-grace",
        guarded(deployment("web", 2, terminationGracePeriodSeconds=30), maxUnavailable=1),
        (2, 2),
        "--grace-period=0",
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
            bare_pod(
                "static",
                annotations={"kubernetes.io/config.mirror": "1"},
                nodeName="every-flag-a1",
            ),
        ),
        (5, 5),
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
