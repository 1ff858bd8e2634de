"""`status`: every node with its clocks and the verdict on it, every zone with its rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kubectl_nodelife.answers.api import document
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.zones import zone_display
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook
from kubectl_nodelife.outlook.verdict import FINE, Verdict, judge
from kubectl_nodelife.outlook.zone import ZoneOutlook, zones


class NodeEntry(msgspec.Struct, frozen=True):
    """One node's outlook with the verdict on it."""

    outlook: NodeOutlook
    verdict: Verdict


class NodeLifeStatus(msgspec.Struct, frozen=True):
    """All of it.

    `source` as the contract has it; `moment` says which instant was judged, and why that one.
    """

    source: dict[str, Any]
    profile: str
    mode: str
    moment: dict[str, str]
    settings: dict[str, dict[str, str]]
    zones: list[ZoneOutlook]
    nodes: list[NodeEntry]
    warnings: list[str]
    now_ns: int

    def in_trouble(self) -> bool:
        """Whether some node is."""
        return any(n.verdict.state not in FINE for n in self.nodes)

    def document(self) -> dict[str, Any]:
        """The contract's NodeLifeStatus."""
        return document(
            "NodeLifeStatus",
            source=self.source,
            profile=self.profile,
            mode=self.mode,
            moment=self.moment,
            settings=self.settings,
            zones=[_zone(z) for z in self.zones],
            nodes=[_node(n, self.now_ns) for n in self.nodes],
            warnings=self.warnings,
        )


def node_statuses(outlook: Outlook, names: Iterable[str]) -> Iterator[NodeEntry]:
    """The status of each of these nodes (of the cache)."""
    for name in names:
        of_node = outlook.node(outlook.cache.nodes[name])
        yield NodeEntry(of_node, judge(of_node, outlook.now_ns))


def make_status(
    outlook: Outlook,
    *,
    nodes: list[NodeEntry],
    source: dict[str, Any],
    mode: str,
    moment: dict[str, str],
    warnings: list[str],
) -> NodeLifeStatus:
    """The status of these nodes, and of all zones."""
    settings = outlook.settings
    return NodeLifeStatus(
        source=source,
        profile=settings.profile.name,
        mode=mode,
        moment=moment,
        settings={
            flag: {"value": value, "origin": settings.origins[flag]}
            for flag, value in settings.flags.items()
            if flag in _FLAGS_THAT_MATTER
        },
        zones=zones(outlook.memory, settings),
        nodes=nodes,
        warnings=warnings,
        now_ns=outlook.now_ns,
    )


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


def _seconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else round(duration_ns / SECOND_NS, 3)


def _zone(zone: ZoneOutlook) -> dict[str, Any]:
    return {
        "name": zone.name,
        "state": zone.state,
        "nodes": zone.nodes,
        "notReady": zone.not_ready,
        "threshold": zone.threshold,
        "rate": zone.rate,
        "queued": zone.queued,
        "because": zone.why,
    }


def _node(status: NodeEntry, now_ns: int) -> dict[str, Any]:
    outlook, verdict = status.outlook, status.verdict
    node = outlook.node
    pods: dict[str, Any] = {"total": len(outlook.pods), "evicting": len(outlook.timers)}
    pods["terminating"] = sum(p.metadata.deletion_timestamp is not None for p in outlook.pods)
    if outlook.timers:
        pods["nextEvictionSeconds"] = _seconds(max(0, outlook.timers[0].due_ns - now_ns))
    made: dict[str, Any] = {
        "name": node.name,
        "zone": zone_name(outlook),
        "ready": outlook.ready or None,
        "reason": outlook.reason,
        "leaseAgeSeconds": _seconds(outlook.lease_age_ns),
        "statusAgeSeconds": _seconds(outlook.status_age_ns),
    }
    if outlook.unknown_in is not None:
        made["unknownInSeconds"] = _seconds(outlook.unknown_in.low_ns)
    made |= {
        "taints": [_taint(t.key, t.value, t.effect) for t in node.spec.taints],
        "unschedulable": node.spec.unschedulable,
        "pods": pods,
        "verdict": {"state": verdict.state, "because": verdict.because, "next": None},
    }
    if verdict.next is not None:
        seconds = verdict.next.in_seconds
        made["verdict"]["next"] = {
            "action": verdict.next.action,
            "inSeconds": None if seconds is None else round(seconds, 3),
        }
    return made


def zone_name(outlook: NodeOutlook) -> str:
    """The zone's name for people."""

    return zone_display(outlook.zone)


def _taint(key: str, value: str, effect: str) -> dict[str, str]:
    return {"key": key, "effect": effect, **({"value": value} if value else {})}
