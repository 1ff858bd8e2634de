"""Nodes that stand still in the states of an upgrade, so that one leader is met in all of them.

A pod that does not end keeps a node in Draining, a command that waits for a file in Working, daemon
pods that do not start in Settling, a canary that does not start in Proving.
"""

import contextlib
import json
import math
import time
from collections.abc import Iterable, Sequence

from tests.real.control_plane import Refused
from tests.real.kubelet import Ailments
from tests.real.upgrading import ANNOTATION, LEASE, PATIENCE_S, Fleet, Json, Operator, is_ready

CANARY = "nodelife.dev/canary"
RUN_NOTE = "nodelife.dev/upgrade-run"
REBOOT = """echo ran >> $REBOOTS.ran/$NODE
while [ -e $REBOOTS.slow/$NODE ]; do sleep 0.2; done
echo 1 > $REBOOTS/$NODE"""
"""Reboots the node, once it may."""
HOSTNAME = "kubernetes.io/hostname"


class Stages:
    """What holds nodes of a cluster back. `spare`: a node that takes the pods of Draining ones."""

    def __init__(self, cluster: Fleet, spare: str) -> None:
        self._cluster, self._spare = cluster, spare
        self._slow = cluster.reboots.with_name(f"{cluster.reboots.name}.slow")
        self._ran = cluster.reboots.with_name(f"{cluster.reboots.name}.ran")
        self._held: list[str] = []
        for folder in (self._slow, self._ran):
            folder.mkdir(exist_ok=True)
            for path in folder.iterdir():
                path.unlink()

    def hold(
        self,
        *,
        draining: Iterable[str] = (),
        working: Iterable[str] = (),
        settling: Iterable[str] = (),
        proving: Iterable[str] = (),
    ) -> None:
        """From now on these nodes come as far as that, and no further."""
        ailing = {name: self._cluster.kubelets[name].ailments for name in self._cluster.nodes}
        for name in draining:
            self._pod_on(name)
            ailing[name].stops[f"app=lazy-{name}"] = math.inf
        for name in working:
            (self._slow / name).touch()
        for name in settling:
            ailing[name].starts["app=agent"] = math.inf
        for name in proving:
            ailing[name].waits[CANARY] = "ContainerCreating"
        self._held += [*draining, *working, *settling, *proving]

    def release(self, *names: str) -> None:
        """Nothing holds these nodes back any more; all of them where none is named."""
        for name in names or self._held:
            with contextlib.suppress(FileNotFoundError):
                (self._slow / name).unlink()
            self._cluster.kubelets[name].ailments = Ailments()

    def times_run(self, name: str) -> int:
        """How often the work on the node was begun."""
        path = self._ran / name
        return len(path.read_text().splitlines()) if path.exists() else 0

    def has_ready_canary(self, name: str) -> bool:
        """True if the node's canary is Ready, and not on its way."""
        pods = self._cluster.api.get("/api/v1/namespaces/nodelife/pods")["items"]
        there = [pod for pod in pods if pod["spec"].get("nodeName") == name]
        return any(is_ready(p) and not p["metadata"].get("deletionTimestamp") for p in there)

    def _pod_on(self, name: str) -> None:
        """A Deployment's pod on the node; it may go to the spare one."""
        cluster, app = self._cluster, f"lazy-{name}"
        path = "/apis/apps/v1/namespaces/shop/deployments"
        with contextlib.suppress(Refused):
            cluster.api.delete(f"{path}/{app}")
        cordon(cluster, self._spare)
        cluster.deployment(app, 1, only_on(name, self._spare))

        def is_there() -> bool:
            found = cluster.api.get(f"/api/v1/namespaces/shop/pods?labelSelector=app%3D{app}")
            pods = [p for p in found["items"] if not p["metadata"].get("deletionTimestamp")]
            return any(is_ready(p) and p["spec"].get("nodeName") == name for p in pods)

        cluster.until(f"{app} has a pod on {name}", is_there)
        cordon(cluster, self._spare, off=True)


def only_on(*nodes: str) -> Json:
    """A nodeAffinity."""
    wanted = {"key": HOSTNAME, "operator": "In", "values": list(nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def keep_web_on(cluster: Fleet, nodes: Sequence[str]) -> None:
    """The pods of `web` move to these nodes: their budget makes no other drain wait."""
    path = "/apis/apps/v1/namespaces/shop/deployments/web"
    spec = {"template": {"spec": {"affinity": {"nodeAffinity": only_on(*nodes)}}}}
    cluster.api.merge(path, {"spec": spec})

    def has_moved() -> bool:
        pods = cluster.api.get("/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb")["items"]
        there = [pod["spec"].get("nodeName") in nodes and is_ready(pod) for pod in pods]
        return len(there) == 6 and all(there)

    cluster.until("web has moved", has_moved)


def cordon(cluster: Fleet, name: str, *, off: bool = False) -> None:
    """A person cordons or uncordons the node."""
    cluster.api.merge(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None if off else True}})


def annotate(cluster: Fleet, name: str, text: str | None) -> None:
    """A person edits or removes the node's annotation."""
    meta = {"annotations": {ANNOTATION: text}}
    cluster.api.merge(f"/api/v1/nodes/{name}", {"metadata": meta})


def run_of(cluster: Fleet) -> Json:
    """The document of the run."""
    notes = cluster.api.get(LEASE)["metadata"].get("annotations") or {}
    found: Json = json.loads(notes.get(RUN_NOTE, "{}"))
    return found


def phase_of(cluster: Fleet) -> str:
    """The phase of the run."""
    return str(run_of(cluster).get("phase", "Running"))


def kill_in_phase(
    cluster: Fleet, operator: Operator, phase: str, seconds: float = PATIENCE_S
) -> None:
    """kill -9 as soon as the run is in that phase: before the leader has cleared it away."""
    deadline = time.monotonic() + seconds
    while phase_of(cluster) != phase:
        assert time.monotonic() < deadline, f"never {phase}: {operator.said()}"
        assert operator.process is not None and operator.process.poll() is None, operator.said()
        time.sleep(0.02)
    operator.kill()


def epochs_of(cluster: Fleet, *names: str) -> set[int]:
    """The epochs that the nodes' annotations name."""
    return {int(cluster.mark(name).get("epoch", 0)) for name in names}
