"""Slices of what binds a pod's data to a place: claims, volumes and storage classes."""

from __future__ import annotations

from kubectl_nodelife.kube.meta import ApiStruct, KubeObject
from kubectl_nodelife.kube.pod import NodeSelector, VolumePresence


class PersistentVolumeClaimSpec(ApiStruct, frozen=True):
    """`core/v1.PersistentVolumeClaimSpec`. `volume_name` "" means that the claim is unbound."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()


class PersistentVolumeClaimStatus(ApiStruct, frozen=True):
    """`core/v1.PersistentVolumeClaimStatus`."""

    phase: str = ""


class PersistentVolumeClaim(KubeObject, frozen=True):
    """`core/v1.PersistentVolumeClaim`."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class VolumeNodeAffinity(ApiStruct, frozen=True):
    """`core/v1.VolumeNodeAffinity`."""

    required: NodeSelector | None = None


class ClaimReference(ApiStruct, frozen=True):
    """The `claimRef` of a volume: which claim has it, or may have it."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(ApiStruct, frozen=True):
    """`core/v1.PersistentVolumeSpec`: where it can be used, and whether it is a local disk."""

    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    claim_ref: ClaimReference | None = None
    local: VolumePresence | None = None
    host_path: VolumePresence | None = None


class PersistentVolume(KubeObject, frozen=True):
    """`core/v1.PersistentVolume`."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologySelectorLabelRequirement(ApiStruct, frozen=True):
    """`core/v1.TopologySelectorLabelRequirement`."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(ApiStruct, frozen=True):
    """`core/v1.TopologySelectorTerm`."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(KubeObject, frozen=True):
    """`storage.k8s.io/v1.StorageClass`."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeAttachmentSource(ApiStruct, frozen=True):
    """`storage.k8s.io/v1.VolumeAttachmentSource`; an inline volume has no name."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(ApiStruct, frozen=True):
    """`storage.k8s.io/v1.VolumeAttachmentSpec`."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachmentStatus(ApiStruct, frozen=True):
    """`storage.k8s.io/v1.VolumeAttachmentStatus`."""

    attached: bool = False


class VolumeAttachment(KubeObject, frozen=True):
    """`storage.k8s.io/v1.VolumeAttachment`: a drain is over when these are gone too."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


class CSINodeDriver(ApiStruct, frozen=True):
    """`storage.k8s.io/v1.CSINodeDriver`."""

    name: str = ""


class CSINodeSpec(ApiStruct, frozen=True):
    """`storage.k8s.io/v1.CSINodeSpec`."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(KubeObject, frozen=True):
    """`storage.k8s.io/v1.CSINode`: the CSI drivers that have registered with a node's kubelet."""

    spec: CSINodeSpec = CSINodeSpec()
