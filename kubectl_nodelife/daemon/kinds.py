"""The kinds that the daemon watches, which controllers need each, and the state of each watch.

A controller is not run while a kind that it needs may not be read: what it would do is reported as
not evaluated, and never taken for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from kubectl_nodelife.live.news import ABSENT, REFUSED, KindState

# controller -> the kinds without which it would decide wrongly, and what is then not evaluated
NEEDS: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "node-lifecycle": (
        frozenset({"Node", "Lease"}),
        "when a node whose kubelet does not report becomes Unknown and is tainted",
    ),
    "taint-eviction": (frozenset({"Node", "Pod"}), "when taints evict pods"),
    "daemonset": (
        frozenset({"Node", "Pod", "DaemonSet", "ControllerRevision"}),
        "what DaemonSets do",
    ),
    "pod-gc": (frozenset({"Node", "Pod"}), "which pods the garbage collector takes"),
}
"""The pod status manager is missing: it is a part of every kubelet, not a controller to look at."""

KINDS: Final = ("Node", "Lease", "Pod", "DaemonSet", "ControllerRevision")

REQUIRED_WATCHES: Final = ("Node", "Lease", "Pod")
"""No decision is taken while the watch of one of these is down."""

_OUT_OF_REACH = (REFUSED, ABSENT)


def out_of_reach(states: Mapping[str, KindState]) -> dict[str, str]:
    """The kinds that are not to be had, with what the server says."""
    return {k: s.error for k, s in states.items() if s.phase in _OUT_OF_REACH}


def unread(states: Mapping[str, KindState]) -> list[str]:
    """The kinds whose first list is still to come."""
    return [k for k, s in states.items() if not s.synced and s.phase not in _OUT_OF_REACH]


def runnable(names: Iterable[str], missing: Iterable[str]) -> list[str]:
    """The controllers that can do without these kinds."""
    gone = set(missing)
    return [name for name in names if name in NEEDS and not NEEDS[name][0] & gone]


def warnings(states: Mapping[str, KindState]) -> list[str]:
    """Sentences on the kinds that may not be read, and on what is not evaluated for that reason."""
    sentences = []
    missing = out_of_reach(states)
    for kind, error in missing.items():
        lost = [what for needs, what in NEEDS.values() if kind in needs]
        sentences.append(f"{kind} cannot be read: not evaluated: {'; '.join(lost)} ({error})")
    return sentences + failing(states)


def failing(states: Mapping[str, KindState]) -> list[str]:
    """A line for each error that the server fails with: of which kinds, and when it is asked again.

    Kinds that fail in the same way share a line: a sick server fails for all of them.
    """
    kinds: dict[str, list[str]] = {}
    next_s: dict[str, float] = {}
    for kind, state in states.items():
        if state.phase == "failing":
            kinds.setdefault(state.error, []).append(kind)
            left_s = retry_seconds(state)
            next_s[state.error] = min(next_s.get(state.error, left_s), left_s)
    return [
        *(
            f"not being watched: {', '.join(names)}: {error} (asked again in {next_s[error]:.0f}s)"
            for error, names in kinds.items()
        ),
        *_nameless(states),
    ]


def _nameless(states: Mapping[str, KindState]) -> list[str]:
    """A line for each kind of which events came that cannot be read and have no name."""
    return [
        f"{state.nameless} events of a {kind} came that cannot be read and have no "
        f"name ({state.nameless_because}): the kind is listed anew from time to time"
        for kind, state in states.items()
        if state.nameless
    ]


def retry_seconds(state: KindState) -> float:
    """Seconds until the kind is asked for again."""
    return round(max(0, state.retry_at_ns - time.monotonic_ns()) / 1e9, 1)
