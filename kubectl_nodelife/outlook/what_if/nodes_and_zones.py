"""Reads the courses of nodes and zones off two plays, and which act led to what.

An instant that upstream leaves to chance has a range: a node is called Unknown by the first monitor
pass after its grace period, whenever that begins; of several nodes that wait in a zone any may get
the first token; a pod is deleted so long after the taint as it tolerates it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from kubectl_nodelife.controllers.nodelifecycle.health import lost_after_ns
from kubectl_nodelife.controllers.nodelifecycle.zones import FULL, eviction_rate
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.kube.zones import zone_display, zone_key
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.document import (
    AtRisk,
    InstantRange,
    NodeFuture,
    Span,
    ZoneChange,
    ZoneFuture,
)
from kubectl_nodelife.outlook.what_if.play_reading import PlayReading, is_eviction
from kubectl_nodelife.outlook.what_if.question import Played

_TOLERANCE_S: Final = 0.2
"""How far an instant may lie outside of its reckoned range by requests and the eviction loop."""


def node_futures(before: PlayReading, after: PlayReading, acts: Sequence[Act]) -> list[NodeFuture]:
    """The nodes that the acts name, and those that fare otherwise than without them."""
    named = {name for act in acts for name in act.nodes}
    changed = {n for n in after.nodes if after.nodes[n] and after.nodes[n] != before.nodes.get(n)}
    deletions: dict[str, list[float]] = {}
    homes = after.played.levels.node_of
    for record in after.played.records:
        if record.object.kind == "Pod" and not record.error and is_eviction(record):
            deletions.setdefault(homes.get(record.object.uid, ""), []).append(record.at)
    told = sorted(named | changed)
    waiting = _first_tokens(after)
    return [_node(name, after, deletions.get(name, []), waiting) for name in told]


def _node(
    name: str,
    after: PlayReading,
    deletions: Sequence[float],
    waiting: Mapping[str, tuple[float, float]],
) -> NodeFuture:
    instants = dict(after.nodes.get(name, {}))
    instants["first_deletion_seconds"] = min(deletions, default=None)
    instants["last_deletion_seconds"] = max(deletions, default=None)
    return NodeFuture(
        name=name,
        zone=after.zone_of(name),
        evicted=len(deletions),
        pods=after.played.levels.pods_at_start[name],
        at_risk=AtRisk(**after.on_node[name]),
        ranges=dict(_ranges(name, after, instants, waiting.get(name))),
        **instants,
    )


def _ranges(
    name: str,
    after: PlayReading,
    instants: Mapping[str, Any],
    token: tuple[float, float] | None,
) -> Iterator[tuple[str, InstantRange]]:
    """The ranges of a node's instants, by the names of the document's fields."""
    unknown, heard = instants.get("unknown_seconds"), after.seconds(after.played.silent.get(name))
    if unknown is None or heard is None:
        return
    settings = after.settings
    period_ns = settings.node_monitor_period_ns + MILLISECOND_NS
    lost_ns = lost_after_ns(settings.node_monitor_grace_period_ns, settings.node_monitor_period_ns)
    earliest = round(heard + lost_ns / SECOND_NS, 3)
    latest = round(earliest + period_ns / SECOND_NS, 3)
    if not earliest - _TOLERANCE_S <= unknown <= latest + _TOLERANCE_S:
        return  # its time was counted anew: the controllers were started again, or all was dark
    yield "unknownSeconds", InstantRange(earliest_seconds=earliest, latest_seconds=latest)
    tainted = instants.get("tainted_seconds")
    if tainted is None or token is None:
        return
    sooner = round(tainted - max(0.0, token[0] - (unknown - earliest)), 3)
    later = round(token[1] + (latest - unknown) - tainted, 3)
    fields = ("tainted_seconds", "first_deletion_seconds", "last_deletion_seconds")
    names = ("taintedSeconds", "firstDeletionSeconds", "lastDeletionSeconds")
    for field, word in zip(fields, names, strict=True):
        at = instants.get(field)
        if at is not None and (field == "tainted_seconds" or at >= tainted):
            yield (
                word,
                InstantRange(
                    earliest_seconds=round(at - sooner, 3), latest_seconds=round(at + later, 3)
                ),
            )


def _first_tokens(after: PlayReading) -> dict[str, tuple[float, float]]:
    """Node -> (when the first of those got its token with which it waited, when the last may)."""
    together: dict[tuple[str, float], list[str]] = {}
    for name, instants in after.nodes.items():
        if "tainted_seconds" in instants and "unknown_seconds" in instants:
            key = (after.zone_of(name), instants["unknown_seconds"])
            together.setdefault(key, []).append(name)
    found = {}
    for names in together.values():
        tainted = [after.nodes[name]["tainted_seconds"] for name in names]
        for name in names:
            found[name] = (min(tainted), max(tainted))
    return found


def zone_futures(before: PlayReading, after: PlayReading, at_start: Cache) -> Iterator[ZoneFuture]:
    """The zones whose state changes in the future otherwise than without the acts."""
    changes, unchanged = _changes(after.played), _changes(before.played)
    counts = _counts(after, at_start)
    dark = _all_dark(counts, changes)
    came_from = {
        record.object.name: record.detail["from"]
        for record in reversed(after.played.records)
        if record.action == "SetZoneState"
    }
    for name, states in sorted(changes.items()):
        if states == unchanged.get(name):
            continue
        held = [
            node
            for node in sorted(after.played.silent)
            if after.zone_of(node) == name and after.on_node[node]["brake"]
        ]
        first = _at_zero(after, came_from[name] or "Normal", counts.get(name, (0, 0)))
        yield ZoneFuture(
            name=name,
            states=[first, *states],
            held_nodes=held,
            held_pods=after.held[name],
            all_dark=dark,
        )


def _counts(after: PlayReading, cluster: Cache) -> dict[str, tuple[int, int]]:
    """Of each zone how many nodes are ready, and how many are not."""
    counts: dict[str, tuple[int, int]] = {}
    for node in cluster.nodes.values():
        zone = zone_display(zone_key(node.metadata.labels, beta_only=after.beta_only))
        ready = node.ready()
        is_ready = ready is not None and ready.status == "True"
        found = counts.get(zone, (0, 0))
        counts[zone] = (found[0] + is_ready, found[1] + (not is_ready))
    return counts


def _at_zero(after: PlayReading, state: str, count: tuple[int, int]) -> ZoneChange:
    """A zone's state at t=0."""
    ready, not_ready = count
    size = ready + not_ready
    return ZoneChange(
        at=0.0,
        state=state,
        rate=eviction_rate(state, size, after.settings),
        not_ready=not_ready,
        nodes=size,
        because=f"{not_ready} of {size} nodes not ready",
    )


def _changes(played: Played) -> dict[str, list[ZoneChange]]:
    found: dict[str, list[ZoneChange]] = {}
    for record in played.records:
        if record.action == "SetZoneState":
            change = ZoneChange(
                at=record.at,
                state=record.detail["to"],
                rate=record.detail["rate"],
                not_ready=_count(record.reason, 0),
                nodes=_count(record.reason, 2),
                because=record.reason,
            )
            found.setdefault(record.object.name, []).append(change)
    return found


def _count(reason: str, word: int) -> int:
    """A number of `3 of 6 nodes not ready, ...`; 0 where the sentence is another one."""
    words = reason.split(" ", 3)
    return int(words[word]) if len(words) > word and words[word].isdecimal() else 0


def _all_dark(
    counts: Mapping[str, tuple[int, int]], changes: Mapping[str, Sequence[ZoneChange]]
) -> list[Span]:
    """When every zone was fully disrupted."""
    state = {name: "Normal" if ready else FULL for name, (ready, _) in counts.items()}
    told = sorted((change.at, name, change) for name, all_ in changes.items() for change in all_)
    dark: list[tuple[float, bool]] = []
    for at, name, change in told:
        state[name] = change.state
        dark.append((at, all(s == FULL for s in state.values())))
    turns = [(at, now) for (_, was), (at, now) in pairwise([(0.0, False), *dark]) if was != now]
    spans = []
    for number, (at, now) in enumerate(turns):
        if now:
            ends = turns[number + 1][0] if number + 1 < len(turns) else None
            spans.append(Span(from_seconds=at, to_seconds=ends))
    return spans


def act_of_each(played: Played, acts: Sequence[Act]) -> list[int | None]:
    """For each record the index of the act to which its chain of causes leads; None: to none."""
    begun = {(round(act.at_seconds, 3), name): act.index for act in acts for name in _about(act)}
    found: list[int | None] = []
    for record in played.records:
        if record.cause is not None:
            found.append(found[record.cause] if record.cause < len(found) else None)
            continue
        key = (record.at, record.object.name)
        found.append(begun.get(key) if record.controller == "cluster" else None)
    return found


def _about(act: Act) -> Iterator[str]:
    """The names of what the act changes first."""
    yield from act.nodes
    for event in act.detail:
        gone = event.get("delete")
        if isinstance(gone, dict):
            yield str(gone.get("name", ""))
    if act.restart:
        yield "kube-controller-manager"
