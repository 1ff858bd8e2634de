"""How long to wait after a request that failed: the one policy for all of them.

Pauses are client-go's (tools/cache/reflector.go): from 0.8 to 30 seconds, doubled each time, and up
to twice as long by chance. What a server asks for by Retry-After is obeyed only between that pause
and a minute: 0 or a negative number would be a storm, and 999999999999 would be for ever. Other
than client-go's, the pauses begin anew once a watch has worked for a while, and not two minutes
after the last one: no decision is taken while a required watch is down.
"""

from __future__ import annotations

import random

FIRST_S = 0.8
LAST_S = 30.0
MOST_RETRY_AFTER_S = 60.0


class Backoff:
    """The pauses of one kind, or of one request. `failures`: since it last went well."""

    def __init__(self, first_s: float = FIRST_S, last_s: float = LAST_S) -> None:
        self.failures = 0
        self._first_s = first_s
        self._last_s = last_s

    def next_s(self, retry_after_s: float | None = None) -> float:
        """Count a failure; seconds to wait after it."""
        pause_s = min(self._first_s * 2.0 ** min(self.failures, 20), self._last_s)
        pause_s *= 1 + random.random()
        self.failures += 1
        return max(pause_s, min(retry_after_s or 0.0, MOST_RETRY_AFTER_S))

    def went_well(self) -> None:
        """The next failure is a first one."""
        self.failures = 0
