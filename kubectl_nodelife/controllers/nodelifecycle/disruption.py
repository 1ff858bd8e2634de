"""Judges the zones at the end of a monitor pass: their states, and the rate limiters that follow.

Follows `handleDisruption` of pkg/controller/nodelifecycle/node_lifecycle_controller.go, with the
case that all zones are fully disrupted. The taints that go then are taken off before
(`monitor.continue_pass`), since that takes its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.taints import CONTROLLER
from kubectl_nodelife.controllers.nodelifecycle.zones import (
    FULL,
    INITIAL,
    PARTIAL,
    compute_zone_state,
)
from kubectl_nodelife.engine.actions import Action, SetZoneState
from kubectl_nodelife.engine.cache import Cache

ALL_DARK: Final = "no zone has a single ready node: the fault may be this side's, evictions stop"


def handle_disruption(memory: Memory, cache: Cache, now_ns: int) -> Iterator[Action]:
    """Compare the zones' new states with the old ones and set their rates."""
    zones = memory.zones
    counts = zones.counts()
    threshold = memory.settings.unhealthy_zone_threshold
    states = {zone: compute_zone_state(*count, threshold) for zone, count in counts.items()}
    for zone in states:
        zones.states.setdefault(zone, INITIAL)
    all_are = all(state == FULL for state in states.values())
    all_were = all(zones.states[zone] == FULL for zone in states)
    zones.forget_uncounted(counts.keys())
    if all_are and all_were:
        return
    if all_are:
        yield from _stop_everything(memory, states, now_ns)
        return
    for zone in zones.states.keys() - states.keys():
        zones.states[zone] = INITIAL  # of no state that would bring another rate
    if all_were:
        _count_afresh(memory, cache, now_ns)
    for zone, state in states.items():
        if all_were or zones.states[zone] != state:
            rate = memory.eviction_rate(state, sum(counts[zone]))
            zones.queues[zone].swap_limiter(rate, now_ns)
            yield from _set_state(memory, zone, state, _why(memory, zone, state))


def all_turn_dark(memory: Memory) -> bool:
    """True if no zone has a ready node any more, while the last pass found one."""
    counts, threshold = memory.zones.counts(), memory.settings.unhealthy_zone_threshold
    states = [compute_zone_state(*count, threshold) for count in counts.values()]
    were = (memory.zones.states.get(zone, INITIAL) == FULL for zone in counts)
    return all(state == FULL for state in states) and not all(were)


def _stop_everything(memory: Memory, states: dict[str, str], now_ns: int) -> Iterator[Action]:
    """Every zone is dark, so the fault is likely ours: all taints are off, all queues stop."""
    because = ALL_DARK
    for zone in list(memory.zones.states):
        memory.zones.queues[zone].swap_limiter(0, now_ns)
        if zone in states:
            yield from _set_state(memory, zone, FULL, because)
        else:  # a zone that is not counted, not forgotten yet
            memory.zones.states[zone] = FULL


def _count_afresh(memory: Memory, cache: Cache, now_ns: int) -> None:
    """The full disruption is over: silence in it does not count."""
    for name, health in memory.health.items():
        if name in cache.nodes:
            health.probe_ns = health.ready_transition_ns = now_ns
            memory.look_at.add(name)


def _set_state(memory: Memory, zone: str, state: str, because: str) -> Iterator[Action]:
    before, (ready, not_ready) = memory.zones.states[zone], memory.zones.counts()[zone]
    memory.zones.states[zone] = state
    yield SetZoneState(
        controller=CONTROLLER,
        because=because,
        cause=memory.last_loss,
        zone=zone,
        from_=before,
        to=state,
        rate=memory.zones.rate(zone),
        not_ready=not_ready,
        nodes=ready + not_ready,
    )


def _why(memory: Memory, zone: str, state: str) -> str:
    """The comparison that decided, with its numbers."""
    settings = memory.settings
    ready, not_ready = memory.zones.counts()[zone]
    size = ready + not_ready
    share = f"{not_ready} of {size} nodes not ready"
    threshold = f"unhealthy-zone-threshold {settings.unhealthy_zone_threshold:g}"
    if state == FULL:
        return f"{share}, in other zones some are: nodes are tainted at the normal rate"
    if state == PARTIAL:
        large = settings.large_cluster_size_threshold
        relation = "more than" if size > large else "not more than"
        rate = "the secondary rate" if size > large else "nothing is tainted"
        return (
            f"{share}, at least 3 and a share of {not_ready / size:.2f} against {threshold}; "
            f"{relation} {large} nodes: {rate}"
        )
    return f"{share}, less than 3 or a smaller share than {threshold}"
