"""A leader of a simulated upgrade that is suspended, cut off, told late, or dies at an action."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.memory import HostState
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.events import NO_ANSWER, Event
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.upgrade_run import VirtualLeader

if TYPE_CHECKING:
    from tests.upgrade.simulation import Fleet

NO_WRITE_NS = 40 * SECOND_NS
"""A leader that could not renew its Lease for so long writes no more."""


class FaultyLeader(VirtualLeader):
    """A leader that may be suspended or cut off until some instant."""

    asleep_until_ns = 0
    cut_off_until_ns = 0
    cut_off_since_ns = 0
    lags_until_ns = 0
    slept = False

    def __init__(self, fleet: Fleet, *parts: Any) -> None:
        super().__init__(fleet, *parts)
        self._fleet = fleet
        self._unseen: list[Event] = []

    def next_due_ns(self) -> int | None:
        now_ns = self._world.api.now_ns
        if self.asleep_until_ns > now_ns:
            return self.asleep_until_ns
        if self._is_mute(now_ns):
            return self.cut_off_until_ns
        due_ns = super().next_due_ns()
        told_ns = max(self.cut_off_until_ns, self.lags_until_ns)
        if self._unseen and told_ns > now_ns:
            return min(due_ns or told_ns, told_ns)
        return due_ns

    def take_in(self, events: Iterable[Event], now_ns: int) -> None:
        self._unseen += events
        if max(self.asleep_until_ns, self.cut_off_until_ns, self.lags_until_ns) <= now_ns:
            seen, self._unseen = self._unseen, []
            super().take_in(seen, now_ns)

    def step(self, now_ns: int) -> Iterator[Sequence[Action]]:
        if self.asleep_until_ns > now_ns:
            return
        silent_ns = now_ns - self.cut_off_since_ns if self.cut_off_since_ns else 0
        if self.slept or (silent_ns > NO_WRITE_NS and self.cut_off_until_ns <= now_ns):
            self.alive = False  # it reads the Lease before all else, and leads anew or ends
            self._fleet.look_at_lease(self)
            return
        if self._is_mute(now_ns):
            return
        if self.cut_off_until_ns <= now_ns:
            self.cut_off_since_ns = 0
        yield from super().step(now_ns)

    def _is_mute(self, now_ns: int) -> bool:
        """True if it has been cut off for so long that it decides nothing until it is no more."""
        silent_ns = now_ns - self.cut_off_since_ns if self.cut_off_since_ns else 0
        return self.cut_off_until_ns > now_ns and silent_ns > NO_WRITE_NS

    def host_state(self, now_ns: int) -> HostState:
        seen = super().host_state(now_ns)
        cut_off = self.cut_off_until_ns > now_ns and self._fleet.plan.knows_it_is_cut_off
        return replace(seen, blind="the watch of pods is broken") if cut_off else seen

    def _carry_out(self, action: Action, now_ns: int) -> None:
        if not self.alive:
            return
        if action.writes and self.cut_off_until_ns > now_ns:
            self._world.refuse(action, NO_ANSWER, "connection refused")
            return
        self._fleet.race(action)
        before, after = self._fleet.counts_deaths()
        if not before:
            self._fleet.carried_out[id(action)] = action
            if action.writes:
                self._fleet.judges.wrote(action, self.epoch, self)
            super()._carry_out(action, now_ns)
        if before or after:
            self.alive = False
            self._fleet.died()
