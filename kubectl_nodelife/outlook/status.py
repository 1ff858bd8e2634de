"""`status`: every node with its clocks and the verdict on it, every zone with its rate."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubectl_nodelife.document import document
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import BadInput, NotFound
from kubectl_nodelife.kube import selectors
from kubectl_nodelife.kube.names import parse_names
from kubectl_nodelife.kube.node import Node, zone_display
from kubectl_nodelife.kube.times import format_time, in_seconds
from kubectl_nodelife.kube.wellknown import LIFECYCLE_CONDITIONS, TRUE
from kubectl_nodelife.outlook.eviction_forecast import Range
from kubectl_nodelife.outlook.node import NodeOutlook
from kubectl_nodelife.outlook.node_verdict import (
    FINE,
    LEAST_RENEWING,
    UNHEARD,
    UNHEARD_SECONDS,
    NextAction,
    NodeVerdict,
    node_verdict,
    nothing_comes,
)
from kubectl_nodelife.outlook.taint_turns import ForetoldZone, ZoneAfterLoss
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.zone import LossByZone, ZoneBrake, ZoneOutlook, zone_brakes, zones


def lifecycle_conditions(node: Node) -> list[str]:
    """What administrators say is done to the node (KEP 5683): the conditions that are True."""
    present = {c.type for c in node.status.conditions if c.status == TRUE}
    return [type_ for type_ in LIFECYCLE_CONDITIONS if type_ in present]


class NodeEntry(msgspec.Struct, frozen=True):
    """One node's outlook with the verdict on it, and its zone when this node too is lost."""

    outlook: NodeOutlook
    verdict: NodeVerdict
    if_lost: ZoneAfterLoss

    def in_trouble(self) -> bool:
        """True if it is neither healthy nor as a person wanted it."""
        return self.verdict.state not in FINE


class NodeLifeStatus(msgspec.Struct, frozen=True):
    """All of it.

    `source` as the contract has it; `moment` says which instant was judged, and why that one.
    `deleted`: while it is watched, the nodes that are gone since the last answer. `asked`: how
    many nodes were judged, of which `nodes` may be those in trouble alone. `absent`: nodes of which
    there is no object, and how many pods are bound to each.
    """

    source: dict[str, Any]
    profile: str
    mode: str
    moment: dict[str, str]
    settings: dict[str, dict[str, str]]
    zones: list[ZoneOutlook]
    brakes: dict[str, ZoneBrake]
    nodes: list[NodeEntry]
    warnings: list[str]
    now_ns: int
    pods_read: bool = True
    deleted: list[str] = []
    asked: int = 0
    absent: dict[str, int] = {}

    def in_trouble(self) -> bool:
        """True if some node is."""
        return any(n.in_trouble() for n in self.nodes)

    def document(self) -> dict[str, Any]:
        """The contract's NodeLifeStatus."""
        gone: dict[str, Any] = {"deleted": self.deleted} if self.deleted else {}
        if self.absent:
            gone["absent"] = [{"name": n, "pods": many} for n, many in self.absent.items()]
        return document(
            "NodeLifeStatus",
            source=self.source,
            profile=self.profile,
            mode=self.mode,
            moment=self.moment,
            settings=self.settings,
            zones=[_zone(z, self.brakes[z.key], self.now_ns) for z in self.zones],
            nodes=[_node(n, self.now_ns, self.pods_read) for n in self.nodes],
            warnings=self.warnings,
            **gone,
        )


def status_steps(
    view: ClusterView,
    names: Sequence[str] = (),
    selector: str | None = None,
    *,
    field_selector: str = "",
    sort_by: str = "",
    trouble: bool = False,
) -> Generator[None, None, NodeLifeStatus]:
    """The status of the nodes asked for (all, where none is) and of all zones, a step a node.

    `sort_by`: a key of SORT_KEYS, else by name. `trouble`: only nodes that are in trouble.

    Raises BadInput for a selector that makes no sense, Failed for a node that is not there.
    """
    outlook, settings = view.outlook, view.settings
    nodes: list[NodeEntry] = []
    losses = LossByZone(outlook)
    for name in choose_nodes(outlook.cache, names, selector, field_selector):
        of_node = outlook.node(outlook.cache.nodes[name])
        verdict = node_verdict(of_node, outlook.now_ns)
        nodes.append(NodeEntry(of_node, verdict, losses.of(of_node.node)))
        yield
    zones_now, asked = zones(outlook), len(nodes)
    warnings = [*view.warnings, *_unheard(view.source, nodes)]
    if trouble:
        nodes = [n for n in nodes if n.in_trouble()]
    if sort_by:
        nodes.sort(key=SORT_KEYS[sort_by])
    return NodeLifeStatus(
        source=view.source,
        profile=settings.profile.name,
        mode=view.mode,
        moment=view.moment,
        settings={
            flag: {"value": value, "origin": settings.origins[flag]}
            for flag, value in settings.flags.items()
            if flag in _FLAGS_THAT_MATTER
        },
        zones=zones_now,
        brakes=zone_brakes(outlook, zones_now),
        nodes=nodes,
        warnings=warnings,
        now_ns=outlook.now_ns,
        pods_read="Pod" not in view.unread,
        asked=asked,
        absent={} if names or selector or field_selector else _absent(view),
    )


def _unheard(source: Mapping[str, Any], nodes: Sequence[NodeEntry]) -> Iterator[str]:
    """A warning where a daemon hears of no node, so that their silence may be the link's."""
    states = [node.verdict.state for node in nodes]
    all_silent = UNHEARD.issuperset(states) and states.count("silent") >= LEAST_RENEWING
    long_ago = float(source.get("age") or 0.0) > UNHEARD_SECONDS
    if all_silent and long_ago and not source.get("standsStill"):
        yield nothing_comes(source)


def _absent(view: ClusterView) -> dict[str, int]:
    """Nodes that do not exist, and how many pods are bound to each."""
    cache = view.outlook.cache
    if "Node" in view.unread or not cache.nodes:
        return {}
    return {
        name: cache.count_on(name)
        for name in sorted(cache.nodes_with_pods() - cache.nodes.keys())
        if name and cache.count_on(name) and view.is_listed("Node", name)
    }


def choose_nodes(
    cache: Cache, names: Sequence[str], selector: str | None, field_selector: str = ""
) -> list[str]:
    """The nodes asked for, in order of their names. Raises BadInput, Failed."""
    if names and (selector or field_selector):
        on = "--selector" if selector else "--field-selector"
        raise BadInput("give names or a selector, not both", on=on)
    wanted = parse_names(names)
    for name in wanted:
        if name not in cache.nodes:
            raise NotFound("nodes", name, among=cache.nodes)
    chosen: Iterable[Node] = cache.nodes.values()
    if selector:
        labels = selectors.label_selector(selector)
        chosen = [n for n in chosen if selectors.matches(labels, n.metadata.labels)]
    if field_selector:
        try:
            fields = selectors.parse_field_selector(field_selector, Node)
        except ValueError as error:
            raise BadInput(str(error), on="--field-selector") from None
        chosen = [n for n in chosen if selectors.matches_fields(fields, n)]
    return sorted(wanted or (node.name for node in chosen))


def missing_parts(view: ClusterView) -> Iterator[str]:
    """Sentences on what a status or an explanation lacks because Leases or pods were not read."""
    for kind, what in _NOT_EVALUATED.items():
        error = view.unread.get(kind)
        if error:
            yield f"{kind} cannot be read: {what} is not evaluated ({error})"
    if not view.unread.get("Lease"):
        yield from _without_leases(view.cache, view.doubts)
    if view.unread.get("Node") == "":
        yield "no nodes were read: nothing is known about them"
    if view.unread.get("Pod") == "":
        yield "no pods were read: evictions are not evaluated"


def _without_leases(cache: Cache, doubts: Container[str]) -> Iterator[str]:
    without = [n for n in cache.nodes if n not in cache.heartbeats and n not in doubts]
    if without and len(without) == len(cache.nodes):
        yield "no node Lease was read: how long until a node is Unknown is not evaluated"
    elif without:
        names = ", ".join(sorted(without)[:3]) + (", ..." if len(without) > 3 else "")
        yield f"no Lease of {names} was read: their age is not evaluated"


def _far(value: int | None) -> float:
    return float("inf") if value is None else value


def urgency(node: NodeEntry) -> tuple[int, float, str]:
    """A key that puts trouble first, and of the same trouble what comes soonest."""
    return *node.verdict.urgency, node.outlook.node.name


SORT_KEYS: Final[dict[str, Callable[[NodeEntry], Any]]] = {
    "name": lambda n: n.outlook.node.name,
    "zone": lambda n: (n.outlook.zone, n.outlook.node.name),
    "ready": lambda n: (n.outlook.ready == "True", n.outlook.ready, n.outlook.node.name),
    "lease-age": lambda n: -_far(n.outlook.lease_age_ns),
    "status-age": lambda n: -_far(n.outlook.status_age_ns),
    "unknown-in": lambda n: _far(n.outlook.unknown_in.low_ns if n.outlook.unknown_in else None),
    "pods": lambda n: -len(n.outlook.pods),
    "next-eviction": lambda n: _far(n.outlook.timers[0].comes_ns if n.outlook.timers else None),
    "trouble": urgency,
}
"""The keys that `--sort-by` takes: the oldest, the soonest, the most first."""

KINDS = ("Node", "Lease", "Pod")
"""The kinds that a status or an explanation is made from."""

_NOT_EVALUATED = {"Lease": "how long until a node is Unknown", "Pod": "when pods are evicted"}

_FLAGS_THAT_MATTER = (
    "node-monitor-period",
    "node-monitor-grace-period",
    "node-startup-grace-period",
    "node-eviction-rate",
    "secondary-node-eviction-rate",
    "large-cluster-size-threshold",
    "unhealthy-zone-threshold",
    "pod-eviction-timeout",
    "enable-taint-manager",
)


def _zone(zone: ZoneOutlook, brake: ZoneBrake, now_ns: int) -> dict[str, Any]:
    return {
        "name": zone.name,
        "state": zone.state,
        "nodes": zone.nodes,
        "notReady": zone.not_ready,
        "threshold": zone.threshold,
        "rate": zone.rate,
        "queued": zone.queued,
        "because": zone.why,
        "metrics": zone.metrics(),
        "brake": _brake(brake),
        **(_foretold(zone.foretold, now_ns) if zone.foretold.states else {}),
    }


def _foretold(foretold: ForetoldZone, now_ns: int) -> dict[str, Any]:
    coming = [
        {"state": each.state, "rate": each.rate}
        | _span("", Range(max(0, each.low_ns - now_ns), max(0, each.high_ns - now_ns)))
        for each in foretold.states
    ]
    return {
        "silent": foretold.silent,
        "foretold": coming,
        "passTakes": _span("", foretold.pass_takes) | {"taintedBefore": foretold.tainted_before},
    }


def _brake(brake: ZoneBrake) -> dict[str, Any]:
    after = brake.after
    return {
        "moreLost": None if after is None else after.lost,
        "state": None if after is None else after.state,
        "rate": None if after is None else after.rate,
        "heldNodes": brake.held,
        "heldPods": brake.held_pods,
        "timersRunning": brake.timers_running,
        "passSeconds": in_seconds(brake.late_ns),
        "taintedBefore": brake.tainted_before,
        "because": brake.sentence,
    }


def _pods(outlook: NodeOutlook, now_ns: int, pods_read: bool) -> dict[str, Any]:
    pods: dict[str, Any] = dict.fromkeys(("total", "evicting", "terminating"))
    if pods_read:
        pods = {"total": len(outlook.pods), "evicting": len(outlook.timers)}
        pods["terminating"] = sum(p.metadata.deletion_timestamp is not None for p in outlook.pods)
    next_eviction_ns = outlook.next_eviction_in(now_ns)
    if next_eviction_ns is not None:
        pods["nextEvictionSeconds"] = in_seconds(next_eviction_ns)
    if outlook.timers:  # the first one to come stands first
        pods["lastEvictionSeconds"] = in_seconds(max(0, outlook.timers[-1].comes_ns - now_ns))
    return pods


def _node(status: NodeEntry, now_ns: int, pods_read: bool) -> dict[str, Any]:
    outlook, verdict = status.outlook, status.verdict
    node = outlook.node
    row: dict[str, Any] = {
        "name": node.name,
        "zone": zone_display(outlook.zone),
        "ready": outlook.ready or None,
        "reason": outlook.reason,
        "message": outlook.message,
        "leaseAgeSeconds": in_seconds(outlook.lease_age_ns),
        "statusAgeSeconds": in_seconds(outlook.status_age_ns),
    }
    if outlook.unknown_in is not None:
        row["unknownInSeconds"] = in_seconds(outlook.unknown_in.middle_ns)
        row |= _span("unknownIn", outlook.unknown_in)
    row |= {
        "taints": [
            {"key": t.key, "effect": t.effect} | ({"value": t.value} if t.value else {})
            for t in node.spec.taints
        ],
        "unschedulable": node.spec.unschedulable,
        "pods": _pods(outlook, now_ns, pods_read),
        "verdict": {
            "state": verdict.state,
            "because": verdict.because,
            "next": _next(verdict.next),
        },
        "ifLost": {
            "zoneState": status.if_lost.state,
            "rate": status.if_lost.rate,
            "allDark": status.if_lost.all_dark,
            "because": status.if_lost.why,
        },
    }
    if at_work := lifecycle_conditions(node):
        row["lifecycleConditions"] = at_work
    return row


def _next(upcoming: NextAction | None) -> dict[str, Any] | None:
    if upcoming is None:
        return None
    seconds = upcoming.in_seconds
    comes: dict[str, Any] = {"action": upcoming.action}
    comes["inSeconds"] = None if seconds is None else round(seconds, 3)
    if upcoming.overdue_since_ns is not None:
        comes["overdueSince"] = format_time(upcoming.overdue_since_ns)
        comes["overdueSeconds"] = in_seconds(upcoming.overdue_ns)
    return comes | (_span("", upcoming.within) if upcoming.within is not None else {})


def _span(what: str, span: Range) -> dict[str, float | None]:
    """The ends of a time that depends on what cannot be seen."""
    earliest, latest = ("Earliest", "Latest") if what else ("earliest", "latest")
    low, high = in_seconds(span.low_ns), in_seconds(span.high_ns)
    return {f"{what}{earliest}Seconds": low, f"{what}{latest}Seconds": high}
