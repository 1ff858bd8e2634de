"""The loop on virtual time: a source, the engine, an executor and a journal, until the source ends.

The live driver is an asyncio task of the same shape (`daemon/`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event


class Source(Protocol):
    """Says what happened and what time it is."""

    def next(self, due_ns: int | None) -> tuple[int, Iterable[Event]] | None:
        """The next instant at which something happened or somebody is due, with its events.

        None: the end.
        """
        ...


class Executor(Protocol):
    """Acts. What comes of it arrives later, from the source."""

    def start(self, action: Action, now_ns: int) -> None:
        """Begin one action."""
        ...


class Journal(Protocol):
    """Keeps what was decided."""

    def write(self, now_ns: int, action: Action) -> None:
        """Note one action."""
        ...


def drive(source: Source, engine: Engine, executor: Executor, journal: Journal) -> None:
    """Drive the engine on virtual time until the source ends."""
    while (tick := source.next(engine.next_due())) is not None:
        now_ns, events = tick
        for action in engine.step(now_ns, events):
            journal.write(now_ns, action)
            executor.start(action, now_ns)
