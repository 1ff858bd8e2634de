"""What becomes of zones when silent nodes are lost: the rule that decides it, and what was read off
a play of the present, the states that zones take and the taints of nodes.

The rule follows `ComputeZoneState`, `setLimiterInZone` and `handleDisruption` of
pkg/controller/nodelifecycle, with the lost nodes counted as not ready. A zone is judged when the
pass that finds its nodes lost has written all it has to write. `foretelling` is the play.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.controller import EVICTION_LOOP_PERIOD_NS
from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.zones import (
    FULL,
    PARTIAL,
    compute_zone_state,
    eviction_rate,
)
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.times import SECOND_NS, human_duration
from kubectl_nodelife.outlook.eviction_forecast import Range, clock_time

LATE_NS: Final = 5 * SECOND_NS
"""A pass that takes longer is told; by as much, the default period, its beginning is unknown."""


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


class ForetoldState(msgspec.Struct, frozen=True):
    """A state that a zone takes between two instants (ns since the epoch), and its rate then."""

    state: str
    rate: float
    low_ns: int
    high_ns: int

    def when(self, now_ns: int | None) -> str:
        """In how much time from that moment, or at which time where it is None."""
        low, high = (
            clock_time(at_ns) if now_ns is None else human_duration(max(0, at_ns - now_ns))
            for at_ns in (self.low_ns, self.high_ns)
        )
        return f"{'at' if now_ns is None else 'in'} {low if low == high else f'{low}-{high}'}"


class ForetoldZone(msgspec.Struct, frozen=True):
    """`silent`: how many of its ready nodes that count are late. `states`: those it takes, in
    order; `taints_ns`: when nodes of it get their NoExecute taints, in order. `pass_takes`: how
    long the pass takes that finds silent nodes lost, those of other zones too; `tainted_before`:
    how many of its own may be tainted until that ends."""

    silent: int = 0
    states: tuple[ForetoldState, ...] = ()
    taints_ns: tuple[int, ...] = ()
    pass_takes: Range = Range(0, 0)
    tainted_before: int = 0

    def rate_at(self, at_ns: int, rate: float) -> float:
        """The rate at an instant; `rate`: now."""
        return next((s.rate for s in reversed(self.states) if s.high_ns <= at_ns), rate)

    def beyond(self, state: str, rate: float) -> ForetoldZone:
        """What is still to come of a zone in that state: a first step that has come is left out."""
        comes = self.states
        if comes and (comes[0].state, comes[0].rate) == (state, rate):
            return msgspec.structs.replace(self, states=comes[1:])
        return self

    def as_early_as(self, faster: ForetoldZone) -> ForetoldZone:
        """The same, with a pass as short and states as early as they are in another play."""
        lows = {step.state: step.low_ns for step in reversed(faster.states)}
        states = [
            msgspec.structs.replace(s, low_ns=min(s.low_ns, lows.get(s.state, s.low_ns)))
            for s in self.states
        ]
        takes = Range(faster.pass_takes.low_ns, self.pass_takes.high_ns)
        return msgspec.structs.replace(self, states=tuple(states), pass_takes=takes)

    def in_words(self, nodes: int, state: str, now_ns: int | None) -> str:
        """What becomes of a zone of so many nodes in that state, "" for nothing else. `now_ns`
        None: with times instead of durations, so that the sentence stays while time goes by."""
        if not self.states:
            return ""
        steps = ", ".join(f"{s.state} ({s.rate:g}/s) {s.when(now_ns)}" for s in self.states)
        if not self.silent:
            return steps
        until = pass_in_words(self.pass_takes, state, self.tainted_before)
        return f"{self.silent} of {nodes} silent: {until}{steps} if none reports"


def pass_in_words(takes: Range, state: str, tainted: int) -> str:
    """How long a pass takes that finds nodes lost, and of a zone in that state what may be done to
    its nodes until then, "" where it is short; words follow. `tainted`: so many nodes at most."""
    if takes.high_ns < LATE_NS:
        return ""
    low, high = human_duration(takes.low_ns), human_duration(takes.high_ns)
    lasts = low if low == high else f"{low}-{high}"
    may = f" and up to {counted(tainted, 'node')} may be tainted" if tainted else ""
    return (
        f"the pass that finds them lost takes about {lasts}, until it ends the zone counts as "
        f"{state}{may}; then "
    )


class Foretold(msgspec.Struct, frozen=True):
    """The zones by key, and when each node gets its NoExecute taint (ns since the epoch); nodes
    that get none by `until_ns` are left out. `spread_ns`: by how much a pass of the running
    controller may come sooner or later than in the play."""

    until_ns: int
    spread_ns: int
    zones: dict[str, ForetoldZone]
    tainted_ns: dict[str, int]

    def taint_span(self, at_ns: int, now_ns: int) -> Range:
        """Between which instants (ns since the epoch) a taint comes that comes then in the play."""
        latest_ns = at_ns + self.spread_ns + EVICTION_LOOP_PERIOD_NS
        return Range(max(now_ns, at_ns - self.spread_ns), latest_ns)

    def as_early_as(self, faster: Foretold) -> Foretold:
        """The same, with states of zones that may come as early as in another play: that of a
        client which makes more requests a second."""
        zones = {
            key: zone.as_early_as(faster.zones.get(key, zone)) for key, zone in self.zones.items()
        }
        return msgspec.structs.replace(self, zones=zones)

    def changes_by(self, zone: str, now_ns: int, turn: Range | None) -> bool:
        """True if the zone's rate changes before that turn is over; None: before any."""
        changes = self.zones.get(zone)
        if changes is None or not changes.states:
            return False
        return turn is None or changes.states[0].low_ns < now_ns + turn.high_ns
