"""A node's place in its zone's queue for NoExecute taints, and when its turn comes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle.controller import EVICTION_LOOP_PERIOD_NS
from kubectl_nodelife.controllers.nodelifecycle.memory import Memory
from kubectl_nodelife.engine.workqueue import RateLimitedTimedQueue
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.eviction_forecast import Range, clock_time
from kubectl_nodelife.outlook.foretold import Foretold


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
