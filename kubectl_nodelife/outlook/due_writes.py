"""Since when writes of the controllers have been due that are not there, by what the objects show.

Of a copy that joined a cluster the controllers would write at once what is overdue, which says
nothing of how late it is. A NoExecute taint is due when the zone's limiter has had a token for the
node since its Ready changed, and since the brake can have held it; a pod's deletion when its
seconds after the taint's `timeAdded` are over. `status`, `explain`, `audit` and `diverge` ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.taints import NO_EXECUTE_TAINTS, is_for_lost_node
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.eviction_forecast import EvictionForecast

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
    nodes = [node for node in cache.all("Node") if isinstance(node, Node)]
    braked_ns = max(map(_changed_ns, nodes), default=0)
    for zone, queue in zones.queues.items() if braked_ns else ():
        rate = zones.rate(zone)
        waiting = queue.waiting() if rate > 0 else ()
        turn_ns = max((braked_ns, *_tainted_ns(n for n in nodes if zones.key(n) == zone)))
        for node in sorted(_found(cache, waiting), key=ready_since):
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


def overdue_turn(turns: Iterable[tuple[Node, int]], name: str, now_ns: int) -> int | None:
    """The turn of that node among those of `taints_due`; None where it is not long over."""
    of_node = (turn_ns for waiting, turn_ns in turns if waiting.name == name)
    return next((turn_ns for turn_ns in of_node if now_ns - turn_ns >= TAINT_OVERDUE_NS), None)


def eviction_due(taints: Sequence[Taint], forecast: EvictionForecast) -> int | None:
    """When these NoExecute taints have a pod deleted of which that is foreseen; None: never, or
    since when the taints are there is not known."""
    times = [taint.time_added for taint in taints]
    if forecast.after_seconds is None or not times or None in times:
        return None
    return min(int(t) for t in times if t is not None) + forecast.after_seconds * SECOND_NS


def _tainted_ns(nodes: Iterable[Node]) -> Iterator[int]:
    """When nodes were tainted as lost."""
    for node in nodes:
        for taint in node.spec.taints:
            if taint.time_added is not None and is_for_lost_node(taint):
                yield int(taint.time_added)


def _found(cache: Cache, names: Iterable[str]) -> Iterator[Node]:
    found = (cache.get("Node", ("", name)) for name in names)
    return (node for node in found if isinstance(node, Node))


def ready_since(node: Node) -> int:
    """When Ready became what it is, 0 where that is not known."""
    ready = node.ready()
    since = ready.last_transition_time if ready is not None else None
    return int(since) if since is not None else 0


def _changed_ns(node: Node) -> int:
    """When the node last changed what its zone's state is computed from."""
    created = node.metadata.creation_timestamp
    return max(ready_since(node), int(created) if created is not None else 0)
