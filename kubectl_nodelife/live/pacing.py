"""Timeouts, pauses and page sizes of lists and watches, and those that the daemon uses."""

from __future__ import annotations

from typing import Final

import msgspec

from kubectl_nodelife.live.backoff import FIRST_S, LAST_S
from kubectl_nodelife.live.requests import PAGE_SIZE


class WatchPacing(msgspec.Struct, frozen=True):
    """How patient the source is, in seconds.

    `silence_s`: of a watch without a sign of life, after which it counts as hung and is opened
    anew; servers send a bookmark a minute. `silence_by_kind`: the same for kinds that are never
    quiet for long. `watch_s`: how long one watch may last (up to twice that). `page_size` counts
    objects. `gather_s`: how long events of a watch are gathered before they are read, with
    `gather_by_kind` for kinds that many events come of and that may be told a little later.
    `healthy_s`: after a watch of that length the next failure counts as a first one. `nameless_s`:
    after an event that cannot be read and tells no name the kind is listed anew, at most so often.
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
