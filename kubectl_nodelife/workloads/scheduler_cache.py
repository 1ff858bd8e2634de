"""What the simulated scheduler asks of the cluster: nodes, what their pods leave, volumes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.workloads.nodeinfo import NodeInfo
from kubectl_nodelife.workloads.pod_classes import Demands
from kubectl_nodelife.workloads.volumes import Volumes


class SchedulerCache(Volumes, Protocol):
    """The cluster as the scheduler sees it now."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each namespace."""

    def admitted(self, demands: Demands) -> tuple[Iterable[str], Collection[str]]:
        """Nodes known to admit such pods whatever runs there; those of which it is not known."""

    def pod_count(self, name: str) -> int:
        """How many pods are bound to the node."""

    def stock(self, name: str) -> NodeInfo:
        """What the node's pods leave of it; the caller's own."""

    def placed(self, namespace: str | None) -> Iterable[tuple[Pod, Node]]:
        """The pods of the namespace, or of all, that are on a node and have not ended."""

    def placed_anti_affinity(self) -> Iterable[tuple[Pod, Node]]:
        """Those of them that keep others away by a required anti-affinity."""

    def keeps_off(self, node: Node) -> str | None:
        """Why no pod goes to the node though the filters let it, or None."""
