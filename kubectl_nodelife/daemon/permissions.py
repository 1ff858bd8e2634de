"""The rights that enforcing and upgrades need: one table of each for `rbac` and for the preflight.

A row is (API group, resource, subresource, verbs). The rows of a controller are the requests of its
conversations (`engine/calls`), no more.

What an upgrade reads beyond nodes, pods and Leases may be refused: then a verdict says that it does
not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.daemon.cluster_checks import Right

Row = tuple[str, str, str, tuple[str, ...]]

READS: Final[tuple[Row, ...]] = (
    ("", "nodes", "", ("get", "list", "watch")),
    ("", "pods", "", ("get", "list", "watch")),
    ("coordination.k8s.io", "leases", "", ("get", "list", "watch")),
    ("apps", "daemonsets", "", ("get", "list", "watch")),
    ("apps", "controllerrevisions", "", ("get", "list", "watch")),
    ("", "namespaces", "", ("get",)),
)
NAMESPACE_SYSTEM: Final = "kube-system"
KILL_SWITCH: Final[Row] = ("", "configmaps", "", ("get",))
"""In kube-system alone: elsewhere ConfigMaps hold what is no business of ours."""
_EVENTS: Final[Row] = ("", "events", "", ("create", "patch"))
WRITES: Final[dict[str, tuple[Row, ...]]] = {
    "node-lifecycle": (
        ("", "nodes", "", ("patch",)),
        ("", "nodes", "status", ("patch",)),
        ("", "pods", "status", ("patch",)),
        _EVENTS,
    ),
    "taint-eviction": (
        ("", "pods", "", ("delete",)),
        ("", "pods", "status", ("patch",)),
        _EVENTS,
    ),
    "pod-gc": (
        ("", "pods", "", ("delete",)),
        ("", "pods", "status", ("patch",)),
        _EVENTS,
    ),
    "daemonset": (
        ("", "pods", "", ("create", "delete", "patch")),
        ("apps", "daemonsets", "status", ("patch",)),
        ("apps", "daemonsets", "finalizers", ("update",)),
        ("apps", "controllerrevisions", "", ("create", "delete", "patch")),
        _EVENTS,
    ),
}
LEASE_VERBS: Final = ("create", "get", "list", "update")


def rows(controllers: Iterable[str]) -> Iterator[Row]:
    """The rows for these controllers, each resource once, verbs in order."""
    return merged((*READS, *(row for name in controllers for row in WRITES[name])))


def merged(rows: Iterable[Row]) -> Iterator[Row]:
    """One row for each resource, with the verbs of all its rows in order."""
    verbs: dict[tuple[str, str, str], set[str]] = {}
    for group, resource, subresource, needed in rows:
        verbs.setdefault((group, resource, subresource), set()).update(needed)
    for (group, resource, subresource), found in verbs.items():
        yield group, resource, subresource, tuple(sorted(found))


_WATCHED: Final = ("list", "watch")
UPGRADE_READS: Final[tuple[Row, ...]] = (
    ("", "nodes", "", ("get", *_WATCHED)),
    ("", "pods", "", ("get", *_WATCHED)),
    ("coordination.k8s.io", "leases", "", ("get", *_WATCHED)),
    ("", "namespaces", "", ("get", *_WATCHED)),
)
WATCHED_IF_ALLOWED: Final[tuple[Row, ...]] = (
    ("apps", "daemonsets", "", _WATCHED),
    ("apps", "deployments", "", _WATCHED),
    ("apps", "replicasets", "", _WATCHED),
    ("apps", "statefulsets", "", _WATCHED),
    ("", "replicationcontrollers", "", _WATCHED),
    ("", "persistentvolumeclaims", "", _WATCHED),
    ("", "persistentvolumes", "", _WATCHED),
    ("", "services", "", _WATCHED),
    ("autoscaling", "horizontalpodautoscalers", "", _WATCHED),
    ("batch", "jobs", "", _WATCHED),
    ("discovery.k8s.io", "endpointslices", "", _WATCHED),
    ("policy", "poddisruptionbudgets", "", _WATCHED),
    ("storage.k8s.io", "csinodes", "", _WATCHED),
    ("storage.k8s.io", "storageclasses", "", _WATCHED),
    ("storage.k8s.io", "volumeattachments", "", _WATCHED),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", _WATCHED),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "", _WATCHED),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "", _WATCHED),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "", _WATCHED),
)
EVIDENCE: Final[tuple[Row, ...]] = (
    ("apps", "daemonsets", "", _WATCHED),
    ("storage.k8s.io", "volumeattachments", "", _WATCHED),
)
"""Kinds that must be seen for a drain to be over, and for a node to be well again. What is not seen
is not good, so that without these no run is begun."""
_OF_JOBS: Final[Row] = ("batch", "jobs", "", _WATCHED)
_OF_SERVICES: Final[tuple[Row, ...]] = (
    ("", "services", "", _WATCHED),
    ("discovery.k8s.io", "endpointslices", "", _WATCHED),
)
UPGRADE_WRITES: Final[tuple[Row, ...]] = (
    ("", "nodes", "", ("patch",)),
    ("", "pods", "eviction", ("create",)),
    ("", "events", "", ("create", "patch")),
)
CONDITIONS: Final[Row] = ("", "nodes", "status", ("patch",))
LEASE: Final[Row] = (
    *("coordination.k8s.io", "leases", ""),
    ("create", "delete", "get", "patch", "update"),
)
CANARIES: Final[tuple[Row, ...]] = (
    ("", "pods", "", ("create", "delete", "get")),
    ("", "services", "", ("create", "delete")),
)
JOBS: Final[Row] = ("batch", "jobs", "", ("create", "delete", "get"))


def cluster_rows() -> Iterator[Row]:
    """The grants of an upgrade's ClusterRole, each resource once."""
    return merged((*UPGRADE_READS, *WATCHED_IF_ALLOWED, *UPGRADE_WRITES, CONDITIONS))


def rights(policy: UpgradePolicy) -> tuple[Right, ...]:
    """The rights that are checked before the first write of a run with this policy."""
    rows = [(row, "") for row in (*UPGRADE_READS, *EVIDENCE, *UPGRADE_WRITES)]
    rows += [(KILL_SWITCH, NAMESPACE_SYSTEM), (LEASE, policy.lease_namespace)]
    rows.append((CANARIES[0], policy.namespace))
    if policy.canary_service:
        rows += [(CANARIES[1], policy.namespace), *((row, "") for row in _OF_SERVICES)]
    if policy.conditions:
        rows.append((CONDITIONS, ""))
    if policy.work.mode is WorkMode.JOB:
        meta = (policy.work.manifest or {}).get("metadata") or {}
        rows += [(JOBS, str(meta.get("namespace") or policy.namespace)), (_OF_JOBS, "")]
    return tuple(
        Right(group, resource, subresource, verb, namespace)
        for (group, resource, subresource, verbs), namespace in rows
        for verb in verbs
    )
