"""The clock of a plan: the world's agenda, and beside it the calls that only ask again.

Two sorts of calls are told apart. *Active* ones change something or may: they stand in the agenda
with what the world itself does. *Idle* ones only ask again: a retry every 5 s, a look every second.
Once only idle calls are left and each has been answered since the last change, nothing will ever
change, and the run ends. That is how "never" is found without waiting. Where only something far
away will change anything (a grace period may be 292 years), the questions in between are skipped by
whole minutes, which keeps their grid of seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

from kubectl_nodelife.drain.running_controllers import RunningControllers
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.sim.agenda import SCRIPT, Agenda
from kubectl_nodelife.sim.world import World

PATIENCE_NS: Final = 10 * MINUTE_NS
"""For so long after the last change every question is asked."""

_IDLE, _ALARM = range(2)

Call = Callable[..., None]


class PlanClock:
    """Instants are nanoseconds since the moment of the plan. Without a `world` it only tells time.

    At one instant what the world does comes before what only asks.
    """

    def __init__(self, world: World | None = None) -> None:
        self.now_ns = 0
        self.controllers: RunningControllers | None = None
        self._world = world
        self._agenda = world.agenda if world is not None else Agenda()
        self._origin_ns = world.api.now_ns if world is not None else 0
        self._asked: list[tuple[int, int, int, Call, tuple[Any, ...]]] = []
        self._filed = 0
        self._moved_ns = 0

    def at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File an active call; one that lies in the past is made now."""
        at_ns = self._origin_ns + max(instant_ns, self.now_ns)
        self._agenda.add(at_ns, SCRIPT, _make, call, arguments)

    def ask_again_at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File an idle call, one that may be put off while nothing changes."""
        self._filed += 1
        at_ns = instant_ns if instant_ns > self.now_ns else self.now_ns
        heapq.heappush(self._asked, (at_ns, self._filed, _IDLE, call, arguments))

    def alarm_at(self, instant_ns: int, call: Call, *arguments: Any) -> None:
        """File an idle call that is made at that very instant, such as a deadline."""
        self._filed += 1
        at_ns = max(instant_ns, self.now_ns)
        heapq.heappush(self._asked, (at_ns, self._filed, _ALARM, call, arguments))

    def run(self, settled: Callable[[], bool], answered: Callable[[], bool] = bool) -> None:
        """Make the calls until none is left, or only idle ones are and `settled` says so.

        `answered`: whether each idle call that is left would get the answer that it had before.
        """
        asked, agenda, origin_ns = self._asked, self._agenda, self._origin_ns
        while True:
            at_ns, due_ns = agenda.next_at(), None
            if self.controllers is not None:
                due_ns = self.controllers.next_due()
            if at_ns is None and not asked:
                return
            if at_ns is None and due_ns is None:
                if settled():
                    return
                at_ns = agenda.next_at()  # the question may have brought an end about
            if due_ns is not None and (at_ns is None or due_ns < at_ns):
                at_ns = due_ns
            if at_ns is not None and (not asked or at_ns - origin_ns <= asked[0][0]):
                self._moved_ns = self.now_ns = at_ns - origin_ns
                self._advance(at_ns)
                continue
            first_ns, _, sort, _, _ = asked[0]
            if first_ns - self._moved_ns >= PATIENCE_NS and sort == _IDLE and answered():
                self._skip_idle(at_ns)
            self._ask()

    def end(self) -> None:
        """Forget all calls that were to be made, and who made them."""
        self._asked.clear()
        self.controllers = self._world = None

    def _ask(self) -> None:
        """Make the first of the idle calls."""
        self.now_ns, _, sort, call, arguments = heapq.heappop(self._asked)
        if sort == _ALARM:
            self._moved_ns = self.now_ns
        world = self._world
        if world is None:
            call(*arguments)
            return
        world.api.now_ns = self._origin_ns + self.now_ns
        call(*arguments)
        if world.api.pending:
            self._advance(world.api.now_ns)

    def _advance(self, at_ns: int) -> None:
        if self._world is None:
            self._agenda.run(at_ns)
            return
        _, events = self._world.advance(at_ns)
        if self.controllers is not None:
            self.controllers.step(events)

    def _skip_idle(self, next_ns: int | None) -> None:
        """Put each idle call off by whole minutes, as near as may be to the next other call."""
        asked = self._asked
        self._moved_ns = asked[0][0]
        others = [call[0] for call in asked if call[2] != _IDLE]
        if next_ns is not None:
            others.append(next_ns - self._origin_ns)
        until_ns = min(others, default=0)
        for index, (at_ns, filed, sort, call, arguments) in enumerate(asked):
            if sort == _IDLE and at_ns < until_ns:
                later_ns = (until_ns - at_ns) // MINUTE_NS * MINUTE_NS
                asked[index] = (at_ns + later_ns, filed, sort, call, arguments)
        heapq.heapify(asked)


def _make(call: Call, arguments: tuple[Any, ...], at_ns: int) -> None:
    call(*arguments)
