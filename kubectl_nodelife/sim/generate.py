"""Synthetic clusters of any size, the same for the same seed.

Nodes are called a1, a2, … b1, … after their zones and stand in the order a1, b1, c1, a2, …; pods
belong to workloads of a few to a few dozen replicas that spread over the nodes in that order, and
each node holds exactly `podsPerNode` of them, daemon pods included. What repeats is shared between
objects, so that 150,000 pods take about a second and some hundred bytes each.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.kube import wellknown, workload
from kubectl_nodelife.kube.meta import (
    KubeObject,
    LabelSelector,
    MicroTime,
    ObjectMeta,
    OwnerReference,
    Time,
    new_controller_ref,
)
from kubectl_nodelife.kube.node import (
    Lease,
    LeaseMeta,
    LeaseSpec,
    Node,
    NodeCondition,
    NodeMeta,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
)
from kubectl_nodelife.kube.pod import (
    Container,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
)
from kubectl_nodelife.kube.service import Service, ServiceSpec
from kubectl_nodelife.kube.times import HOUR_NS, MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.sim.api import TEMPLATE_GENERATION, as_created, made_uid

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_REGION = "r1"
_AGE_NS = 24 * HOUR_NS

_CONDITIONS = (
    ("Ready", "True", "KubeletReady"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
)

GENERATED_KINDS = frozenset(
    {"Node", "Pod", "DaemonSet", "ControllerRevision", "ReplicaSet", "StatefulSet", "Job"}
    | {"Service", "PodDisruptionBudget"}
)

# of a hundred workloads: kind -> how many
_MIX = (("ReplicaSet", 80), ("StatefulSet", 12), ("Job", 6), ("", 2))


class Generate(msgspec.Struct, frozen=True):
    """The size of a generated cluster. `toleration_seconds`: for how long most pods tolerate a lost
    node; `nodes`: at most so many, the last zones being one smaller; 0 for all. `services`,
    `budgets`: so many of the first workloads have one; a budget lets one pod go. `replicas`: of
    each workload; 0: a few, seldom some dozens.
    """

    zones: int = 3
    nodes_per_zone: int = 20
    nodes: int = 0
    pods_per_node: int = 30
    daemon_sets: int = 3
    seed: int = 1
    toleration_seconds: int = 300
    services: int = 0
    budgets: int = 0
    replicas: int = 0


def generate(wanted: Generate, start_ns: int, kubelet_version: str) -> Iterator[KubeObject]:
    """All objects of the cluster as it stands at t=0."""
    return _Maker(wanted, start_ns, kubelet_version).objects()


def with_leases(objects: Iterable[KubeObject], start_ns: int) -> Iterator[KubeObject]:
    """The same with a Lease for each node, renewed at a moment of its own less than 10 s before
    t=0, and with conditions that were posted a second before that."""
    number = 0
    for obj in objects:
        if not isinstance(obj, Node):
            yield obj
            continue
        number += 1
        age_ns = (1000 + number * 7919 % 8999) * MILLISECOND_NS
        yield _posted(obj, start_ns - age_ns - SECOND_NS)
        spec = LeaseSpec(
            holder_identity=obj.name,
            lease_duration_seconds=40,
            renew_time=MicroTime(start_ns - age_ns),
        )
        yield Lease(metadata=LeaseMeta(name=obj.name, namespace="kube-node-lease"), spec=spec)


def _posted(node: Node, at_ns: int) -> Node:
    conditions = tuple(replace(c, last_heartbeat_time=Time(at_ns)) for c in node.status.conditions)
    return replace(node, status=replace(node.status, conditions=conditions))


def zone_name(number: int) -> str:
    """a, b, … z, aa, ab, …"""
    name = ""
    while number >= 0:
        name = _LETTERS[number % 26] + name
        number = number // 26 - 1
    return name


class _Maker:
    def __init__(self, wanted: Generate, start_ns: int, kubelet_version: str) -> None:
        self._wanted = wanted
        self._random = random.Random(wanted.seed)
        self._made = Time(start_ns - _AGE_NS)
        self._version = kubelet_version
        self._uids = 0
        self._tolerations = {
            seconds: _tolerations(seconds) for seconds in (wanted.toleration_seconds, 30, None)
        }
        self._running = PodStatus(
            phase="Running",
            conditions=tuple(
                PodCondition(type=type_, status="True", last_transition_time=self._made)
                for type_ in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ),
            start_time=self._made,
        )

    def objects(self) -> Iterator[KubeObject]:
        wanted = self._wanted
        names = []
        for number in range(wanted.nodes or wanted.zones * wanted.nodes_per_zone):
            zone = zone_name(number % wanted.zones)
            names.append(f"{zone}{number // wanted.zones + 1}")
            yield self._node(names[-1], zone)
        if not names:
            return
        daemons = min(wanted.daemon_sets, wanted.pods_per_node)
        for number in range(daemons):
            yield from self._daemon_set(number, names)
        slots = (name for _ in range(wanted.pods_per_node - daemons) for name in names)
        unmade = len(names) * (wanted.pods_per_node - daemons)
        number = 0
        while unmade:
            size = min(unmade, self._size())
            yield from self._workload(number, [next(slots) for _ in range(size)])
            unmade -= size
            number += 1

    def _size(self) -> int:
        """Replicas of a workload."""
        if self._wanted.replicas:
            return self._wanted.replicas
        return min(48, 1 + int(self._random.expovariate(1 / 8)))

    def _uid(self) -> str:
        self._uids += 1
        return made_uid(self._uids, 0x5EED)

    def _node(self, name: str, zone: str) -> Node:
        labels = {
            wellknown.LABEL_HOSTNAME: name,
            wellknown.LABEL_OS: "linux",
            wellknown.LABEL_OS_BETA: "linux",
            wellknown.LABEL_ARCH: "amd64",
            wellknown.LABEL_ARCH_BETA: "amd64",
            wellknown.LABEL_ZONE: zone,
            wellknown.LABEL_ZONE_BETA: zone,
            wellknown.LABEL_REGION: _REGION,
            wellknown.LABEL_REGION_BETA: _REGION,
        }
        pods = str(max(110, self._wanted.pods_per_node * 2))
        capacity: dict[str, str | int | float] = {"cpu": "32", "memory": "128Gi", "pods": pods}
        return Node(
            metadata=NodeMeta(
                name=name, uid=self._uid(), creation_timestamp=self._made, labels=labels
            ),
            spec=NodeSpec(),
            status=NodeStatus(
                conditions=tuple(
                    NodeCondition(t, s, r, "", self._made, self._made) for t, s, r in _CONDITIONS
                ),
                capacity=capacity,
                allocatable=capacity,
                node_info=NodeSystemInfo(kubelet_version=self._version),
            ),
        )

    def _daemon_set(self, number: int, nodes: list[str]) -> Iterator[KubeObject]:
        """A DaemonSet as its controller leaves it: with a revision, and a pod on each node."""
        name, namespace = f"agent-{number}", "kube-system"
        labels = {"app": name}
        image = f"registry.example/{name}:1"
        template: dict[str, Any] = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": image}]},
        }
        annotations = {TEMPLATE_GENERATION: "1"}
        meta = self._meta(name, namespace, labels)
        count = len(nodes)
        daemon_set = workload.DaemonSet(
            metadata=replace(meta, annotations=annotations),
            spec=workload.DaemonSetSpec(
                selector=LabelSelector(match_labels=labels), template=template
            ),
            status=workload.DaemonSetStatus(
                current_number_scheduled=count,
                desired_number_scheduled=count,
                number_ready=count,
                observed_generation=1,
                updated_number_scheduled=count,
                number_available=count,
            ),
        )
        daemon_set = as_created(daemon_set)
        yield daemon_set
        owners = (new_controller_ref("DaemonSet", daemon_set),)
        hashed = {**labels, wellknown.LABEL_CONTROLLER_REVISION_HASH: f"{number:05d}"}
        yield workload.ControllerRevision(
            metadata=replace(
                self._meta(f"{name}-{number:05d}", namespace, hashed),
                owner_references=owners,
                annotations=annotations,
            ),
            data={"spec": {"template": {**template, "$patch": "replace"}}},
            revision=1,
        )
        pod_labels = {**hashed, wellknown.LABEL_POD_TEMPLATE_GENERATION: "1"}
        spec = PodSpec(
            tolerations=_DAEMON_TOLERATIONS,
            termination_grace_period_seconds=30,
            restart_policy="Always",
            containers=(Container(name="main", image=image),),
        )
        for node in nodes:
            yield self._pod(f"{name}-{self._uids:07x}", namespace, pod_labels, owners, spec, node)

    def _workload(self, number: int, nodes: list[str]) -> Iterator[KubeObject]:
        """An owner and its pods on these nodes, or one pod without an owner."""
        kind = self._random.choices([k for k, _ in _MIX], [share for _, share in _MIX])[0]
        seconds = self._random.choices((self._wanted.toleration_seconds, 30, None), (94, 4, 2))[0]
        app = f"app-{number:04d}"
        namespace = f"team-{number % 7}"
        labels = {"app": app}
        spec = PodSpec(
            tolerations=self._tolerations[seconds],
            termination_grace_period_seconds=30,
            restart_policy="Never" if kind == "Job" else "Always",
            containers=(
                Container(
                    name="main",
                    image=f"registry.example/{app}:1",
                    resources=ResourceRequirements(requests={"cpu": "100m", "memory": "128Mi"}),
                ),
            ),
        )
        owners: tuple[OwnerReference, ...] = ()
        if kind:
            owner = self._owner(kind, app, namespace, labels, len(nodes))
            version = "batch/v1" if kind == "Job" else "apps/v1"
            owners = (new_controller_ref(kind, owner, version),)
            yield owner
        if number < self._wanted.services:
            meta = self._meta(app, namespace, labels)
            yield Service(metadata=meta, spec=ServiceSpec(selector=labels))
        if number < self._wanted.budgets:
            selector = LabelSelector(match_labels=labels)
            rule = workload.PodDisruptionBudgetSpec(max_unavailable=1, selector=selector)
            yield workload.PodDisruptionBudget(
                metadata=self._meta(app, namespace, labels), spec=rule
            )
        for i, node in enumerate(nodes):
            name = f"{app}-{i}" if kind == "StatefulSet" else f"{app}-{self._uids:07x}"
            yield self._pod(name, namespace, labels, owners, spec, node)

    def _owner(
        self, kind: str, name: str, namespace: str, labels: dict[str, str], size: int
    ) -> KubeObject:
        meta = self._meta(name, namespace, labels)
        if kind == "Job":
            return workload.Job(
                metadata=meta, spec=workload.JobSpec(parallelism=size, completions=size)
            )
        scale = workload.ScaleSpec(replicas=size, selector=LabelSelector(match_labels=labels))
        if kind == "StatefulSet":
            return workload.StatefulSet(metadata=meta, spec=scale)
        return workload.ReplicaSet(metadata=meta, spec=scale)

    def _meta(self, name: str, namespace: str, labels: dict[str, str]) -> ObjectMeta:
        return ObjectMeta(
            name=name,
            namespace=namespace,
            uid=self._uid(),
            creation_timestamp=self._made,
            labels=labels,
            generation=1,
        )

    def _pod(
        self,
        name: str,
        namespace: str,
        labels: dict[str, str],
        owners: tuple[OwnerReference, ...],
        spec: PodSpec,
        node: str,
    ) -> Pod:
        return Pod(
            metadata=ObjectMeta(
                name=name,
                namespace=namespace,
                uid=self._uid(),
                creation_timestamp=self._made,
                labels=labels,
                owner_references=owners,
            ),
            spec=replace(spec, node_name=node),
            status=self._running,
        )


def _tolerations(seconds: int | None) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=key, operator="Exists", effect=wellknown.NO_EXECUTE, toleration_seconds=seconds
        )
        for key in (wellknown.TAINT_NODE_NOT_READY, wellknown.TAINT_NODE_UNREACHABLE)
    )


_DAEMON_TOLERATIONS = (
    *_tolerations(None),
    *(
        Toleration(key=key, operator="Exists", effect=wellknown.NO_SCHEDULE)
        for key in (
            wellknown.TAINT_NODE_DISK_PRESSURE,
            wellknown.TAINT_NODE_MEMORY_PRESSURE,
            wellknown.TAINT_NODE_PID_PRESSURE,
            wellknown.TAINT_NODE_UNSCHEDULABLE,
        )
    ),
)
