"""How our own waves are cut."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WaveOptions:
    """How our own waves are cut; None everywhere but in `maintenance_ns` means no such limit.

    `low_water_percent`: free share of cpu and memory to keep over all nodes that stay.
    `maintenance_ns`: how long a node is out of service once it is drained.
    """

    max_parallel: int
    max_per_zone: int | None = None
    low_water_percent: float | None = None
    maintenance_ns: int = 0
