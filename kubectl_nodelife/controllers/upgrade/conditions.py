"""Conditions of a node under maintenance (`--conditions`), after kubernetes/enhancements#5683.

They repeat the state for other programs and are never read back. Each is a PATCH of its own, after
that of the state, for status is another subresource; what is left by a leader that ended is
corrected by the next one's pass.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.actions import SetNodeConditions
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Node, NodeCondition
from kubectl_nodelife.kube.wellknown import FALSE, TRUE

REASON: Final = "AdminRequested"
DRAIN, DRAINED, MAINTENANCE = "DrainInProgress", "Drained", "MaintenanceInProgress"
_UNDER_WORK: Final = {DRAIN: FALSE, DRAINED: TRUE, MAINTENANCE: TRUE}
_IN_SERVICE: Final = {DRAIN: FALSE, DRAINED: FALSE, MAINTENANCE: FALSE}
WANTED: Final[dict[NodeState, dict[str, str]]] = {
    NodeState.DRAINING: {DRAIN: TRUE},
    NodeState.WORKING: _UNDER_WORK,
    NodeState.SETTLING: _UNDER_WORK,
    NodeState.PROVING: _UNDER_WORK,
    NodeState.SOAKING: _IN_SERVICE,
    NodeState.DONE: _IN_SERVICE,
}


def follow(p: UpgradePass) -> None:
    """Set what a node's state says; where a node has none any more, what was True becomes False."""
    if not p.policy.conditions:
        return
    for name, node in p.nodes.items():
        mark = p.marks.get(name)
        if p.is_busy(name) or name in p.strangers:
            continue
        now, message = Time(p.clock_ns), f"upgrade {p.document.run}"
        if mark is None:
            conditions = in_service(node, message, now)
        else:
            conditions = _changed(node, WANTED.get(mark.state, {}), message, now)
        if conditions:
            p.emit(
                SetNodeConditions(
                    controller="upgrade",
                    because="the node's state, for other programs",
                    node=node.name,
                    node_uid=node.uid,
                    conditions=conditions,
                )
            )


def in_service(node: Node, message: str, now: Time) -> tuple[NodeCondition, ...]:
    """Our conditions that are True and become False, for the node is no longer under work."""
    ours = (c for c in node.status.conditions if c.type in _IN_SERVICE and c.reason == REASON)
    return _changed(node, {c.type: FALSE for c in ours if c.status == TRUE}, message, now)


def _changed(
    node: Node, wanted: dict[str, str], message: str, now: Time
) -> tuple[NodeCondition, ...]:
    """The conditions that differ; what was never set need not be set to False."""
    found = {c.type: c.status for c in node.status.conditions}
    changed = [t for t, status in wanted.items() if found.get(t, FALSE) != status]
    return tuple(NodeCondition(t, wanted[t], REASON, message, now, now) for t in changed)
