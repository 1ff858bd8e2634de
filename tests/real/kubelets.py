"""Kubelets played by a thread:

they renew leases, post status, run bound pods and end deleted ones.

Labels of a pod say what else it does: `ready: never`; `start: SECONDS`, from being bound to being
Ready; `stop: SECONDS`, how much of its grace it takes at most; `ends: Succeeded` or `ends: Failed`
instead of being Ready.
"""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import UTC, datetime
from typing import Any

from tests.real.control_plane import Api, Refused

_REPORT_EVERY_S = 20.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Kubelet:
    """One kubelet. `conditions` are what it sees; `alive` whether it does anything."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.conditions = {
            "Ready": "True",
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
        }
        self.since = dict.fromkeys(self.conditions, now_text())
        self.renew_at = 0.0
        self.report_at = 0.0

    def report(self, type_: str, status: str) -> None:
        """From now on the kubelet sees this."""
        if self.conditions.get(type_) != status:
            self.since[type_] = now_text()
        self.conditions[type_] = status
        self.report_at = 0.0

    def start(self) -> None:
        """Begin (again): renew and post at once."""
        self.alive, self.renew_at, self.report_at = True, 0.0, 0.0


class Kubelets:
    """All kubelets of a cluster, as a context: the thread ends with it."""

    def __init__(
        self,
        api: Api,
        *,
        renew_every_s: float = 1.0,
        start_s: float = 1.0,
        stop_s: float = 1.0,
        tick_s: float = 0.1,
    ) -> None:
        self._api = api
        self._renew_every_s = renew_every_s
        self._start_s = start_s
        self._stop_s = stop_s
        self._tick_s = tick_s
        self._kubelets: dict[str, Kubelet] = {}
        self._bound_at: dict[str, float] = {}
        self._deleted_at: dict[str, float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelets", daemon=True)

    def __enter__(self) -> Kubelets:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(20)

    def __getitem__(self, node: str) -> Kubelet:
        return self._kubelets[node]

    def add_node(self, name: str, labels: dict[str, str] | None = None, pods: int = 110) -> None:
        """Register a node and begin to play its kubelet."""
        amounts = {"cpu": "8", "memory": "32Gi", "pods": str(pods)}
        host = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**host, **(labels or {})}},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "nodeInfo": {
                    **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion"), ""),
                    **dict.fromkeys(("osImage", "containerRuntimeVersion"), ""),
                    **dict.fromkeys(("kubeletVersion", "kubeProxyVersion"), "v1.36.3"),
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                },
            },
        }
        with contextlib.suppress(Refused):
            self._api.create("/api/v1/nodes", node)
        self._kubelets[name] = Kubelet(name)

    def stop(self, *nodes: str) -> None:
        """These kubelets fall silent."""
        for name in nodes:
            self._kubelets[name].alive = False

    def start(self, *nodes: str) -> None:
        """These kubelets come back."""
        for name in nodes:
            self._kubelets[name].start()

    def _run(self) -> None:
        while not self._end.wait(self._tick_s):
            now = time.monotonic()
            for kubelet in list(self._kubelets.values()):
                if kubelet.alive:
                    with contextlib.suppress(OSError, Refused):
                        self._heartbeat(kubelet, now)
            with contextlib.suppress(OSError, Refused):
                self._pods(now)

    def _heartbeat(self, kubelet: Kubelet, now: float) -> None:
        if now >= kubelet.renew_at:
            kubelet.renew_at = now + self._renew_every_s
            self._renew(kubelet.name)
        if now >= kubelet.report_at:
            kubelet.report_at = now + _REPORT_EVERY_S
            conditions = [
                {
                    "type": type_,
                    "status": status,
                    "reason": "KubeletReady" if type_ == "Ready" else "KubeletHas",
                    "message": "a kubelet played by a test",
                    "lastHeartbeatTime": now_text(),
                    "lastTransitionTime": kubelet.since[type_],
                }
                for type_, status in kubelet.conditions.items()
            ]
            path = f"/api/v1/nodes/{kubelet.name}/status"
            self._api.strategic(path, {"status": {"conditions": conditions}}, "kubelet")

    def _renew(self, name: str) -> None:
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now_text(True)}
        try:
            self._api.merge(f"{_LEASES}/{name}", {"spec": spec}, "kubelet")
        except Refused as refused:
            if refused.code != 404:
                raise
            meta = {"name": name, "namespace": "kube-node-lease"}
            self._api.create(_LEASES, {"metadata": meta, "spec": spec})

    def _pods(self, now: float) -> None:
        for pod in self._api.get("/api/v1/pods?resourceVersion=0")["items"]:
            kubelet = self._kubelets.get(pod["spec"].get("nodeName") or "")
            if kubelet is None or not kubelet.alive:
                continue
            uid = pod["metadata"]["uid"]
            with contextlib.suppress(Refused):
                if pod["metadata"].get("deletionTimestamp"):
                    self._end_pod(pod, self._deleted_at.setdefault(uid, now), now)
                elif pod["status"].get("phase") in ("Succeeded", "Failed"):
                    continue
                elif now - self._bound_at.setdefault(uid, now) >= _label(
                    pod, "start", self._start_s
                ):
                    self._run_pod(pod)

    def _run_pod(self, pod: dict[str, Any]) -> None:
        """A bound pod becomes Ready; one that somebody marked not ready is set right again."""
        labels = pod["metadata"].get("labels") or {}
        ends = labels.get("ends")
        never = labels.get("ready") == "never" or ends is not None
        wanted = "False" if never else "True"
        conditions = {c["type"]: c for c in pod["status"].get("conditions") or []}
        if pod["status"].get("phase") == "Running" and (
            conditions.get("Ready", {}).get("status") == wanted
        ):
            return
        of_status = {"Initialized": "True", "ContainersReady": wanted, "Ready": wanted}
        status = {
            "phase": ends or "Running",
            "startTime": pod["status"].get("startTime") or now_text(),
            "conditions": [
                {"type": type_, "status": status, "lastTransitionTime": now_text()}
                for type_, status in of_status.items()
            ],
            "containerStatuses": [
                {
                    "name": c["name"],
                    "image": c.get("image", ""),
                    "imageID": "",
                    "ready": not never,
                    "started": True,
                    "restartCount": 0,
                    "state": _ended(ends) if ends else {"running": {"startedAt": now_text()}},
                }
                for c in pod["spec"]["containers"]
            ],
        }
        self._api.strategic(f"{_path(pod)}/status", {"status": status}, "kubelet")

    def _end_pod(self, pod: dict[str, Any], since: float, now: float) -> None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        if grace == 0:
            return  # a finalizer holds what nobody needs to end
        if now - since >= min(grace, _label(pod, "stop", self._stop_s)):
            uid = {"uid": pod["metadata"]["uid"]}
            if pod["spec"].get("restartPolicy") != "Always":
                # A Job may wait for this word; nobody asks for it of pods that always restart.
                status = {"phase": "Failed"}
                self._api.strategic(f"{_path(pod)}/status", {"status": status}, "kubelet")
            self._api.delete(_path(pod), {"gracePeriodSeconds": 0, "preconditions": uid})


def _label(pod: dict[str, Any], name: str, default: float) -> float:
    """A label's number."""
    return float((pod["metadata"].get("labels") or {}).get(name, default))


def _ended(phase: str) -> dict[str, Any]:
    """The state of a container that is over."""
    times = dict.fromkeys(("startedAt", "finishedAt"), now_text())
    code = 0 if phase == "Succeeded" else 1
    return {
        "terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error", **times}
    }


def _path(pod: dict[str, Any]) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def now_text(micro: bool = False) -> str:
    """The present as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
