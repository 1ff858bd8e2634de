"""Indexes the nodes of a plan's snapshot: free resources, and classes of equal pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.quantity import pod_requests
from kubectl_nodelife.workloads.eviction import TERMINAL_PHASES
from kubectl_nodelife.workloads.nodeinfo import NodeInfo, host_ports
from kubectl_nodelife.workloads.pod_classes import Demands, PodClasses
from kubectl_nodelife.workloads.scheduling import static_reason

REASON_SILENT: Final = "node(s) had a silent kubelet"


class NodeIndex:
    """The nodes of a snapshot, and which of its pods are alike."""

    def __init__(self, snapshot: PlanSnapshot) -> None:
        self.snapshot = snapshot
        self.classes = PodClasses()
        self._infos: dict[str, NodeInfo] = {}
        self._admitted: dict[Demands, list[str]] = {}

    def info(self, name: str) -> NodeInfo:
        """What the node has left at the plan's moment. Not to be changed: `NodeInfo.copy` is."""
        info = self._infos.get(name)
        if info is None:
            info = self._infos[name] = NodeInfo(self.snapshot.nodes[name])
            alike: dict[int, list[Mapping[str, int]]] = {}
            for pod in self.snapshot.pods_by_node.get(name, ()):
                if pod.status.phase not in TERMINAL_PHASES:
                    requests, ports = pod_requests(pod), host_ports(pod)
                    if ports:
                        info.add(requests, ports)
                    else:  # many request the very same
                        alike.setdefault(id(requests), []).append(requests)
            for same in alike.values():
                info.add(same[0], pods=len(same))
        return info

    def admitted(self, demands: Demands) -> list[str]:
        """The nodes that admit such pods at the plan's moment, whatever runs there."""
        names = self._admitted.get(demands)
        if names is None:
            pod, silent = demands.wanted.pod, self.snapshot.silent_kubelet
            names = self._admitted[demands] = [
                name
                for name, node in self.snapshot.nodes.items()
                if static_reason(pod, node) is None and silent(name) is None
            ]
        return names
