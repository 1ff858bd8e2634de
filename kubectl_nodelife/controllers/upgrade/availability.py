"""Whether a node is available: whether an ordinary pod of its pool can be put there now.

A permanent taint of a dedicated pool does not make it unavailable, nor does one that only prefers
other nodes.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.controllers.upgrade.marks import TAINT_UNPROVEN, others_mark
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE, TRUE

_KUBERNETES: Final = "node.kubernetes.io/"


def why_unavailable(node: Node, *, lease_is_fresh: bool = True) -> str:
    """Why the node is not available, in a few words; "" where it is.

    `lease_is_fresh`: its Lease was renewed within the grace period, as the leader saw it.
    """
    ready = node.ready()
    if ready is None or ready.status != TRUE:
        return f"Ready is {ready.status if ready else 'missing'}"
    if not lease_is_fresh:
        return "its Lease is not renewed"
    if node.spec.unschedulable:
        return "cordoned"
    mark = others_mark(node)
    if mark:
        return f"another program is at work on it ({mark})"
    for taint in node.spec.taints:
        if _keeps_off(taint) and (taint.key.startswith(_KUBERNETES) or taint.key == TAINT_UNPROVEN):
            return f"taint {taint.key}:{taint.effect}"
    return ""


def _keeps_off(taint: Taint) -> bool:
    return taint.effect in (NO_SCHEDULE, NO_EXECUTE)
