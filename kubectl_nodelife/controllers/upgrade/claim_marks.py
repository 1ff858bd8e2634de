"""The PATCH of a claim, and the soft taint on nodes that are still to be done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    CordonOwner,
    NodeBefore,
    NodeMark,
    NodeState,
    absent_shield,
    left_by_another,
    outdated,
)
from kubectl_nodelife.controllers.upgrade.policy import node_info
from kubectl_nodelife.controllers.upgrade.settling import csi_drivers
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.actions import ClaimNode, MarkNode
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.wellknown import TAINT_NODE_UNSCHEDULABLE

_OURS: Final = "nodelife.dev/"


def claim_node(p: UpgradePass, node: Node) -> None:
    """One PATCH: cordon, annotation, label, shield. The cordon is ours if this turned it on."""
    proof_only = p.document.proof_only
    cordoned = node.spec.unschedulable
    if proof_only:
        cordon = CordonOwner.THEIRS if cordoned else CordonOwner.NONE
    else:
        cordon = CordonOwner.THEIRS if cordoned else CordonOwner.OURS
    shields = p.policy.shield and not proof_only
    annotations, labels = absent_shield(node) if shields else ({}, {})
    earlier = left_by_another(node, p.document.run) if proof_only else None
    mark = NodeMark(
        run=p.document.run,
        state=NodeState.DRAINING,
        claimed=p.stamp,
        cordon=cordon,
        shield=earlier.shield if earlier else (*annotations, *labels),
        before=_before(p, node),
        earlier=replace(earlier, before=NodeBefore()) if earlier else None,
    )
    state = NodeState.SETTLING if proof_only else NodeState.DRAINING
    p.memory.named.discard(node.name)
    p.memory.forget(node.name)
    p.memory.sent_marks.pop(node.name, None)
    if not proof_only:
        p.census.claim(node.name)
        p.claimed.append(node.name)
    p.change(
        node,
        p.entered(mark, state),
        "claimed for its upgrade" if not proof_only else "claimed for its proof",
        word=ClaimNode,
        annotations=dict(annotations),
        labels=dict(labels),
        unschedulable=True if cordon is CordonOwner.OURS else None,
    )


def _before(p: UpgradePass, node: Node) -> NodeBefore:
    info = node_info(node)
    taints = tuple(
        replace(taint, time_added=None)
        for taint in node.spec.taints
        if not taint.key.startswith(_OURS) and taint.key != TAINT_NODE_UNSCHEDULABLE
    )
    return NodeBefore(
        uid=node.uid,
        boot_id=info.get("bootID", ""),
        node_info=info,
        allocatable=dict(node.status.allocatable or {}),
        taints=taints,
        csi=csi_drivers(p, node),
    )


def mark_outdated(p: UpgradePass, names: Iterable[str]) -> None:
    """A soft taint on what is still to be done, so that pods do not move there."""
    if not p.policy.mark_outdated or p.document.proof_only:
        return
    for name in names:
        node = p.nodes[name]
        if p.readings[name].is_outdated or p.is_busy(name):
            continue
        if node.name in p.next.step.nodes or ANNOTATION in (node.metadata.annotations or {}):
            continue
        p.emit(
            MarkNode(
                controller="upgrade",
                because="still to be done",
                node=node.name,
                node_uid=node.uid,
                add_taints=(outdated(p.document.run),),
            )
        )
