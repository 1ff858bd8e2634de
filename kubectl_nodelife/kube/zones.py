"""The zone that a node belongs to, from its labels.

Follows component-helpers/node/topology/helpers.go (`GetZoneKey`). The key holds a NUL byte, as
upstream's does; `zone_display` makes it fit for people.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubectl_nodelife.kube.wellknown import (
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
)

_SEPARATOR = ":\x00:"


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
