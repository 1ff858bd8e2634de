"""The rights that reading takes, row by row: what `rbac` prints, a daemon's role grants, and
`doctor` looks at. What enforcing and upgrades need beside them is in `daemon/permissions.py`.
"""

from __future__ import annotations

from typing import Final

Rule = tuple[str, tuple[str, ...], tuple[str, ...]]
"""API group, resources, verbs."""

BEHIND_GATES: Final[tuple[Rule, ...]] = (
    ("lifecycle.k8s.io", ("evictionrequests", "evictions"), ("list",)),
    ("scheduling.k8s.io", ("podgroups",), ("list",)),
)
"""Read where they are served: their feature gates are off by default."""

# A pod is fetched by name only to read the control plane's flags.
RULES: Final[tuple[Rule, ...]] = (
    ("", ("nodes",), ("list", "watch")),
    ("", ("pods",), ("get", "list", "watch")),
    ("coordination.k8s.io", ("leases",), ("list", "watch")),
    ("apps", ("daemonsets", "controllerrevisions"), ("list", "watch")),
    ("", ("namespaces",), ("get",)),  # kube-system's UID identifies the cluster
    ("rbac.authorization.k8s.io", ("clusterroles",), ("get",)),  # may the manager read Leases?
    # For drain-plan and budgets; what of it is not granted they leave open, and say so.
    (
        "",
        (
            "events",  # for replay
            "namespaces",
            "persistentvolumeclaims",
            "persistentvolumes",
            "replicationcontrollers",
            "services",
        ),
        ("list",),
    ),
    ("apps", ("deployments", "replicasets", "statefulsets"), ("list",)),
    ("autoscaling", ("horizontalpodautoscalers",), ("list",)),
    ("batch", ("jobs",), ("list",)),
    ("discovery.k8s.io", ("endpointslices",), ("list",)),
    ("policy", ("poddisruptionbudgets",), ("list",)),
    ("storage.k8s.io", ("storageclasses",), ("list",)),
    *BEHIND_GATES,
    (
        "admissionregistration.k8s.io",
        (
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        ),
        ("list",),
    ),
)

DAEMON_RULES: Final[tuple[Rule, ...]] = (
    *RULES[:6],
    ("", ("events",), ("list",)),  # who removed a node, for diverge
    ("policy", ("poddisruptionbudgets",), ("list",)),  # for metrics
)
"""Rights that a daemon in dry-run needs for its own questions. Asked `what-if`, it lists the
other kinds of RULES once; in a cluster it has no right to that, and says what is not evaluated."""

VIA_RULES: Final[tuple[Rule, ...]] = (
    ("apps", ("deployments",), ("get",)),
    ("", ("pods",), ("get", "list")),
    ("", ("pods/portforward",), ("get", "create")),  # create: since 1.35, for WebSockets as well
)
"""The rights that `--via` needs in the namespace of the daemon."""
