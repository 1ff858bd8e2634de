"""The part of client-go below kubectl: a rate limit, and retries of its own.

Follows client-go rest/config.go (DefaultQPS, DefaultBurst), rest/with_retry.go and
util/flowcontrol. `kubectl drain` sets no limits of its own, so a node with more than ten pods is
evicted at five a second, and the GETs of many waiting pods queue up behind one another. An answer
with Retry-After reaches kubectl only after ten repetitions; --timeout does not end these.
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.engine.token_bucket import TokenBucket
from kubectl_nodelife.kube.times import SECOND_NS

QPS: Final = 5
BURST: Final = 10
RETRIES: Final = 10
"""How often a request that is answered with Retry-After is repeated."""


def client_bucket() -> TokenBucket:
    """The rate limit of one of kubectl's clients."""
    return TokenBucket(QPS, BURST)


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
