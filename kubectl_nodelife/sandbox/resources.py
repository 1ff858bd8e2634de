"""The kinds that the sandbox serves: all that are read, and a few more that kubectl asks for."""

from __future__ import annotations

from typing import Final, NamedTuple

from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.meta import KubeObject

_SUBRESOURCES: Final = {
    "Pod": ("status", "binding", "eviction"),
    "Node": ("status",),
    "Namespace": ("status", "finalize"),
    "DaemonSet": ("status",),
    "ReplicaSet": ("status",),
    "Deployment": ("status",),
    "StatefulSet": ("status",),
    "ReplicationController": ("status",),
    "Job": ("status",),
    "PodDisruptionBudget": ("status",),
    "PersistentVolume": ("status",),
    "PersistentVolumeClaim": ("status",),
    "HorizontalPodAutoscaler": ("status",),
    "Service": ("status",),
}

# kind, plural, namespaced, apiVersion, short names: served, though nothing here reads them
_OTHERS: Final = (
    ("ConfigMap", "configmaps", True, "v1", ("cm",)),
    ("Secret", "secrets", True, "v1", ()),
    ("ServiceAccount", "serviceaccounts", True, "v1", ("sa",)),
    ("Endpoints", "endpoints", True, "v1", ("ep",)),
    ("LimitRange", "limitranges", True, "v1", ("limits",)),
    ("ResourceQuota", "resourcequotas", True, "v1", ("quota",)),
    ("CronJob", "cronjobs", True, "batch/v1", ("cj",)),
    ("CSIDriver", "csidrivers", False, "storage.k8s.io/v1", ()),
    ("ClusterRole", "clusterroles", False, "rbac.authorization.k8s.io/v1", ()),
    ("ClusterRoleBinding", "clusterrolebindings", False, "rbac.authorization.k8s.io/v1", ()),
)


class ServedResource(NamedTuple):
    """One kind as it is served. `type` is a bare KubeObject where only the metadata matter."""

    kind: str
    plural: str
    namespaced: bool
    api_version: str
    type: type[KubeObject]
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The API group, "" for the core one."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version without its group."""
        return self.api_version.rpartition("/")[2]

    @property
    def name(self) -> str:
        """`nodes`, `daemonsets.apps`: as errors and kubectl name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def read(self) -> bool:
        """True if the simulated cluster and the controllers know the kind."""
        return self.type is not KubeObject

    @property
    def has_status(self) -> bool:
        """True if the status can be written on its own only."""
        return "status" in self.subresources


RESOURCES: Final = (
    *(
        ServedResource(
            kind.name,
            kind.plural,
            kind.namespaced,
            kind.api_version,
            kind.type,
            kind.short_names,
            _SUBRESOURCES.get(kind.name, ()),
        )
        for kind in KINDS
    ),
    *(
        ServedResource(kind, plural, namespaced, version, KubeObject, short)
        for kind, plural, namespaced, version, short in _OTHERS
    ),
)

BY_PATH: Final = {(r.api_version, r.plural): r for r in RESOURCES}
BY_KIND: Final = {r.kind: r for r in RESOURCES}
BY_KIND_AND_VERSION: Final = {(r.api_version, r.kind): r for r in RESOURCES}
