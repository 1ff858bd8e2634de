"""Which nodes a run is about, and in which pool and zone each of them is counted.

Why a node is left out of a run: computed anew in each pass, written nowhere.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kubectl_nodelife.controllers.upgrade.counts import foreign_mark, why_unavailable
from kubectl_nodelife.controllers.upgrade.marks import LABEL_HOLD
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, is_selector
from kubectl_nodelife.controllers.upgrade.ports import DrainVerdict
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.node import Node, pool_of, zone_display, zone_key
from kubectl_nodelife.kube.selectors import matches, parse_selector

CONTROL_PLANE_LABELS: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)


def is_control_plane(node: Node) -> bool:
    """True if a label says that the node runs the control plane."""
    labels = node.metadata.labels or {}
    return any(label in labels for label in CONTROL_PLANE_LABELS)


def is_selected(node: Node, policy: UpgradePolicy) -> bool:
    """True if the run is about the node: named or selected, and not excluded.

    `exclude` holds names with commas between them, or a label selector.
    """
    if is_control_plane(node) and not policy.include_control_plane:
        return False
    if policy.exclude and is_excluded(node, policy.exclude):
        return False
    if policy.nodes:
        return node.name in policy.nodes
    return matches(_selector(policy.selector), node.metadata.labels)


def is_excluded(node: Node, exclude: str) -> bool:
    """True if `--exclude` names the node, or its selector matches it."""
    if is_selector(exclude):
        return matches(_selector(exclude), node.metadata.labels)
    return node.name in exclude.split(",")


def named_nodes(policy: UpgradePolicy) -> tuple[str, ...]:
    """The nodes that the order names: to be done, to be first, to be left out."""
    excluded = () if is_selector(policy.exclude) else policy.exclude.split(",")
    return (*policy.nodes, *policy.canary_nodes, *(name for name in excluded if name))


def pool_name(node: Node, policy: UpgradePolicy) -> str:
    """The pool in which the node counts, "" for none."""
    return pool_of(node.metadata.labels, policy.pool_label)[1]


def zone_name(node: Node) -> str:
    """The zone in which the node counts, as it is shown; "" for none."""
    return zone_display(zone_key(node.metadata.labels))


@lru_cache(maxsize=64)
def _selector(text: str) -> LabelSelector:
    return parse_selector(text) if text else LabelSelector()


IS_THERE_ALREADY: Final = "is there already"
LEAST_CONTROL_PLANE: Final = 3
_NEVER: Final = frozenset({"never", "refused"})


def why_skipped(node: Node, policy: UpgradePolicy, *, lease_is_fresh: bool = True) -> str:
    """Why the node itself is not claimed, "" where nothing prevents it."""
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
