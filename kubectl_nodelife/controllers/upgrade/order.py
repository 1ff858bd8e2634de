"""The order in which nodes are claimed: pool by pool, zone by zone, the easiest drain first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

VERDICTS: Final = ("ready", "slow")
"""Drain verdicts with which a node may be claimed, the better first."""


class UpgradeCandidate(NamedTuple):
    """A node that may be claimed, and what its drain costs. Seconds as the drain planner has it."""

    name: str
    pool: str
    zone: str
    verdict: str = "ready"
    drain_seconds: float = 0.0
    moving_pods: int = 0


def by_cost(candidate: UpgradeCandidate) -> tuple[int, float, int, str]:
    """The key by which the candidates of a zone are sorted."""
    known = candidate.verdict in VERDICTS
    rank = VERDICTS.index(candidate.verdict) if known else len(VERDICTS)
    return (rank, candidate.drain_seconds, candidate.moving_pods, candidate.name)


def pool_order(present: Collection[str], asked: Sequence[str] = ()) -> list[str]:
    """The pools in their turn: as `--pools` names them, else by name."""
    return [pool for pool in asked if pool in present] if asked else sorted(present)


def open_zones(zones: Collection[str], unfinished: Collection[str], at_once: int = 1) -> list[str]:
    """The zones of a pool of which nodes may be claimed: the first unfinished ones, by name.

    `unfinished`: zones with a node in flight, or claimable but for slots and gates. `at_once`: 0
    for all of them.
    """
    waiting = [zone for zone in sorted(zones) if zone in unfinished]
    return waiting[:at_once] if at_once else waiting


def claim_order(
    candidates: Iterable[UpgradeCandidate], canaries: Sequence[str] = ()
) -> list[UpgradeCandidate]:
    """The candidates of a pool in their turn: the named canaries, then zone by zone, by cost."""
    first = {name: index for index, name in enumerate(canaries)}
    last = len(first)
    return sorted(candidates, key=lambda c: (first.get(c.name, last), c.zone, by_cost(c)))
