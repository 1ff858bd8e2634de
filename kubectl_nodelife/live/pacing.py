"""Timeouts, pauses and page sizes of lists and watches, and how long to wait after a request that
failed.

`Backoff` is the one policy for all requests. Pauses are client-go's (tools/cache/reflector.go):
from 0.8 to 30 seconds, doubled each time, and up to twice as long by chance. What a server asks for
by Retry-After is obeyed only between that pause and a minute: 0 or a negative number would be a
storm, and 999999999999 would be for ever. Other than client-go's, the pauses begin anew once a
watch has worked for a while, and not two minutes after the last one: no decision is taken while a
required watch is down.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from kubectl_nodelife.live.requests import PAGE_SIZE

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


class WatchPacing(msgspec.Struct, frozen=True):
    """How patient the source is, in seconds.

    `silence_s`: of a watch without a sign of life, after which it counts as hung and is opened
    anew; servers send a bookmark a minute. `silence_by_kind`: the same for kinds that are never
    quiet for long. `watch_s`: how long one watch may last (up to twice that). `page_size` counts
    objects. `gather_s`: how long events of a watch are gathered before they are read, with
    `gather_by_kind` for kinds that many events come of and that may be passed on a little later.
    `healthy_s`: after a watch of that length the next failure counts as a first one. `nameless_s`:
    after an event that cannot be read and has no name the kind is listed anew, at most so often.
    """

    first_backoff_s: float = FIRST_S
    last_backoff_s: float = LAST_S
    healthy_s: float = 10.0
    refused_s: float = 60.0
    nameless_s: float = 300.0
    silence_s: float = 150.0
    silence_by_kind: dict[str, float] = {}
    first_byte_s: float = 120.0
    watch_s: int = 300
    page_size: int = PAGE_SIZE
    gather_s: float = 0.05
    gather_by_kind: dict[str, float] = {}


DAEMON_PACING: Final = WatchPacing(silence_by_kind={"Lease": 15.0}, gather_by_kind={"Lease": 0.15})
"""Leases are never quiet for long, and most of what comes. What controllers do is to be seen soon,
so that our copy decides on what they decided on."""

ENFORCING_PACING: Final = WatchPacing(
    silence_by_kind=DAEMON_PACING.silence_by_kind,
    gather_by_kind={**DAEMON_PACING.gather_by_kind, "DaemonSet": 0.0, "ControllerRevision": 0.0},
)
"""A set and its revisions are read in the order in which they change."""
