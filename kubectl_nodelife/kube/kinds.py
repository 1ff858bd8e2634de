"""The kinds that are read: Python type, names, group versions, scope.

A kind is known by its API group and name together, because other groups have a Node or a DaemonSet
of their own. All versions of a group decode as one type: the fields that are read agree among
them (`kube.load` repairs the one difference, the empty selector of a policy/v1beta1 budget).
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote

from kubectl_nodelife.kube import admission, storage, workload
from kubectl_nodelife.kube.lifecycle import Eviction, EvictionRequest, PodGroup
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.service import EndpointSlice, Service


class Kind(NamedTuple):
    """One kind. `api_versions` has the one to talk to a present API server in at its head."""

    name: str
    type: type[KubeObject]
    plural: str
    namespaced: bool
    api_versions: tuple[str, ...]
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """The group version written and asked for, such as `apps/v1`."""
        return self.api_versions[0]

    @property
    def resource(self) -> str:
        """The resource with its group, as kubectl names it: `nodes`, `daemonsets.apps`."""
        group = group_of(self.api_version)
        return f"{self.plural}.{group}" if group else self.plural

    def path(self, namespace: str = "") -> str:
        """The collection's, such as `/api/v1/namespaces/NS/pods`; "": of all namespaces."""
        root = "/apis" if group_of(self.api_version) else "/api"
        inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        return f"{root}/{self.api_version}{inside}/{self.plural}"


def group_of(api_version: str) -> str:
    """The API group of `apps/v1` is `apps`; that of `v1` is ""."""
    return api_version.rpartition("/")[0]


def _kind(
    type_: type[KubeObject], api_versions: tuple[str, ...], *short: str, namespaced: bool = True
) -> Kind:
    """The kind of that type; its plural is by `UnsafeGuessKindToResource` of apimachinery's
    pkg/api/meta.
    """
    name = type_.__name__
    plural = name.lower()
    if plural.endswith("s"):
        plural += "es"
    else:
        plural = f"{plural[:-1]}ies" if plural.endswith("y") else f"{plural}s"
    return Kind(name, type_, plural, namespaced, api_versions, short)


_CORE = ("v1",)
_APPS = ("apps/v1", "apps/v1beta2", "apps/v1beta1")
_APPS_AND_EXTENSIONS = (*_APPS, "extensions/v1beta1")
_ADMISSION = tuple(f"admissionregistration.k8s.io/{v}" for v in ("v1", "v1beta1", "v1alpha1"))
_AUTOSCALING = tuple(f"autoscaling/{v}" for v in ("v2", "v2beta2", "v2beta1", "v1"))
_LIFECYCLE = ("lifecycle.k8s.io/v1alpha1",)
_SCHEDULING = tuple(f"scheduling.k8s.io/{v}" for v in ("v1", "v1beta1", "v1alpha1"))
_STORAGE = ("storage.k8s.io/v1", "storage.k8s.io/v1beta1")

KINDS: tuple[Kind, ...] = (
    _kind(Node, _CORE, "no", namespaced=False),
    _kind(Pod, _CORE, "po"),
    _kind(workload.Namespace, _CORE, "ns", namespaced=False),
    _kind(Lease, ("coordination.k8s.io/v1", "coordination.k8s.io/v1beta1")),
    _kind(workload.DaemonSet, _APPS_AND_EXTENSIONS, "ds"),
    _kind(workload.ControllerRevision, _APPS),
    _kind(workload.ReplicaSet, _APPS_AND_EXTENSIONS, "rs"),
    _kind(workload.Deployment, _APPS_AND_EXTENSIONS, "deploy"),
    _kind(workload.StatefulSet, _APPS, "sts"),
    _kind(workload.ReplicationController, _CORE, "rc"),
    _kind(workload.Job, ("batch/v1",)),
    _kind(workload.PodDisruptionBudget, ("policy/v1", "policy/v1beta1"), "pdb"),
    _kind(workload.HorizontalPodAutoscaler, _AUTOSCALING, "hpa"),
    _kind(storage.PersistentVolume, _CORE, "pv", namespaced=False),
    _kind(storage.PersistentVolumeClaim, _CORE, "pvc"),
    _kind(storage.StorageClass, _STORAGE, "sc", namespaced=False),
    _kind(storage.VolumeAttachment, _STORAGE, namespaced=False),
    _kind(storage.CSINode, _STORAGE, namespaced=False),
    _kind(admission.ValidatingWebhookConfiguration, _ADMISSION, namespaced=False),
    _kind(admission.MutatingWebhookConfiguration, _ADMISSION, namespaced=False),
    _kind(admission.ValidatingAdmissionPolicy, _ADMISSION, namespaced=False),
    _kind(admission.ValidatingAdmissionPolicyBinding, _ADMISSION, namespaced=False),
    _kind(workload.Event, ("v1", "events.k8s.io/v1"), "ev"),
    _kind(workload.PriorityClass, _SCHEDULING, "pc", namespaced=False),
    _kind(Service, _CORE, "svc"),
    _kind(EndpointSlice, ("discovery.k8s.io/v1", "discovery.k8s.io/v1beta1")),
    _kind(EvictionRequest, _LIFECYCLE),
    _kind(Eviction, _LIFECYCLE),
    _kind(PodGroup, ("scheduling.k8s.io/v1beta1",)),
)

ADMISSION_KINDS: Final = (
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
"""What may refuse or change a write, as the API server is configured."""

DRAIN_KINDS: Final = (
    "Node",
    "Pod",
    "Lease",
    "Namespace",
    "PodDisruptionBudget",
    "ReplicaSet",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicationController",
    "Job",
    "HorizontalPodAutoscaler",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    *ADMISSION_KINDS,
    "Service",
    "EndpointSlice",
)
"""What is read where a drain is played: by drains, plans, budgets and forecasts."""

OPTIONAL_KINDS: Final = ("EvictionRequest", "Eviction", "PodGroup")
"""Kinds behind feature gates that are off by default: an API server may not serve them."""

_BY_TYPE = {kind.type: kind for kind in KINDS}
_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_GROUP_AND_NAME = {
    (group_of(version), kind.name): kind for kind in KINDS for version in kind.api_versions
}
_BY_RESOURCE = {
    word: kind for kind in KINDS for word in (kind.plural, kind.name.lower(), *kind.short_names)
}


def kind_of(obj: KubeObject) -> str:
    """The kind's name, such as `Pod`. Raises KeyError for a type that is not in the registry."""
    return _BY_TYPE[type(obj)].name


def kind_of_type(type_: type[KubeObject]) -> Kind:
    """The registry's entry of a slice type. Raises KeyError."""
    return _BY_TYPE[type_]


def kind_named(name: str) -> Kind:
    """The registry's entry of a kind such as `Pod`. Raises KeyError."""
    return _BY_NAME[name]


def find_kind(api_version: str, name: str) -> Kind | None:
    """The kind that an object's apiVersion and kind name; None where it is not one that is read.

    An empty apiVersion is taken on trust.
    """
    if not api_version:
        return _BY_NAME.get(name)
    return _BY_GROUP_AND_NAME.get((group_of(api_version), name))


def find_resource(word: str) -> Kind | None:
    """The kind that kubectl's word means: `po`, `pods`, `Pod`, `daemonsets.apps`, `ds.v1.apps`."""
    resource, _, rest = word.lower().partition(".")
    kind = _BY_RESOURCE.get(resource)
    if kind is None or not rest:
        return kind
    for version in kind.api_versions:
        group, _, number = version.rpartition("/")
        if rest.rstrip(".") in (group, f"{number}.{group}".rstrip(".")):
            return kind
    return None
