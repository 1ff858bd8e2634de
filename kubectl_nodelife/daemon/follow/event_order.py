"""Puts events of several watches in the order in which they happened.

The cluster's one counter of versions tells it; upstream's informers have no need of this, for
their controllers wait for expectations instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kubectl_nodelife.engine.events import Event, Gone, Put


def in_order(events: Sequence[Event]) -> Sequence[Event]:
    """Events of several watches in the order in which they happened, as far as versions tell.

    Each kind has a connection of its own, and a pod's deletion may come before the change of the
    set that led to it. What is gone tells no version: it stays before what came next of its kind.
    Anything but numbers for versions leaves the order as it is.
    """
    if len({_kind(event) for event in events}) < 2:
        return events
    numbers: list[float] = []
    upcoming: dict[str, float] = {}
    for event in reversed(events):
        if isinstance(event, Put):
            version = event.obj.metadata.resource_version
            if not version.isdecimal():
                return events
            upcoming[event.kind] = float(version)
        numbers.append(upcoming.get(_kind(event), math.inf))
    ranked = sorted(zip(reversed(numbers), range(len(events)), strict=True))
    return [events[position] for _, position in ranked]


def _kind(event: Event) -> str:
    return event.kind if isinstance(event, (Put, Gone)) else ""
