"""Nodes that are passed over, so that they hold up neither zones nor pools, and come again last.

Such are nodes whose budgets spare no pod now, and those whose pods find no room even while nobody
is out of service. They wait for at most drain-timeout once the others are done: a run ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubectl_nodelife.controllers.upgrade.claim_holds import BY_ROOM, hold_of
from kubectl_nodelife.controllers.upgrade.claims import ClaimHold
from kubectl_nodelife.controllers.upgrade.skipping import REFILLS_NS
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.times import SECOND_NS


def wait_for_passed_over(p: UpgradePass, pool: str) -> None:
    """Only nodes are left in the pool whose budgets refill, or whose pods find no room: these wait
    for at most drain-timeout, gates aside.
    """
    _look_for_room(p)
    tail = p.memory.tail
    if p.gates or tail is None or tail[0] != pool:
        tail = p.memory.tail = (pool, p.now_ns)
    if p.is_over(tail[1], p.policy.drain_timeout_ns):
        reasons = {}
        for candidate in p.passed_over:
            by, because = p.holds[candidate.name]
            told = "no room" if by == BY_ROOM else "its budgets did not refill"
            reasons[candidate.name] = f"{told}: {because}"
        p.edit(given_back={**p.next.given_back, **reasons})


def _look_for_room(p: UpgradePass) -> None:
    """Whether there is room by now for the nodes that were passed over for want of it."""
    memory = p.memory
    if not memory.roomless or not p.is_over(memory.room_asked_ns, REFILLS_NS):
        return
    memory.room_asked_ns = p.now_ns
    p.wake(p.now_ns + REFILLS_NS)
    for candidate in p.passed_over:
        if candidate.name in memory.roomless:
            found = hold_of(p, candidate)
            if found is None or found[0] != BY_ROOM:
                del memory.roomless[candidate.name]


def pass_over_roomless(p: UpgradePass, held: Mapping[str, ClaimHold]) -> None:
    """Nodes whose pods find no room though nobody is out of service: others go first, so that they
    hold up neither zones nor pools.
    """
    if p.flying or p.awaited or p.claimed:
        return
    short = {name: hold.because for name, hold in held.items() if hold.by == BY_ROOM}
    if short:
        p.memory.roomless |= short
        p.memory.room_asked_ns = p.now_ns
        p.wake(p.now_ns + SECOND_NS)
