"""The facts that a kubelet reports of its machine: system info and allocatable.

A simulated kubelet leaves both as it finds them, until an act on its machine (`machines`) changes
them: then its next status post shows what is so now.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.kube.node import Node, NodeStatus, NodeSystemInfo
from kubectl_nodelife.kube.pod import Quantities


class MachineFacts(msgspec.Struct, frozen=True):
    """A machine's system info and allocatable, as they are now."""

    node_info: NodeSystemInfo
    allocatable: Quantities | None

    @classmethod
    def of(cls, node: Node) -> MachineFacts:
        """The facts that the Node object shows."""
        return cls(node.status.node_info, node.status.allocatable)

    def written(self, status: NodeStatus) -> NodeStatus:
        """The status with these facts in it."""
        if MachineFacts(status.node_info, status.allocatable) == self:
            return status
        return replace(status, node_info=self.node_info, allocatable=self.allocatable)
