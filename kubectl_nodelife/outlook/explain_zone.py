"""Explains a zone: its state and the rule for it, what would slow or stop it, what waits and runs,
and which nodes do not count in it, and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from kubectl_nodelife.controllers.nodelifecycle.zones import why_excluded
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.explain import ExplainedQuestion
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook
from kubectl_nodelife.outlook.node_verdict import node_verdict
from kubectl_nodelife.outlook.zone import ZoneOutlook, zone_after, zone_brakes, zones

_MOST_NAMES = 8
_MOST = 12


def find_zone(outlook: Outlook, name: str) -> ZoneOutlook | None:
    """The zone of that name; the last part of it will do where only one zone ends so."""
    known = zones(outlook)
    exact = [z for z in known if name in (z.name, z.name or "none", f"<{z.name or 'none'}>")]
    found = exact or [z for z in known if z.name.rpartition("/")[2] == name]
    return found[0] if len(found) == 1 else None


def zone_names(outlook: Outlook) -> list[str]:
    """The names of all zones; that of the nodes without a zone label is `none`."""
    return [z.name or "none" for z in zones(outlook)]


def zone_sections(outlook: Outlook, zone: ZoneOutlook) -> Iterator[ExplainedQuestion]:
    """The sections about one zone."""
    nodes = [outlook.node(n) for n in outlook.cache.nodes.values()]
    nodes = sorted((n for n in nodes if n.zone == zone.key), key=lambda n: n.node.name)
    yield ExplainedQuestion(
        "What state is it in, and why?", list(_zone_state(outlook, zone, nodes))
    )
    yield ExplainedQuestion("What would slow or stop it?", list(_brake(outlook, zone)))
    waiting = list(_queue(zone, nodes))
    if waiting:
        yield ExplainedQuestion("Which nodes wait for their taint, and how long?", waiting)
    running = list(_running(outlook, nodes))
    if running:
        yield ExplainedQuestion("Which deletions run on, whatever its brake?", running)


def _zone_state(outlook: Outlook, zone: ZoneOutlook, nodes: list[NodeOutlook]) -> Iterator[str]:
    yield f"{zone.state or 'No state'}: {zone.why}."
    if coming := zone.coming(outlook.now_ns):
        yield f"{coming}."
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


def _brake(outlook: Outlook, zone: ZoneOutlook) -> Iterator[str]:
    brake = zone_brakes(outlook, [zone])[zone.key]
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
        shown = ", ".join(names[:_MOST])
        if len(names) > _MOST:
            shown += f" and {len(names) - _MOST} more"
        if place.turn is None:
            yield f"{shown}: not now, since {place.held}."
            continue
        low, high = place.turn.low_ns / SECOND_NS, place.turn.high_ns / SECOND_NS
        when = f"in {low:.0f} to {high:.0f}s, at {zone.rate:g} a second"
        if len(names) > 1:
            yield f"{shown}: their turns come {when}, in an order that is chance."
        else:
            yield f"{shown}: its turn comes {when}."


def _is_terminating(outlook: Outlook, key: tuple[str, str]) -> bool:
    pod = outlook.cache.pods.get(key)
    return pod is not None and pod.metadata.deletion_timestamp is not None


def _running(outlook: Outlook, nodes: list[NodeOutlook]) -> Iterator[str]:
    timers = sorted(
        (t.comes_ns, f"{t.namespace}/{t.name}", n.node.name)
        for n in nodes
        for t in n.timers
        if not _is_terminating(outlook, (t.namespace, t.name))
    )
    for due_ns, pod, node in timers[:_MOST]:
        left = max(0, due_ns - outlook.now_ns) / SECOND_NS
        yield f"{pod} on {node} is deleted in {left:.0f}s."
    if len(timers) > _MOST:
        yield f"{counted(len(timers) - _MOST, 'more pod')} will be deleted later."
