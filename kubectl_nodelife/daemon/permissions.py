"""The rights that enforcing and upgrades need: one table of each for `rbac` and for the preflight.

The rows of a controller are the requests of its conversations (`engine/calls`), no more.

What an upgrade reads beyond nodes, pods and Leases may be refused: then a verdict says that it does
not know.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.policy import LEASE_NAME, UpgradePolicy, WorkMode
from kubectl_nodelife.kube.kinds import group_of, kind_named

ENFORCE_LEASE: Final = "kubectl-nodelife-enforce"
"""The Lease of the one daemon that writes."""

STOP: Final = "nodelife-stop"
"""The ConfigMap in kube-system that stops all writers."""


class Right(NamedTuple):
    """One verb on one resource. `namespace` "": in all of them; `name` "": on all objects."""

    group: str
    resource: str
    subresource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        inside = f" in {self.namespace}" if self.namespace else ""
        which = f" {self.name}" if self.name else ""
        return f"{self.verb} {name}{'.' + self.group if self.group else ''}{which}{inside}"

    def can_i(self, flags: Sequence[str] = ()) -> str:
        """kubectl's line that asks for it. `flags`: which cluster and user it is to ask."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        resource += f"/{self.name}" if self.name else ""
        words = ["kubectl", *flags, "auth", "can-i", self.verb, resource]
        if self.subresource:
            words.append(f"--subresource={self.subresource}")
        words.append(f"--namespace={self.namespace}" if self.namespace else "--all-namespaces")
        return shlex.join(words)


class PolicyRule(NamedTuple):
    """Verbs on one resource of an API group. `names`: of these objects alone; (): of all. RBAC
    cannot limit `create` to a name, since it is asked before the object has one.
    """

    group: str
    resource: str
    subresource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def rights(self, namespace: str = "") -> Iterator[Right]:
        """One for each verb, and name, as it is asked for in a SelfSubjectAccessReview."""
        for verb in self.verbs:
            for name in self.names or ("",):
                yield Right(self.group, self.resource, self.subresource, verb, namespace, name)


def _rows_of(kinds: str, *verbs: str) -> tuple[PolicyRule, ...]:
    """A row for each of these kinds."""
    named = map(kind_named, kinds.split())
    return tuple(PolicyRule(group_of(k.api_version), k.plural, "", verbs) for k in named)


def _granted(*rows: str) -> tuple[PolicyRule, ...]:
    """The rules of `GROUP RESOURCE/SUBRESOURCE VERB,...` with ` | ` between them; the core's group
    is left out."""
    granted = []
    for row in " | ".join(rows).split(" | "):
        *group, name, verbs = row.split()
        resource, _, subresource = name.partition("/")
        rule = PolicyRule("".join(group), resource, subresource, tuple(verbs.split(",")))
        granted.append(rule)
    return tuple(granted)


_EVENTS: Final = "events create,patch"
_WATCHED: Final = ("list", "watch")
READS: Final = (
    *_rows_of("Node Pod Lease DaemonSet ControllerRevision", "get", *_WATCHED),
    *_rows_of("Namespace", "get"),
)
NAMESPACE_SYSTEM: Final = "kube-system"
KILL_SWITCH: Final = PolicyRule("", "configmaps", "", ("get",), (STOP,))
"""In kube-system. All other ConfigMaps hold what is no business of ours."""
WRITES: Final[dict[str, tuple[PolicyRule, ...]]] = {
    "node-lifecycle": _granted("nodes patch | nodes/status patch | pods/status patch", _EVENTS),
    "taint-eviction": _granted("pods delete | pods/status patch", _EVENTS),
    "pod-gc": _granted("pods delete | pods/status patch", _EVENTS),
    "daemonset": _granted(
        "pods create,delete,patch | apps daemonsets/status patch | "
        "apps daemonsets/finalizers update | apps controllerrevisions create,delete,patch",
        _EVENTS,
    ),
}
(_MAKES_LEASES,) = _granted("coordination.k8s.io leases create")
ENFORCE_LEASE_ROWS: Final = (
    _MAKES_LEASES,
    _MAKES_LEASES._replace(verbs=("get", "update"), names=(ENFORCE_LEASE,)),
)
"""In the Lease's namespace. The Leases of other leaders there, such as that of a
kube-controller-manager, cannot be written."""


def rows(controllers: Iterable[str]) -> Iterator[PolicyRule]:
    """The rows for these controllers, each resource once, verbs in order."""
    return merged((*READS, *(row for name in controllers for row in WRITES[name])))


def merged(rows: Iterable[PolicyRule]) -> Iterator[PolicyRule]:
    """One row for each resource, or names of it, with the verbs of all its rows in order."""
    verbs: dict[PolicyRule, set[str]] = {}
    for row in rows:
        verbs.setdefault(row._replace(verbs=()), set()).update(row.verbs)
    for row, allowed in verbs.items():
        yield row._replace(verbs=tuple(sorted(allowed)))


UPGRADE_READS: Final = _rows_of("Node Pod Lease Namespace", "get", *_WATCHED)
WATCHED_IF_ALLOWED: Final = _rows_of(
    "DaemonSet Deployment ReplicaSet StatefulSet ReplicationController "
    "PersistentVolumeClaim PersistentVolume Service HorizontalPodAutoscaler Job EndpointSlice "
    "PodDisruptionBudget CSINode StorageClass VolumeAttachment "
    "MutatingWebhookConfiguration ValidatingWebhookConfiguration "
    "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
    *_WATCHED,
)
EVIDENCE: Final = _rows_of("DaemonSet VolumeAttachment", *_WATCHED)
"""Kinds that must be seen for a drain to be over, and for a node to be well again. What is not seen
is not good, so that without these no run is begun."""
(_OF_JOBS,) = _rows_of("Job", *_WATCHED)
UPGRADE_WRITES: Final = _granted("nodes patch | pods/eviction create", _EVENTS)
LEASE_ROWS: Final = (
    _MAKES_LEASES,
    _MAKES_LEASES._replace(verbs=("delete", "get", "patch", "update"), names=(LEASE_NAME,)),
)
"""The Lease of an upgrade's run, in its namespace."""
CANARIES: Final = PolicyRule("", "pods", "", ("create", "delete", "get"))
JOBS: Final = PolicyRule("batch", "jobs", "", ("create", "delete", "get"))


def cluster_rows() -> Iterator[PolicyRule]:
    """The grants of an upgrade's ClusterRole, each resource once."""
    return merged((*UPGRADE_READS, *WATCHED_IF_ALLOWED, *UPGRADE_WRITES))


def rights(policy: UpgradePolicy) -> tuple[Right, ...]:
    """The rights that are checked before the first write of a run with this policy."""
    rows = [(row, "") for row in (*UPGRADE_READS, *EVIDENCE, *UPGRADE_WRITES)]
    rows += [(KILL_SWITCH, NAMESPACE_SYSTEM)]
    rows += [(row, policy.lease_namespace) for row in LEASE_ROWS]
    rows.append((CANARIES, policy.namespace))
    if policy.work.mode is WorkMode.JOB:
        meta = (policy.work.manifest or {}).get("metadata") or {}
        rows += [(JOBS, str(meta.get("namespace") or policy.namespace)), (_OF_JOBS, "")]
    return tuple(right for row, namespace in rows for right in row.rights(namespace))
