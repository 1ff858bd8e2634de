"""Detects writes of others by comparing two versions of an object.

`ForeignWriteDetector` reports as actions what node-lifecycle, taint-eviction and pod-gc do:
conditions that turn Unknown for a silent kubelet, the taints that mirror conditions, pods marked
not ready, evicted, or collected. A person's taints and deletions are not theirs. Nothing is changed
by detecting; what follows from a finding is the caller's affair.

`NodeWriteObserver` reports any writer's writes to nodes: losses, taints, cordons, removals. Each
has what only this moment shows: for how long the kubelet was silent, whether the conditions ask for
the taint, since when the node waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController, taints
from kubectl_nodelife.controllers.nodelifecycle.zones import FULL, Zones
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    MarkPodNotReady,
    RemoveTaints,
    SetNodeConditions,
    SetPodCondition,
    of_node,
    of_pod,
)
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.kube.field_managers import TAINTS, UNSCHEDULABLE
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, Taint, zone_display, zone_key
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import (
    DELETION_BY_POD_GC,
    DELETION_BY_TAINT_MANAGER,
    DISRUPTION_TARGET,
    EVICTION_BY_EVICTION_API,
    NO_EXECUTE,
    SILENT_REASONS,
    TAINT_NODE_OUT_OF_SERVICE,
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

# reason of DisruptionTarget -> the controller that sets it
_EVICTORS: Final = {DELETION_BY_TAINT_MANAGER: "taint-eviction", DELETION_BY_POD_GC: "pod-gc"}

_DUE_SOON_NS: Final = 10 * SECOND_NS
"""A deletion that comes so long before the timer's end may still be the timer's."""

_TOGETHER_NS: Final = 5 * SECOND_NS
"""The writes of one pass to a node and to its pods are seen within this time."""


@dataclass(eq=False)
class ForeignWriteDetector:
    """Reads actions off two versions of an object, with our own copies of the two controllers for
    causes and clocks. Kept are pods that were marked, by node that is Ready, and the uids of those
    whose deletion by pod-gc was noted, until they are gone.
    """

    _cache: Cache
    _lifecycle: NodeLifecycleController | None
    _eviction: TaintEvictionController | None
    _early: dict[str, dict[Key, tuple[Pod, int]]] = field(default_factory=dict)
    _noted: set[str] = field(default_factory=set)

    def compare(self, old: KubeObject, new: KubeObject, now_ns: int) -> Iterator[Action]:
        """The actions of one of the controllers between these two versions of one object."""
        if old.uid != new.uid:
            return
        if isinstance(old, Node) and isinstance(new, Node):
            yield from self._node(old, new, now_ns)
        elif isinstance(old, Pod) and isinstance(new, Pod):
            yield from self._pod(old, new, now_ns)

    def removed(self, old: KubeObject) -> Iterator[Action]:
        """The action that deleted an object at once, for pods that pod-gc collects alone."""
        if not isinstance(old, Pod) or not old.spec.node_name:
            return
        if old.uid in self._noted:
            self._noted.discard(old.uid)
            return
        name, terminating = old.spec.node_name, old.metadata.deletion_timestamp is not None
        node = self._cache.node(name)
        if node is None and (not terminating or _is_marked_by_gc(old)):
            because = f"seen in the cluster: its node {name} does not exist"
            yield self._delete(old, "pod-gc", because, None, force=True)
        elif terminating and self._not_ready(name) and self._out_of_service(name):
            because = f"seen in the cluster: node {name} is out of service"
            yield self._delete(old, "pod-gc", because, None, force=True)

    def _node(self, old: Node, new: Node, now_ns: int) -> Iterator[Action]:
        cause = self._ready_cause(new.name)
        if old.status.conditions is not new.status.conditions:
            yield from self._marked_before(new, now_ns)
            before = {c.type: c.status for c in old.status.conditions}
            lost = tuple(
                c
                for c in new.status.conditions
                if c.status == "Unknown"
                and c.reason in SILENT_REASONS
                and before.get(c.type) != "Unknown"
            )
            if lost:
                cause = SetNodeConditions(
                    controller="node-lifecycle",
                    because=f"seen in the cluster: {self._silence(new, now_ns)}",
                    **of_node(new),
                    conditions=lost,
                )
                yield cause
        if old.spec.taints != new.spec.taints:
            yield from self._taints(old, new, cause)

    def _taints(self, old: Node, new: Node, cause: Action | None) -> Iterator[Action]:
        status = _status(new)
        state = f"Ready is {status}" if status else "Ready is not posted"
        added, removed = _missing(new, old), _missing(old, new)
        because = f"seen in the cluster: {state}"
        seen: dict[str, Any] = {"controller": "node-lifecycle", "because": because}
        if added:
            queued = any(t.effect == NO_EXECUTE for t in added) and self._queued_cause(new.name)
            yield AddTaints(**seen, cause=queued or cause, **of_node(new), taints=added)
        if removed:
            yield RemoveTaints(**seen, cause=cause, **of_node(new), taints=removed)

    def _pod(self, old: Pod, new: Pod, now_ns: int) -> Iterator[Action]:
        if old.status.conditions is not new.status.conditions:
            yield from self._conditions(old, new, now_ns)
        if old.metadata.deletion_timestamp is None and new.metadata.deletion_timestamp is not None:
            evictor = self._evictor(new, now_ns)
            if evictor is not None:
                yield evictor

    def _conditions(self, old: Pod, new: Pod, now_ns: int) -> Iterator[Action]:
        node = new.spec.node_name
        before, after = old.status.condition("Ready"), new.status.condition("Ready")
        turned = _is_false(after) and before is not None and not _is_false(before)
        if turned and after is not None and self._not_ready(node):
            yield self._mark(new, after, self._ready_cause(node))
        elif turned and not _is_false(new.status.condition("ContainersReady")):
            self._early.setdefault(node, {})[new.key] = (new, now_ns)  # no kubelet says only that
        target = _new_target(old, new)
        controller = _EVICTORS.get(target.reason) if target is not None else None
        if target is not None and controller is not None and target.status == "True":
            yield SetPodCondition(
                controller=controller,
                because=f"seen in the cluster: {target.message}",
                cause=self._timer(new.key),
                **of_pod(new),
                condition=target,
            )

    def _mark(self, pod: Pod, condition: PodCondition, cause: Action | None) -> MarkPodNotReady:
        return MarkPodNotReady(
            controller="node-lifecycle",
            because=f"seen in the cluster: node {pod.spec.node_name} is not Ready",
            cause=cause,
            **of_pod(pod),
            condition=condition,
        )

    def _marked_before(self, node: Node, now_ns: int) -> Iterator[Action]:
        """Pods have a watch of their own: marks may be seen before their node is not Ready."""
        ready = node.ready()
        if node.name not in self._early or ready is None or ready.status == "True":
            return
        for pod, seen_ns in self._early.pop(node.name).values():
            condition = pod.status.condition("Ready")
            if condition is not None and now_ns - seen_ns < _TOGETHER_NS:
                yield self._mark(pod, condition, None)

    def _evictor(self, pod: Pod, now_ns: int) -> Action | None:
        target = pod.status.condition(DISRUPTION_TARGET)
        controller = _EVICTORS.get(target.reason) if target is not None else None
        timer = self._eviction.workers.get(pod.key) if self._eviction is not None else None
        if controller is None and timer is not None and timer.due_ns - now_ns < _DUE_SOON_NS:
            controller = "taint-eviction"
        if controller is None:
            return None
        if controller == "pod-gc":
            self._noted.add(pod.uid)
        because = "seen in the cluster: " + (
            timer.because if timer is not None else target.message if target is not None else ""
        )
        return self._delete(pod, controller, because, self._timer(pod.key))

    def _delete(
        self, pod: Pod, controller: str, because: str, cause: Action | None, *, force: bool = False
    ) -> DeletePod:
        return DeletePod(
            controller=controller,
            because=because,
            cause=cause,
            **of_pod(pod),
            force=force,
            grace_period_seconds=0 if force else None,
        )

    def _timer(self, pod: Key) -> Action | None:
        work = self._eviction.workers.get(pod) if self._eviction is not None else None
        return work.schedule if work is not None else None

    def _ready_cause(self, node: str) -> Action | None:
        return self._lifecycle.memory.ready_cause.get(node) if self._lifecycle else None

    def _queued_cause(self, node: str) -> Action | None:
        """Our own copy's decision that the node waits for the taint, while it waits."""
        if self._lifecycle is None:
            return None
        waits = any(q.is_waiting(node) for q in self._lifecycle.memory.zones.queues.values())
        return self._lifecycle.memory.queued_cause.get(node) if waits else None

    def _not_ready(self, name: str) -> bool:
        node = self._cache.node(name)
        ready = node.ready() if node is not None else None
        return ready is not None and ready.status != "True"

    def _out_of_service(self, name: str) -> bool:
        node = self._cache.node(name)
        return node is not None and any(
            taint.key == TAINT_NODE_OUT_OF_SERVICE for taint in node.spec.taints
        )

    def _silence(self, node: Node, now_ns: int) -> str:
        """For how long we have seen no sign of the kubelet, against the limit."""
        health = self._lifecycle.memory.health.get(node.name) if self._lifecycle else None
        if health is None or self._lifecycle is None:
            return "its kubelet stopped posting"
        silent = max(0, now_ns - health.probe_ns) // MILLISECOND_NS * MILLISECOND_NS
        grace = self._lifecycle.settings.node_monitor_grace_period_ns
        return (
            f"no sign of life for {format_duration(silent)} by our clock, "
            f"node-monitor-grace-period {format_duration(grace)}"
        )


def _is_marked_by_gc(pod: Pod) -> bool:
    """True if its DisruptionTarget is pod-gc's."""
    target = pod.status.condition(DISRUPTION_TARGET)
    return target is not None and target.reason == DELETION_BY_POD_GC


def _new_target(old: Pod, new: Pod) -> PodCondition | None:
    """The pod's DisruptionTarget, where it had none for that reason before."""
    before, target = (pod.status.condition(DISRUPTION_TARGET) for pod in (old, new))
    is_new = target is not None and (before is None or before.reason != target.reason)
    return target if is_new else None


def _is_false(condition: PodCondition | None) -> bool:
    return condition is not None and condition.status == "False"


def _missing(node: Node, other: Node) -> tuple[Taint, ...]:
    """The controllers' own taints of one node that the other does not have."""
    return tuple(
        t for t in node.spec.taints if taints.is_own(t) and not other.has_taint(t.key, t.effect)
    )


_SETTLED_NS: Final = 2 * SECOND_NS
"""So long after a first list or a gap renewals are as old as they look."""


class NodeWriteObserver:
    """Remembers of each node when its kubelet last posted, and since when it is not Ready."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._posted: dict[str, int] = {}
        self._not_ready: dict[str, int] = {}

    def changed(
        self, old: KubeObject, new: KubeObject, now_ns: int, watched_ns: int, zones: Zones | None
    ) -> Iterator[ObservedWrite]:
        """Writes between two sights of one object; `watched_ns`: since when there is no gap;
        `zones`: as our own copy has them, None where there is none.
        """
        if old.uid != new.uid:
            return
        if isinstance(old, Node) and isinstance(new, Node):
            yield from self._seen(old, new, now_ns, watched_ns, zones)
        elif isinstance(old, Pod) and isinstance(new, Pod):
            yield from _pod(old, new, now_ns)

    def gone(self, old: KubeObject, now_ns: int) -> Iterator[ObservedWrite]:
        """A node object that was deleted."""
        if isinstance(old, Node):
            self._posted.pop(old.name, None)
            self._not_ready.pop(old.name, None)
            yield ObservedWrite(now_ns, REMOVED, old.name, _zone(old), ready=_status(old))

    def _seen(
        self, old: Node, new: Node, now_ns: int, watched_ns: int, zones: Zones | None
    ) -> Iterator[ObservedWrite]:
        name, before, after = new.name, old.ready(), new.ready()
        if after is not None and after.status == "True":
            self._not_ready.pop(name, None)
        elif before is not None and before.status == "True":
            self._not_ready[name] = now_ns
        lost = after is not None and after.status == "Unknown" and after.reason in SILENT_REASONS
        if lost and _status(old) != "Unknown":
            silent = self._silence(name, now_ns, watched_ns)
            yield ObservedWrite(now_ns, LOST, name, _zone(new), silent_ns=silent, ready="Unknown")
        elif after is not None and not lost:
            posted = before.last_heartbeat_time if before is not None else None
            if after.last_heartbeat_time != posted:
                self._posted[name] = now_ns
        if old.spec.taints != new.spec.taints:
            yield from self._taints(old, new, now_ns, zones)
        if old.spec.unschedulable != new.spec.unschedulable:
            word = CORDONED if new.spec.unschedulable else UNCORDONED
            author = author_of(new, UNSCHEDULABLE, now_ns)
            yield ObservedWrite(now_ns, word, name, _zone(new), ready=_status(new), author=author)

    def _silence(self, name: str, now_ns: int, watched_ns: int) -> int | None:
        heartbeat = self._cache.heartbeat(name)
        renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
        last = max(renewal[1] if renewal is not None else 0, self._posted.get(name, 0))
        return now_ns - last if last > watched_ns + _SETTLED_NS else None

    def _taints(
        self, old: Node, new: Node, now_ns: int, zones: Zones | None
    ) -> Iterator[ObservedWrite]:
        key = zone_key(new.metadata.labels)
        is_known = zones is not None and key in zones.queues and key in zones.states
        dark = zones is not None and all(s == FULL for s in zones.states.values())
        # A NoExecute taint that is only exchanged costs no token.
        is_swap = any(taints.is_for_lost_node(taint) for taint in old.spec.taints)
        for word, one, other in ((TAINTED, new, old), (UNTAINTED, old, new)):
            for taint in one.spec.taints:
                if other.has_taint(taint.key, taint.effect):
                    continue
                wanted = taints.taint_is_wanted(old, taint), taints.taint_is_wanted(new, taint)
                yield ObservedWrite(
                    at_ns=now_ns,
                    what=word,
                    node=new.name,
                    zone=zone_display(key),
                    detail=str(taint),
                    own=taints.is_own(taint),
                    explained=any(wanted) if word == TAINTED else not all(wanted) or dark,
                    waiting_ns=None if is_swap else self._not_ready.get(new.name),
                    rate=zones.rate(key) if zones is not None and is_known else 0.0,
                    zone_state=zones.states[key] if zones is not None and is_known else "",
                    ready=_status(new),
                    author=author_of(new, TAINTS, now_ns),
                )


def _pod(old: Pod, new: Pod, now_ns: int) -> Iterator[ObservedWrite]:
    if old.status.conditions is new.status.conditions:
        return
    target = _new_target(old, new)
    if target is not None and target.reason == EVICTION_BY_EVICTION_API:
        where = f"{new.namespace}/{new.name}"
        yield ObservedWrite(now_ns, DRAINED, new.spec.node_name, detail=where)


def _status(node: Node) -> str:
    ready = node.ready()
    return ready.status if ready is not None else ""


def _zone(node: Node) -> str:
    return zone_display(zone_key(node.metadata.labels))
