"""How many pods a pod's controller is asked for, as the disruption controller finds it out.

Follows `finders` of pkg/controller/disruption/disruption.go: a ReplicationController, a Deployment
above a ReplicaSet, a ReplicaSet on its own, a StatefulSet, and last the scale subresource of
whatever else owns the pod. Kinds of the core groups without that subresource (DaemonSet, Job, Node)
fail there, and so does an owner that is gone: the budget's sync fails, and nothing may be evicted
under it. The scale of a custom resource cannot be read from a list of objects; that, and a kind
that was not read, is `ScaleUnknown`, and the caller decides what to make of it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import (
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)

WITHOUT_SCALE = {
    ("DaemonSet", "apps"): "daemonsets.apps",
    ("Job", "batch"): "jobs.batch",
    ("CronJob", "batch"): "cronjobs.batch",
    ("Node", ""): "nodes",
    ("Pod", ""): "pods",
}
"""Kinds that own pods and have no scale subresource, with the name that the API gives them."""


class OwnerLookup(Protocol):
    """Where a pod's owners are looked up."""

    def find(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """The object of that kind and name, or None."""

    def was_read(self, kind: str) -> bool:
        """True if objects of that kind were read, so that None means that there is none."""


Scaled = Deployment | ReplicaSet | StatefulSet | ReplicationController
ScaledT = TypeVar("ScaledT", Deployment, ReplicaSet, StatefulSet, ReplicationController)


class ScaleUnknown(Exception):
    """The objects that were read do not show how many pods an owner is asked for."""


class SyncFailure(Exception):
    """The disruption controller cannot compute the budget; the text is upstream's."""


class Scale(NamedTuple):
    """The controller that counts, by uid, and the replicas that it is asked for."""

    uid: str
    replicas: int


def api_group(api_version: str) -> str:
    """The group of an apiVersion; "" for the core group. Follows `ParseGroupVersion`."""
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


def scale_of_pod(pod: Pod, owners: OwnerLookup) -> Scale | None:
    """The scale of the pod's controller; None for a pod without one.

    Raises SyncFailure where upstream's controller fails, and ScaleUnknown.
    """
    owner = controller_of(pod.metadata)
    if owner is None:
        return None
    scale = find_scale(owner, pod.namespace, owners)
    if scale is None:
        raise SyncFailure(f'found no controllers for pod "{pod.name}"')
    return scale


def find_scale(owner: OwnerReference, namespace: str, owners: OwnerLookup) -> Scale | None:
    """The scale behind an owner reference, or None where the owner is gone.

    Raises SyncFailure for a kind that has none, and ScaleUnknown. Follows the five finders.
    """
    kind, group = owner.kind, api_group(owner.api_version)
    if kind == "ReplicaSet" and group in ("apps", "extensions"):
        return _scale_of_replica_set(owner, namespace, owners)
    if kind == "StatefulSet" and group == "apps":
        return _scale_itself(_lookup(StatefulSet, kind, owner, namespace, owners))
    if kind == "ReplicationController" and group == "":
        return _scale_itself(_lookup(ReplicationController, kind, owner, namespace, owners))
    if kind == "Deployment" and group in ("apps", "extensions"):
        return _scale_itself(_lookup(Deployment, kind, owner, namespace, owners))
    resource = WITHOUT_SCALE.get((kind, group))
    if resource is not None:
        raise SyncFailure(f"{resource} does not implement the scale subresource")
    raise ScaleUnknown(f"the scale of {kind} {namespace}/{owner.name} is not among what was read")


def _scale_of_replica_set(
    owner: OwnerReference, namespace: str, owners: OwnerLookup
) -> Scale | None:
    """That of its Deployment if there is one; an orphan counts by itself, through its scale."""
    replica_set = _lookup(ReplicaSet, "ReplicaSet", owner, namespace, owners)
    if replica_set is None:
        return None
    above = controller_of(replica_set.metadata)
    if above is not None and above.kind == "Deployment":
        deployment = _lookup(Deployment, "Deployment", above, namespace, owners)
        if deployment is not None:
            return _scale_itself(deployment)
    return _scale_itself(replica_set)


def _scale_itself(scaled: Scaled | None) -> Scale | None:
    if scaled is None:
        return None
    return Scale(scaled.uid, replicas_of(scaled))


def replicas_of(scaled: Scaled) -> int:
    """spec.replicas, which is 1 where it is absent."""
    return 1 if scaled.spec.replicas is None else scaled.spec.replicas


def _lookup(
    type_: type[ScaledT], kind: str, owner: OwnerReference, namespace: str, owners: OwnerLookup
) -> ScaledT | None:
    found = owners.find(kind, namespace, owner.name)
    if found is None and not owners.was_read(kind):
        raise ScaleUnknown(f"{kind} {namespace}/{owner.name} is not among what was read")
    if not isinstance(found, type_) or (owner.uid and found.uid and found.uid != owner.uid):
        return None
    return found
