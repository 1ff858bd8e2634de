"""A small cluster and what happens to it while our daemon is its only controller.

Six nodes in three zones, on each a pod that nobody owns and that tolerates a lost node for two
seconds, and a DaemonSet. `lose_and_return` takes a kubelet away until its pod is evicted, and
brings it back; `roll` gives the DaemonSet another template. Each waits until the cluster looks as
the real controllers would leave it, whatever befalls the writes meanwhile.
"""

from collections.abc import Iterator
from typing import Any

from tests.real.control_plane import ControlPlane, Refused, until
from tests.real.kubelets import Kubelets

Json = dict[str, Any]

PERIOD_S, GRACE_S = 1, 6
SET = (
    "--set",
    f"node-monitor-period={PERIOD_S}s",
    "--set",
    f"node-monitor-grace-period={GRACE_S}s",
    "--set",
    "node-eviction-rate=10",
)
NODES = tuple(f"n{i}" for i in range(6))
_PATIENCE_S = 360
"""Where every third write fails, breakers open; each then tries one write every half minute, and
may meet a fault several times in a row.
"""
_PODS = "/api/v1/namespaces/default/pods"
_SETS = "/apis/apps/v1/namespaces/default/daemonsets"
_LOST = "node.kubernetes.io/unreachable"


class Story:
    """The cluster, from outside: what is done to it, and how it looks."""

    def __init__(self, plane: ControlPlane, kubelets: Kubelets) -> None:
        self.api = plane.api
        self.kubelets = kubelets
        self._version = 1

    def furnish(self) -> None:
        """Nodes, pods and the DaemonSet."""
        for i, name in enumerate(NODES):
            self.kubelets.add_node(name, {"topology.kubernetes.io/zone": "abc"[i % 3]})
        for name in NODES:
            self.api.create(_PODS, _pod(f"web-{name}", name))
        self.api.create(_SETS, _daemon_set(self._version))

    def wait_for_daemon_pods(self) -> None:
        """One ready pod of the DaemonSet on each node, of the newest template."""
        until(
            self._is_rolled_out, "one daemon pod of the newest template on each node", _PATIENCE_S
        )

    def lose_and_return(self, node: str) -> None:
        """The node's kubelet falls silent until the pod is evicted; then it comes back."""
        self.kubelets.stop(node)
        until(lambda: self._is_tainted(node), f"{node} is unreachable", _PATIENCE_S)
        until(lambda: self._is_deleted(f"web-{node}"), f"the pod of {node} is deleted", _PATIENCE_S)
        self.kubelets.start(node)
        until(lambda: not self._taints(node), f"{node} is free of taints", _PATIENCE_S)
        until(self._is_rolled_out, "its daemon pod is ready", _PATIENCE_S)

    def roll(self) -> None:
        """Another template, until it is everywhere."""
        self._version += 1
        while True:
            try:
                self.api.merge(f"{_SETS}/agent", _daemon_set(self._version))
                break
            except Refused as refused:
                if refused.code != 409:
                    raise
        self.wait_for_daemon_pods()

    def daemon_pods(self) -> Iterator[Json]:
        """The living pods of the DaemonSet."""
        for pod in self.api.get(_PODS)["items"]:
            if pod["metadata"].get("ownerReferences") and not _is_terminating(pod):
                yield pod

    def _is_rolled_out(self) -> bool:
        pods = list(self.daemon_pods())
        wanted = f"agent:{self._version}"
        return sorted(p["spec"].get("nodeName", "") for p in pods) == list(NODES) and all(
            p["spec"]["containers"][0]["image"] == wanted and _is_ready(p) for p in pods
        )

    def _is_tainted(self, node: str) -> bool:
        return (_LOST, "NoExecute") in self._taints(node)

    def _taints(self, node: str) -> set[tuple[str, str]]:
        taints = self.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints") or []
        return {(t["key"], t["effect"]) for t in taints}

    def _is_deleted(self, pod: str) -> bool:
        try:
            return _is_terminating(self.api.get(f"{_PODS}/{pod}"))
        except Refused as refused:
            return refused.code == 404


def _is_terminating(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _pod(name: str, node: str) -> Json:
    tolerations = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 2,
        }
        for key in (_LOST, "node.kubernetes.io/not-ready")
    ]
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "tolerations": tolerations,
            "containers": [{"name": "web", "image": "web"}],
        },
    }


def _daemon_set(version: int) -> Json:
    labels = {"app": "agent"}
    container = {"name": "agent", "image": f"agent:{version}", "args": ["a && b", "<c>", "\u2028"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": 3}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
            },
        },
    }
