"""Merges lines of several sources about one thing: the journal first, then Events, then objects.

A controller's Event about a write that the journal confirmed is that write. Two lines are the same
if they tell the same within half a minute: an Event has whole seconds, and the journal has the time
at which we saw it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.replay.replay_line import (
    OBJECT,
    ORDER_OF_SOURCES,
    OTHER,
    US,
    ReplayLine,
)

SAME_NS: Final = 30 * SECOND_NS


def merged(lines: Iterable[ReplayLine]) -> list[ReplayLine]:
    """The lines, each thing once, in the order of time."""
    ranked = sorted(lines, key=lambda line: (ORDER_OF_SOURCES.index(line.seen[0]), line.time_ns))
    known: dict[tuple[str, ...], list[tuple[int, int, ReplayLine]]] = {}
    kept: list[ReplayLine] = []
    for number, line in enumerate(ranked):
        alike = known.setdefault(line.gist, [])
        twin = _nearest(alike, line)
        if twin is None:
            insort(alike, (line.time_ns, number, line))
            kept.append(line)
        else:
            _absorb(twin, line)
    order = {line: number for number, line in enumerate(kept)}
    return sorted(kept, key=lambda line: (line.time_ns, order[line]))


def _nearest(alike: list[tuple[int, int, ReplayLine]], line: ReplayLine) -> ReplayLine | None:
    """The nearest in time that no line of the same source was merged into."""
    at = bisect_left(alike, (line.time_ns, -1))
    best: ReplayLine | None = None
    for _, _, other in alike[max(0, at - 3) : at + 3]:
        apart = abs(other.time_ns - line.time_ns)
        if apart > SAME_NS or line.seen[0] in other.seen:
            continue
        if best is None or apart < abs(best.time_ns - line.time_ns):
            best = other
    return best


def _absorb(kept: ReplayLine, other: ReplayLine) -> None:
    """Take over what `other` knows and `kept` does not."""
    kept.seen = (*kept.seen, *other.seen)
    kept.node = kept.node or other.node
    kept.why = kept.why or other.why
    kept.detail = kept.detail or other.detail
    kept.names = kept.names or other.names
    if kept.family == "cordon" and OBJECT in other.seen:  # a kubelet tells, and has not done it
        kept.actor, kept.action = other.actor, other.action
        kept.time_ns = min(kept.time_ns, other.time_ns)
    if other.count > kept.count:
        kept.count, kept.first_ns = other.count, other.first_ns
    if kept.actor.kind == OTHER and other.actor.kind not in (OTHER, US):
        kept.actor = other.actor
