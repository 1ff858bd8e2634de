"""When the lost nodes of a zone are tainted: by which rule, in which turn, by what was read off a
play of the present, and since when a taint has been due that is not there.

The rule follows `ComputeZoneState`, `setLimiterInZone` and `handleDisruption` of
pkg/controller/nodelifecycle, with the lost nodes counted as not ready. A zone is judged when the
pass that finds its nodes lost has written all it has to write. `foretelling` is the play.

Of a copy that joined a cluster the controllers would write at once what is overdue, which says
nothing of how late it is. A NoExecute taint is due when the zone's limiter has had a token for the
node since its Ready changed, and since the brake can have held it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle.controller import EVICTION_LOOP_PERIOD_NS
from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.taints import NO_EXECUTE_TAINTS, is_for_lost_node
from kubectl_nodelife.controllers.nodelifecycle.zones import (
    FULL,
    PARTIAL,
    compute_zone_state,
    eviction_rate,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import RateLimitedTimedQueue
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Node
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
    if dark:
        stops = "no pod is evicted, the queues are emptied"
        if settings.taint_mode:
            stops = "nothing is tainted, taints are taken off"
        return f"{share}, and no zone has a ready node: {stops}"
    if state == FULL:
        does = "tainted" if settings.taint_mode else "evicted"
        return f"{share}, while other zones have ready nodes: {does} at the normal rate, by design"
    if state == PARTIAL:
        limit = settings.large_cluster_size_threshold
        rule = f"> {limit} nodes: slowed" if size > limit else f"<= {limit} nodes: stopped"
        return f"{share} (at least 3, share >= {threshold}) and {size} {rule}"
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
            return replace(self, states=comes[1:])
        return self

    def as_early_as(self, faster: ForetoldZone) -> ForetoldZone:
        """The same, with a pass as short and states as early as they are in another play."""
        lows = {step.state: step.low_ns for step in reversed(faster.states)}
        states = tuple(
            replace(s, low_ns=min(s.low_ns, lows.get(s.state, s.low_ns))) for s in self.states
        )
        takes = Range(faster.pass_takes.low_ns, self.pass_takes.high_ns)
        return replace(self, states=states, pass_takes=takes)

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
        return replace(self, zones=zones)

    def changes_by(self, zone: str, now_ns: int, turn: Range | None) -> bool:
        """True if the zone's rate changes before that turn is over; None: before any."""
        changes = self.zones.get(zone)
        if changes is None or not changes.states:
            return False
        return turn is None or changes.states[0].low_ns < now_ns + turn.high_ns


TAINT_OVERDUE_NS: Final = 120 * SECOND_NS
"""So long after its time a taint may come or go without being called overdue: a node that was
deleted may have kept its zone dark until shortly before."""


def taints_due(cache: Cache, memory: Memory) -> Iterator[tuple[Node, int]]:
    """(node, when its zone's limiter had a token for its NoExecute taint, ns since the epoch) of
    those that wait, in order; some lie ahead.

    The turns of a zone follow one another from its newest taint on, and from the last time that any
    node's Ready changed: before that the zone's brake may have held them.
    """
    zones = memory.zones
    nodes = cache.nodes.values()
    braked_ns = max(map(_changed_ns, nodes), default=0)
    for zone, queue in zones.queues.items() if braked_ns else ():
        rate = zones.rate(zone)
        waiting = queue.waiting() if rate > 0 else ()
        turn_ns = max((braked_ns, *_tainted_ns(n for n in nodes if zones.key(n) == zone)))
        found = (cache.nodes[name] for name in waiting if name in cache.nodes)
        for node in sorted(found, key=ready_since):
            ready = node.ready()
            if ready is not None and ready.status in NO_EXECUTE_TAINTS:
                turn_ns += round(SECOND_NS / rate)
                yield node, turn_ns


def pass_overdue(node: Node, period_ns: int, now_ns: int) -> int | None:
    """When a monitor pass, one each `period_ns`, should have dealt with taints of a lost node that
    are not those of its status; None where that is not known, or not long ago."""
    since_ns = ready_since(node) if node.spec.taints else 0
    due_ns = max([since_ns, *_tainted_ns([node])]) + period_ns
    return due_ns if since_ns and now_ns - due_ns > TAINT_OVERDUE_NS else None


def _tainted_ns(nodes: Iterable[Node]) -> Iterator[int]:
    """When nodes were tainted as lost."""
    for node in nodes:
        for taint in node.spec.taints:
            if taint.time_added is not None and is_for_lost_node(taint):
                yield int(taint.time_added)


def ready_since(node: Node) -> int:
    """When Ready became what it is, 0 where that is not known."""
    ready = node.ready()
    since = ready.last_transition_time if ready is not None else None
    return int(since) if since is not None else 0


def _changed_ns(node: Node) -> int:
    """When the node last changed what its zone's state is computed from."""
    created = node.metadata.creation_timestamp
    return max(ready_since(node), int(created) if created is not None else 0)


class TaintQueuePosition(msgspec.Struct, frozen=True):
    """A node's place in its zone's queue: how many nodes are taken before it at the fewest and at
    the most, and when its turn comes; None: not while its zone is `held`, in words.

    Upstream goes through the nodes in an order that is chance (its informer's map) and queues them
    with the instant of the pass, so that among the nodes of one pass any may be the next. With
    `requeue_untainted` each pass takes all out and adds them anew: any that waits may be the next.
    """

    fewest_before: int
    most_before: int
    turn: Range | None = None
    held: str = "its zone is stopped"

    def at(self, rate: float) -> TaintQueuePosition:
        """Its turn at a rate, nodes a second, that stays as it is."""
        if rate <= 0:
            return replace(self, turn=None)
        per_node_ns = round(SECOND_NS / rate)
        latest_ns = (self.most_before + 1) * per_node_ns + EVICTION_LOOP_PERIOD_NS
        return replace(self, turn=Range(self.fewest_before * per_node_ns, latest_ns))

    def foretold(
        self,
        foretold: Foretold,
        zone: str,
        now_ns: int,
        rate: float,
        *,
        any_is_next: bool,
        is_tainted: bool,
    ) -> TaintQueuePosition:
        """Its turn in a zone whose rate changes before it comes. `rate`: now; `any_is_next`: those
        that join the queue later may come before it; `is_tainted`: it is tainted in the play, so
        that of those before it the others have left the queue, being back."""
        changes = foretold.zones[zone]
        times, state = changes.taints_ns, changes.states[-1]
        most = min(self.most_before, len(times) - 1) if is_tainted else self.most_before
        last = len(times) - 1 if any_is_next else most
        if most >= len(times) or (any_is_next and state.rate <= 0):
            held = f"its turn does not come by {clock_time(foretold.until_ns)}"
            if state.rate <= 0:
                held = f"its zone stops ({state.state}) before its turn is sure"
            return replace(self, turn=None, held=held)
        then = changes.rate_at(times[last], rate)
        slack_ns = EVICTION_LOOP_PERIOD_NS + (round(SECOND_NS / then) if then > 0 else 0)
        low_ns = max(0, times[min(self.fewest_before, most)] - foretold.spread_ns - now_ns)
        high_ns = max(0, times[last] + foretold.spread_ns + slack_ns - now_ns)
        return replace(self, turn=Range(low_ns, high_ns))

    def in_words(self) -> str:
        """The place within a sentence: "number 3 in its zone's queue"."""
        first, last = self.fewest_before + 1, self.most_before + 1
        if first == last:
            return f"number {first} in its zone's queue"
        place = f"one of {last}" if first == 1 else f"number {first} to {last}"
        return f"{place} in its zone's queue, whose order is chance,"


def places_in(
    queue: RateLimitedTimedQueue, memory: Memory
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each node that waits -> how many are taken before it, at the fewest and at the most."""
    waiting = queue.waiting()
    passes: list[list[str]] = []
    began_ns = 0
    for name in waiting:
        entry = queue.entry(name)
        added_ns = queue.process_at(entry) if entry is not None else began_ns
        same = added_ns - began_ns < memory.settings.node_monitor_period_ns
        if passes and (same or memory.requeues_untainted):
            passes[-1].append(name)
        else:
            passes.append([name])
            began_ns = added_ns
    fewest = 0
    for of_pass in passes:
        most = fewest + len(of_pass) - 1
        yield from ((name, (fewest, most)) for name in of_pass)
        fewest = most + 1
