"""Soaking: the node serves again, and is watched for a while; then it is Done."""

from __future__ import annotations

from kubectl_nodelife.controllers.upgrade.marks import (
    CordonOwner,
    NodeMark,
    NodeState,
    is_cordoned_meanwhile,
)
from kubectl_nodelife.controllers.upgrade.restoring import fail, leave_cordon
from kubectl_nodelife.controllers.upgrade.settling import (
    is_ready,
    s2_is_fresh,
    s5_conditions,
    s7_daemon_pods,
)
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Node


def soak(p: UpgradePass, node: Node, mark: NodeMark) -> None:
    """One pass over a node in Soaking: S2, S4, S5 and S7 must go on holding."""
    if is_cordoned_meanwhile(node, mark):
        leave_cordon(p, node, mark)
        return
    sight = p.sight(node.name, mark)
    if p.clock_stands(node.name, mark):
        sight.armed_ns = p.now_ns
        return
    broken = (
        s2_is_fresh(p, node, mark)
        or is_ready(node)
        or s5_conditions(p, node, mark)
        or s7_daemon_pods(p, node, mark)
    )
    sight.waits_for = broken
    if broken:
        fail(p, node, mark, f"broke after its release: {broken}")
    elif p.is_over(sight.armed_ns, p.policy.node_soak_ns):
        by_others = mark.cordon is CordonOwner.THEIRS
        because = "cordoned by others" if by_others else "in service, and nothing broke"
        p.change(node, p.entered(mark, NodeState.DONE, because), because, was=mark.state)
