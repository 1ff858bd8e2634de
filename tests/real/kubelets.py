"""Kubelets played by two threads: one renews Leases, posts status and reboots; one runs bound pods
and ends deleted ones, so that many pods make no renewal late.

Labels of a pod say what else it does: `ready: never`; `start: SECONDS`, from being bound to being
Ready; `stop: SECONDS`, how much of its grace it takes at most; `ends: Succeeded` or `ends: Failed`
instead of being Ready; `rebooted: never`, not Ready any more once the node was rebooted.

A reboot: the kubelet is silent for a while, then the node has another bootID (and kubelet version,
if one is named), and the containers of its pods are others. A test calls `reboot`, or has a
program write a file of the node's name into the folder `reboots`: `SECONDS [VERSION]`.

What is wrong with a node stands in its `Ailments`.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.real.control_plane import Api, Refused
from tests.real.kubelet import Kubelet, found, now_text

_REPORT_EVERY_S = 20.0
PAUSE = "registry.k8s.io/pause:3.10"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Kubelets:
    """All kubelets of a cluster, as a context: the threads end with it. Raises AssertionError at
    its end where one of them ended before, by a bug of this file.
    """

    def __init__(
        self,
        api: Api,
        *,
        renew_every_s: float = 1.0,
        start_s: float = 1.0,
        stop_s: float = 1.0,
        tick_s: float = 0.1,
        reboots: Path | None = None,
    ) -> None:
        self._api = api
        self._renew_every_s = renew_every_s
        self._start_s = start_s
        self._stop_s = stop_s
        self._tick_s = tick_s
        self._reboots = reboots
        self._kubelets: dict[str, Kubelet] = {}
        self._bound_at: dict[str, float] = {}
        self._deleted_at: dict[str, float] = {}
        self._end = threading.Event()
        self._bugs: list[str] = []
        self._threads = [
            threading.Thread(target=self._repeat, args=(act,), name=name, daemon=True)
            for name, act in (("heartbeats", self._heartbeats), ("pods", self._pods))
        ]

    def __enter__(self) -> Kubelets:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(20)
        assert not self._bugs, "\n".join(self._bugs)

    def __getitem__(self, node: str) -> Kubelet:
        return self._kubelets[node]

    def add_node(
        self,
        name: str,
        labels: dict[str, str] | None = None,
        pods: int = 110,
        version: str = "v1.36.3",
    ) -> None:
        """Register a node and begin to play its kubelet."""
        kubelet = Kubelet(name, version)
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
                    **dict.fromkeys(("machineID", "systemUUID", "kernelVersion"), ""),
                    **dict.fromkeys(("osImage", "containerRuntimeVersion"), ""),
                    "kubeProxyVersion": version,
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                    **kubelet.node_info(),
                },
                "images": [{"names": [PAUSE], "sizeBytes": 320_368}],
            },
        }
        with contextlib.suppress(Refused):
            self._api.create("/api/v1/nodes", node)
        self._kubelets[name] = kubelet

    def remove_node(self, name: str) -> None:
        """Play this kubelet no more, and delete its node."""
        self._kubelets.pop(name).alive = False
        self._api.delete(f"/api/v1/nodes/{name}")

    def stop(self, *nodes: str) -> None:
        """These kubelets fall silent."""
        for name in nodes:
            self._kubelets[name].alive = False

    def start(self, *nodes: str) -> None:
        """These kubelets come back."""
        for name in nodes:
            self._kubelets[name].start()

    def _repeat(self, act: Callable[[float], None]) -> None:
        try:
            while not self._end.wait(self._tick_s):
                with contextlib.suppress(OSError, Refused):
                    act(time.monotonic())
        except Exception:
            self._bugs.append(traceback.format_exc())

    def _heartbeats(self, now: float) -> None:
        self._take_reboots()
        for kubelet in list(self._kubelets.values()):
            if kubelet.boots_at is not None and now >= kubelet.boots_at:
                kubelet.boot(now)
            kubelet.flap(now)
            if kubelet.alive:
                with contextlib.suppress(OSError, Refused):
                    self._heartbeat(kubelet, now)

    def _take_reboots(self) -> None:
        """Reboot the nodes of which somebody has written a file."""
        for path in self._reboots.iterdir() if self._reboots is not None else ():
            words = path.read_text().split()
            if words and path.name in self._kubelets:
                path.unlink()
                self._kubelets[path.name].reboot(float(words[0]), *words[1:2])

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
            status: dict[str, Any] = {"conditions": conditions, "nodeInfo": kubelet.node_info()}
            if kubelet.allocatable:
                amounts = dict(kubelet.allocatable)
                status |= {"capacity": amounts, "allocatable": amounts}
            self._api.strategic(path, {"status": status}, "kubelet")

    def _renew(self, name: str) -> None:
        lasts = max(1, round(4 * self._renew_every_s))  # as a kubelet that renews so often
        spec = {"holderIdentity": name, "leaseDurationSeconds": lasts, "renewTime": now_text(True)}
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
                    since = self._deleted_at.setdefault(uid, now)
                    if now - since >= found(pod, kubelet.ailments.stops, 0.0):
                        self._end_pod(pod, since, now)
                elif pod["status"].get("phase") in ("Succeeded", "Failed"):
                    continue
                else:
                    begun = max(self._bound_at.setdefault(uid, now), kubelet.booted_at)
                    late = found(pod, kubelet.ailments.starts, _label(pod, "start", self._start_s))
                    starting = now - begun < late
                    if reason := found(pod, kubelet.ailments.waits, ""):
                        self._hang(pod, reason)
                    elif not starting or _is_of_another_boot(pod, kubelet):
                        self._run_pod(pod, kubelet, starting=starting)

    def _hang(self, pod: dict[str, Any], reason: str) -> None:
        """A bound pod's containers wait, and that for ever."""
        if not pod["status"].get("containerStatuses"):
            waiting = {"waiting": {"reason": reason, "message": "played by a test"}}
            statuses = [
                {"name": c["name"], "image": c["image"], "imageID": "", "ready": False}
                | {"restartCount": 0, "state": waiting}
                for c in pod["spec"]["containers"]
            ]
            status = {"startTime": now_text(), "containerStatuses": statuses}
            self._api.strategic(f"{_path(pod)}/status", {"status": status}, "kubelet")

    def _run_pod(self, pod: dict[str, Any], kubelet: Kubelet, *, starting: bool) -> None:
        """A bound pod becomes Ready; one that somebody marked not ready is set right again.

        `starting`: it ran before a reboot, and does not yet after it.
        """
        labels = pod["metadata"].get("labels") or {}
        ends = labels.get("ends")
        never = labels.get("ready") == "never" or ends is not None or starting
        never = never or (labels.get("rebooted") == "never" and kubelet.reboots > 0)
        wanted = "False" if never else "True"
        conditions = {c["type"]: c for c in pod["status"].get("conditions") or []}
        another = _is_of_another_boot(pod, kubelet)
        if pod["status"].get("phase") == "Running" and (
            conditions.get("Ready", {}).get("status") == wanted and (starting or not another)
        ):
            return
        of_status = {"Initialized": "True", "ContainersReady": wanted, "Ready": wanted}
        status = {
            "phase": ends or "Running",
            "startTime": pod["status"].get("startTime") or now_text(),
            "podIP": "10.1.0.1",
            "podIPs": [{"ip": "10.1.0.1"}],
            "conditions": [
                {"type": type_, "status": status, "lastTransitionTime": now_text()}
                for type_, status in of_status.items()
            ],
            "containerStatuses": [
                {**_container(pod, c["name"], kubelet, ends, starting), "ready": not never}
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


def _container(
    pod: dict[str, Any], name: str, kubelet: Kubelet, ends: str | None, starting: bool
) -> dict[str, Any]:
    """A container's status: as it was while the pod has not begun again, else begun just now."""
    statuses = pod["status"].get("containerStatuses") or ()
    old: dict[str, Any] | None = next((c for c in statuses if c["name"] == name), None)
    if old is not None and starting:
        return old
    image = next(c.get("image", "") for c in pod["spec"]["containers"] if c["name"] == name)
    return {
        "name": name,
        "image": image,
        "imageID": "",
        "started": True,
        "restartCount": kubelet.reboots if old is not None else 0,
        "containerID": kubelet.container_id(pod["metadata"]["uid"], name),
        "state": _ended(ends) if ends else {"running": {"startedAt": now_text()}},
    }


def _is_of_another_boot(pod: dict[str, Any], kubelet: Kubelet) -> bool:
    """True if its containers ran before the kubelet's last reboot."""
    uid, statuses = pod["metadata"]["uid"], pod["status"].get("containerStatuses") or ()
    ids = {c["name"]: c.get("containerID") for c in statuses}
    return any(i and i != kubelet.container_id(uid, name) for name, i in ids.items())


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
