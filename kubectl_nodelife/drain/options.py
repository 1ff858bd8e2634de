"""How our own waves are cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CORDON_FIRST: Final = "first"
CORDON_BY_WAVE: Final = "by-wave"


@dataclass(frozen=True, slots=True)
class WaveOptions:
    """How our own waves are cut; None everywhere but in `maintenance_ns` means no such limit.

    `low_water_percent`: free share of cpu and memory to keep over all nodes that stay.
    `maintenance_ns`: how long a node is out of service once it is drained. `cordon`: all nodes
    first, or those of a wave when it begins; None: the better of the two, where nodes come back.
    """

    max_parallel: int
    max_per_zone: int | None = None
    low_water_percent: float | None = None
    maintenance_ns: int = 0
    cordon: str | None = None
