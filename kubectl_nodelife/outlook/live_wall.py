"""The wall as a stream: a first frame of all zones and nodes, then what differs from it.

The live page draws these documents. Nodes are rows of an array, since their keys would be most of
the text. Instants are seconds of one clock, which each document gives (`now`), so that a row
changes only when what it says changes, not because time passes.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.sign_of_life import sign_of_life
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook
from kubectl_nodelife.outlook.node_verdict import FINE, WORST_FIRST, NextAction, node_verdict
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.zone import ZoneBrake, ZoneOutlook, zone_brakes, zones

SAME_SECONDS: Final = 0.5
"""An instant that moves by no more than that is not sent again."""

_NUMBERS: Final = {state: number for number, state in enumerate(WORST_FIRST)}
_QUIET: Final = frozenset({"healthy", "cordoned"})
_STEP: Final = 64
_MARGIN_NS: Final = 5 * SECOND_NS


class WallZone(msgspec.Struct, frozen=True, rename="camel"):
    """A zone in a line. `rate`: nodes a second. `because`: the rule that decides it; `brake`: what
    becomes of it while silent nodes report no more, else what losing more nodes does.
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


class LiveNode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node, as an array of these values.

    `zone`, `state`: places in the frame's lists; -1: in no zone yet. `pods`: None where they were
    not read. `waiting`: how many of them have a timer that deletes them. `action`: what comes next,
    between the instants `low_s` and `high_s`; None: not while things stay as they are.
    """

    name: str
    zone: int
    state: int
    pods: int | None
    waiting: int
    action: str = ""
    low_s: float | None = None
    high_s: float | None = None

    def shows_the_same(self, other: LiveNode) -> bool:
        """True if it is the same but for what instants move by within themselves."""
        moved = (_moved(self.low_s, other.low_s), _moved(self.high_s, other.high_s))
        if max(moved) > SAME_SECONDS:
            return False
        mine = (self.zone, self.state, self.pods, self.waiting, self.action)
        return mine == (other.zone, other.state, other.pods, other.waiting, other.action)


class LiveFrame(msgspec.Struct, frozen=True):
    """All of it at an instant, `now_s`. `source` is the contract's, without what always moves."""

    now_s: float
    source: dict[str, Any]
    profile: str
    zones: list[WallZone]
    nodes: dict[str, LiveNode]
    warnings: list[str]

    def snapshot(self) -> dict[str, Any]:
        """The first document."""
        return {
            "now": self.now_s,
            "source": self.source,
            "profile": self.profile,
            "states": WORST_FIRST,
            "fine": sorted(FINE),
            "zones": self.zones,
            "nodes": list(self.nodes.values()),
            "warnings": self.warnings,
        }

    def follows(self, before: LiveFrame) -> bool:
        """True if it can be sent as what differs: the places of zones are the same."""
        same = self.profile == before.profile
        return same and [z.name for z in self.zones] == [z.name for z in before.zones]


def delta(before: LiveFrame, after: LiveFrame) -> tuple[LiveFrame, dict[str, Any]]:
    """The frame that a reader of `before` knows after the changes, and the changes; {}: none.

    A row that says the same stays the one that was sent, so that small moves add up to one that is
    sent.
    """
    changes: dict[str, Any] = {}
    rows, changed, known_rows = dict(after.nodes), [], before.nodes
    for name, row in after.nodes.items():
        old = known_rows.get(name)
        if old is row:
            continue
        if old is not None and row.shows_the_same(old):
            rows[name] = old
        else:
            changed.append(row)
    if changed:
        changes["nodes"] = changed
    if known_rows.keys() != rows.keys() and (gone := [n for n in known_rows if n not in rows]):
        changes["gone"] = gone
    for field in ("source", "zones", "warnings"):
        value = getattr(after, field)
        if value != getattr(before, field):
            changes[field] = value
    known = msgspec.structs.replace(after, nodes=rows)
    return known, {"now": after.now_s, **changes} if changes else {}


class _Quiet(msgspec.Struct, gc=False):
    """Until when a row stays as it is, while its node and its number of pods are these.

    `unknown_after_ns`: how long after a sign of life the node becomes Unknown, at the earliest.
    """

    node: Node
    pods: int
    until_ns: int
    unknown_after_ns: int


class LiveWall:
    """Makes one frame after another, and judges only the nodes that may have changed.

    A healthy node keeps its row until its next sign of life would be late; a new sign of life only
    moves that further away. All other nodes are judged each time.
    """

    def __init__(self) -> None:
        self._base_ns: int | None = None
        self._zones: list[str] = []
        self._settings: Settings | None = None
        self._rows: dict[str, LiveNode] = {}
        self._quiet: dict[str, _Quiet] = {}
        self.judged = 0

    def steps(self, view: ClusterView) -> Generator[None, None, LiveFrame]:
        """The frame of the cluster as it is shown now, a node or some a step."""
        outlook = view.outlook
        found = zones(outlook.memory, outlook.settings, outlook.foretold)
        self._begin(outlook, found)
        places = {zone.key: number for number, zone in enumerate(found)}
        pods_read = "Pod" not in view.unread
        rows: dict[str, LiveNode] = {}
        yield
        quiet_nodes, known, now_ns = self._quiet, self._rows, outlook.now_ns
        counts = outlook.cache.pod_counts()
        for number, (name, node) in enumerate(list(outlook.cache.nodes.items())):
            quiet = quiet_nodes.get(name)
            if (
                quiet is not None
                and quiet.node is node
                and quiet.pods == counts.get(name, 0)
                and (now_ns < quiet.until_ns or _goes_on(outlook, quiet))
            ):
                rows[name] = known[name]
                if number % _STEP == 0:
                    yield
                continue
            row = self._judge(outlook, node, places, pods_read)
            rows[name] = known[name] if row == known.get(name) else row
            yield
        self._rows = rows
        source = {key: value for key, value in view.source.items() if key != "age"}
        return LiveFrame(
            now_s=self.instant(outlook.now_ns),
            source=source,
            profile=outlook.settings.profile.name,
            zones=wall_zones(found, zone_brakes(outlook, list(found))),
            nodes=rows,
            warnings=list(view.warnings),
        )

    def _begin(self, outlook: Outlook, found: Sequence[ZoneOutlook]) -> None:
        """Forget what was found under other settings, or with other zones."""
        if self._base_ns is None:
            self._base_ns = outlook.now_ns
        keys = [zone.key for zone in found]
        if keys != self._zones or outlook.settings is not self._settings:
            self._zones, self._settings = keys, outlook.settings
            self._quiet.clear()
        for name in self._quiet.keys() - outlook.cache.nodes.keys():
            del self._quiet[name]
        self.judged = 0

    def _judge(
        self, outlook: Outlook, node: Node, places: dict[str, int], pods_read: bool
    ) -> LiveNode:
        of_node = outlook.node(node)
        verdict = node_verdict(of_node, outlook.now_ns)
        self.judged += 1
        self._quiet.pop(node.name, None)
        if verdict.state in _QUIET and verdict.next is None and pods_read:
            quiet = _quiet(outlook, of_node)
            if quiet is not None:
                self._quiet[node.name] = quiet
        low_s, high_s = self._within(outlook.now_ns, verdict.next)
        return LiveNode(
            name=node.name,
            zone=places.get(of_node.zone, -1),
            state=_NUMBERS[verdict.state],
            pods=len(of_node.pods) if pods_read else None,
            waiting=len(of_node.timers),
            action=verdict.next.action if verdict.next is not None else "",
            low_s=low_s,
            high_s=high_s,
        )

    def _within(
        self, now_ns: int, upcoming: NextAction | None
    ) -> tuple[float | None, float | None]:
        if upcoming is None or upcoming.in_seconds is None:
            return None, None
        if upcoming.within is not None:
            span = upcoming.within
            return self.instant(now_ns + span.low_ns), self.instant(now_ns + span.high_ns)
        at_s = self.instant(now_ns + round(upcoming.in_seconds * SECOND_NS))
        return at_s, at_s

    @property
    def epoch_s(self) -> float:
        """The stream's second 0, in seconds since the epoch by the API server's clock."""
        assert self._base_ns is not None
        return self._base_ns / SECOND_NS

    def instant(self, at_ns: int) -> float:
        """An instant in seconds of the stream's clock, which begins with the first frame."""
        assert self._base_ns is not None
        return round((at_ns - self._base_ns) / SECOND_NS, 1)


def _quiet(outlook: Outlook, of_node: NodeOutlook) -> _Quiet | None:
    """Until when a healthy node without another sign of life says the same; None: that is not
    known.
    """
    left, age_ns = of_node.unknown_in, of_node.sign_age_ns
    if left is None or age_ns is None:
        return None
    sign = sign_of_life(of_node.node, outlook.cache, outlook.now_ns, of_node.leases_count)
    late_ns = sign.late_after_ns - age_ns
    until_ns = outlook.now_ns + min(left.low_ns, late_ns)
    return _Quiet(of_node.node, len(of_node.pods), until_ns, left.low_ns + age_ns)


def _goes_on(outlook: Outlook, quiet: _Quiet) -> bool:
    """True if a newer sign of life moves the end of that time away, as it does where the node would
    be late long before it is Unknown.
    """
    sign = sign_of_life(quiet.node, outlook.cache, outlook.now_ns, outlook.settings.leases_count)
    age_ns, late_after_ns = sign.age_ns(outlook.now_ns), sign.late_after_ns
    noticed_ns = outlook.settings.node_monitor_period_ns + _MARGIN_NS
    if age_ns is None or quiet.unknown_after_ns < late_after_ns + noticed_ns:
        return False
    quiet.until_ns = outlook.now_ns + late_after_ns - age_ns
    return age_ns < late_after_ns


def _moved(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        return 0.0 if one is other else float("inf")
    return abs(one - other)


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
            brake=zone.coming(None) or brakes[zone.key].sentence,
        )
        for zone in found
    ]
