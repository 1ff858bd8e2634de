"""Which nodes are claimed next: the turn of pools, zones and steps, and what holds each node.

Two questions, asked one after the other. `stage_of`: how many nodes may this pool claim in all at
its present step, and of which zones? `choose_claims`: of these candidates, in their order, which
have a slot in each scope and nothing else that holds them? The upgrade controller and the plan ask
the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.counts import NodeCounts
from kubectl_nodelife.controllers.upgrade.growth import step_width
from kubectl_nodelife.controllers.upgrade.order import UpgradeCandidate, open_zones

SLOTS: Final = "slots"
PARALLEL: Final = "max-parallel"


class ClaimHold(NamedTuple):
    """Why a node is not claimed now: what holds it (slots, zone, room, ...), and a sentence."""

    by: str
    because: str


class PoolPlace(NamedTuple):
    """Where the run is in a pool.

    `step`: k of the growth, None once it is over. `named`: the nodes that the step has named.
    `zones`: those of the nodes that were claimed last, once the growth was over.
    """

    pool: str
    step: int | None = 0
    named: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()


class ClaimStage(NamedTuple):
    """What the pool's step allows. `wanted`: how many more nodes. `zones`: of which zones.

    `soak`: nothing may be claimed before `--soak` has passed since the last node ended, and then
    the next step (or the next zone) begins. `over`: nothing in the pool is left to claim or to wait
    for.
    """

    wanted: int = 0
    zones: tuple[str, ...] = ()
    soak: bool = False
    over: bool = False


def stage_of(
    place: PoolPlace,
    candidates: Collection[UpgradeCandidate],
    in_flight: Mapping[str, str],
    canary: int,
    zones_at_once: int = 1,
) -> ClaimStage:
    """What may be claimed of a pool.

    Where zones follow one another there is a soak between two of them. `candidates`: its nodes that
    could be claimed but for slots and gates. `in_flight`: its nodes in Draining to Soaking, or
    waiting for a newcomer, and their zones.
    """
    waiting = {candidate.zone for candidate in candidates}
    unfinished = waiting | set(in_flight.values())
    zones = tuple(open_zones(unfinished, unfinished, zones_at_once))
    if place.step is not None:
        wanted = step_width(place.step, canary) - len(place.named)
        if wanted > 0 and waiting:
            return ClaimStage(wanted, zones)
        if any(name in in_flight for name in place.named):
            return ClaimStage()
        return ClaimStage(soak=bool(waiting), over=not unfinished)
    if not unfinished:
        return ClaimStage(over=True)
    if zones_at_once != 1 or not place.zones or zones[0] in place.zones:
        return ClaimStage(len(candidates), zones)
    return ClaimStage(soak=True)


def choose_claims(
    candidates: Sequence[UpgradeCandidate],
    counts: NodeCounts,
    hold: Callable[[UpgradeCandidate], ClaimHold | None],
    wanted: int,
    in_flight: int = 0,
    max_parallel: int | None = None,
) -> tuple[list[str], dict[str, ClaimHold]]:
    """The nodes to claim now, and what holds those that were looked at and are not claimed.

    `candidates` in their order (`order.claim_order`); `hold`: what beside the counts holds one. It
    is asked with the claims before already in `counts`, which are left there. `in_flight`: all
    nodes of the run that are.
    """
    claimed: list[str] = []
    held: dict[str, ClaimHold] = {}
    for candidate in candidates:
        if len(claimed) >= wanted:
            break
        if max_parallel is not None and in_flight + len(claimed) >= max_parallel:
            because = f"{in_flight + len(claimed)} nodes in flight, --max-parallel {max_parallel}"
            held[candidate.name] = ClaimHold(PARALLEL, because)
            break
        because = counts.hold(candidate.name)
        found = ClaimHold(SLOTS, because) if because else hold(candidate)
        if found is not None:
            held[candidate.name] = found
            continue
        counts.claim(candidate.name)
        claimed.append(candidate.name)
    return claimed, held
