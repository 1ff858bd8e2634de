"""One zone's outlook: its state, the eviction rate that applies, the nodes waiting for a taint; and
what its brake holds when more of its nodes are lost.

The zone is judged when the pass that finds them lost has written all of that: nodes are tainted at
the earlier rate until then.

`explain zone` says all of that, with the rule, and which nodes do not count in it, and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.zones import (
    INITIAL,
    compute_zone_state,
    is_excluded,
    why_excluded,
)
from kubectl_nodelife.engine.pace import pace_of
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.node import Node, zone_display
from kubectl_nodelife.kube.times import due_in, due_within, human_duration
from kubectl_nodelife.outlook import taint_turns
from kubectl_nodelife.outlook.eviction_forecast import key_of
from kubectl_nodelife.outlook.explain import ExplainedQuestion
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook
from kubectl_nodelife.outlook.node_verdict import node_verdict

_STAYS_STOPPED = "; it was stopped, and a rate of 1 does not start it again, as in upstream"
"""The end of what is said of a rate: a stopped limiter calls its own 1, so that 1 is no change. See
`Never`.
"""


class ZoneOutlook(msgspec.Struct, frozen=True):
    """`nodes`, `not_ready`: those that the controller counts. `rate`: nodes a second.

    `why`: the rule that applies. `evictions`: nodes that were tainted (classic: whose pods were
    evicted) since the controller began. `foretold`: what becomes of it while silent nodes stay so.
    `awaits_pass`: its nodes as they are now give it another state, which the next pass will find.
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
    foretold: taint_turns.ForetoldZone = taint_turns.ForetoldZone()
    awaits_pass: bool = False

    def coming(self, now_ns: int | None) -> str:
        """What becomes of it while no silent node reports, "" for nothing; see `in_words`."""
        return self.foretold.in_words(self.nodes, self.state, now_ns)

    def coming_and_why(self, now_ns: int) -> str:
        """What becomes of it, if anything else, and why it is as it is."""
        return "; ".join(filter(None, (self.coming(now_ns), self.why)))

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


def zones(outlook: Outlook) -> list[ZoneOutlook]:
    """All zones that have nodes, in order of their keys."""
    today = _zones(outlook.memory, outlook.settings, outlook.zone_counts)
    return [replace(zone, foretold=_foretold(outlook, zone)) for zone in today]


def _foretold(outlook: Outlook, zone: ZoneOutlook) -> taint_turns.ForetoldZone:
    """What was read off a play, or the state that the next pass gives it by the nodes as they are
    now."""
    played = outlook.foretold.zones if outlook.foretold is not None else {}
    foretold = played.get(zone.key, taint_turns.ForetoldZone()).beyond(zone.state, zone.rate)
    if foretold.states or not zone.awaits_pass:
        return foretold
    after, next_ns = zone_after(outlook, zone.key, 0), outlook.next_pass_ns
    low_ns = outlook.now_ns if next_ns is None else next_ns
    high_ns = low_ns + (outlook.settings.node_monitor_period_ns if next_ns is None else 0)
    return replace(
        foretold, states=(taint_turns.ForetoldState(after.state, after.rate, low_ns, high_ns),)
    )


def zone_of(outlook: Outlook, of_node: NodeOutlook) -> ZoneOutlook:
    """The node's zone."""
    return next(zone for zone in zones(outlook) if zone.key == of_node.zone)


def zone_metrics(memory: Memory, settings: Settings) -> dict[str, dict[str, float]]:
    """Upstream's metrics of each zone, by its name; those of zones that vanished among them."""
    counts = memory.zones.counts()
    metrics = {zone.name: zone.metrics() for zone in _zones(memory, settings, counts)}
    for key in memory.zones.evictions:
        if key not in memory.zones.members:
            gone = _zone(memory, settings, key, (0, 0), dark=False)
            metrics.setdefault(gone.name, gone.metrics())
    return metrics


def _zones(
    memory: Memory, settings: Settings, counts: Mapping[str, tuple[int, int]]
) -> list[ZoneOutlook]:
    dark = bool(counts) and all(ready == 0 for ready, _ in counts.values())
    return [
        _zone(memory, settings, key, counts.get(key, (0, 0)), dark)
        for key in sorted(memory.zones.members)
    ]


def _zone(
    memory: Memory, settings: Settings, key: str, count: tuple[int, int], dark: bool
) -> ZoneOutlook:
    ready, not_ready = count
    size = ready + not_ready
    state, queue = memory.zones.states.get(key, ""), memory.zones.queues.get(key)
    rate = memory.zones.rate(key) if queue is not None else 0.0
    present = compute_zone_state(ready, not_ready, settings.unhealthy_zone_threshold)
    awaits_pass = bool(size and state and state not in (present, INITIAL))
    if awaits_pass:
        why = f"{not_ready} of {size} not ready, which the next monitor pass takes into account"
    else:
        why = taint_turns.zone_rule(settings, state, size, not_ready, dark)
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
        awaits_pass=awaits_pass,
    )


class ZoneBrake(msgspec.Struct, frozen=True):
    """How far a zone is from being slowed or stopped, and what that would hold and what not.

    `after`: the zone when that happens; None where losing all of it changes nothing. `held`: nodes
    that wait for a taint now, `held_pods` are on them. `timers_running`: pods whose time runs since
    their node was tainted: no brake stops those. `late_ns`: how long the pass takes that finds the
    nodes lost at once, and `tainted_before` how many of them may be tainted until it ends.
    """

    after: taint_turns.ZoneAfterLoss | None
    held: list[str]
    held_pods: int
    timers_running: int
    late_ns: int = 0
    tainted_before: int = 0

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        if self.after is None:
            begins = "losing all of it does not slow it: a dark zone is evicted at the normal rate"
        elif self.after.lost == 0:
            begins = "it is stopped now" if not self.after.rate else "it is slowed now"
        else:
            nodes = "1 more node" if self.after.lost == 1 else f"{self.after.lost} more nodes"
            begins = f"losing {nodes} {self.after.effect}"
        clauses = [begins]
        if self.late_ns >= taint_turns.LATE_NS and self.tainted_before:
            nodes = counted(self.tainted_before, "node")
            clauses.append(
                f"lost at once they take a pass of {human_duration(self.late_ns)}, "
                f"and up to {nodes} may be tainted before it ends"
            )
        if self.held:
            nodes = counted(len(self.held), "waiting node")
            clauses.append(f"it holds {nodes} with {counted(self.held_pods, 'pod')}")
        if self.timers_running:
            running = self.timers_running
            timers = f"timers of {running} pods run" if running > 1 else "timer of 1 pod runs"
            clauses.append(f"the {timers} on, whatever the brake")
        return "; ".join(clauses)


def zone_after(outlook: Outlook, zone: str, lost: int) -> taint_turns.ZoneAfterLoss:
    """The zone when so many of its ready nodes are lost."""
    memory, settings, counts = outlook.memory, outlook.settings, outlook.zone_counts
    return taint_turns.zones_after(memory, settings, counts, {zone: lost})[zone]


def first_brake(outlook: Outlook, zone: ZoneOutlook) -> taint_turns.ZoneAfterLoss | None:
    """The zone with the fewest more losses that slow or stop it; None where none does."""
    if zone.rate < outlook.settings.node_eviction_rate:
        return zone_after(outlook, zone.key, 0)
    ready = zone.nodes - zone.not_ready
    near = max(1, 3 - zone.not_ready, int(zone.threshold * zone.nodes) - zone.not_ready)
    for lost in range(min(near, ready), ready + 1):
        after = zone_after(outlook, zone.key, lost)
        if lost and after.rate < zone.rate:
            return after
    return None


def zone_brakes(outlook: Outlook, of: list[ZoneOutlook]) -> dict[str, ZoneBrake]:
    """The brake of each zone, by the zone's key."""
    timers: Counter[str] = Counter()
    for node in outlook.cache.nodes.values():
        if node.spec.taints:
            timers[outlook.zone_of(node)] += len(outlook.timers(node))
    return {zone.key: _brake(outlook, zone, timers[zone.key]) for zone in of}


def _brake(outlook: Outlook, zone: ZoneOutlook, timers_running: int) -> ZoneBrake:
    """Its nodes are taken to hold as many pods as a node of the cluster does on average."""
    after, cache = first_brake(outlook, zone), outlook.cache
    pace, late_ns, tainted = pace_of(outlook.settings), 0, 0
    if after is not None and pace is not None and after.lost:
        pods = len(cache.pods) * after.lost // len(cache.nodes)
        late_ns = pace.pass_ns(after.lost, pods)
        tainted = pace.tainted_in(late_ns, zone.rate, after.lost)
    held = sum(cache.count_on(name) for name in zone.queued)
    return ZoneBrake(after, zone.queued, held, timers_running, late_ns, tainted)


class LossByZone:
    """`after_losing` for many nodes: worked out once for each zone."""

    def __init__(self, outlook: Outlook) -> None:
        self._outlook = outlook
        self._known: dict[tuple[str, int], taint_turns.ZoneAfterLoss] = {}

    def of(self, node: Node) -> taint_turns.ZoneAfterLoss:
        """The node's zone when this node too is lost; a node that counts as lost, or that the
        statistics leave out, changes nothing."""
        outlook = self._outlook
        counts = node.is_ready and not is_excluded(node, outlook.settings)
        key = outlook.memory.zones.key(node), int(counts)
        if key not in self._known:
            self._known[key] = zone_after(outlook, *key)
        return self._known[key]


_MOST_NAMES = 8
_MOST = 12


def find_zone(outlook: Outlook, name: str) -> ZoneOutlook | None:
    """The zone of that name; the last part of it will do where only one zone ends so."""
    all_zones = zones(outlook)
    exact = [z for z in all_zones if name in (z.name, z.name or "none", f"<{z.name or 'none'}>")]
    alike = exact or [z for z in all_zones if z.name.rpartition("/")[2] == name]
    return alike[0] if len(alike) == 1 else None


def zone_names(outlook: Outlook) -> list[str]:
    """The names of all zones; that of the nodes without a zone label is `none`."""
    return [z.name or "none" for z in zones(outlook)]


def zone_sections(outlook: Outlook, zone: ZoneOutlook) -> Iterator[ExplainedQuestion]:
    """The sections about one zone."""
    nodes = [outlook.node(n) for n in outlook.cache.nodes.values()]
    nodes = sorted((n for n in nodes if n.zone == zone.key), key=lambda n: n.node.name)
    state = list(_zone_state(outlook, zone, nodes))
    yield ExplainedQuestion("What state is it in, and why?", state)
    yield ExplainedQuestion("What would slow or stop it?", list(_brake_lines(outlook, zone)))
    waiting = list(_queue(zone, nodes))
    if waiting:
        yield ExplainedQuestion("Which nodes wait for their taint, and how long?", waiting)
    running = list(_running(outlook, nodes))
    if running:
        yield ExplainedQuestion("Which deletions run on, whatever its brake?", running)


def _zone_state(outlook: Outlook, zone: ZoneOutlook, nodes: list[NodeOutlook]) -> Iterator[str]:
    yield f"{zone.state or 'No state'}: {zone.coming_and_why(outlook.now_ns)}."
    if zone.rate > 0:
        yield f"Nodes are tainted at {zone.rate:g} a second, one each {1 / zone.rate:g}s."
    else:
        yield "No node of it gets a NoExecute taint now."
    states = Counter(node_verdict(n, outlook.now_ns).state for n in nodes)
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common())
    yield f"Its nodes: {counted or 'none'}."
    yield from not_counted(outlook, zone.key)


def not_counted(outlook: Outlook, zone: str) -> Iterator[str]:
    """The nodes of a zone that its statistics leave out, by the reason."""
    nodes = [node for node in outlook.cache.nodes.values() if outlook.zone_of(node) == zone]
    excluded = [(node.name, why_excluded(node, outlook.settings)) for node in nodes]
    for why in sorted({why for _, why in excluded if why}):
        names = sorted(name for name, its in excluded if its == why)
        verb = "does" if len(names) == 1 else "do"
        yield (
            f"{first_names(names, _MOST_NAMES)} {verb} not count in the zone's statistics "
            f"({len(names)} of its {len(nodes)} nodes): {why}."
        )


def _brake_lines(outlook: Outlook, zone: ZoneOutlook) -> Iterator[str]:
    brake = zone_brakes(outlook, [zone])[zone.key]
    if (silent := zone.foretold.silent) and brake.after is not None:
        is_ready = "counts as ready until it is" if silent == 1 else "count as ready until they are"
        yield f"Its {counted(silent, 'silent node')} {is_ready} lost."
    yield f"{brake.sentence[0].upper()}{brake.sentence[1:]}."
    ready = zone.nodes - zone.not_ready
    if ready and brake.after is not None and brake.after.lost != ready:
        after = zone_after(outlook, zone.key, ready)
        yield f"Losing all of it {after.effect}: {after.why}."


def _queue(zone: ZoneOutlook, nodes: list[NodeOutlook]) -> Iterator[str]:
    waiting = sorted(
        ((n.queued, n.node.name) for n in nodes if n.queued is not None),
        key=lambda each: (each[0].fewest_before, each[1]),
    )
    for place, of_pass in groupby(waiting, key=lambda each: each[0]):
        names = [name for _, name in of_pass]
        says = place.held
        if place.turn is not None:
            when = due_within(place.turn.low_ns, place.turn.high_ns)
            when += f", at {zone.rate:g} a second"
            says = f"its turn comes {when}"
            if len(names) > 1:
                says = f"their turns come {when}, in an order that is chance"
        yield f"{first_names(names, _MOST)}: {says}."


def _running(outlook: Outlook, nodes: list[NodeOutlook]) -> Iterator[str]:
    timers = sorted(
        (t.comes_ns, f"{t.namespace}/{t.name}", n.node.name)
        for n in nodes
        for t in n.timers
        if (obj := outlook.cache.pods.get(key_of(t))) is None
        or obj.metadata.deletion_timestamp is None
    )
    for due_ns, pod, node in timers[:_MOST]:
        yield f"{pod} on {node} is deleted {due_in(due_ns - outlook.now_ns)}."
    if len(timers) > _MOST:
        yield f"{counted(len(timers) - _MOST, 'more pod')} will be deleted later."
