"""A synthetic cluster for the drain planner: zones, Deployments, StatefulSets, DaemonSets, budgets.

Not a bench. Objects are made directly, without JSON, and the same seed makes the same cluster.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import (
    KubeObject,
    LabelSelector,
    MicroTime,
    ObjectMeta,
    OwnerReference,
    Time,
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
)
from kubectl_nodelife.kube.pod import (
    Container,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import (
    Condition,
    ControllerRevision,
    DaemonSet,
    DaemonSetSpec,
    DaemonSetStatus,
    Deployment,
    DeploymentSpec,
    Namespace,
    NamespaceStatus,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    ReplicaSet,
    ScaleSpec,
    StatefulSet,
)
from kubectl_nodelife.sim.api import as_created

NOW_NS = 1_790_000_000 * SECOND_NS
DAEMON_SETS = 3
_CREATED = Time(NOW_NS - 86_400 * SECOND_NS)


def cluster(
    nodes: int, pods: int, budgets: int, seed: int, *, zones: int = 3, namespaces: int = 20
) -> PlanSnapshot:
    """A healthy cluster of that size, with every kind read."""
    return PlanSnapshot(_Maker(nodes, pods, budgets, seed, zones, namespaces).objects(), NOW_NS)


class _Maker:
    def __init__(
        self, nodes: int, pods: int, budgets: int, seed: int, zones: int, namespaces: int
    ) -> None:
        self._random = random.Random(seed)
        self._nodes = [f"node-{i:05d}" for i in range(nodes)]
        self._zones = zones
        self._pods = pods
        self._budgets = budgets
        self._namespaces = [f"team-{i:02d}" for i in range(namespaces)]
        self._free = list(self._nodes)

    def objects(self) -> Iterator[KubeObject]:
        for name in self._namespaces:
            yield Namespace(metadata=_meta(name), status=NamespaceStatus(phase="Active"))
        for i, name in enumerate(self._nodes):
            yield _node(name, f"zone-{i % self._zones}")
            yield _lease(name)
        made = 0
        for number in range(DAEMON_SETS):
            for obj in self._daemon_set(f"agent-{number}"):
                made += isinstance(obj, Pod)
                yield obj
        number = 0
        while made < self._pods:
            for obj in self._workload(number, self._pods - made):
                made += isinstance(obj, Pod)
                yield obj
            number += 1

    def _daemon_set(self, name: str) -> Iterator[KubeObject]:
        """A DaemonSet as its controller leaves it: with a revision, and a pod on each node."""
        owner = _owner("apps/v1", "DaemonSet", name)
        labels = {"app": name}
        template: dict[str, Any] = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "app", "image": f"registry.example/{name}:1"}]},
        }
        count = len(self._nodes)
        yield as_created(
            DaemonSet(
                metadata=_meta(name, "kube-system", uid=owner.uid, labels=labels, generation=1),
                spec=DaemonSetSpec(selector=LabelSelector(match_labels=labels), template=template),
                status=DaemonSetStatus(
                    current_number_scheduled=count,
                    desired_number_scheduled=count,
                    number_ready=count,
                    observed_generation=1,
                    updated_number_scheduled=count,
                    number_available=count,
                ),
            )
        )
        containers = _containers("50m")
        hashed = {**labels, LABEL_CONTROLLER_REVISION_HASH: "abc"}
        yield ControllerRevision(
            metadata=_meta(f"{name}-abc", "kube-system", owners=(owner,), labels=hashed),
            data={"spec": {"template": {**template, "$patch": "replace"}}},
            revision=1,
        )
        for node in self._nodes:
            yield self._pod(f"{name}-{node}", "kube-system", hashed, owner, node, containers, 5)

    def _workload(self, number: int, most: int) -> Iterator[KubeObject]:
        """A Deployment, or every tenth time a StatefulSet; the first ones have a budget each."""
        namespace = self._random.choice(self._namespaces)
        name = f"app-{number:05d}"
        stateful = number % 10 == 9
        replicas = self._random.choice(
            (2, 3, 3, 5, 8, 12) if stateful else (2, 3, 4, 6, 10, 20, 40)
        )
        replicas = min(replicas, most)
        kind = "StatefulSet" if stateful else "ReplicaSet"
        owner = _owner("apps/v1", kind, name if stateful else f"{name}-rs")
        meta = _meta(owner.name, namespace, uid=owner.uid)
        if stateful:
            yield StatefulSet(metadata=meta, spec=ScaleSpec(replicas=replicas))
        else:
            above = _owner("apps/v1", "Deployment", name)
            yield Deployment(
                metadata=_meta(name, namespace, uid=above.uid),
                spec=DeploymentSpec(replicas=replicas),
            )
            meta = _meta(owner.name, namespace, uid=owner.uid, owners=(above,))
            yield ReplicaSet(metadata=meta, spec=ScaleSpec(replicas=replicas))
        if number < self._budgets:
            yield self._budget(name, namespace, replicas)
        cpu = self._random.choice(("50m", "100m", "100m", "250m"))
        grace = self._random.choice((5, 10, 30, 30, 30))
        places, containers = self._spread(replicas), _containers(cpu)
        labels = {"app": name, "pod-template-hash": "abc"}
        for i in range(replicas):
            pod = f"{owner.name}-{i}" if stateful else f"{owner.name}-{i:05x}"
            yield self._pod(pod, namespace, labels, owner, places[i], containers, grace)

    def _spread(self, count: int) -> list[str]:
        """Nodes for the replicas, mostly different ones."""
        if count <= len(self._nodes) and self._random.random() < 0.9:
            return self._random.sample(self._nodes, count)
        return self._random.choices(self._nodes, k=count)

    def _budget(self, name: str, namespace: str, replicas: int) -> PodDisruptionBudget:
        allowed = max(1, self._random.choice((1, 1, 1, replicas // 10, replicas // 4)))
        return PodDisruptionBudget(
            metadata=ObjectMeta(name=name, namespace=namespace, uid=f"pdb-{name}", generation=1),
            spec=PodDisruptionBudgetSpec(
                max_unavailable=allowed, selector=LabelSelector(match_labels={"app": name})
            ),
            status=PodDisruptionBudgetStatus(
                observed_generation=1,
                disruptions_allowed=min(allowed, replicas),
                current_healthy=replicas,
                desired_healthy=max(0, replicas - allowed),
                expected_pods=replicas,
                conditions=(
                    Condition(type="DisruptionAllowed", status="True", reason="SufficientPods"),
                ),
            ),
        )

    def _pod(
        self,
        name: str,
        namespace: str,
        labels: dict[str, str],
        owner: OwnerReference,
        node: str,
        containers: tuple[Container, ...],
        grace: int,
    ) -> Pod:
        ready = Time(_CREATED + self._random.randint(3, 12) * SECOND_NS)
        return Pod(
            metadata=ObjectMeta(
                name=name,
                namespace=namespace,
                uid=f"pod-{namespace}-{name}",
                creation_timestamp=_CREATED,
                labels=labels,
                owner_references=(owner,),
            ),
            spec=PodSpec(
                node_name=node,
                termination_grace_period_seconds=grace,
                containers=containers,
            ),
            status=PodStatus(
                phase="Running",
                conditions=(PodCondition(type="Ready", status="True", last_transition_time=ready),),
            ),
        )


def _containers(cpu: str) -> tuple[Container, ...]:
    """The containers of a workload's pods, shared as by pods that were decoded from one list."""
    resources = ResourceRequirements(requests={"cpu": cpu, "memory": "128Mi"})
    return (Container(name="app", resources=resources),)


def _owner(api_version: str, kind: str, name: str) -> OwnerReference:
    return OwnerReference(kind, name, f"{kind}-{name}", api_version, controller=True)


def _meta(
    name: str,
    namespace: str = "",
    *,
    uid: str = "",
    owners: tuple[OwnerReference, ...] = (),
    labels: dict[str, str] | None = None,
    generation: int = 0,
) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid or f"uid-{name}",
        creation_timestamp=_CREATED,
        owner_references=owners,
        labels=labels,
        generation=generation,
    )


def _node(name: str, zone: str) -> Node:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
    return Node(
        metadata=NodeMeta(name=name, uid=f"uid-{name}", creation_timestamp=_CREATED, labels=labels),
        spec=NodeSpec(),
        status=NodeStatus(
            conditions=(
                NodeCondition(
                    type="Ready", status="True", last_heartbeat_time=Time(NOW_NS - 5 * SECOND_NS)
                ),
            ),
            allocatable={"cpu": "8", "memory": "32Gi", "pods": "110"},
        ),
    )


def _lease(name: str) -> Lease:
    return Lease(
        metadata=LeaseMeta(name=name, namespace="kube-node-lease"),
        spec=LeaseSpec(holder_identity=name, renew_time=MicroTime(NOW_NS - 3 * SECOND_NS)),
    )
