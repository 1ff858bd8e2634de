"""A DaemonSet controller that is forked again and again in bad weather, in the middle of syncs.

The fork takes over as a shadow that is told the same as the engine it came from, and must decide
the same in every tick.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from kubectl_nodelife.controllers.daemonset.controller import DaemonSetController
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event
from kubectl_nodelife.sim import present as sim_branch
from tests.daemonset.test_churn import KEY, play


class Shadowed(Engine):
    """An engine with a fork of itself, or of that fork, at its side."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shadow: Engine | None = None
        self.forks_in_a_sync = 0
        self.ticks = 0

    def fork(self) -> Engine:
        forked = super().fork()
        forked.__class__ = Engine
        return forked

    def turns(self, now_ns: int, events: Iterable[Event]) -> Iterator[Sequence[Action]]:
        events = list(events)
        controller = self.controllers[0]
        assert isinstance(controller, DaemonSetController)
        in_a_sync = KEY in controller._running
        self.ticks += 1
        if self.shadow is None or in_a_sync or self.ticks % 7 == 0:
            of = self.shadow if self.ticks % 3 == 0 and self.shadow is not None else self
            self.shadow = of.fork()
            self.forks_in_a_sync += in_a_sync
        decided: list[Action] = []
        for actions in super().turns(now_ns, events):
            decided += actions
            yield actions
        theirs = list(self.shadow.step(now_ns, events))
        assert theirs == decided  # their numbers differ: the cluster counts its own acts in between
        assert self.shadow.next_due() == self.next_due()


@pytest.mark.parametrize("profile", ["v1.16", "v1.36"])
@pytest.mark.parametrize("seed", range(4))
def test_a_fork_decides_as_what_it_came_from(
    seed: int, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Shadowed] = []

    def engine(*args: Any, **kwargs: Any) -> Shadowed:
        made.append(Shadowed(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(sim_branch, "Engine", engine)
    play(seed, profile, monkeypatch)
    assert made[0].forks_in_a_sync > 20
