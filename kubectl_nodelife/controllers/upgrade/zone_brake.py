"""Keeps a zone out of disruption: would one node more, and one accident more, be too many?

The zones and their arithmetic are those of the node lifecycle controller (`ComputeZoneState`, with
ratios of 32-bit floats): from the unhealthy zone threshold on it slows or stops all evictions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kubectl_nodelife.engine.token_bucket import as_float32

PARTIAL_NEEDS_MORE_THAN: Final = 2
"""Not-ready nodes up to this number never make a zone disrupted."""


class ZoneCounts(NamedTuple):
    """One zone. `nodes`: those that the lifecycle controller counts. `ours`: claimed by the run and
    in Draining, Working or Settling. `not_ready`: the others that are not Ready, the node to be
    claimed left out.
    """

    nodes: int
    not_ready: int
    ours: int


def zone_hold(
    counts: ZoneCounts, threshold: float, reserve: int = 1, *, allow_dark: bool = False
) -> str:
    """Why one node more of the zone must not go; "" where it may.

    `threshold`: the controller's unhealthy-zone-threshold. `reserve`: accidents to allow for.
    `allow_dark`: the zone may be left without a Ready node.
    """
    nodes, not_ready, ours = counts
    if not allow_dark and nodes - not_ready - ours - 1 < 1:
        return f"no Ready node of its zone's {nodes} would be left (--allow-dark-zone)"
    down = not_ready + ours + 1 + reserve
    ratio = as_float32(as_float32(down) / as_float32(nodes))
    if down > PARTIAL_NEEDS_MORE_THAN and ratio >= as_float32(threshold):
        return (
            f"{down} of its zone's {nodes} nodes would be out with {reserve} accident more; from a"
            f" share of {threshold:.0%} on the zone counts as disrupted"
        )
    return ""
