"""The zone and the pool that a node belongs to, from its labels.

Follows component-helpers/node/topology/helpers.go (`GetZoneKey`). The key holds a NUL byte, as
upstream's does; `zone_display` makes it fit for people. A pool is named by labels that clouds and
autoscalers put on nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubectl_nodelife.kube.wellknown import (
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
)

_SEPARATOR = ":\x00:"

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


def zone_key(labels: Mapping[str, str] | None, *, beta_only: bool = False) -> str:
    """The zone key of a node with these labels; "" where it has neither region nor zone.

    Region and zone are looked up apart: the beta label where it is present, even if it is empty,
    else the stable one. `beta_only` is how it was until 1.16, when only the beta labels counted.
    """
    if not labels:
        return ""
    region = labels.get(LABEL_REGION_BETA)
    if region is None:
        region = "" if beta_only else labels.get(LABEL_REGION, "")
    zone = labels.get(LABEL_ZONE_BETA)
    if zone is None:
        zone = "" if beta_only else labels.get(LABEL_ZONE, "")
    return region + _SEPARATOR + zone if region or zone else ""


def zone_display(key: str) -> str:
    """The key for people: `region/zone`, the one part that there is, or "" for nodes without a
    zone.
    """
    region, _, zone = key.partition(_SEPARATOR)
    return "/".join(part for part in (region, zone) if part)


def pool_of(labels: Mapping[str, str] | None, pool_label: str | None = None) -> tuple[str, str]:
    """The label that names the node's pool, and the pool; two empty strings where none does.

    `pool_label`: the only label to look for.
    """
    for label in (pool_label,) if pool_label else POOL_LABELS:
        if labels and label in labels:
            return label, labels[label]
    return "", ""
