"""The scheduler's filters for one pod: on which nodes it fits, and why not on the others.

Follows kube-scheduler's default filter plugins in their order: NodeUnschedulable, TaintToleration,
NodeAffinity, NodePorts, NodeResourcesFit, the volume plugins, PodTopologySpread, InterPodAffinity.
The first plugin that refuses a node says why. Scores are left out: which of the nodes that fit is
taken is the caller's choice.

`NodeInfo` is the room that a node has for one more pod: resources, the pod limit, host ports. It
follows kube-scheduler framework `NodeInfo` and `HostPortInfo` and plugins/noderesources
(`fitsRequest`); amounts are those of `kube.quantity`. Left out: dynamic resource claims.

`VolumeNeeds` is where a pod's volumes allow it: bound volumes' node affinity and zones, claims not
bound yet. It follows plugins/volumebinding (`PreFilter`, `FindPodVolumes`), volumezone and
volumerestrictions (ReadWriteOncePod). Left out: limits on attached volumes, storage capacity,
volumes that are reserved for a claim by name, and which of several free volumes a claim would take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import NodeSelector, Pod
from kubectl_nodelife.kube.quantity import ASSUMED_REQUESTS, Amounts, amounts, pod_requests
from kubectl_nodelife.kube.selectors import matches_node_selector, matches_required_node_affinity
from kubectl_nodelife.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubectl_nodelife.kube.taints import find_matching_untolerated_taint, first_tolerating
from kubectl_nodelife.kube.wellknown import (
    LABEL_HOSTNAME,
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
    NO_EXECUTE,
    NO_SCHEDULE,
    TAINT_NODE_UNSCHEDULABLE,
)
from kubectl_nodelife.workloads.topology import InterPodAffinity, TopologySpread

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


def claim_names(pod: Pod, *, ephemeral: bool = True) -> tuple[str, ...]:
    """The claims that the pod uses; a generic ephemeral volume's is named after the pod."""
    names = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif ephemeral and volume.ephemeral is not None:
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
    needs = NO_NEEDS
    for name in claim_names(pod, ephemeral=not created_anew):
        needs = _with_claim(needs, pod.namespace, name, volumes)
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


PODS = "pods"
_ALL_ADDRESSES = "0.0.0.0"

HostPort = tuple[str, str, int]
"""(host IP, protocol, port)"""

CpuAndMemory = tuple[int, int]
"""In thousandths and bytes."""


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports that the pod's containers take, sidecars with them."""
    spec = pod.spec
    containers = spec.containers
    match containers:
        case [only] if not (only.ports or spec.init_containers):
            return ()  # as of most pods
    ports = []
    if spec.init_containers:
        containers += tuple(c for c in spec.init_containers if c.restart_policy == "Always")
    for container in containers:
        for port in container.ports:
            if port.host_port > 0:
                address, protocol = port.host_ip or _ALL_ADDRESSES, port.protocol or "TCP"
                ports.append((address, protocol, port.host_port))
    return tuple(ports)


class NodeInfo:
    """A node, and the sum of what its pods take: of none at first (`pod_classes.stock` counts).

    Terminating pods count until they are gone.

    `free`: what is left of each resource that the node has. `scored`: NonZeroRequested.
    """

    __slots__ = (
        "_most_pods", "allocatable", "free", "node", "pod_count", "ports", "requested", "scored",
    )  # fmt: skip

    def __init__(self, node: Node) -> None:
        self.node = node
        self.allocatable = amounts(node.status.allocatable)
        self._most_pods = self.allocatable.get(PODS, 0)
        self.requested: Amounts = {}
        self.free = dict(self.allocatable)
        self.scored = (0, 0)
        self.pod_count = 0
        self.ports: dict[HostPort, int] = {}

    def copy(self) -> NodeInfo:
        """One of its own with the same counts."""
        copy = NodeInfo.__new__(NodeInfo)
        copy.node, copy.allocatable, copy._most_pods = self.node, self.allocatable, self._most_pods
        copy.requested, copy.free = dict(self.requested), dict(self.free)
        copy.ports, copy.pod_count, copy.scored = dict(self.ports), self.pod_count, self.scored
        return copy

    def add(
        self,
        requests: Mapping[str, int],
        ports: Iterable[HostPort] = (),
        pods: int = 1,
        scored: CpuAndMemory = (0, 0),
    ) -> None:
        """Add so many pods with these requests and ports each; `scored`: `PodRequirements`."""
        self.pod_count += pods
        cpu, memory = self.scored
        self.scored = (cpu + pods * scored[0], memory + pods * scored[1])
        requested, free = self.requested, self.free
        for name, amount in requests.items():
            taken = amount * pods
            requested[name] = requested.get(name, 0) + taken
            if name in free:
                free[name] -= taken
        for port in ports:
            self.ports[port] = self.ports.get(port, 0) + pods

    def remove(
        self,
        requests: Mapping[str, int],
        ports: Iterable[HostPort] = (),
        scored: CpuAndMemory = (0, 0),
    ) -> None:
        """Remove a pod with these requests and ports."""
        self.pod_count -= 1
        self.scored = (self.scored[0] - scored[0], self.scored[1] - scored[1])
        free = self.free
        for name, amount in requests.items():
            self.requested[name] -= amount
            if name in free:
                free[name] += amount
        for port in ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]

    def shortages(self, requests: Mapping[str, int]) -> list[str]:
        """The resources that the node is short of, in upstream's words. Follows `fitsRequest`."""
        free = self.free
        short = [] if self.pod_count < self._most_pods else ["Too many pods"]
        for name, amount in requests.items():
            if amount > 0 and (name not in free or amount > free[name]):
                short.append(f"Insufficient {name}")
        return short

    def port_taken(self, wanted: Iterable[HostPort]) -> bool:
        """True if one of the host ports is taken. Follows `HostPortInfo.CheckConflict`."""
        for ip, protocol, port in wanted:
            for taken_ip, taken_protocol, taken_port in self.ports:
                if (protocol, port) != (taken_protocol, taken_port):
                    continue
                if ip in (taken_ip, _ALL_ADDRESSES) or taken_ip == _ALL_ADDRESSES:
                    return True
        return False


REASON_UNSCHEDULABLE = "node(s) were unschedulable"
REASON_TAINT = "node(s) had untolerated taint(s)"
REASON_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
REASON_PORTS = "node(s) didn't have free ports for the requested pod ports"

_UNSCHEDULABLE = Taint(key=TAINT_NODE_UNSCHEDULABLE, effect=NO_SCHEDULE)
_DO_NOT_SCHEDULE = frozenset({NO_SCHEDULE, NO_EXECUTE})


@dataclass(slots=True, eq=False)
class PodRequirements:
    """The demands of one pod, or of every pod of one template, on a node.

    `spread` and `interpod` are None where the pod has nothing to do with them; they hold counts
    that the caller keeps up as pods come and go. `needs` differ between a StatefulSet's pods.
    `scored`: requests, with something for containers that name none; only scores look at it.
    """

    pod: Pod
    spread: TopologySpread | None = None
    interpod: InterPodAffinity | None = None
    needs: VolumeNeeds = NO_NEEDS
    volumes: Volumes | None = None
    requests: Mapping[str, int] = field(init=False)
    scored: CpuAndMemory = field(init=False)
    ports: tuple[HostPort, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.requests, self.ports = pod_requests(self.pod), host_ports(self.pod)
        scored = pod_requests(self.pod, ASSUMED_REQUESTS)
        self.scored = (scored.get("cpu", 0), scored.get("memory", 0))


def static_reason(pod: Pod, node: Node) -> str | None:
    """Why the pod may never go to the node as it is, whatever runs there; None if it may.

    The cordon, taints, node selector and node affinity.
    """
    if node.spec.unschedulable and first_tolerating(pod.spec.tolerations, _UNSCHEDULABLE) is None:
        return REASON_UNSCHEDULABLE
    taints = node.spec.taints
    if taints and (
        find_matching_untolerated_taint(taints, pod.spec.tolerations, _DO_NOT_SCHEDULE) is not None
    ):
        return REASON_TAINT
    if not matches_required_node_affinity(pod.spec, node):
        return REASON_AFFINITY
    return None


def room_reasons(wanted: PodRequirements, info: NodeInfo) -> list[str]:
    """Why there is no room on the node now, given what runs there and elsewhere; empty if there is.

    Everything but `static_reason`.
    """
    short = resource_reasons(wanted, info)
    if short:
        return short
    reason = rule_reason(wanted, info.node)
    return [] if reason is None else [reason]


def resource_reasons(wanted: PodRequirements, info: NodeInfo) -> list[str]:
    """The shortages of the node itself: host ports, or resources; empty for none."""
    if wanted.ports and info.port_taken(wanted.ports):
        return [REASON_PORTS]
    return info.shortages(wanted.requests)


def rule_reason(wanted: PodRequirements, node: Node) -> str | None:
    """Why volumes, the spread, or other pods keep the pod off the node now, or None."""
    if wanted.needs is not NO_NEEDS and wanted.volumes is not None:
        reason = volume_reason(wanted.needs, node, wanted.volumes)
        if reason is not None:
            return reason
    if wanted.spread is not None:
        reason = wanted.spread.reason(node)
        if reason is not None:
            return reason
    return wanted.interpod.reason(node) if wanted.interpod is not None else None


def fits(wanted: PodRequirements, info: NodeInfo) -> list[str]:
    """Why the pod does not fit the node, in upstream's words; empty if it does.

    `needs.nowhere` is about all nodes at once; the caller checks it first.
    """
    reason = static_reason(wanted.pod, info.node)
    return [reason] if reason is not None else room_reasons(wanted, info)
