"""Detects writes of other controllers by comparing two versions of an object, and reports them as
actions.

Only what node-lifecycle, taint-eviction and pod-gc do is recognised: conditions that turn Unknown
for a silent kubelet, the taints that mirror conditions, pods marked not ready, evicted, or
collected. A person's taints and deletions are not theirs. Nothing is changed by detecting; what
follows from a finding is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.nodelifecycle.taints import is_own
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    MarkPodNotReady,
    RemoveTaints,
    SetNodeConditions,
    SetPodCondition,
)
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import (
    DELETION_BY_POD_GC,
    DELETION_BY_TAINT_MANAGER,
    DISRUPTION_TARGET,
    NO_EXECUTE,
    SILENT_REASONS,
    TAINT_NODE_OUT_OF_SERVICE,
)

# reason of DisruptionTarget -> the controller that sets it
_EVICTORS: Final = {DELETION_BY_TAINT_MANAGER: "taint-eviction", DELETION_BY_POD_GC: "pod-gc"}

_DUE_SOON_NS: Final = 10 * SECOND_NS
"""A deletion that comes so long before the timer's end may still be the timer's."""

_TOGETHER_NS: Final = 5 * SECOND_NS
"""The writes of one pass to a node and to its pods are seen within this time."""


class ForeignWriteDetector:
    """Reads actions off two versions of an object.

    `lifecycle`, `eviction`: our own copies, for causes and clocks.
    """

    def __init__(
        self,
        cache: Cache,
        lifecycle: NodeLifecycleController | None,
        eviction: TaintEvictionController | None,
    ) -> None:
        self._cache = cache
        self._lifecycle = lifecycle
        self._eviction = eviction
        self._early: dict[str, dict[Key, tuple[Pod, int]]] = {}  # marked, by node that is Ready
        self._noted: set[str] = set()  # uids of pods whose deletion by pod-gc was noted, until gone

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
        if node is None and (not terminating or _is_marked(old, "pod-gc")):
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
                    node=new.name,
                    node_uid=new.uid,
                    conditions=lost,
                )
                yield cause
        if old.spec.taints != new.spec.taints:
            yield from self._taints(old, new, cause)

    def _taints(self, old: Node, new: Node, cause: Action | None) -> Iterator[Action]:
        ready = new.ready()
        state = "Ready is not posted" if ready is None else f"Ready is {ready.status}"
        added, removed = _missing(new, old), _missing(old, new)
        if added:
            queued = any(t.effect == NO_EXECUTE for t in added) and self._queued_cause(new.name)
            yield AddTaints(
                controller="node-lifecycle",
                because=f"seen in the cluster: {state}",
                cause=queued or cause,
                node=new.name,
                node_uid=new.uid,
                taints=added,
            )
        if removed:
            yield RemoveTaints(
                controller="node-lifecycle",
                because=f"seen in the cluster: {state}",
                cause=cause,
                node=new.name,
                node_uid=new.uid,
                taints=removed,
            )

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
        target = new.status.condition(DISRUPTION_TARGET)
        controller = _EVICTORS.get(target.reason) if target is not None else None
        if target is None or controller is None or target.status != "True":
            return
        known = old.status.condition(DISRUPTION_TARGET)
        if known is None or known.reason != target.reason:
            yield SetPodCondition(
                controller=controller,
                because=f"seen in the cluster: {target.message}",
                cause=self._timer(new.key),
                namespace=new.namespace,
                pod=new.name,
                pod_uid=new.uid,
                condition=target,
            )

    def _mark(self, pod: Pod, condition: PodCondition, cause: Action | None) -> MarkPodNotReady:
        return MarkPodNotReady(
            controller="node-lifecycle",
            because=f"seen in the cluster: node {pod.spec.node_name} is not Ready",
            cause=cause,
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
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
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
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


def _is_marked(pod: Pod, controller: str) -> bool:
    """True if its DisruptionTarget is this controller's."""
    target = pod.status.condition(DISRUPTION_TARGET)
    return target is not None and _EVICTORS.get(target.reason) == controller


def _is_false(condition: PodCondition | None) -> bool:
    return condition is not None and condition.status == "False"


def _missing(node: Node, other: Node) -> tuple[Taint, ...]:
    """The controllers' own taints of one node that the other does not have."""
    return tuple(t for t in node.spec.taints if is_own(t) and not other.has_taint(t.key, t.effect))
