"""Benches: `python -m bench NAME [--nodes N --pods M --seed S] -o json`, from the project's root.

A bench is a module in this folder, `zone_outage.py` for the name `zone-outage`, with a function

    def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]

that prepares what it needs, measures inside `with stopwatch:` (several times where needed: the
parts add up) and returns figures of its own in camelCase, with the unit last (`recordsPerSecond`).
Constants `NODES` and `PODS` in the module are its default sizes.
"""

from __future__ import annotations

import time
from types import TracebackType


class BenchFailed(Exception):
    """The measured program did not do its work: its figures mean nothing."""


class Stopwatch:
    """Wall and CPU seconds of this process inside the `with` blocks, added up."""

    def __init__(self) -> None:
        self.wall_seconds = 0.0
        self.cpu_seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._cpu_start = time.process_time()
        self._wall_start = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wall_seconds += time.perf_counter() - self._wall_start
        self.cpu_seconds += time.process_time() - self._cpu_start
