"""Which of upstream's workers handles the things of a node.

Follows `hash` in pkg/controller/tainteviction/taint_eviction.go: FNV-1a of 32 bits over the node's
name. Upstream keeps the order of what concerns one node by giving all of it to one worker, while
the order between workers is chance. Here everything happens in the order in which it is told, which
is one of upstream's; the number only tells which nodes wait for one another there.
"""

from __future__ import annotations

from typing import Final

WORKERS: Final = 8
_OFFSET_BASIS: Final = 2166136261
_PRIME: Final = 16777619


def worker_of(node_name: str, workers: int = WORKERS) -> int:
    """The worker's number, 0 or more and below `workers`."""
    value = _OFFSET_BASIS
    for byte in node_name.encode():
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return value % workers
