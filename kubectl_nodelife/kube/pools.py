"""The pool that a node belongs to, by the labels that clouds and autoscalers put on nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

POOL_LABELS: Final = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
    "node.kubernetes.io/pool",
    "pool",
)
"""Labels that name a node's pool, in the order in which they are looked for."""


def pool_of(labels: Mapping[str, str] | None, pool_label: str | None = None) -> tuple[str, str]:
    """The label that names the node's pool, and the pool; two empty strings where none does.

    `pool_label`: the only label to look for.
    """
    for label in (pool_label,) if pool_label else POOL_LABELS:
        if labels and label in labels:
            return label, labels[label]
    return "", ""
