"""The wall: zones with their brake, the nodes that matter first, and what comes next.

A short answer for a screen that is drawn again and again: of many nodes it holds as many as the
screen shows. The document is what `top` draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.node_verdict import FINE
from kubectl_nodelife.outlook.status import SORT_KEYS, NodeEntry, NodeLifeStatus, urgency, zone_name
from kubectl_nodelife.outlook.zone import ZoneBrake, ZoneOutlook

MOST_NEXT: Final = 50
WALL_SORT_KEYS: Final = ("trouble", "name", "zone", "pods", "lease-age")


class WallZone(msgspec.Struct, frozen=True, rename="camel"):
    """A zone in a line. `rate`: nodes a second. `because`: the rule that decides it; `brake`: what
    losing more nodes does.
    """

    name: str
    state: str
    nodes: int
    not_ready: int
    threshold: float
    rate: float
    queued: int
    because: str
    brake: str


class WallNode(msgspec.Struct, rename="camel"):
    """A node in a line. `in_seconds`: until `action`; None: not while things stay as they are."""

    name: str
    zone: str
    state: str
    pods: int | None
    fine: bool
    action: str = ""
    in_seconds: float | None = None


class Wall(msgspec.Struct, rename="camel"):
    """All of it. `counts`: nodes by verdict, of all that were chosen; `next`: soonest first."""

    source: dict[str, Any]
    profile: str
    counts: dict[str, int]
    zones: list[WallZone]
    nodes: list[WallNode]
    next: list[WallNode]
    warnings: list[str]


def wall(status: NodeLifeStatus, words: str, sort_by: str, limit: int) -> Wall:
    """The wall of the nodes that the words choose. Raises BadInput."""
    if sort_by not in WALL_SORT_KEYS:
        raise BadInput(f"nodes cannot be sorted by {sort_by!r}", on="sort")
    wanted = choice(words)
    chosen = [node for node in status.nodes if wanted(node)]
    chosen.sort(key=urgency if sort_by == "trouble" else SORT_KEYS[sort_by])
    rows = [_node(node, status.pods_read) for node in chosen]
    due = [row for row in rows if row.in_seconds is not None]
    due.sort(key=lambda row: (row.in_seconds or 0.0, row.name))
    return Wall(
        source=status.source,
        profile=status.profile,
        counts=dict(Counter(node.verdict.state for node in chosen)),
        zones=wall_zones(status.zones, status.brakes),
        nodes=rows[:limit],
        next=due[:MOST_NEXT],
        warnings=status.warnings,
    )


def wall_zones(found: Sequence[ZoneOutlook], brakes: Mapping[str, ZoneBrake]) -> list[WallZone]:
    """The zones in lines, in their order. `brakes`: by zone key."""
    return [
        WallZone(
            name=zone.name,
            state=zone.state,
            nodes=zone.nodes,
            not_ready=zone.not_ready,
            threshold=zone.threshold,
            rate=zone.rate,
            queued=len(zone.queued),
            because=zone.why,
            brake=brakes[zone.key].sentence,
        )
        for zone in found
    ]


def choice(words: str) -> Callable[[NodeEntry], bool]:
    """A filter by words: `zone=a`, `state=silent`, else a part of a name; all of them must hold."""
    wanted = [word.partition("=") for word in words.split()]

    def chooses(node: NodeEntry) -> bool:
        return all(_holds(node, key, value) for key, _, value in wanted)

    return chooses


def _holds(node: NodeEntry, key: str, value: str) -> bool:
    if key == "zone" and value:
        return value in (zone_name(node.outlook), *zone_name(node.outlook).split("/"))
    if key == "state" and value:
        return node.verdict.state == value
    return key in node.outlook.node.name


def _node(node: NodeEntry, pods_read: bool) -> WallNode:
    outlook, verdict = node.outlook, node.verdict
    made = WallNode(
        outlook.node.name,
        zone_name(outlook),
        verdict.state,
        len(outlook.pods) if pods_read else None,
        verdict.state in FINE,
    )
    if verdict.next is not None:
        made.action = verdict.next.action
        made.in_seconds = verdict.next.in_seconds
        if verdict.next.within is not None:
            made.in_seconds = verdict.next.within.low_ns / SECOND_NS
    return made
