"""What a pass reads off each node, kept for as long as the node is the same object.

A pass looks at every node of the cluster, and most of them have not changed since the last one.
"""

from __future__ import annotations

from typing import NamedTuple

from kubectl_nodelife.controllers.upgrade.availability import why_unavailable
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.ports import ZoneStates
from kubectl_nodelife.controllers.upgrade.selection import (
    is_control_plane,
    is_selected,
    pool_name,
    zone_name,
)
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.wellknown import TRUE
from kubectl_nodelife.kube.zones import zone_key


class NodeReading(NamedTuple):
    """What a node says of itself. `zone` is as it is shown, `zone_key` the lifecycle controller's.

    `unavailable`: why it is not available though its Lease is renewed, "" where it is. `is_down`:
    it is not Ready. `counts`: it counts in its zone.
    """

    node: Node
    pool: str
    zone: str
    zone_key: str
    is_control_plane: bool
    is_selected: bool
    is_down: bool
    unavailable: str
    counts: bool


class NodeReadings:
    """The readings of all nodes, for one policy."""

    def __init__(self, policy: UpgradePolicy, zones: ZoneStates) -> None:
        self._policy = policy
        self._zones = zones
        self._known: dict[str, NodeReading] = {}

    def of(self, node: Node) -> NodeReading:
        """What the node says, read anew only where it has changed."""
        known = self._known.get(node.name)
        if known is None or known.node is not node:
            known = self._known[node.name] = self._read(node)
        return known

    def _read(self, node: Node) -> NodeReading:
        ready = node.ready()
        return NodeReading(
            node,
            pool_name(node, self._policy),
            zone_name(node),
            zone_key(node.metadata.labels),
            is_control_plane(node),
            is_selected(node, self._policy),
            ready is None or ready.status != TRUE,
            why_unavailable(node),
            self._zones.counts(node),
        )
