"""What holds a claim of a rehearsed run, beside the counts: zone, budgets, room, the window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubectl_nodelife.controllers.upgrade.availability import CORDONED
from kubectl_nodelife.controllers.upgrade.claims import SLOTS, ClaimHold
from kubectl_nodelife.controllers.upgrade.expected import high_estimate_ns
from kubectl_nodelife.controllers.upgrade.order import UpgradeCandidate
from kubectl_nodelife.controllers.upgrade.windows import fits, longest_ns, opens_ns
from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.upgrade.drain_driver import DrainDriver
from kubectl_nodelife.upgrade.rehearsed_room import RehearsedRoom
from kubectl_nodelife.upgrade.rehearsed_run import RehearsedRun
from kubectl_nodelife.upgrade.rehearsed_zones import RehearsedZones

BY_BUDGET: Final = "budget"
BY_ROOM: Final = "room"


class RehearsedHolds:
    """In the order of `controllers/upgrade/claim_holds.py`. `look_again`: is called when the next
    window opens that a candidate waits for.
    """

    def __init__(
        self,
        run: RehearsedRun,
        drains: DrainDriver,
        zones: RehearsedZones,
        room: RehearsedRoom,
        look_again: Callable[[], None],
    ) -> None:
        self._run, self._timeline = run, drains.timeline
        self._nodes = {node.name: node for node in run.nodes}
        self._holds = (("zone", zones.hold), (BY_BUDGET, drains.waits), (BY_ROOM, room.shortage))
        self._takes = (zones.take, room.take, drains.take)
        self._look_again = look_again
        self._longest_window_ns = longest_ns(run.windows, run.now_ns)

    def of(self, candidate: UpgradeCandidate) -> ClaimHold | None:
        """What holds the candidate; where nothing does, those behind it are judged with it gone."""
        name = candidate.name
        if self._nodes[name].unavailable == CORDONED and not self._has_slot(name):
            return ClaimHold(SLOTS, "cordoned nodes do not go first where no slot is free")
        for by, hold in self._holds:
            because = hold(name)
            if because:
                return ClaimHold(by, because)
        because = self._by_window(candidate)
        if because:
            return ClaimHold("window", because)
        for take in self._takes:
            take(name)
        return None

    def _has_slot(self, name: str) -> bool:
        """Whether every scope of the node has one."""
        return all(self._run.counts.budget(scope).slots for scope in self._nodes[name].scopes)

    def _by_window(self, candidate: UpgradeCandidate) -> str:
        """Why no window is open for long enough; "" where one is. The next one is waited for."""
        run = self._run
        high_ns = high_estimate_ns(run.policy, candidate.drain_seconds)
        now_ns = run.now_ns + self._timeline.now_ns
        if fits(run.windows, now_ns, high_ns):
            return ""
        opens = opens_ns(run.windows, now_ns)
        if opens is not None and high_ns <= self._longest_window_ns:
            self._timeline.at(opens - run.now_ns, self._look_again)
        return f"no window is open for the {format_duration(high_ns)} that it may take"
