"""Whether a node is available, and which marks on it belong to other programs.

A node that counts as available can take an ordinary pod now. A permanent taint of a dedicated pool
does not make it unavailable, nor does a taint that only `--prefer`s other nodes.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.controllers.upgrade.marks import TAINT_UNPROVEN
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE, TRUE

CORDONED: Final = "cordoned"
_KUBERNETES: Final = "node.kubernetes.io/"

FOREIGN_TAINTS: Final = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler is about to delete it",
    "karpenter.sh/disrupted": "Karpenter is about to delete it",
    "karpenter.sh/disruption": "Karpenter is about to delete it",
    "medik8s.io/drain": "medik8s maintains it",
    "eks.amazonaws.com/nodegroup": "EKS upgrades its node group",
}
"""Taint keys of programs that take a node away or work on it, and what they do."""

_DELETING: Final = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
)
_KURED: Final = "weave.works/kured-reboot-in-progress"
_MACHINE_CONFIG_STATE: Final = "machineconfiguration.openshift.io/state"


def foreign_mark(node: Node) -> str:
    """Who else is at work on the node, in a sentence; "" where nobody has marked it."""
    if node.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    for taint in node.spec.taints:
        if _keeps_off(taint) and taint.key in FOREIGN_TAINTS:
            return f"{FOREIGN_TAINTS[taint.key]} (taint {taint.key})"
    annotations = node.metadata.annotations or {}
    if _KURED in annotations:
        return f"kured reboots it (annotation {_KURED})"
    state = annotations.get(_MACHINE_CONFIG_STATE, "Done")
    if state != "Done":
        return f"the machine config operator works on it ({_MACHINE_CONFIG_STATE}={state})"
    return ""


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
        return CORDONED
    mark = foreign_mark(node)
    if mark:
        return mark
    for taint in node.spec.taints:
        if _keeps_off(taint) and (taint.key.startswith(_KUBERNETES) or taint.key == TAINT_UNPROVEN):
            return f"taint {taint.key}:{taint.effect}"
    return ""


def is_deleted_by_others(node: Node) -> bool:
    """Whether a program that deletes nodes has marked it."""
    return any(taint.key in _DELETING for taint in node.spec.taints)


def _keeps_off(taint: Taint) -> bool:
    return taint.effect in (NO_SCHEDULE, NO_EXECUTE)
