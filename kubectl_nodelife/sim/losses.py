"""Who lost what, and when: nodes that were lost with what became of their pods, and workloads that
lost pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.sim.api import CLUSTER
from kubectl_nodelife.sim.timeline import Record


class NodeLoss(msgspec.Struct):
    """A node that was not Ready for a while. Instants are seconds since t=0, None for never.

    `silent_at`: its kubelet fell silent; `lost_at`: Ready was no longer True; `tainted_at`: it got
    a NoExecute taint; `back_at`: Ready was True again. `pods`: on it when it was lost; `deleted` of
    them by controllers between `first_deleted_at` and `last_deleted_at`; `finished`: gone since.
    """

    name: str
    zone: str
    ready: str
    silent_at: float | None
    lost_at: float
    tainted_at: float | None = None
    back_at: float | None = None
    pods: int = 0
    marked: int = 0
    deleted: int = 0
    first_deleted_at: float | None = None
    last_deleted_at: float | None = None
    finished: int = 0


class WorkloadLoss(msgspec.Struct):
    """A workload that lost pods: how many of how many, when, and how many new ones it has got
    since.
    """

    kind: str
    namespace: str
    name: str
    pods: int = 0
    deleted: int = 0
    first_deleted_at: float | None = None
    last_deleted_at: float | None = None
    replaced: int = 0


def node_losses(
    records: Iterable[Record], before: Cache, zones: Mapping[str, str]
) -> list[NodeLoss]:
    """The nodes that were lost, in the order of that. `before`: the cluster at t=0."""
    tally = _Nodes(before, zones)
    for record in records:
        if not record.error:
            tally.take(record)
    return tally.losses


class _Nodes:
    """Goes through the records, and keeps up where each pod is."""

    def __init__(self, before: Cache, zones: Mapping[str, str]) -> None:
        self.losses: list[NodeLoss] = []
        self._zones = zones
        self._open: dict[str, NodeLoss] = {}
        self._silent: dict[str, float] = {}
        self._node = {key: pod.spec.node_name for key, pod in before.pods.items()}
        self._on = Counter(self._node.values())
        self._deleted: set[Key] = set()

    def take(self, record: Record) -> None:
        """Take in the next record."""
        obj = record.object
        if obj.kind == "Node":
            self._take_node(record, obj.name)
        elif obj.kind == "Pod":
            self._take_pod(record, (obj.namespace, obj.name))

    def _take_node(self, record: Record, name: str) -> None:
        loss = self._open.get(name)
        match record.action:
            case "RecordEvent" if record.controller == CLUSTER:
                if record.detail["reason"] == "HeartbeatsStopped":
                    self._silent[name] = record.at
                elif record.detail["reason"] == "HeartbeatsStarted":
                    self._silent.pop(name, None)
            case "SetNodeCondition" if record.detail["type"] == "Ready":
                status = record.detail["status"]
                if status != "True" and loss is None:
                    self._lose(name, status, record.at)
                elif status == "True" and loss is not None:
                    loss.back_at = record.at
                    del self._open[name]
                elif loss is not None:
                    loss.ready = status
            case "AddTaint" if record.detail["effect"] == "NoExecute" and loss is not None:
                if loss.tainted_at is None:
                    loss.tainted_at = record.at

    def _lose(self, name: str, status: str, at: float) -> None:
        zone = self._zones.get(name, "")
        loss = NodeLoss(name, zone, status, self._silent.get(name), at)
        loss.pods = self._on[name]
        self._open[name] = loss
        self.losses.append(loss)

    def _take_pod(self, record: Record, key: Key) -> None:
        node = self._node.get(key, "")
        if record.action == "CreatePod":
            self._node[key] = record.detail["node"]
            self._on[record.detail["node"]] += 1
            self._deleted.discard(key)
            return
        gone = record.action == "DeletePod" and record.detail.get("gracePeriodSeconds") == 0
        loss = self._open.get(node)
        if loss is not None and record.action == "MarkPodNotReady":
            loss.marked += 1
        elif loss is not None and record.action == "DeletePod":
            if record.controller != CLUSTER and key not in self._deleted:
                self._deleted.add(key)
                loss.deleted += 1
                loss.last_deleted_at = record.at
                if loss.first_deleted_at is None:
                    loss.first_deleted_at = record.at
            loss.finished += gone and key in self._deleted
        if gone and self._node.pop(key, None) is not None:
            self._on[node] -= 1


def workload_losses(records: Iterable[Record], before: Cache) -> list[WorkloadLoss]:
    """The workloads of which pods were evicted or collected, those that lost most first.

    `before`: the cluster as it was at t=0; pods that came later are known from their records.
    """
    losses: dict[Key, WorkloadLoss] = {}
    owners: dict[Key, Key] = {}
    deleted: set[tuple[str, str, str]] = set()
    for record in records:
        obj = record.object
        if obj.kind != "Pod" or record.error:
            continue
        key = (obj.namespace, obj.name)
        if record.action == "CreatePod":
            owners[key] = (obj.namespace, record.detail["owner"])
            if owners[key] in losses:
                losses[owners[key]].replaced += 1
        elif record.action == "DeletePod" and record.controller not in (CLUSTER, "daemonset"):
            if (*key, obj.uid) in deleted:
                continue
            deleted.add((*key, obj.uid))
            loss = _loss_of(key, owners, losses, before)
            loss.deleted += 1
            loss.last_deleted_at = record.at
            if loss.first_deleted_at is None:
                loss.first_deleted_at = record.at
    return sorted(losses.values(), key=lambda w: (-w.deleted, w.namespace, w.name))


def _loss_of(
    pod: Key, owners: dict[Key, Key], losses: dict[Key, WorkloadLoss], before: Cache
) -> WorkloadLoss:
    """The entry of the pod's owner; of the pod itself where nothing owns it."""
    present = before.pods.get(pod)
    owner = controller_of(present.metadata) if present is not None else None
    key = owners.get(pod) or ((pod[0], owner.name) if owner is not None else pod)
    loss = losses.get(key)
    if loss is None:
        kind = owner.kind if owner is not None else "Pod"
        loss = losses[key] = WorkloadLoss(kind, *key)
        loss.pods = len(before.pods_of(owner.uid)) if owner is not None else 1
    return loss
