"""What client-go does below kubectl: a rate limit, and retries of its own.

Follows client-go rest/config.go (DefaultQPS, DefaultBurst), rest/with_retry.go and
util/flowcontrol. `kubectl drain` sets no limits of its own, so a node with more than ten pods is
evicted at five a second, and the GETs of many waiting pods queue up behind one another. An answer
with Retry-After reaches kubectl only after ten repetitions; --timeout does not end these.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.kube.times import SECOND_NS

QPS: Final = 5
BURST: Final = 10
RETRIES: Final = 10
"""How often a request that is answered with Retry-After is repeated."""


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


def noticed_ns(
    last_ns: int, deadline_ns: int, pause_ns: int, retry_after_seconds: int, answers: int
) -> int:
    """When kubectl, refused at `last_ns` and for ever, sees that its deadline is over.

    It looks before every try, `pause_ns` after the answer to the one before; the client repeats
    that try `RETRIES` times where the server names a time, and `answers` have come so far.
    """
    wait_ns = retry_after_seconds * SECOND_NS
    first_ns = last_ns + wait_ns * (RETRIES + 1 - answers) + pause_ns
    period_ns = wait_ns * RETRIES + pause_ns
    return first_ns + max(0, -((first_ns - deadline_ns) // period_ns)) * period_ns
