"""A cluster whose nodes are upgraded by our program, as a person runs it.

Twelve nodes in three zones with played kubelets, a DaemonSet, Deployments with budgets; real API
server, scheduler and controllers. The program has the rights of `rbac --upgrade` and no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.real.control_plane import ControlPlane, Refused, control_plane, until
from tests.real.kubelets import Kubelets

Json = dict[str, Any]

CONTROLLERS = (
    *("node-lifecycle-controller", "taint-eviction-controller", "replicaset-controller"),
    *("deployment-controller", "daemonset-controller", "job-controller"),
    *("disruption-controller", "garbage-collector-controller", "endpointslice-controller"),
)
NODES = tuple(f"{zone}{number}" for zone in "abc" for number in range(4))
GRACE_S = 6
PATIENCE_S = 180.0
"""A wait outlasts the minute of a leader that saw too little for a moment, as on a busy machine: it
decides nothing for 60 s after it sees the whole cluster again.
"""
SETTINGS = (
    *("--set", f"node-monitor-grace-period={GRACE_S}s", "--set", "node-monitor-period=1s"),
    *("--lease-duration", "4s"),
)
QUICK = (
    *("--soak", "1s", "--node-soak", "1s", "--ready-for", "2s", "--zones", "0", "--yes"),
    *("--max-unavailable", "4", "--canary", "3"),
)
STATE = "nodelife.dev/upgrade-state"
ANNOTATION = "nodelife.dev/upgrade"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubectl-nodelife-upgrade"
ZONE = "topology.kubernetes.io/zone"
_PROGRAM = (sys.executable, "-m", "kubectl_nodelife")
_MARKS = (ANNOTATION, "cluster-autoscaler.kubernetes.io/scale-down-disabled", STATE)


class Fleet:
    """The cluster. `reboots`: the folder in which a node's name asks for its reboot. The first
    letter of a node is its zone.
    """

    def __init__(
        self, plane: ControlPlane, kubelets: Kubelets, reboots: Path, nodes: Sequence[str]
    ) -> None:
        self.plane, self.api, self.kubelets, self.reboots = plane, plane.api, kubelets, reboots
        self.nodes = list(nodes)
        self.kubeconfig, self.account = Path(), ""
        self.operators: list[Operator] = []

    def until(self, what: str, holds: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Wait until it is so; what everybody said is told where it never is."""
        try:
            until(holds, what, seconds)
        except AssertionError as error:
            self.plane.assert_running()
            said = "\n".join(f"{one.folder.name}:\n{one.said()}" for one in self.operators)
            raise AssertionError(f"{error}\n{said}") from None

    def furnish(self) -> None:
        """Nodes, namespaces, sets, and the account of an upgrade."""
        for name in self.nodes:
            self.come(name)
        for namespace in ("nodelife", "shop"):
            meta = {"metadata": {"name": namespace}}
            self.api.create("/api/v1/namespaces", meta)
        self.api.create("/apis/apps/v1/namespaces/shop/daemonsets", _set("DaemonSet", "agent"))
        self.deployment("web", 6)
        self.budget("web", {"maxUnavailable": 1})
        self.kubeconfig, self.account = _least_privilege(self.plane)
        until(lambda: self.ready_pods() == len(self.nodes) + 6, "all pods are ready")

    def deployment(self, name: str, replicas: int, affinity: Json | None = None) -> None:
        """A Deployment in the shop; `affinity`: to which nodes, as a nodeAffinity."""
        body = _set("Deployment", name, replicas=replicas)
        body["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": affinity or {}}
        self.api.create("/apis/apps/v1/namespaces/shop/deployments", body)

    def budget(self, name: str, spec: Json, app: str = "") -> None:
        """A disruption budget over the Deployment `app`, or the one of that name."""
        body = {
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": app or name}}, **spec},
        }
        self.api.create("/apis/policy/v1/namespaces/shop/poddisruptionbudgets", body)

    def ready_pods(self) -> int:
        """How many pods of the shop are Ready."""
        pods = self.api.get("/api/v1/namespaces/shop/pods")["items"]
        return sum(is_ready(pod) for pod in pods)

    def come(self, name: str) -> None:
        """A node of the pool comes, in the zone by which its name begins."""
        self.kubelets.add_node(name, {ZONE: name[0], "pool": "blue"})
        self.nodes = sorted({*self.nodes, name})

    def go(self, name: str) -> None:
        """A node's kubelet and object go."""
        self.kubelets.remove_node(name)
        self.nodes.remove(name)

    def taint(self, node: str, key: str, *, off: bool = False) -> None:
        """Another program taints the node, or takes its taint off."""

        def is_done() -> bool:
            found = self.node(node)
            others = [t for t in found["spec"].get("taints") or () if t["key"] != key]
            taints = others if off else [*others, {"key": key, "effect": "NoSchedule"}]
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            with contextlib.suppress(Refused):
                patch = {"metadata": version, "spec": {"taints": taints}}
                return bool(self.api.merge(f"/api/v1/nodes/{node}", patch))
            return False

        until(is_done, f"{node} is tainted by another program")

    def node(self, name: str) -> Json:
        """A node."""
        found: Json = self.api.get(f"/api/v1/nodes/{name}")
        return found

    def state(self, name: str) -> str:
        """A node's state by its label, "" for none."""
        try:
            return str((self.node(name)["metadata"].get("labels") or {}).get(STATE, ""))
        except Refused:
            return ""

    def await_state(self, name: str, *states: str, seconds: float = PATIENCE_S) -> str:
        """Wait until the node is in one of the states."""
        what = f"{name} is {' or '.join(states)}"
        self.until(what, lambda: self.state(name) in states, seconds)
        return self.state(name)

    def mark(self, name: str) -> Json:
        """A node's annotation."""
        text = (self.node(name)["metadata"].get("annotations") or {}).get(ANNOTATION, "{}")
        mark: Json = json.loads(text)
        return mark

    def traces(self) -> list[str]:
        """What is left of an upgrade, on nodes, in the namespace, and the Lease."""
        found = []
        for node in self.api.get("/api/v1/nodes")["items"]:
            meta, name = node["metadata"], node["metadata"]["name"]
            keys = {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}
            found += [f"{name}: {key}" for key in keys if key in _MARKS]
            taints = node["spec"].get("taints") or ()
            found += [f"{name}: {t['key']}" for t in taints if t["key"].startswith("nodelife")]
            if node["spec"].get("unschedulable"):
                found.append(f"{name}: cordoned")
        for kind in ("api/v1/%s/pods", "api/v1/%s/services", "apis/batch/v1/%s/jobs"):
            listed = self.api.get("/" + kind % "namespaces/nodelife")
            found += [obj["metadata"]["name"] for obj in listed["items"]]
        return found

    def sweep(self) -> None:
        """Take off all that any run has left, whatever it was, without a line of our program."""
        with contextlib.suppress(Refused):
            self.api.delete(LEASE)
        for node in self.api.get("/api/v1/nodes")["items"]:
            keys = dict.fromkeys(_MARKS)
            taints = node["spec"].get("taints") or ()
            kept = [t for t in taints if not t["key"].startswith("nodelife")]
            patch = {
                "metadata": {"annotations": keys, "labels": keys},
                "spec": {"unschedulable": None, "taints": kept},
            }
            self.api.merge(f"/api/v1/nodes/{node['metadata']['name']}", patch)
        for kind in ("apis/batch/v1/%s/jobs", "api/v1/%s/pods", "api/v1/%s/services"):
            path = "/" + kind % "namespaces/nodelife"
            for obj in self.api.get(path)["items"]:
                with contextlib.suppress(Refused):
                    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
                    self.api.delete(f"{path}/{obj['metadata']['name']}", now)
        self.until("nothing is left of the test before", lambda: not self.traces())


class Operator:
    """A person at a machine of his own: the program with a state folder of its own."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.folder = fleet.plane.folder / f"operator-{name}-{time.monotonic_ns()}"
        self.folder.mkdir()
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(fleet.kubeconfig),
            "HOME": str(self.folder),
            "NODELIFE_STATE_DIR": str(self.folder / "state"),
            "REBOOTS": str(fleet.reboots),
        }
        self.process: subprocess.Popen[bytes] | None = None
        fleet.operators.append(self)

    def begin(self, *words: str) -> None:
        """Type `upgrade WORDS`, and do not wait."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*_PROGRAM, "upgrade", *words],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self, seconds: float = 240) -> int:
        """Wait for its end; the exit code."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it did not end in {seconds:.0f}s:\n{self.said()}") from None

    def type(self, *words: str, seconds: float = 240) -> int:
        """Type `upgrade WORDS`, and wait for its end; the exit code."""
        self.begin(*words)
        return self.end(seconds)

    def ask(self, *words: str) -> Json:
        """Type `upgrade WORDS -o json`; the document."""
        command = [*_PROGRAM, "upgrade", *words, "-o", "json"]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout, done.stderr
        document: Json = json.loads(done.stdout)
        return document

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def said(self) -> str:
        """All that it said so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def _log(self) -> Path:
        return self.folder / "log"


@contextlib.contextmanager
def fleet(folder: Path, nodes: Sequence[str] = NODES, grace_s: int = GRACE_S) -> Iterator[Fleet]:
    """The cluster, furnished. `grace_s`: after so many silent seconds its controllers call a node
    lost.
    """
    manager = (
        f"--controllers={','.join(CONTROLLERS)}",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={grace_s}s",
    )
    reboots = folder / "reboots"
    reboots.mkdir()
    with (
        control_plane(controller_manager=manager, scheduler=True) as plane,
        Kubelets(plane.api, start_s=0.5, stop_s=0.5, tick_s=0.2, reboots=reboots) as kubelets,
    ):
        one = Fleet(plane, kubelets, reboots, nodes)
        one.furnish()
        yield one


@contextlib.contextmanager
def operating(cluster: Fleet) -> Iterator[Operator]:
    """A person; whatever a test that failed has left is taken off for the next one."""
    cluster.operators.clear()
    yield Operator(cluster, "one")
    for other in cluster.operators:
        other.kill()
    cluster.plane.assert_running()
    if cluster.traces():
        cluster.sweep()


def is_ready(obj: Json) -> bool:
    """True if a pod or a node is Ready."""
    conditions = obj["status"].get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _set(kind: str, name: str, replicas: int | None = None) -> Json:
    labels = {"app": name}
    container = {
        "name": name,
        "image": name,
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    spec: Json = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
        },
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _least_privilege(plane: ControlPlane) -> tuple[Path, str]:
    """A kubeconfig of the ServiceAccount that `rbac --upgrade` prints, TLS verified; its user."""
    printed = subprocess.run(
        [*_PROGRAM, "rbac", "--upgrade"], capture_output=True, text=True, check=True
    ).stdout
    objects = plane.folder / "rbac-upgrade.yaml"
    objects.write_text(printed)
    plane.kubectl("apply", "-f", str(objects))
    account = next(o for o in yaml.safe_load_all(printed) if o["kind"] == "ServiceAccount")
    name, namespace = account["metadata"]["name"], account["metadata"]["namespace"]
    path = plane.account_kubeconfig(name, namespace, plane.folder / "upgrader.kubeconfig")
    return path, f"system:serviceaccount:{namespace}:{name}"
