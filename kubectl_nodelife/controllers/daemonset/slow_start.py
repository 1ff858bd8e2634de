"""Slow start: creates run in batches of 1, 2, 4, 8 …, and stop after a batch with an error.

Follows `slowStartBatch` (`pkg/controller/controller_utils.go`) as the DaemonSet controller's
`syncNodes` writes it out: a namespace full of quota errors costs a handful of calls, not 250.
"""

from __future__ import annotations

from collections.abc import Iterator

BURST_REPLICAS = 250
SLOW_START_INITIAL_BATCH_SIZE = 1


def slow_start_batches(
    count: int, initial: int = SLOW_START_INITIAL_BATCH_SIZE
) -> Iterator[tuple[int, int]]:
    """(position, size) of each batch for `count` calls; the caller stops early on an error."""
    position = 0
    size = min(count, initial)
    while size > 0:
        yield position, size
        position += size
        size = min(2 * size, count - position)
