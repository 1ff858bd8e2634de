"""The conditions that are worth a notification now, each with a key, and their changes.

A condition is sent when it begins (firing) and when it is over (resolved), under the same key.
Pure: made from the samples that the metrics are made from.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.metrics.cluster_sample import ClusterSample

FIRING, RESOLVED = "firing", "resolved"
EVENTS: Final = (
    "nodeWillBeLost",
    "nodeLost",
    "evictionsWillBegin",
    "zoneWillStop",
    "zoneStops",
    "allZonesDark",
    "controllerStalled",
    "drainStuck",
    "enforcementStopped",
    "upgradeHeld",
)

_SOON_NS: Final = 60 * SECOND_NS
_STUCK_S: Final = 900.0
_TROUBLE: Final = "kubectl nodelife status --trouble"


class NotedCondition(msgspec.Struct, frozen=True):
    """Something that holds now, in a sentence, and the command that shows more."""

    event: str
    sentence: str
    command: str


class Notice(msgspec.Struct, frozen=True):
    """A condition that begins or is over. `key`: the same for both."""

    key: str
    event: str
    state: str
    sentence: str
    command: str
    server: str
    time: str


Conditions = Mapping[str, NotedCondition]


def cluster_conditions(sample: ClusterSample) -> dict[str, NotedCondition]:
    """The conditions in a look at nodes and zones, by key."""
    found: dict[str, NotedCondition] = {}
    for name in sorted(sample.soon_lost):
        sentence = f"node {name} turns Unknown within 20s unless it reports"
        found[f"nodeWillBeLost/{name}"] = NotedCondition("nodeWillBeLost", sentence, _TROUBLE)
    for name in sorted(sample.unreachable):
        explain = f"kubectl nodelife explain node {shlex.quote(name)}"
        found[f"nodeLost/{name}"] = NotedCondition("nodeLost", f"node {name} is lost", explain)
    due_ns = sample.next_eviction_ns
    if due_ns and due_ns - sample.now_ns < _SOON_NS:
        count = sample.pods_due["300"]
        sentence = f"pods of lost or tainted nodes are deleted within a minute, {count} within five"
        found["evictionsWillBegin"] = NotedCondition("evictionsWillBegin", sentence, _TROUBLE)
    dark = bool(sample.zones) and all(z.states == {"FullDisruption"} for z in sample.zones.values())
    if dark:
        sentence = "no zone has a ready node: nothing is evicted anywhere"
        found["allZonesDark"] = NotedCondition("allZonesDark", sentence, _TROUBLE)
    for key, zone in sorted(sample.zones.items()):
        name = key.replace(":\x00:", "/")
        explain = f"kubectl nodelife explain zone {shlex.quote(name)}"
        if zone.stops:
            sentence = f"zone {name}: {zone.stops}"
            found[f"zoneWillStop/{name}"] = NotedCondition("zoneWillStop", sentence, explain)
        if "PartialDisruption" in zone.states and not zone.rate:
            sentence = f"zone {name}: {zone.unhealthy} of {zone.size} not ready, evictions stop"
            found[f"zoneStops/{name}"] = NotedCondition("zoneStops", sentence, explain)
    for gate, seconds in sorted(sample.drain_waits.items()):
        if seconds > _STUCK_S:
            sentence = f"a drain has waited at {gate} for more than {_STUCK_S / 60:.0f} minutes"
            command = "kubectl nodelife drain-plan NODE"
            found[f"drainStuck/{gate}"] = NotedCondition("drainStuck", sentence, command)
    return found


class NoticeBoard:
    """Remembers what holds, and makes notices of what begins and what is over."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._holds: dict[str, NotedCondition] = {}

    def take(self, now: Conditions, now_ns: int) -> list[Notice]:
        """Take in the conditions that hold now; the notices that follow."""
        before, self._holds = self._holds, dict(now)
        begun = [(key, now[key], FIRING) for key in now if key not in before]
        over = [(key, before[key], RESOLVED) for key in before if key not in now]
        at = format_micro_time(now_ns)
        return [
            Notice(key, it.event, state, it.sentence, it.command, self._server, at)
            for key, it, state in (*over, *begun)
        ]
