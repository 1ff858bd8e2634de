"""What a pass reads off each node, kept for as long as the node is the same object.

A pass looks at every node of the cluster, and most of them have not changed since the last one: a
pass costs a look-up for each node, and what changed is read anew.
"""

from __future__ import annotations

from typing import NamedTuple

from kubectl_nodelife.controllers.upgrade.availability import is_deleted_by_others, why_unavailable
from kubectl_nodelife.controllers.upgrade.counts import CountedNode, NodeCounts, limits_of
from kubectl_nodelife.controllers.upgrade.marks import (
    TAINT_OUTDATED,
    NodeMark,
    UnreadableMark,
    mark_of,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.ports import ZoneStates
from kubectl_nodelife.controllers.upgrade.selection import (
    is_control_plane,
    is_selected,
    pool_name,
    zone_name,
)
from kubectl_nodelife.controllers.upgrade.skips import why_skipped
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.wellknown import PREFER_NO_SCHEDULE, TRUE
from kubectl_nodelife.kube.zones import zone_key


class NodeReading(NamedTuple):
    """What a node says of itself. `zone` is as it is shown, `zone_key` the lifecycle controller's.

    `mark`: its annotation, None where it has none; `is_readable`: whether that could be read.
    `counted`: how it counts while its Lease is renewed. `skipped`: why it is left out then, ""
    where it is not. `is_down`: it is not Ready. `counts`: it counts in its zone.
    """

    node: Node
    pool: str
    zone: str
    zone_key: str
    is_control_plane: bool
    is_selected: bool
    is_down: bool
    counts: bool
    counted: CountedNode
    mark: NodeMark | None
    is_readable: bool
    skipped: str
    is_outdated: bool
    is_leaving: bool


class NodeReadings:
    """The readings of all nodes, for one policy. `counts`: of the last pass, for the next one."""

    def __init__(self, policy: UpgradePolicy, zones: ZoneStates) -> None:
        self.counts = NodeCounts(limits_of(policy))
        self._policy = policy
        self._zones = zones
        self._known: dict[str, NodeReading] = {}
        self._fresh_until_ns: dict[str, int] = {}

    def of(self, node: Node) -> NodeReading:
        """What the node says, read anew only where it has changed."""
        known = self._known.get(node.name)
        if known is None or known.node is not node:
            known = self._known[node.name] = self._read(node)
        return known

    def is_fresh(self, cache: Cache, name: str, now_ns: int, grace_ns: int) -> bool:
        """Whether the node's Lease was renewed within the grace period, as we saw it."""
        if now_ns <= self._fresh_until_ns.get(name, -1):
            return True
        beat = cache.heartbeat(name)
        seen = beat.renewal(now_ns) if beat is not None else None
        if seen is None:
            return False
        until_ns = self._fresh_until_ns[name] = seen[1] + grace_ns
        return now_ns <= until_ns

    def _read(self, node: Node) -> NodeReading:
        ready, policy = node.ready(), self._policy
        pool, zone = pool_name(node, policy), zone_name(node)
        on_control_plane = is_control_plane(node)
        why = why_unavailable(node)
        try:
            mark, is_readable = mark_of(node), True
        except UnreadableMark:
            mark, is_readable = None, False
        return NodeReading(
            node,
            pool,
            zone,
            zone_key(node.metadata.labels),
            on_control_plane,
            is_selected(node, policy),
            ready is None or ready.status != TRUE,
            self._zones.counts(node),
            CountedNode(node.name, pool, zone, why, control_plane=on_control_plane),
            mark,
            is_readable,
            why_skipped(node, policy),
            node.has_taint(TAINT_OUTDATED, PREFER_NO_SCHEDULE),
            is_deleted_by_others(node),
        )
