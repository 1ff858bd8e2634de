"""The loop on virtual time, and the interfaces of source, host and executor, which both loops
drive.

A source says what happened and when, in ticks; the host takes a tick through the engine and passes
each decision to an executor. `drive` does so on virtual time until the source ends; `live.loop` has
the same loop as an asyncio task, which pauses between decisions. There are no other drivers.

A host that writes passes what was decided to an executor, which begins it and returns at once. What
came of it arrives later as an `events.Outcome`, the same way as all other events: by the source's
next tick on virtual time, by the decision task's queue on a live cluster. There are two executors:
the virtual cluster (`sim.world.World`), and the one that writes to a real cluster
(`live.executor.LiveExecutor`). A dry run has none: its host lays what was decided over what the
cluster shows (`engine.overlay`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event

Tick = tuple[int, Iterable[Event]]
"""An instant in ns since the epoch, and what happened until then."""


NextTick = Callable[[int | None], Tick | None]
"""Of a source: the next instant at which something happened or a timer is due, with its events;
None: the end. It receives when the host is due.
"""


class Host(Protocol):
    """An engine with what belongs to it, as a driver sees it."""

    def next_due(self) -> int | None:
        """The earliest instant at which some controller wants to be woken, or None."""

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[object]:
        """Take one tick in; yields after each decision, for a pause, and must be exhausted."""


class EngineHost:
    """The plain host: each decision is begun by the executor."""

    def __init__(self, engine: Engine, executor: Executor) -> None:
        self.engine = engine
        self._executor = executor

    def next_due(self) -> int | None:
        """When the engine is due."""
        return self.engine.next_due()

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[Sequence[Action]]:
        """The decisions of one tick, each begun before it is yielded: what was decided together, of
        a node for example, is one.
        """
        executor = self._executor
        for decided in self.engine.turns(now_ns, events):
            if decided:
                executor.start_all(decided, now_ns)
            yield decided


def drive(next_tick: NextTick, host: Host) -> None:
    """Drive the host on virtual time until the source ends."""
    while (tick := next_tick(host.next_due())) is not None:
        deque(host.step(*tick), maxlen=0)


class Executor(Protocol):
    """Carries actions out on virtual time, where nothing waits for a pause between two of them."""

    def start_all(self, actions: Sequence[Action], now_ns: int) -> None:
        """Carry out what was decided together, in that order; raises nothing that an API server may
        answer, which arrives as an event.
        """
