"""kubectl's client-side rate limit: 5 requests a second after a burst of 10, for each API group.

Follows client-go rest/config.go (DefaultQPS, DefaultBurst) and util/flowcontrol. `kubectl drain`
sets no limits of its own, so a node with more than ten pods is evicted at five a second, and the
GETs of many waiting pods queue up behind one another.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.kube.times import SECOND_NS

QPS: Final = 5
BURST: Final = 10


class Bucket:
    """A token bucket whose waiters stand in line. Instants in nanoseconds."""

    __slots__ = ("_full_at_ns",)

    def __init__(self) -> None:
        self._full_at_ns = 0

    def reserve(self, now_ns: int) -> int:
        """When a request that asks now may be sent."""
        token_ns = SECOND_NS // QPS
        # Each request moves the moment at which the bucket is full by one token; with more than
        # `BURST` tokens missing the request waits for the surplus to flow in.
        self._full_at_ns = max(self._full_at_ns, now_ns) + token_ns
        return max(now_ns, self._full_at_ns - BURST * token_ns)
