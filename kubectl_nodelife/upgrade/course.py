"""How a run goes, as values: each node's turn, the steps, and how low the cluster gets.

Instants are nanoseconds since the first claim could be made; None: not reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kubectl_nodelife.controllers.upgrade.claims import ClaimHold
from kubectl_nodelife.controllers.upgrade.counts import NodeScope


@dataclass(slots=True)
class NodeTurn:
    """One node of a run, from its claim to Done. `restored`: it could not be drained."""

    name: str
    pool: str
    zone: str
    step: int
    claimed_ns: int
    drained_ns: int | None = None
    worked_ns: int | None = None
    settled_ns: int | None = None
    released_ns: int | None = None
    done_ns: int | None = None
    restored: bool = False


@dataclass(slots=True)
class CourseStep:
    """Nodes that belong together: a growth step of `width` nodes, or, with width 0, a zone (or
    several) once growth is over. `soak_ns`: how long the run waits after it.
    """

    pool: str
    width: int
    start_ns: int
    names: list[str] = field(default_factory=list)
    zones: list[str] = field(default_factory=list)
    end_ns: int | None = None
    soak_ns: int = 0


class LowPoint(NamedTuple):
    """The fewest nodes of a scope that are available at once, and when."""

    available: int
    at_ns: int


@dataclass(slots=True)
class Course:
    """A run from its first claim to its end.

    `available`: how many nodes of the run's pools are available, from each instant on. `held`: the
    nodes that are never claimed, and what holds them. `free_share`: the least free share of cpu and
    memory. `moves`: how often each pod that is moved is, as (mean, most); `waiting`: pods that
    would stay Pending, and why.
    """

    turns: dict[str, NodeTurn] = field(default_factory=dict)
    steps: list[CourseStep] = field(default_factory=list)
    held: dict[str, ClaimHold] = field(default_factory=dict)
    available: list[tuple[int, int]] = field(default_factory=list)
    lowest: dict[NodeScope, LowPoint] = field(default_factory=dict)
    free_share: dict[str, float] = field(default_factory=dict)
    evictions: int = 0
    moves: tuple[float, int] = (0.0, 0)
    waiting: list[str] = field(default_factory=list)
    end_ns: int = 0

    @property
    def drain_lengths_ns(self) -> dict[str, int]:
        """How long each drain took that came to its end."""
        return {
            turn.name: turn.drained_ns - turn.claimed_ns
            for turn in self.turns.values()
            if turn.drained_ns is not None
        }
