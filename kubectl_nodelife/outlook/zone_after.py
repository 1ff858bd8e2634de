"""A zone's state and rate after the loss of more of its nodes, and the rule that gives them.

Follows `ComputeZoneState`, `setLimiterInZone` and `handleDisruption` of
pkg/controller/nodelifecycle with the lost nodes counted as not ready.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.zones import (
    FULL,
    PARTIAL,
    compute_zone_state,
    eviction_rate,
)
from kubectl_nodelife.engine.settings import Settings


def zone_rule(settings: Settings, state: str, size: int, not_ready: int, dark: bool) -> str:
    """The rule that decides the rate of a zone in that state, with its numbers. `dark`: no zone has
    a ready node."""
    threshold = f"{settings.unhealthy_zone_threshold:g}"
    share = f"{not_ready} of {size} not ready"
    if size == 0:
        return "all its nodes are excluded from the statistics"
    if dark and settings.taint_mode:
        return f"{share}, and no zone has a ready node: nothing is tainted, taints are taken off"
    if dark:
        return f"{share}, and no zone has a ready node: no pod is evicted, the queues are emptied"
    if state == FULL:
        does = "tainted" if settings.taint_mode else "evicted"
        return f"{share}, while other zones have ready nodes: {does} at the normal rate, by design"
    if state == PARTIAL:
        limit = settings.large_cluster_size_threshold
        if size > limit:
            return f"{share} (at least 3, share >= {threshold}) and {size} > {limit} nodes: slowed"
        return f"{share} (at least 3, share >= {threshold}) and {size} <= {limit} nodes: stopped"
    return f"{share}: below 3 nodes or below a share of {threshold}"


class ZoneAfterLoss(msgspec.Struct, frozen=True):
    """A zone with `lost` more nodes lost. `rate`: nodes a second, then; `before`: now.

    `all_dark`: no node of any zone would be ready. `why`: the rule that applies then.
    """

    lost: int
    state: str
    rate: float
    before: float
    all_dark: bool
    why: str

    @property
    def effect(self) -> str:
        """The effect of the loss on the brake, in words that `losing it` stands before."""
        if self.all_dark:
            return "makes all zones dark, which stops every zone"
        if self.rate < self.before:
            return f"slows this zone to {self.rate:g}/s" if self.rate else "stops this zone"
        if self.rate > self.before:
            return f"lets this zone go at {self.rate:g}/s again"
        return "leaves this zone stopped" if not self.rate else f"leaves it at {self.rate:g}/s"


def zones_after(
    memory: Memory,
    settings: Settings,
    counts: Mapping[str, tuple[int, int]],
    losses: Mapping[str, int],
) -> dict[str, ZoneAfterLoss]:
    """Those zones when so many of their ready nodes, by zone key, are lost together; of a zone with
    fewer than none so many come back. `counts`: (ready, not ready) nodes of each zone now."""
    dark = all(ready <= losses.get(key, 0) for key, (ready, _) in counts.items())
    return {
        zone: _after(memory, settings, zone, lost, counts.get(zone, (0, 0)), dark)
        for zone, lost in losses.items()
    }


def _after(
    memory: Memory, settings: Settings, zone: str, lost: int, count: tuple[int, int], dark: bool
) -> ZoneAfterLoss:
    ready, not_ready = count
    size = ready + not_ready
    state = compute_zone_state(ready - lost, not_ready + lost, settings.unhealthy_zone_threshold)
    all_dark = dark and state == FULL
    return ZoneAfterLoss(
        lost=lost,
        state=state,
        rate=0.0 if all_dark else eviction_rate(state, size, settings),
        before=memory.zones.rate(zone) if zone in memory.zones.queues else 0.0,
        all_dark=all_dark,
        why=zone_rule(settings, state, size, not_ready + lost, all_dark),
    )
