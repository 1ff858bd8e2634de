"""The wall as a stream: a first frame of all zones and nodes, then what differs from it.

The live page draws these documents. Nodes are rows of an array, since their keys would be most of
the text. Instants are seconds of one clock, which each document gives (`now`), so that a row
changes only when what it says changes, not because time passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.heartbeat import sign_of_life
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.service import Service
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.fates import Coming, Judged, Lane, harmed_steps
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook
from kubectl_nodelife.outlook.node_verdict import (
    FINE,
    LEAST_RENEWING,
    UNHEARD,
    UNHEARD_SECONDS,
    WORST_FIRST,
    node_verdict,
    nothing_comes,
)
from kubectl_nodelife.outlook.situation import (
    SAME_SECONDS,
    Hurt,
    Situation,
    blind,
    hurt_steps,
    situation,
)
from kubectl_nodelife.outlook.taint_turns import ForetoldZone
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.works import WorkInProgress
from kubectl_nodelife.outlook.zone import ZoneBrake, ZoneOutlook, zone_brakes, zones

_NUMBERS: Final = {state: number for number, state in enumerate(WORST_FIRST)}
_QUIET: Final = frozenset({"healthy", "cordoned"})
_STEP: Final = 64
_MARGIN_NS: Final = 5 * SECOND_NS
_HURT_SECONDS: Final = 5.0
_ITS_TIME, _NEWER_SIGN, _HELD = "its time", "a newer sign", "held"


class WallZone(msgspec.Struct, frozen=True, rename="camel"):
    """A zone in a line. `rate`: nodes a second. `because`: the rule that decides it; `brake`: what
    becomes of it while silent nodes report no more, else what losing more nodes does. `silent`:
    ready nodes whose sign of life is late; `coming`: the states that it takes then.
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
    silent: int = 0
    coming: list[Coming] = []


class LiveNode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node, as an array of these values.

    `zone`, `state`: places in the frame's lists; -1: in no zone yet. `pods`: None where they were
    not read. `waiting`: how many of them have a timer that deletes them. `action`: what comes next,
    between the instants `low_s` and `high_s`; None: not while things stay as they are. `leaving`:
    pods of a node in trouble that are Terminating.
    """

    name: str
    zone: int
    state: int
    pods: int | None
    waiting: int
    action: str = ""
    low_s: float | None = None
    high_s: float | None = None
    leaving: int = 0

    def shows_the_same(self, other: LiveNode) -> bool:
        """True if it is the same but for what instants move by within themselves."""
        moved = (_moved(self.low_s, other.low_s), _moved(self.high_s, other.high_s))
        if max(moved) > SAME_SECONDS:
            return False
        still = replace(self, low_s=None, high_s=None)
        return still == replace(other, low_s=None, high_s=None)


class LiveFrame(msgspec.Struct, frozen=True):
    """All of it at an instant, `now_s`. `source` is the contract's, without what always moves."""

    now_s: float
    source: dict[str, Any]
    profile: str
    zones: list[WallZone]
    nodes: dict[str, LiveNode]
    warnings: list[str]
    situation: Situation | None = None

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
            "situation": self.situation,
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
    known = replace(after, nodes=rows)
    now, then = after.situation, before.situation
    if now is not None and then is not None and now.shows_the_same(then):
        known = replace(known, situation=then)
    elif now != then:
        changes["situation"] = now
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
    moves that further away. All other nodes are judged each time. While the cluster is not seen no
    node is judged: silence then says nothing about it.
    """

    def __init__(self) -> None:
        self._base_ns: int | None = None
        self._zones: list[str] = []
        self._settings: Settings | None = None
        self._rows: dict[str, LiveNode] = {}
        self._quiet: dict[str, _Quiet] = {}
        self._judged: list[Judged] = []
        self._judged_last: list[Judged] = []
        self._harmed: list[Lane] = []
        self._frame: LiveFrame | None = None
        self._heard_ns = 0
        self._hurt, self._hurt_until_ns = Hurt(), 0
        self._trouble: list[tuple[str, str, int]] = []
        self.judged = 0

    def steps(
        self, view: ClusterView, works: Sequence[WorkInProgress] = ()
    ) -> Generator[None, None, LiveFrame]:
        """The frame of the cluster as it is shown now, a node or some a step."""
        outlook = view.outlook
        if self._frame is not None and (stands_still := view.source.get("standsStill")):
            return self._as_last_seen(view, self._frame, str(stands_still))
        unheard_s = float(view.source.get("age") or 0.0)
        self._heard_ns = outlook.now_ns - round(unheard_s * SECOND_NS)
        counted_ns = self._heard_ns if len(self._quiet) >= LEAST_RENEWING else outlook.now_ns
        held = False
        self._judged = []
        zones_now = zones(outlook)
        self._begin(outlook, zones_now)
        places = {zone.key: number for number, zone in enumerate(zones_now)}
        pods_read = "Pod" not in view.unread
        rows: dict[str, LiveNode] = {}
        yield
        quiet_nodes, known = self._quiet, self._rows
        counts = outlook.cache.pod_counts()
        for number, (name, node) in enumerate(list(outlook.cache.nodes.items())):
            quiet = quiet_nodes.get(name)
            if (
                quiet is not None
                and quiet.node is node
                and quiet.pods == counts.get(name, 0)
                and (goes_on := _goes_on(outlook, quiet, counted_ns))
            ):
                held = held or goes_on is _HELD
                rows[name] = known[name]
                if number % _STEP == 0:
                    yield
                continue
            row = self._judge(outlook, node, places, pods_read)
            rows[name] = known[name] if row == known.get(name) else row
            yield
        self._rows = rows
        if held and unheard_s > UNHEARD_SECONDS and self._frame is not None:
            return self._as_last_seen(view, self._frame, nothing_comes(view.source))
        if held:
            zones_now = [replace(zone, foretold=ForetoldZone()) for zone in zones_now]
        yield from self._look_whom_it_hurts(outlook)
        self._frame = self._framed(view, zones_now, rows, works)
        return self._frame

    def _framed(
        self,
        view: ClusterView,
        zones_now: Sequence[ZoneOutlook],
        rows: dict[str, LiveNode],
        works: Sequence[WorkInProgress],
    ) -> LiveFrame:
        outlook, judged = view.outlook, self._judged
        self._judged_last = judged
        unseen = str(view.source.get("standsStill") or "")
        silent = Counter(of_node.zone for of_node, v in judged if v.state == "silent")
        brakes, known = zone_brakes(outlook, list(zones_now)), (self.instant, unseen, self._harmed)
        return LiveFrame(
            now_s=self.instant(outlook.now_ns),
            source=_steady(view.source),
            profile=outlook.settings.profile.name,
            zones=wall_zones(zones_now, brakes, silent, self.instant),
            nodes=rows,
            warnings=list(view.warnings),
            situation=situation(outlook, judged, zones_now, self._hurt, works, *known),
        )

    def _as_last_seen(self, view: ClusterView, last: LiveFrame, unseen: str) -> LiveFrame:
        """No node gets worse while the cluster is not seen."""
        frame = replace(last, source=_steady(view.source), warnings=list(view.warnings))
        return replace(frame, situation=blind(unseen, self.instant(self._heard_ns), last.situation))

    def _look_whom_it_hurts(self, outlook: Outlook) -> Generator[None, None, None]:
        """Again when other nodes are in trouble, or after a while: it goes through their pods."""
        lost = [(o.node.name, v.state, len(o.pods)) for o, v in self._judged if v.state not in FINE]
        if not lost:
            self._hurt = Hurt()
        elif lost != self._trouble or outlook.now_ns > self._hurt_until_ns:
            self._hurt = yield from hurt_steps(outlook, self._judged)
            self._hurt_until_ns = outlook.now_ns + round(_HURT_SECONDS * SECOND_NS)
        self._trouble = lost

    def harm_steps(
        self, cache: Cache, services: Iterable[Service], now_ns: int
    ) -> Generator[None, None, None]:
        """Count whom the nodes of the last frame harm, for the frames that follow."""
        lost = [each for each in self._judged_last if each[1].state in UNHEARD]
        harmed: list[Lane] = []
        if lost:
            harmed = yield from harmed_steps(cache, now_ns, lost, services, self.instant)
        self._harmed = harmed

    @property
    def is_harmed(self) -> bool:
        """True if nodes of the last frame harm somebody, or somebody was harmed before."""
        unheard = any(verdict.state in UNHEARD for _, verdict in self._judged_last)
        return unheard or bool(self._harmed)

    def _begin(self, outlook: Outlook, zones_now: Sequence[ZoneOutlook]) -> None:
        """Forget what was found under other settings, or with other zones."""
        if self._base_ns is None:
            self._base_ns = outlook.now_ns
        keys = [zone.key for zone in zones_now]
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
        is_quiet = verdict.state in _QUIET and verdict.next is None and pods_read
        if is_quiet and (quiet := _quiet(outlook, of_node)) is not None:
            self._quiet[node.name] = quiet
        leaving, in_trouble = 0, verdict.state not in FINE
        if in_trouble or of_node.untaint_in is not None:
            self._judged.append((of_node, verdict))
        if in_trouble and pods_read:
            leaving = sum(pod.metadata.deletion_timestamp is not None for pod in of_node.pods)
        low_s = high_s = None
        if (span := verdict.span) is not None:
            low_s = self.instant(outlook.now_ns + span.low_ns)
            high_s = self.instant(outlook.now_ns + span.high_ns)
        return LiveNode(
            name=node.name,
            zone=places.get(of_node.zone, -1),
            state=_NUMBERS[verdict.state],
            pods=len(of_node.pods) if pods_read else None,
            waiting=len(of_node.timers),
            action=verdict.next.action if verdict.next is not None else "",
            low_s=low_s,
            high_s=high_s,
            leaving=leaving,
        )

    @property
    def epoch_s(self) -> float:
        """The stream's second 0, in seconds since the epoch by the API server's clock."""
        assert self._base_ns is not None
        return self._base_ns / SECOND_NS

    def instant(self, at_ns: int) -> float:
        """An instant in seconds of the stream's clock, which begins with the first frame."""
        assert self._base_ns is not None
        return round((at_ns - self._base_ns) / SECOND_NS, 1)


def _steady(source: Mapping[str, Any]) -> dict[str, Any]:
    """The source without what always moves."""
    return {key: value for key, value in source.items() if key != "age"}


def _quiet(outlook: Outlook, of_node: NodeOutlook) -> _Quiet | None:
    """Until when a healthy node without another sign of life says the same; None: that is not
    known.
    """
    unknown_in, age_ns = of_node.unknown_in, of_node.sign_age_ns
    if unknown_in is None or age_ns is None:
        return None
    sign = sign_of_life(of_node.node, outlook.cache, outlook.now_ns, of_node.leases_count)
    late_ns = sign.late_after_ns - age_ns
    until_ns = outlook.now_ns + min(unknown_in.low_ns, late_ns)
    return _Quiet(of_node.node, len(of_node.pods), until_ns, unknown_in.low_ns + age_ns)


def _goes_on(outlook: Outlook, quiet: _Quiet, heard_ns: int) -> str:
    """Why a row stays as it is: its end has not come; a newer sign of life moves that away, as it
    does where the node would be late long before it is Unknown; or nothing was heard of anybody
    since it would be late (`_HELD`), so that its silence may be the link's. "": it is judged.
    """
    if outlook.now_ns < quiet.until_ns:
        return _ITS_TIME
    sign = sign_of_life(quiet.node, outlook.cache, outlook.now_ns, outlook.settings.leases_count)
    age_ns, late_after_ns = sign.age_ns(outlook.now_ns), sign.late_after_ns
    noticed_ns = outlook.settings.node_monitor_period_ns + _MARGIN_NS
    if age_ns is None:
        return ""
    if age_ns >= late_after_ns:
        return _HELD if age_ns - (outlook.now_ns - heard_ns) < late_after_ns else ""
    if quiet.unknown_after_ns < late_after_ns + noticed_ns:
        return ""
    quiet.until_ns = outlook.now_ns + late_after_ns - age_ns
    return _NEWER_SIGN


def _moved(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        return 0.0 if one is other else float("inf")
    return abs(one - other)


def wall_zones(
    zones_now: Sequence[ZoneOutlook],
    brakes: Mapping[str, ZoneBrake],
    silent: Mapping[str, int],
    instant: Callable[[int], float],
) -> list[WallZone]:
    """The zones in lines, in their order. `brakes`, `silent` (how many nodes): by zone key;
    `instant`: an instant by the stream's clock."""
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
            silent=silent.get(zone.key, 0),
            coming=[
                Coming(f"{s.state} ({s.rate:g}/s)", instant(s.low_ns), instant(s.high_ns))
                for s in zone.foretold.states
            ],
        )
        for zone in zones_now
    ]
