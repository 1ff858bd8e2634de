"""The timeouts of the daemon's lists and watches, for a dry run and where it enforces."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.live.pacing import WatchPacing

PACE: Final = WatchPacing(silence_by_kind={"Lease": 15.0}, gather_by_kind={"Lease": 0.15})
"""Leases are never quiet for long, and most of what comes. What controllers do is to be seen soon,
so that our copy decides on what they decided on."""

ENFORCING_PACE: Final = WatchPacing(
    silence_by_kind=PACE.silence_by_kind,
    gather_by_kind={**PACE.gather_by_kind, "DaemonSet": 0.0, "ControllerRevision": 0.0},
)
"""A set and its revisions are read in the order in which they change."""
