"""Detects any writer's writes to nodes by comparing two versions: losses, taints, cordons,
removals.

Each is recorded with what only this moment shows: for how long the kubelet was silent, whether the
conditions ask for the taint, since when the node waits. `ForeignWriteDetector` compares the same
versions for writes of the controllers that ours copy; here every writer counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubectl_nodelife.controllers.nodelifecycle.taints import (
    is_for_lost_node,
    is_own,
    taint_is_wanted,
)
from kubectl_nodelife.controllers.nodelifecycle.zones import FULL
from kubectl_nodelife.daemon.controller_host import ControllerHost
from kubectl_nodelife.kube.field_managers import TAINTS, UNSCHEDULABLE
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, zone_display, zone_key
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import (
    DISRUPTION_TARGET,
    EVICTION_BY_EVICTION_API,
    SILENT_REASONS,
)
from kubectl_nodelife.outlook.diverge.observations import (
    CORDONED,
    DRAINED,
    LOST,
    REMOVED,
    TAINTED,
    UNCORDONED,
    UNTAINTED,
    ObservedWrite,
    author_of,
)

_SETTLED_NS: Final = 2 * SECOND_NS
"""So long after a first list or a gap renewals are as old as they look."""


class NodeWriteObserver:
    """Remembers of each node when its kubelet last posted, and since when it is not Ready."""

    def __init__(self) -> None:
        self._posted: dict[str, int] = {}
        self._not_ready: dict[str, int] = {}

    def changed(
        self, host: ControllerHost, old: KubeObject, new: KubeObject, now_ns: int, watched_ns: int
    ) -> Iterator[ObservedWrite]:
        """Writes between two sights of one object; `watched_ns`: since when there is no gap."""
        if old.uid != new.uid:
            return
        if isinstance(old, Node) and isinstance(new, Node):
            yield from self._node(host, old, new, now_ns, watched_ns)
        elif isinstance(old, Pod) and isinstance(new, Pod):
            yield from _pod(old, new, now_ns)

    def gone(self, old: KubeObject, now_ns: int) -> Iterator[ObservedWrite]:
        """A node object that was deleted."""
        if isinstance(old, Node):
            self._posted.pop(old.name, None)
            self._not_ready.pop(old.name, None)
            yield ObservedWrite(now_ns, REMOVED, old.name, _zone(old), ready=_status(old))

    def _node(
        self, host: ControllerHost, old: Node, new: Node, now_ns: int, watched_ns: int
    ) -> Iterator[ObservedWrite]:
        name, before, after = new.name, old.ready(), new.ready()
        if after is not None and after.status == "True":
            self._not_ready.pop(name, None)
        elif before is not None and before.status == "True":
            self._not_ready[name] = now_ns
        lost = after is not None and after.status == "Unknown" and after.reason in SILENT_REASONS
        if lost and _status(old) != "Unknown":
            silent = self._silence(host, name, now_ns, watched_ns)
            yield ObservedWrite(now_ns, LOST, name, _zone(new), silent_ns=silent, ready="Unknown")
        elif after is not None and not lost:
            posted = before.last_heartbeat_time if before is not None else None
            if after.last_heartbeat_time != posted:
                self._posted[name] = now_ns
        if old.spec.taints != new.spec.taints:
            yield from self._taints(host, old, new, now_ns)
        if old.spec.unschedulable != new.spec.unschedulable:
            word = CORDONED if new.spec.unschedulable else UNCORDONED
            author = author_of(new, UNSCHEDULABLE, now_ns)
            yield ObservedWrite(now_ns, word, name, _zone(new), ready=_status(new), author=author)

    def _silence(self, host: ControllerHost, name: str, now_ns: int, watched_ns: int) -> int | None:
        heartbeat = host.cache.heartbeat(name)
        renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
        last = max(renewal[1] if renewal is not None else 0, self._posted.get(name, 0))
        return now_ns - last if last > watched_ns + _SETTLED_NS else None

    def _taints(
        self, host: ControllerHost, old: Node, new: Node, now_ns: int
    ) -> Iterator[ObservedWrite]:
        zones = host.lifecycle.memory.zones if host.lifecycle is not None else None
        key = zone_key(new.metadata.labels)
        known = zones is not None and key in zones.queues and key in zones.states
        dark = zones is not None and all(s == FULL for s in zones.states.values())
        for word, one, other in ((TAINTED, new, old), (UNTAINTED, old, new)):
            for taint in one.spec.taints:
                if other.has_taint(taint.key, taint.effect):
                    continue
                wanted = taint_is_wanted(old, taint), taint_is_wanted(new, taint)
                yield ObservedWrite(
                    at_ns=now_ns,
                    what=word,
                    node=new.name,
                    zone=zone_display(key),
                    detail=str(taint),
                    own=is_own(taint),
                    explained=any(wanted) if word == TAINTED else not all(wanted) or dark,
                    waiting_ns=None if _is_swap(old) else self._not_ready.get(new.name),
                    rate=zones.rate(key) if zones is not None and known else 0.0,
                    zone_state=zones.states[key] if zones is not None and known else "",
                    ready=_status(new),
                    author=author_of(new, TAINTS, now_ns),
                )


def _is_swap(old: Node) -> bool:
    """True if a NoExecute taint is only exchanged, which costs no token."""
    return any(is_for_lost_node(taint) for taint in old.spec.taints)


def _pod(old: Pod, new: Pod, now_ns: int) -> Iterator[ObservedWrite]:
    if old.status.conditions is new.status.conditions:
        return
    target, before = (p.status.condition(DISRUPTION_TARGET) for p in (new, old))
    evicted = target is not None and target.reason == EVICTION_BY_EVICTION_API
    if evicted and (before is None or before.reason != EVICTION_BY_EVICTION_API):
        where = f"{new.namespace}/{new.name}"
        yield ObservedWrite(now_ns, DRAINED, new.spec.node_name, detail=where)


def _status(node: Node) -> str:
    ready = node.ready()
    return ready.status if ready is not None else ""


def _zone(node: Node) -> str:
    return zone_display(zone_key(node.metadata.labels))
