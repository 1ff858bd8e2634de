"""When writes of the controllers are due: a node's place in its zone's queue for NoExecute taints,
when its turn comes, and since when writes have been due that are not there, by what objects show.

Of a copy that joined a cluster the controllers would write at once what is overdue, which says
nothing of how late it is. A NoExecute taint is due when the zone's limiter has had a token for the
node since its Ready changed, and since the brake can have held it; a pod's deletion when its
seconds after the taint's `timeAdded` are over. `status`, `explain`, `audit` and `diverge` ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle.controller import EVICTION_LOOP_PERIOD_NS
from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.controllers.nodelifecycle.taints import NO_EXECUTE_TAINTS, is_for_lost_node
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.workqueue import RateLimitedTimedQueue
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.eviction_forecast import EvictionForecast, Range, clock_time
from kubectl_nodelife.outlook.foretold import Foretold

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
    nodes = (cache.get("Node", ("", name)) for name in names)
    return (node for node in nodes if isinstance(node, Node))


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
    turn: Range | None
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
