"""The rights that an upgrade needs: one table for `rbac --upgrade` and for the preflight.

A row is (API group, resource, subresource, verbs), as in `daemon/permissions.py`. What is read
beyond nodes, pods and Leases may be refused: then a verdict says that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.daemon.cluster_checks import Right
from kubectl_nodelife.daemon.permissions import KILL_SWITCH as KILL_SWITCH
from kubectl_nodelife.daemon.permissions import NAMESPACE_SYSTEM as NAMESPACE_SYSTEM
from kubectl_nodelife.daemon.permissions import Row, merged

_WATCHED: Final = ("list", "watch")
READS: Final[tuple[Row, ...]] = (
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
WRITES: Final[tuple[Row, ...]] = (
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
    return merged((*READS, *WATCHED_IF_ALLOWED, *WRITES, CONDITIONS))


def rights(policy: UpgradePolicy) -> tuple[Right, ...]:
    """The rights that are checked before the first write of a run with this policy."""
    rows = [(row, "") for row in (*READS, *EVIDENCE, *WRITES)]
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
