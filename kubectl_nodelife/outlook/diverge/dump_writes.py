"""Finds writes that the controllers should have made by a dump's moment and that it lacks.

The joined copy of the controllers says what it would write at that moment; since when that was due
is told by the objects: a condition's transition, a taint's time, the last sign of life. Where
nothing tells it, nothing is said. Nodes that wait for their zone's rate limiter get their turns one
after another, from the newest taint of the zone on and from the last time that any node's Ready
changed: before that the zone's brake may have held them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.taints import (
    NO_EXECUTE_TAINTS,
    NO_SCHEDULE_TAINTS,
    is_for_lost_node,
    no_schedule_pass,
)
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.field_managers import UNSCHEDULABLE
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NODE_READY, TAINT_NODE_UNSCHEDULABLE, UNKNOWN
from kubectl_nodelife.outlook.diverge.observations import LIFECYCLE, WRITES, ExpectedWrite
from kubectl_nodelife.outlook.eviction_forecast import eviction_forecast
from kubectl_nodelife.outlook.node import Outlook

_CONDITION_OF: Final = {
    **{key: condition for (condition, _), key in NO_SCHEDULE_TAINTS.items()},
    **{pair[0].key: NODE_READY for pair in NO_EXECUTE_TAINTS.values()},
}
"""A taint's key -> the condition that asks for it."""


class _Write(msgspec.Struct, frozen=True):
    """A write that is missing, before it has a number."""

    controller: str
    action: str
    kind: str
    namespace: str
    name: str
    node: str
    what: str
    because: str


def missing_writes(outlook: Outlook, overdue: Iterable[Action]) -> list[ExpectedWrite]:
    """The writes, each due at `time_ns` by what the objects tell. `overdue`: what the copy of the
    controllers would do at the moment of the outlook.
    """
    numbers = count(1)
    found: dict[tuple[str, ...], ExpectedWrite] = {}
    for write, due_ns in (*_planned(outlook, overdue), *_mirrored(outlook), *_unmarked(outlook)):
        if due_ns is not None and due_ns <= outlook.now_ns:
            key = (write.action, write.kind, write.namespace, write.name, write.what)
            found.setdefault(key, _expected(outlook, write, due_ns, next(numbers)))
    return [*found.values(), *_waiting(outlook, numbers)]


def _expected(outlook: Outlook, write: _Write, due_ns: int, number: int) -> ExpectedWrite:
    node = outlook.cache.get("Node", ("", write.node))
    zone = outlook.zone_of(node) if isinstance(node, Node) else ""
    fields = msgspec.structs.asdict(write)
    return ExpectedWrite(id=number, time_ns=due_ns, zone=zone, rate=_rate(outlook, zone), **fields)


def _rate(outlook: Outlook, zone: str) -> float:
    zones = outlook.memory.zones
    return zones.rate(zone) if zone in zones.queues else 0.0


def _planned(outlook: Outlook, overdue: Iterable[Action]) -> Iterator[tuple[_Write, int | None]]:
    for action in overdue:
        kind, (namespace, name) = action.target
        node = outlook.cache.get("Node", ("", name)) if kind == "Node" else None
        pod = outlook.cache.get("Pod", (namespace, name)) if kind == "Pod" else None
        for word, detail in action.records():
            if word not in WRITES:
                continue
            what, due_ns = "", None
            if isinstance(node, Node) and word in ("AddTaint", "RemoveTaint"):
                what = f"{detail['key']}:{detail['effect']}"
                due_ns = _taint_due(node, str(detail["key"]))
            elif isinstance(node, Node) and word == "SetNodeCondition":
                what = f"{detail['type']}={detail['status']}"
                due_ns = _silent_too_long(outlook, node)
            elif isinstance(pod, Pod) and word == "DeletePod":
                due_ns = eviction_due(outlook, pod)
            on = pod.spec.node_name if isinstance(pod, Pod) else name
            where = (kind, namespace, name, on)
            yield _Write(action.controller, word, *where, what, action.because), due_ns


def _mirrored(outlook: Outlook) -> Iterator[tuple[_Write, int | None]]:
    """NoSchedule taints that do not fit the node's conditions and its cordon."""
    for node in _nodes(outlook):
        for action in no_schedule_pass(node, outlook.now_ns, None):
            for word, detail in action.records():
                what = f"{detail['key']}:{detail['effect']}"
                due_ns = _taint_due(node, str(detail["key"]))
                where = ("Node", "", node.name, node.name)
                yield _Write(LIFECYCLE, word, *where, what, action.because), due_ns


def _unmarked(outlook: Outlook) -> Iterator[tuple[_Write, int | None]]:
    """Pods that are Ready on a node whose kubelet is silent."""
    for node in _nodes(outlook):
        ready = node.ready()
        if ready is None or ready.status != UNKNOWN:
            continue
        since = ready.last_transition_time
        because = f"the node's Ready is Unknown ({ready.reason}), so that its pods are not Ready"
        for pod in outlook.cache.pods_on(node.name):
            if pod.ready() and pod.metadata.deletion_timestamp is None:
                where = ("Pod", pod.namespace, pod.name, node.name)
                due_ns = int(since) if since is not None else None
                yield _Write(LIFECYCLE, "MarkPodNotReady", *where, "", because), due_ns


def _waiting(outlook: Outlook, numbers: Iterator[int]) -> Iterator[ExpectedWrite]:
    """NoExecute taints for which tokens have been there."""
    zones = outlook.memory.zones
    braked_ns = max((_changed_ns(node) for node in _nodes(outlook)), default=0)
    for zone, queue in zones.queues.items() if outlook.settings.taint_mode else ():
        rate = _rate(outlook, zone)
        if rate <= 0:
            continue
        turn_ns = max((braked_ns, *_taints_of(outlook, zone)))
        for node in sorted(_found(outlook, queue.waiting()), key=_ready_since):
            ready = node.ready()
            pair = NO_EXECUTE_TAINTS.get(ready.status) if ready is not None else None
            if ready is None or pair is None or not braked_ns:
                continue
            turn_ns += round(SECOND_NS / rate)
            because = f"Ready is {ready.status}, and its zone's limiter lets {rate:g} a second pass"
            where = ("Node", "", node.name, node.name)
            write = _Write(LIFECYCLE, "AddTaint", *where, str(pair[0]), because)
            if turn_ns <= outlook.now_ns:
                yield _expected(outlook, write, turn_ns, next(numbers))


def _taints_of(outlook: Outlook, zone: str) -> Iterator[int]:
    """When nodes of the zone were tainted as lost."""
    for node in _nodes(outlook):
        for taint in node.spec.taints if outlook.zone_of(node) == zone else ():
            if taint.time_added is not None and is_for_lost_node(taint):
                yield int(taint.time_added)


def _nodes(outlook: Outlook) -> Iterator[Node]:
    return (node for node in outlook.cache.all("Node") if isinstance(node, Node))


def _found(outlook: Outlook, names: Iterable[str]) -> Iterator[Node]:
    found = (outlook.cache.get("Node", ("", name)) for name in names)
    return (node for node in found if isinstance(node, Node))


def _ready_since(node: Node) -> int:
    """When Ready became what it is, 0 where that is not told."""
    ready = node.ready()
    since = ready.last_transition_time if ready is not None else None
    return int(since) if since is not None else 0


def _changed_ns(node: Node) -> int:
    """When the node last changed what its zone's state is computed from."""
    created = node.metadata.creation_timestamp
    return max(_ready_since(node), int(created) if created is not None else 0)


def _taint_due(node: Node, key: str) -> int | None:
    """When the node's state came to ask for the taint, or ceased to; None where nothing tells."""
    if key == TAINT_NODE_UNSCHEDULABLE:
        writer = node.managers.writer_of(UNSCHEDULABLE)
        return writer.time_ns if writer is not None else None
    condition = node.status.condition(_CONDITION_OF.get(key, ""))
    since = condition.last_transition_time if condition is not None else None
    return int(since) if since is not None else None


def _silent_too_long(outlook: Outlook, node: Node) -> int | None:
    found = outlook.node(node)
    if found.sign_age_ns is None:
        return None
    return outlook.now_ns - found.sign_age_ns + found.grace_ns


def eviction_due(outlook: Outlook, pod: Pod) -> int | None:
    """When the NoExecute taints of the pod's node have it deleted; None: never, or not told."""
    node = outlook.cache.get("Node", ("", pod.spec.node_name))
    taints = no_execute_taints(node.spec.taints) if isinstance(node, Node) else ()
    times = [taint.time_added for taint in taints]
    after_s = eviction_forecast(pod, taints).after_seconds
    if after_s is None or not times or None in times:
        return None
    return min(int(t) for t in times if t is not None) + after_s * SECOND_NS
