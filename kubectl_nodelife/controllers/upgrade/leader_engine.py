"""The engine of the process that leads a run, with the upgrade controller alone in it.

A leader takes in events as it receives them, and decides when it may: a live one
(`acts/upgrade/leader.py`) once its gate, Lease and limits allow, a simulated one
(`sim/upgrade_run.py`) once the API server has sent its watches all of an instant. What a leader
does with a decision, and where its events come from, is its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.ports import HostState
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.actions.identity import ActionNumbers
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.engine import Engine, OnBug
from kubectl_nodelife.engine.events import Event


class LeaderEngine:
    """See the module. `join`: the controller goes on with what another leader has begun."""

    def __init__(
        self,
        controller: UpgradeController,
        cache: Cache,
        *,
        join: bool = False,
        on_bug: OnBug | None = None,
        numbers: ActionNumbers | None = None,
    ) -> None:
        self.controller = controller
        self.cache = cache
        self._engine = Engine([controller], cache, join=join, on_bug=on_bug, numbers=numbers)

    def next_due(self) -> int | None:
        """The instant of the next pass, or None."""
        return self._engine.next_due()

    def take_in(self, events: Iterable[Event], now_ns: int) -> None:
        """Bring what happened into the cache and to the controller, which decides later."""
        self._engine.timers_wait = True
        deque(self._engine.turns(now_ns, events), maxlen=0)

    def wake(self, now_ns: int) -> None:
        """Ask for a pass, since something changed that is no object of the cluster."""
        for requeue in self.controller.wake(now_ns):
            self._engine.wake(requeue)

    def decide(self, host: HostState, now_ns: int) -> Iterator[Sequence[Action]]:
        """The decisions of the pass that is due, if one is. `host`: what the leader knows now."""
        self.controller.host = host
        self._engine.timers_wait = False
        return self._engine.turns(now_ns, ())
