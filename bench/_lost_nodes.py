"""A real control plane with many nodes, whose kubelets renew Leases until some of them stop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from tests.real.audited import instant
from tests.real.control_plane import ControlPlane

API_SERVER = (
    "--disable-admission-plugins=DefaultTolerationSeconds,TaintNodesByCondition,Priority",
)
RENEW_S = 10.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_PODS = "/api/v1/namespaces/default/pods"
_AT_ONCE = 16
_READY = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
_TICKS = os.sysconf("SC_CLK_TCK")
_NODES_AND_PODS = [{"group": "", "resources": ["nodes", "nodes/status", "pods", "pods/status"]}]
_WRITES = ["create", "update", "patch", "delete"]
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Request", "verbs": _WRITES, "resources": _NODES_AND_PODS},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""Audits writes of nodes and pods with their bodies, and each request of the daemon's account."""


class Fleet:
    """Nodes in three zones and the pods on them. As a context: its kubelets renew meanwhile."""

    def __init__(self, plane: ControlPlane, nodes: int) -> None:
        self.names = [f"n{i:04}" for i in range(nodes)]
        self.renewed: dict[str, float] = {}
        self._api = plane.api
        self._silent: set[str] = set()
        self._end = threading.Event()
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._thread = threading.Thread(target=self._renew_all, daemon=True)

    def furnish(self, pods: Iterable[tuple[str, str]]) -> None:
        """Make the nodes, their Leases and the pods: (name, node)."""
        list(self._pool.map(self._make_node, self.names))
        list(self._pool.map(self._make_pod, pods))

    def __enter__(self) -> Fleet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(2 * RENEW_S)
        self._pool.shutdown()

    def silence(self, names: list[str]) -> dict[str, float]:
        """These nodes renew once more, all at once, and then stop. Returns node -> that time."""
        self._silent.update(names)
        list(self._pool.map(self._renew, names))
        return {name: self.renewed[name] for name in names}

    def _renew_all(self) -> None:
        while not self._end.is_set():
            began = time.monotonic()
            for number, name in enumerate(self.names):
                due = began + RENEW_S * number / len(self.names)
                if self._end.wait(max(0.0, due - time.monotonic())):
                    return
                if name not in self._silent:
                    self._pool.submit(self._renew, name)
            self._end.wait(max(0.0, began + RENEW_S - time.monotonic()))

    def _renew(self, name: str) -> None:
        self._api.merge(f"{_LEASES}/{name}", {"spec": {"renewTime": _micro_time()}}, "kubelet")
        self.renewed[name] = time.time()

    def _make_node(self, name: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        kubelet = {"status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        zone = "abc"[int(name[1:]) % 3]
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        node = {
            "metadata": {"name": name, "labels": labels},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "reason": "KubeletReady", **kubelet}],
            },
        }
        self._api.create("/api/v1/nodes", node)
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _micro_time()}
        meta = {"name": name, "namespace": "kube-node-lease"}
        self._api.create(_LEASES, {"metadata": meta, "spec": spec})

    def _make_pod(self, where: tuple[str, str]) -> None:
        name, node = where
        spec = {
            "nodeName": node,
            "containers": [{"name": "c", "image": "app"}],
            "tolerations": [{"operator": "Exists"}],
        }
        self._api.create(_PODS, {"metadata": {"name": name}, "spec": spec})
        conditions = [{"type": type_, "status": "True"} for type_ in _READY]
        status = {"status": {"phase": "Running", "conditions": conditions}}
        self._api.strategic(f"{_PODS}/{name}/status", status, "kubelet")


def ended_writes(plane: ControlPlane, since: float) -> Iterator[tuple[float, dict[str, Any]]]:
    """Accepted writes of controllers: the time of the answer, and the audit entry."""
    for entry in plane.audit():
        agent = entry.get("userAgent", "")
        ours = agent.startswith(("kubectl-nodelife/", "kube-controller-manager/"))
        at = instant(entry["stageTimestamp"])
        accepted = entry["responseStatus"]["code"] < 300
        if ours and accepted and at >= since and entry["verb"] in _WRITES:
            yield at, entry


def is_taint(entry: dict[str, Any], effect: str) -> bool:
    """True if the write adds the unreachable taint with that effect to a node."""
    taints = ((entry.get("requestObject") or {}).get("spec") or {}).get("taints") or []
    return any(
        t["key"] == "node.kubernetes.io/unreachable" and t["effect"] == effect for t in taints
    )


def cpu_seconds(pid: int) -> float:
    """The CPU seconds of a process so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """The memory that a process holds."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
