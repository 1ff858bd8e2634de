"""The state of a node by which its pods are judged: whether it is Ready, and its last heartbeat.

This file decides once if its kubelet still reports, for all code that judges pods which depend on
it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.wellknown import FALSE, TRUE
from kubectl_nodelife.kube.wellknown import UNKNOWN as WORD_UNKNOWN

STATUS_EVERY_NS: Final = 5 * MINUTE_NS
"""How often a kubelet with a Lease posts what has not changed (`nodeStatusReportFrequency`)."""


class NodeReadiness(msgspec.Struct, frozen=True, gc=False):
    """The state of a node by which its pods are judged, worked out once a node.

    `read` False: nodes were not read at all, so nothing is known. `exists` False: there is no such
    node. `ready` is the Ready condition's status, "" without one, which says neither that the node
    is up nor that it is down. Instants in ns.
    """

    name: str
    read: bool = True
    exists: bool = True
    ready: str = ""
    ready_reason: str = ""
    ready_since_ns: int | None = None
    heartbeat_ns: int | None = None
    heartbeat_from_lease: bool = False
    taints: tuple[Taint, ...] = ()
    uid: str = ""
    resource_version: str = ""

    @property
    def is_ready(self) -> bool:
        """The node exists and its Ready condition is True."""
        return self.ready == TRUE

    @property
    def is_down(self) -> bool:
        """The node is reported or marked as not Ready, or does not exist."""
        return self.read and (not self.exists or self.ready in (FALSE, WORD_UNKNOWN))

    @property
    def heartbeat_field(self) -> str:
        """Where the heartbeat was read."""
        if self.heartbeat_from_lease:
            return f"lease {self.name}: spec.renewTime"
        return f"node {self.name}: status.conditions[Ready].lastHeartbeatTime"

    def has_taint(self, key: str) -> bool:
        """True if the node has a taint of that key, whatever its effect."""
        return any(taint.key == key for taint in self.taints)


def node_readiness(node: Node, renewed_ns: int | None) -> NodeReadiness:
    """The health of a node that exists. Its heartbeat is when its Lease was renewed, or where that
    is not known (None) the one of the Ready condition."""
    ready = node.ready()
    posted: int | None = None if ready is None else ready.last_heartbeat_time
    return NodeReadiness(
        name=node.name,
        ready="" if ready is None else ready.status,
        ready_reason="" if ready is None else ready.reason,
        ready_since_ns=None if ready is None else ready.last_transition_time,
        heartbeat_ns=posted if renewed_ns is None else renewed_ns,
        heartbeat_from_lease=renewed_ns is not None,
        taints=node.spec.taints,
        uid=node.uid,
        resource_version=node.metadata.resource_version,
    )


def kubelet_reports(node: NodeReadiness, grace_ns: int, now_ns: int) -> bool:
    """True if the kubelet reports: by its heartbeat, or by the Ready condition where none was read.

    `grace_ns`: how old a heartbeat may be. Of a node that is Ready the status alone may be older by
    the period in which a kubelet with a Lease repeats it.
    """
    if not node.exists:
        return False
    if node.heartbeat_ns is None:
        return node.ready in (TRUE, FALSE)
    if node.is_ready and not node.heartbeat_from_lease:
        grace_ns += STATUS_EVERY_NS
    return now_ns - node.heartbeat_ns < grace_ns
