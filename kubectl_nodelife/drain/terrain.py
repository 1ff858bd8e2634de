"""The nodes as the snapshot has them, prepared for the scheduler once and shared by all runs.

What a run changes it keeps for itself (`landing`); here nothing changes but what has been computed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from kubectl_nodelife.drain.snapshot import Snapshot
from kubectl_nodelife.kube.affinity import required_node_selector
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import pod_requests
from kubectl_nodelife.workloads.eviction import TERMINAL_PHASES
from kubectl_nodelife.workloads.nodeinfo import NodeInfo, host_ports
from kubectl_nodelife.workloads.scheduling import static_reason

REASON_SILENT: Final = "node(s) had a silent kubelet"


class Terrain:
    """The nodes of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._infos: dict[str, NodeInfo] = {}
        self._admitted: dict[Hashable, list[str]] = {}

    def info(self, name: str) -> NodeInfo:
        """What the node has left at the plan's moment. Not to be changed: `NodeInfo.copy` is."""
        info = self._infos.get(name)
        if info is None:
            info = self._infos[name] = NodeInfo(self.snapshot.nodes[name])
            for pod in self.snapshot.pods_by_node.get(name, ()):
                if pod.status.phase not in TERMINAL_PHASES:
                    info.add(pod_requests(pod), host_ports(pod))
        return info

    def admitted(self, pod: Pod) -> list[str]:
        """The nodes that the pod may go to by cordons, taints, selectors and node affinity."""
        key = static_key(pod)
        names = self._admitted.get(key)
        if names is None:
            nodes = self.snapshot.nodes.items()
            names = [name for name, node in nodes if self.keeps_off(pod, node) is None]
            self._admitted[key] = names
        return names

    def keeps_off(self, pod: Pod, node: Node) -> str | None:
        """Why the node is out of the question for the pod, whatever runs there."""
        reason = static_reason(pod, node)
        if reason is None and self.snapshot.silent_kubelet(node.name) is not None:
            return REASON_SILENT
        return reason


def static_key(pod: Pod) -> Hashable:
    """Pods with the same key are admitted by the same nodes."""
    spec = pod.spec
    return (
        spec.tolerations,
        tuple(sorted(spec.node_selector.items())) if spec.node_selector else None,
        required_node_selector(spec),
    )
