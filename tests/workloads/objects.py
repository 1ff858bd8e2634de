"""Pods, budgets and owners for the tests of this folder."""

from typing import Any

import msgspec

from kubectl_nodelife.kube import workload
from kubectl_nodelife.kube.meta import KubeObject, LabelSelector, ObjectMeta, OwnerReference
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodSpec, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS

NOW = 1_000_000 * SECOND_NS
ALL = LabelSelector()


class Owners:
    """Some objects as a lister."""

    def __init__(self, *objects: KubeObject, unread: tuple[str, ...] = ()) -> None:
        self._objects = {(type(obj).__name__, *obj.key): obj for obj in objects}
        self._unread = unread

    def find(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        return self._objects.get((kind, namespace, name))

    def was_read(self, kind: str) -> bool:
        return kind not in self._unread


def reference(kind: str, name: str, api_version: str = "apps/v1") -> OwnerReference:
    return OwnerReference(kind, name, f"uid-{name}", api_version, controller=True)


def meta(name: str, *owners: OwnerReference) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", owner_references=owners)


def make_pod(name: str, *owners: OwnerReference, ready: bool = True, **more: Any) -> Pod:
    phase = more.pop("phase", "Running")
    conditions = (PodCondition(type="Ready", status="True" if ready else "False"),)
    return Pod(
        metadata=msgspec.structs.replace(meta(name, *owners), **more),
        spec=PodSpec(node_name="n1", termination_grace_period_seconds=30),
        status=PodStatus(phase=phase, conditions=conditions),
    )


def make_budget(
    *,
    min_available: workload.IntOrString | None = None,
    max_unavailable: workload.IntOrString | None = None,
    policy: str | None = None,
    generation: int = 1,
    **status: Any,
) -> workload.PodDisruptionBudget:
    return workload.PodDisruptionBudget(
        metadata=ObjectMeta(name="guard", namespace="ns", generation=generation),
        spec=workload.PodDisruptionBudgetSpec(
            min_available=min_available,
            max_unavailable=max_unavailable,
            selector=ALL,
            unhealthy_pod_eviction_policy=policy,
        ),
        status=workload.PodDisruptionBudgetStatus(**{"observed_generation": 1, **status}),
    )


REPLICA_SET = workload.ReplicaSet(metadata=meta("rs"), spec=workload.ScaleSpec(replicas=5))
OF_RS = reference("ReplicaSet", "rs")
