"""The interface of an executor, which carries actions out.

The host of the engine hands every writing action to `Executor.start`, on virtual time what was
decided together to `BatchExecutor.start_all`; both begin it and return at once. What came of it
arrives later as an `events.Outcome`, the same way as all other events: by the source's next tick on
virtual time, by the decision task's queue on a live cluster. There are three executors:
`PlanningOnly` (dry-run, nothing is ever sent), the virtual cluster (`sim.world.World`), and the one
that writes to a real cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kubectl_nodelife.engine.actions import Action


class Executor(Protocol):
    """Carries actions out. `start` neither blocks nor raises for what an API server may answer."""

    def start(self, action: Action, now_ns: int) -> None:
        """Begin one action, decided at `now_ns`. What comes of it arrives later, as an event."""


class BatchExecutor(Protocol):
    """An executor on virtual time, where nobody waits for a pause between two actions."""

    def start_all(self, actions: Sequence[Action], now_ns: int) -> None:
        """Carry out what was decided together, in that order."""


class PlanningOnly:
    """The executor of a dry run: nothing is sent, so that no `Outcome` ever comes."""

    def start(self, action: Action, now_ns: int) -> None:
        """Leave the action a plan."""
