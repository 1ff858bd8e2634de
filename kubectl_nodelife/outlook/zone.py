"""One zone's outlook: its state, the eviction rate that applies, the nodes waiting for a taint."""

from __future__ import annotations

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.zones import FULL, PARTIAL
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.zones import zone_display

_STAYS_STOPPED = "; it was stopped, and a rate of 1 does not start it again, as in upstream"
"""A stopped limiter says that its rate is 1, so that 1 is no change. See `Never`."""


class ZoneOutlook(msgspec.Struct, frozen=True):
    """`nodes`, `not_ready`: those that the controller counts. `rate`: nodes a second.

    `why`: the rule that applies. `evictions`: nodes that were tainted (classic: whose pods were
    evicted) since the controller began.
    """

    key: str
    name: str
    state: str
    nodes: int
    not_ready: int
    threshold: float
    rate: float
    queued: list[str]
    why: str
    evictions: int

    def metrics(self) -> dict[str, float]:
        """Upstream's metrics of the zone, by their names there without the prefix.

        Follows `zoneHealth`, `zoneSize`, `unhealthyNodes` and `evictionsNumber` of
        pkg/controller/nodelifecycle/metrics.go: health is a percentage, 100 where no node counts.
        """
        healthy = self.nodes - self.not_ready
        return {
            "evictionsNumber": self.evictions,
            "zoneHealth": round(100 * healthy / self.nodes, 3) if self.nodes else 100.0,
            "zoneSize": self.nodes,
            "unhealthyNodesInZone": self.not_ready,
        }


def zones(memory: Memory, settings: Settings) -> list[ZoneOutlook]:
    """All zones that have nodes, in order of their keys."""
    counts = memory.zones.counts()
    dark = bool(counts) and all(ready == 0 for ready, _ in counts.values())
    return [
        _zone(memory, settings, key, counts.get(key, (0, 0)), dark)
        for key in sorted(memory.zones.members)
    ]


def zone_metrics(memory: Memory, settings: Settings) -> dict[str, dict[str, float]]:
    """Upstream's metrics of each zone, by its name; those of zones that vanished among them."""
    found = {zone.name: zone.metrics() for zone in zones(memory, settings)}
    for key in memory.zones.evictions:
        if key not in memory.zones.members:
            gone = _zone(memory, settings, key, (0, 0), dark=False)
            found.setdefault(gone.name, gone.metrics())
    return found


def _zone(
    memory: Memory, settings: Settings, key: str, count: tuple[int, int], dark: bool
) -> ZoneOutlook:
    ready, not_ready = count
    size = ready + not_ready
    state = memory.zones.states.get(key, "")
    queue = memory.zones.queues.get(key)
    rate = memory.zones.rate(key) if queue is not None else 0.0
    why = zone_rule(settings, state, size, not_ready, dark)
    if queue is not None and not rate and not dark and memory.eviction_rate(state, size) == 1:
        why += _STAYS_STOPPED
    return ZoneOutlook(
        key=key,
        name=zone_display(key),
        state=state,
        nodes=size,
        not_ready=not_ready,
        threshold=settings.unhealthy_zone_threshold,
        rate=rate,
        queued=queue.waiting() if queue is not None else [],
        why=why,
        evictions=memory.zones.evictions.get(key, 0),
    )


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
