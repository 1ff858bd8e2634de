"""The kinds that are read: Python type, names, group versions, scope.

A kind is known by its API group and name together, because other groups have a Node or a DaemonSet
of their own. All versions of a group decode as one type: the fields that are read agree among
them (`kube.load` repairs the one difference, the empty selector of a policy/v1beta1 budget).
"""

from __future__ import annotations

from typing import Final, NamedTuple

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


def group_of(api_version: str) -> str:
    """The API group of `apps/v1` is `apps`; that of `v1` is ""."""
    return api_version.rpartition("/")[0]


_APPS = ("apps/v1", "apps/v1beta2", "apps/v1beta1")
_APPS_AND_EXTENSIONS = ("apps/v1", "apps/v1beta2", "apps/v1beta1", "extensions/v1beta1")
_ADMISSION = tuple(f"admissionregistration.k8s.io/{v}" for v in ("v1", "v1beta1", "v1alpha1"))
_LIFECYCLE = ("lifecycle.k8s.io/v1alpha1",)
_STORAGE = tuple(f"storage.k8s.io/{v}" for v in ("v1", "v1beta1"))

KINDS: tuple[Kind, ...] = (
    Kind("Node", Node, "nodes", False, ("v1",), ("no",)),
    Kind("Pod", Pod, "pods", True, ("v1",), ("po",)),
    Kind("Namespace", workload.Namespace, "namespaces", False, ("v1",), ("ns",)),
    Kind(
        "Lease",
        Lease,
        "leases",
        True,
        ("coordination.k8s.io/v1", "coordination.k8s.io/v1beta1"),
    ),
    Kind("DaemonSet", workload.DaemonSet, "daemonsets", True, _APPS_AND_EXTENSIONS, ("ds",)),
    Kind("ControllerRevision", workload.ControllerRevision, "controllerrevisions", True, _APPS),
    Kind("ReplicaSet", workload.ReplicaSet, "replicasets", True, _APPS_AND_EXTENSIONS, ("rs",)),
    Kind("Deployment", workload.Deployment, "deployments", True, _APPS_AND_EXTENSIONS, ("deploy",)),
    Kind("StatefulSet", workload.StatefulSet, "statefulsets", True, _APPS, ("sts",)),
    Kind(
        "ReplicationController",
        workload.ReplicationController,
        "replicationcontrollers",
        True,
        ("v1",),
        ("rc",),
    ),
    Kind("Job", workload.Job, "jobs", True, ("batch/v1",)),
    Kind(
        "PodDisruptionBudget",
        workload.PodDisruptionBudget,
        "poddisruptionbudgets",
        True,
        ("policy/v1", "policy/v1beta1"),
        ("pdb",),
    ),
    Kind(
        "HorizontalPodAutoscaler",
        workload.HorizontalPodAutoscaler,
        "horizontalpodautoscalers",
        True,
        ("autoscaling/v2", "autoscaling/v2beta2", "autoscaling/v2beta1", "autoscaling/v1"),
        ("hpa",),
    ),
    Kind(
        "PersistentVolume", storage.PersistentVolume, "persistentvolumes", False, ("v1",), ("pv",)
    ),
    Kind(
        "PersistentVolumeClaim",
        storage.PersistentVolumeClaim,
        "persistentvolumeclaims",
        True,
        ("v1",),
        ("pvc",),
    ),
    Kind("StorageClass", storage.StorageClass, "storageclasses", False, _STORAGE, ("sc",)),
    Kind("VolumeAttachment", storage.VolumeAttachment, "volumeattachments", False, _STORAGE),
    Kind("CSINode", storage.CSINode, "csinodes", False, _STORAGE),
    Kind(
        "ValidatingWebhookConfiguration",
        admission.ValidatingWebhookConfiguration,
        "validatingwebhookconfigurations",
        False,
        _ADMISSION,
    ),
    Kind(
        "MutatingWebhookConfiguration",
        admission.MutatingWebhookConfiguration,
        "mutatingwebhookconfigurations",
        False,
        _ADMISSION,
    ),
    Kind(
        "ValidatingAdmissionPolicy",
        admission.ValidatingAdmissionPolicy,
        "validatingadmissionpolicies",
        False,
        _ADMISSION,
    ),
    Kind(
        "ValidatingAdmissionPolicyBinding",
        admission.ValidatingAdmissionPolicyBinding,
        "validatingadmissionpolicybindings",
        False,
        _ADMISSION,
    ),
    Kind("Event", workload.Event, "events", True, ("v1", "events.k8s.io/v1"), ("ev",)),
    Kind(
        "PriorityClass",
        workload.PriorityClass,
        "priorityclasses",
        False,
        ("scheduling.k8s.io/v1", "scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha1"),
        ("pc",),
    ),
    Kind("Service", Service, "services", True, ("v1",), ("svc",)),
    Kind(
        "EndpointSlice",
        EndpointSlice,
        "endpointslices",
        True,
        ("discovery.k8s.io/v1", "discovery.k8s.io/v1beta1"),
    ),
    Kind("EvictionRequest", EvictionRequest, "evictionrequests", True, _LIFECYCLE),
    Kind("Eviction", Eviction, "evictions", True, _LIFECYCLE),
    Kind("PodGroup", PodGroup, "podgroups", True, ("scheduling.k8s.io/v1beta1",)),
)

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
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
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
