"""Where a pod's volumes allow it: bound volumes' node affinity and zones, claims not bound yet.

Follows kube-scheduler plugins/volumebinding (`PreFilter`, `FindPodVolumes`), volumezone and
volumerestrictions (ReadWriteOncePod). Left out: limits on attached volumes, storage capacity,
volumes that are reserved for a claim by name, and which of several free volumes a claim would take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import NodeSelector, Pod
from kubectl_nodelife.kube.selectors import matches_node_selector
from kubectl_nodelife.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubectl_nodelife.kube.wellknown import (
    LABEL_HOSTNAME,
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
)

REASON_NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
REASON_BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
REASON_NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASON_ZONE = "node(s) had no available volume zone"
REASON_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"

_STABLE_LABEL = {LABEL_ZONE_BETA: LABEL_ZONE, LABEL_REGION_BETA: LABEL_REGION}
_ZONE_LABELS = (LABEL_ZONE_BETA, LABEL_REGION_BETA, LABEL_ZONE, LABEL_REGION)
_NO_LABELS: Mapping[str, str] = {}


class Volumes(Protocol):
    """Where claims, volumes and classes are looked up."""

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """The claim, or None."""

    def volume(self, name: str) -> PersistentVolume | None:
        """The volume, or None."""

    def storage_class(self, name: str) -> StorageClass | None:
        """The class, or None."""

    def free_volumes(self, class_name: str) -> Iterable[PersistentVolume]:
        """The volumes of a class that no claim has."""

    def volumes_read(self) -> bool:
        """True if claims and volumes were read at all."""


class VolumeNeeds(NamedTuple):
    """The demands of a pod's claims on a node.

    `nowhere`: why no node will do, "" if none is ruled out for all. `pinned`: volumes on one node's
    own disk, by name. `unknown`: claims that were not read.
    """

    nowhere: str = ""
    affinities: tuple[NodeSelector, ...] = ()
    zones: tuple[tuple[str, frozenset[str]], ...] = ()
    to_bind: tuple[StorageClass, ...] = ()
    lost: bool = False
    exclusive: tuple[tuple[str, str], ...] = ()
    pinned: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


NO_NEEDS = VolumeNeeds()


def claim_names(pod: Pod) -> tuple[str, ...]:
    """The claims that the pod uses; a generic ephemeral volume's is named after the pod."""
    names = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            names.append(f"{pod.name}-{volume.name}")
    return tuple(names)


SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
"""Access modes with which a volume may be attached to several nodes (IsMultiAttachAllowed)."""


class VolumeElsewhere(NamedTuple):
    """The claim for which a pod waits, and the pod on another node that has its volume."""

    claim: str
    holder: Pod


def volumes_elsewhere(
    pods: Iterable[Pod],
    unsettled: Iterable[Pod],
    find: Callable[[str, tuple[str, str]], object],
) -> dict[str, VolumeElsewhere]:
    """Of each pod that is bound and does not run yet, by its uid: the volume that it waits for,
    since a pod that runs on another node has it. `unsettled`: those of them that do not simply run;
    `find`: an object by kind, and namespace and name.
    """
    waiting = [
        pod
        for pod in unsettled
        if pod.status.phase == "Pending" and pod.spec.node_name and pod.spec.volumes
    ]
    if not waiting:
        return {}
    users = {
        (pod.namespace, name): pod
        for pod in pods
        if pod.spec.volumes and pod.spec.node_name and pod.status.phase == "Running"
        for name in claim_names(pod)
    }
    elsewhere = {}
    for pod in waiting:
        for name in claim_names(pod):
            key = (pod.namespace, name)
            holder, claim = users.get(key), find("PersistentVolumeClaim", key)
            if holder is None or holder.spec.node_name == pod.spec.node_name:
                continue
            if isinstance(claim, PersistentVolumeClaim) and attaches_to_one(claim):
                elsewhere[pod.uid] = VolumeElsewhere(name, holder)
    return elsewhere


def attaches_to_one(claim: PersistentVolumeClaim) -> bool:
    """True if the claim's volume is attached to one node at a time."""
    modes = claim.spec.access_modes
    return bool(modes) and SHARED_MODES.isdisjoint(modes)


def volume_needs(pod: Pod, volumes: Volumes, *, created_anew: bool = False) -> VolumeNeeds:
    """The demands of the pod's claims on a node.

    `created_anew`: for a pod that will be made, whose ephemeral claims will be made with it and so
    bind wherever their class lets them.
    """
    if not any(v.persistent_volume_claim or v.ephemeral for v in pod.spec.volumes):
        return NO_NEEDS
    needs = NO_NEEDS
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            needs = _with_claim(
                needs, pod.namespace, volume.persistent_volume_claim.claim_name, volumes
            )
        elif volume.ephemeral is not None and not created_anew:
            needs = _with_claim(needs, pod.namespace, f"{pod.name}-{volume.name}", volumes)
    return needs


def _with_claim(needs: VolumeNeeds, namespace: str, name: str, volumes: Volumes) -> VolumeNeeds:
    claim = volumes.claim(namespace, name)
    if claim is None:
        if not volumes.volumes_read():
            return needs._replace(unknown=(*needs.unknown, name))
        return needs._replace(nowhere=f'persistentvolumeclaim "{name}" not found')
    if claim.status.phase == "Lost":
        lost = claim.spec.volume_name
        why = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{lost}"'
        return needs._replace(nowhere=why)
    if claim.metadata.deletion_timestamp is not None:
        return needs._replace(nowhere=f'persistentvolumeclaim "{name}" is being deleted')
    if READ_WRITE_ONCE_POD in claim.spec.access_modes:
        needs = needs._replace(exclusive=(*needs.exclusive, (namespace, name)))
    if not claim.spec.volume_name:
        return _with_unbound(needs, claim, volumes)
    volume = volumes.volume(claim.spec.volume_name)
    if volume is not None:
        return _with_volume(needs, volume)
    if not volumes.volumes_read():
        return needs._replace(unknown=(*needs.unknown, name))
    return needs._replace(lost=True)


def _with_unbound(
    needs: VolumeNeeds, claim: PersistentVolumeClaim, volumes: Volumes
) -> VolumeNeeds:
    class_name = claim.spec.storage_class_name or ""
    class_ = volumes.storage_class(class_name) if class_name else None
    if class_ is not None and class_.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        return needs._replace(to_bind=(*needs.to_bind, class_))
    if class_ is None and class_name and not volumes.volumes_read():
        return needs._replace(unknown=(*needs.unknown, claim.name))
    return needs._replace(nowhere=REASON_UNBOUND)


def _with_volume(needs: VolumeNeeds, volume: PersistentVolume) -> VolumeNeeds:
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        needs = needs._replace(affinities=(*needs.affinities, affinity.required))
        if _names_hosts(affinity.required):
            needs = needs._replace(pinned=(*needs.pinned, volume.name))
    labels = volume.metadata.labels or _NO_LABELS
    zones = tuple(
        (key, frozenset(labels[key].split("__"))) for key in _ZONE_LABELS if key in labels
    )
    return needs._replace(zones=needs.zones + zones)


def _names_hosts(selector: NodeSelector) -> bool:
    """True if the volume's affinity is to named nodes, as that of a local disk is."""
    return any(
        requirement.key == LABEL_HOSTNAME
        for term in selector.node_selector_terms
        for requirement in term.match_expressions
    ) or any(term.match_fields for term in selector.node_selector_terms)


def volume_reason(needs: VolumeNeeds, node: Node, volumes: Volumes) -> str | None:
    """Why the claims keep the pod off the node, or None."""
    if needs is NO_NEEDS:
        return None
    if needs.lost:
        return REASON_NO_VOLUME
    if not all(matches_node_selector(affinity, node) for affinity in needs.affinities):
        return REASON_NODE_CONFLICT
    if not all(_can_bind(class_, node, volumes) for class_ in needs.to_bind):
        return REASON_BIND_CONFLICT
    labels = node.metadata.labels or _NO_LABELS
    if needs.zones and any(key in labels for key in _ZONE_LABELS):
        for key, values in needs.zones:
            value = labels.get(key, labels.get(_STABLE_LABEL.get(key, key)))
            if value not in values:
                return REASON_ZONE
    return None


def _can_bind(class_: StorageClass, node: Node, volumes: Volumes) -> bool:
    """True if a claim of the class can be bound for a pod on the node."""
    for volume in volumes.free_volumes(class_.name):
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return True
        if matches_node_selector(affinity.required, node):
            return True
    if class_.provisioner == NO_PROVISIONER:
        return False
    labels = node.metadata.labels or _NO_LABELS
    return not class_.allowed_topologies or any(
        term.match_label_expressions  # an empty term matches nothing
        and all(labels.get(e.key) in e.values for e in term.match_label_expressions)
        for term in class_.allowed_topologies
    )
