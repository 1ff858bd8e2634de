"""Slices of Node and Lease, and the zone and the pool that a node belongs to by its labels.

Zones follow component-helpers/node/topology/helpers.go (`GetZoneKey`). The key holds a NUL byte, as
upstream's does; `zone_display` makes it fit for people. A pool is named by labels that clouds and
autoscalers put on nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import field

from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.field_managers import NOBODY, FieldManagers
from kubectl_nodelife.kube.meta import (
    ApiStruct,
    BaseCondition,
    Int64,
    KubeObject,
    MicroTime,
    ObjectMeta,
    Time,
)


class NodeMeta(ObjectMeta, frozen=True):
    """`metav1.ObjectMeta` of a node, with what its managedFields show."""

    managed_fields: FieldManagers = NOBODY


class Taint(ApiStruct, frozen=True):
    """`core/v1.Taint`. Two taints are the same taint when key and effect agree (`MatchTaint`)."""

    key: str = ""
    effect: str = ""
    value: str = ""
    time_added: Time | None = None

    def matches(self, other: Taint) -> bool:
        """Same key and effect; value and timeAdded do not count. Follows `Taint.MatchTaint`."""
        return self.key == other.key and self.effect == other.effect

    def __str__(self) -> str:
        return f"{self.key}{'=' + self.value if self.value else ''}:{self.effect}"


class NodeCondition(BaseCondition, frozen=True):
    """`core/v1.NodeCondition`."""

    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None


class NodeSpec(ApiStruct, frozen=True):
    """`core/v1.NodeSpec`."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = field(default="", name="providerID")


class NodeSystemInfo(ApiStruct, frozen=True):
    """`core/v1.NodeSystemInfo`: the kubelet's version gives a dump's profile, and each of them may
    be what an upgrade is to change.
    """

    kubelet_version: str = ""
    boot_id: str = field(default="", name="bootID")
    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""


class AttachedVolume(ApiStruct, frozen=True):
    """`core/v1.AttachedVolume`."""

    name: str = ""


class NodeAddress(ApiStruct, frozen=True):
    """`core/v1.NodeAddress`."""

    type: str = ""
    address: str = ""


class NodeStatus(ApiStruct, frozen=True):
    """`core/v1.NodeStatus`. Quantities stay text; `kube.quantity` reads them."""

    conditions: tuple[NodeCondition, ...] = ()
    capacity: dict[str, str | int | float] | None = None
    allocatable: dict[str, str | int | float] | None = None
    node_info: NodeSystemInfo = NodeSystemInfo()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()

    def condition(self, type_: str) -> NodeCondition | None:
        """The first condition of that type, or None. Follows upstream's `GetNodeCondition`."""
        for condition in self.conditions:
            if condition.type == type_:
                return condition
        return None


class Node(KubeObject, frozen=True):
    """`core/v1.Node`. One that was made here may have the plain ObjectMeta."""

    metadata: NodeMeta = NodeMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def managers(self) -> FieldManagers:
        """Who wrote its taints, its cordon and its lifecycle conditions last."""
        return getattr(self.metadata, "managed_fields", NOBODY)

    def ready(self) -> NodeCondition | None:
        """The Ready condition, or None where the node has none."""
        return self.status.condition("Ready")

    @property
    def is_ready(self) -> bool:
        """True if its Ready condition is True; a node without one is not Ready."""
        ready = self.status.condition("Ready")
        return ready is not None and ready.status == "True"

    def has_taint(self, key: str, effect: str) -> bool:
        """True if spec.taints holds a taint of that key and effect."""
        return any(t.key == key and t.effect == effect for t in self.spec.taints)


class LeaseSpec(ApiStruct, frozen=True):
    """`coordination.k8s.io/v1.LeaseSpec`."""

    holder_identity: str | None = None
    lease_duration_seconds: Int64 | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: Int64 | None = None


class LeaseWriteFields(ApiStruct, frozen=True, rename={"spec": "f:spec"}):
    """`fieldsV1` of a Lease's managedFields: which fields of the spec the writer owns."""

    spec: dict[str, Any] | None = None


class LeaseWrite(ApiStruct, frozen=True):
    """An entry of a Lease's managedFields; its time stays as text, since few are ever read."""

    manager: str = ""
    time: str = ""
    fields_v1: LeaseWriteFields = field(default=LeaseWriteFields(), name="fieldsV1")

    @property
    def renews(self) -> bool:
        """True if the entry is that of the client which sets renewTime."""
        return "f:renewTime" in (self.fields_v1.spec or ())


class LeaseMeta(ObjectMeta, frozen=True):
    """`metav1.ObjectMeta` of a Lease, with the writers that its managedFields show."""

    managed_fields: tuple[LeaseWrite, ...] = ()


class Lease(KubeObject, frozen=True):
    """`coordination.k8s.io/v1.Lease`; those in `kube-node-lease` are the nodes' heartbeats."""

    metadata: LeaseMeta = LeaseMeta()
    spec: LeaseSpec = LeaseSpec()

    def touched(self) -> LeaseWrite | None:
        """The newest write since the last one that set renewTime; None where there is none, or its
        writer is not known. By the API server's clock, in whole seconds.
        """
        writes = self.metadata.managed_fields
        if len(writes) < 2:  # as of nearly every Lease
            return None
        renewed = max((write.time for write in writes if write.renews), default="")
        later = [write for write in writes if not write.renews and write.time > renewed]
        return max(later, key=lambda write: write.time) if renewed and later else None


_SEPARATOR = ":\x00:"

POOL_LABELS: Final = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
    "node.kubernetes.io/pool",
    "pool",
)
"""Labels that name a node's pool, in the order in which they are looked for."""


def zone_key(labels: Mapping[str, str] | None, *, beta_only: bool = False) -> str:
    """The zone key of a node with these labels; "" where it has neither region nor zone.

    Region and zone are looked up apart: the beta label where it is present, even if it is empty,
    else the stable one. `beta_only` is how it was until 1.16, when only the beta labels counted.
    """
    if not labels:
        return ""
    region = labels.get(wellknown.LABEL_REGION_BETA)
    if region is None:
        region = "" if beta_only else labels.get(wellknown.LABEL_REGION, "")
    zone = labels.get(wellknown.LABEL_ZONE_BETA)
    if zone is None:
        zone = "" if beta_only else labels.get(wellknown.LABEL_ZONE, "")
    return region + _SEPARATOR + zone if region or zone else ""


def zone_display(key: str) -> str:
    """The key for people: `region/zone`, the one part that there is, or "" for nodes without a
    zone.
    """
    region, _, zone = key.partition(_SEPARATOR)
    return "/".join(part for part in (region, zone) if part)


def pool_of(labels: Mapping[str, str] | None, pool_label: str | None = None) -> tuple[str, str]:
    """The label that names the node's pool, and the pool; two empty strings where none does.

    `pool_label`: the only label to look for.
    """
    for label in (pool_label,) if pool_label else POOL_LABELS:
        if labels and label in labels:
            return label, labels[label]
    return "", ""


def kubelet_versions(nodes: Iterable[object]) -> list[str]:
    """The versions that the kubelets of these nodes report."""
    infos = [node.status.node_info for node in nodes if isinstance(node, Node)]
    return [info.kubelet_version for info in infos if info.kubelet_version]
