"""Why a node is left out of a run: computed anew in each pass, written nowhere."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.controllers.upgrade.availability import foreign_mark, why_unavailable
from kubectl_nodelife.controllers.upgrade.marks import LABEL_HOLD
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.kube.node import Node

IS_THERE_ALREADY: Final = "is there already"
LEAST_CONTROL_PLANE: Final = 3
_NEVER: Final = frozenset({"never", "refused"})


def why_skipped(node: Node, policy: UpgradePolicy, *, lease_is_fresh: bool = True) -> str:
    """Why the node itself is not claimed, "" where nothing speaks against it."""
    if policy.is_target_met(node, ""):
        return f"{IS_THERE_ALREADY} ({', '.join(map(str, policy.target))})"
    if LABEL_HOLD in (node.metadata.labels or {}):
        return f"held by a person (label {LABEL_HOLD})"
    mark = foreign_mark(node)
    if mark:
        return mark
    if node.spec.unschedulable:
        return "" if policy.include_cordoned else "cordoned by others"
    why = why_unavailable(node, lease_is_fresh=lease_is_fresh)
    if why and policy.unhealthy != "include":
        return f"unhealthy before the run: {why}"
    return ""


def why_too_few(control_plane_nodes: int) -> str:
    """Why no control-plane node is claimed where there are so many; "" where one may be."""
    if control_plane_nodes >= LEAST_CONTROL_PLANE:
        return ""
    return f"of {control_plane_nodes} control-plane nodes none is taken out, of 3 one"


def why_undrainable(verdict: DrainVerdict, policy: UpgradePolicy) -> str:
    """Why a node with this verdict of the drain planner is not claimed, "" where it may be."""
    if verdict.verdict in _NEVER:
        return f"drain: {verdict.verdict}: {verdict.sentence}"
    if verdict.verdict == "unknown" and not policy.accept_unknown:
        return f"drain: unknown: {verdict.sentence} (--accept-unknown)"
    return ""
