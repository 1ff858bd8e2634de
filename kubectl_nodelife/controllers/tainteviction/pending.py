"""Pending evictions, as reports show them."""

from __future__ import annotations

import msgspec

from kubectl_nodelife.controllers.tainteviction.timed_workers import Key, Work


class PendingEviction(msgspec.Struct, frozen=True):
    """A deletion that waits for its time, for reports. Instants in ns since the epoch.

    `earliest_ns` and `latest_ns` differ from `due_ns` where a controller that was joined may have
    set its own timer to another instant; `doubt` then says why.
    """

    pod: Key
    node: str
    due_ns: int
    created_ns: int
    toleration_seconds: int
    because: str
    earliest_ns: int
    latest_ns: int
    doubt: str


def view(work: Work) -> PendingEviction:
    """The work as reports see it."""
    return PendingEviction(
        pod=work.key,
        node=work.node,
        due_ns=work.due_ns,
        created_ns=work.created_ns,
        toleration_seconds=work.schedule.toleration_seconds,
        because=work.schedule.because,
        earliest_ns=work.earliest_ns,
        latest_ns=work.latest_ns,
        doubt=work.doubt,
    )
