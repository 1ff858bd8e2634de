"""Why a pod has no node, by our own reading of the scheduler's filters, and the smallest change.

The filters are `workloads.scheduling`'s, and preemption's first rule (`SelectVictimsOnNode`: only
pods of lower priority go). Left out: volumes, the spread and the rules between pods; where a node
passes the others, the scheduler's own message has to be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.quantity import CPU, pod_requests
from kubectl_nodelife.kube.taints import find_matching_untolerated_taint
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE
from kubectl_nodelife.workloads.placement import pinned_node, priority
from kubectl_nodelife.workloads.scheduling import (
    PODS,
    REASON_PORTS,
    REASON_TAINT,
    REASON_UNSCHEDULABLE,
    NodeInfo,
    PodRequirements,
    host_ports,
    resource_reasons,
    static_reason,
)

NODE_SELECTOR_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/node-selector"
"""The annotation of a namespace from which the admission plugin PodNodeSelector takes labels."""

_OF_A_CONDITION: Final = "node.kubernetes.io/"
_CORDON: Final = Taint(key=TAINT_NODE_UNSCHEDULABLE, effect=NO_SCHEDULE)
_MEMORY: Final = ("memory", "ephemeral-storage")


class Obstacle(NamedTuple):
    """What keeps a pod off a node. `lasts`: nothing that is under way takes it away.

    `pods`: those that hold what the pod needs. `kind`: the filter's reason.
    """

    because: str
    change: str
    lasts: bool
    kind: str
    pods: tuple[Pod, ...] = ()


class PendingReason(NamedTuple):
    """Why a pod has no node. `node`: the only one to which it may go, "" for several."""

    node: str
    obstacle: Obstacle

    def __str__(self) -> str:
        bound = f"its affinity binds it to {self.node}: " if self.node else ""
        return bound + self.obstacle.because


class Origin(NamedTuple):
    """Where a pod's demands come from: the owner's name and its template's node selector (None: not
    known), and the annotations of its namespace."""

    owner: str = ""
    selector: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


NO_ORIGIN: Final = Origin()


def pending_reason(
    pod: Pod,
    nodes: Mapping[str, Node],
    pods_on: Callable[[str], Iterable[Pod]],
    origin: Origin = NO_ORIGIN,
) -> PendingReason | None:
    """Why a pod without a node has none; None where some node would do by these filters, and where
    no node was read.
    """
    if not nodes:
        return None
    if pod.spec.scheduling_gates:
        gated = Obstacle("its scheduling gates keep it back", "remove the gates", True, "gates")
        return PendingReason("", gated)
    pinned = pinned_node(pod.spec)
    if pinned is not None:
        obstacle = (
            obstacle_on(pod, nodes[pinned], pods_on(pinned), origin)
            if pinned in nodes
            else Obstacle("there is no such node", "", True, "missing")
        )
        return None if obstacle is None else PendingReason(pinned, obstacle)
    obstacles = {}
    for name, node in nodes.items():
        obstacle = obstacle_on(pod, node, pods_on(name), origin)
        if obstacle is None:
            return None
        obstacles[name] = obstacle
    return PendingReason("", _of_all(obstacles))


def _of_all(obstacles: Mapping[str, Obstacle]) -> Obstacle:
    """One sentence for all nodes; the change is that of the kind that is most easily undone."""
    by_kind = Counter(obstacle.kind for obstacle in obstacles.values())
    order = {kind: i for i, kind in enumerate((REASON_UNSCHEDULABLE, REASON_TAINT))}
    first = min(
        obstacles,
        key=lambda name: (not obstacles[name].change, order.get(obstacles[name].kind, len(order))),
    )
    counts = ", ".join(f"{count} {kind}" for kind, count in by_kind.most_common())
    lasts = all(obstacle.lasts for obstacle in obstacles.values())
    because = f"none of {len(obstacles)} nodes will do ({counts})"
    if len(obstacles) == 1 or len(by_kind) == 1:
        because += f"; of {first}: {obstacles[first].because}"
    return Obstacle(because, obstacles[first].change, lasts, obstacles[first].kind)


def obstacle_on(
    pod: Pod, node: Node, pods: Iterable[Pod], origin: Origin = NO_ORIGIN
) -> Obstacle | None:
    """What keeps the pod off the node, on which these pods are; None where nothing does."""
    static = static_reason(pod, node)
    if static == REASON_UNSCHEDULABLE:
        change = f"kubectl uncordon {node.name}"
        cordoned = Obstacle(f"{node.name} is cordoned", change, True, static)
        return _beside(cordoned, obstacle_on(pod, _open(node, _CORDON), pods, origin))
    if static == REASON_TAINT:
        taint = find_matching_untolerated_taint(
            node.spec.taints, pod.spec.tolerations, (NO_SCHEDULE, NO_EXECUTE)
        )
        assert taint is not None
        return _beside(_taint(node, taint), obstacle_on(pod, _open(node, taint), pods, origin))
    if static is not None:
        return _selector(pod, node, origin, static)
    here = [other for other in pods if other.status.phase not in TERMINAL_PHASES]
    wanted = PodRequirements(pod)
    reasons = resource_reasons(wanted, _node_info(node, here)) if node.status.allocatable else []
    if not reasons:
        return None
    lower = [other for other in here if priority(other) < priority(pod)]
    more = [other for other in here if other not in lower]
    preempts = pod.spec.preemption_policy != "Never"
    if lower and preempts and not resource_reasons(wanted, _node_info(node, more)):
        because = f"{node.name} is full, and pods of lower priority are preempted there"
        return Obstacle(because, "", False, reasons[0], tuple(lower))
    if reasons == [REASON_PORTS]:
        return _ports(pod, node, here)
    return _room(pod, node, here, reasons)


def _node_info(node: Node, pods: Iterable[Pod]) -> NodeInfo:
    """The node, and what these pods leave of it."""
    info = NodeInfo(node)
    for pod in pods:
        info.add(pod_requests(pod), host_ports(pod))
    return info


def _open(node: Node, taint: Taint) -> Node:
    """The node without that taint; without that of a cordon, uncordoned."""
    taints = tuple(t for t in node.spec.taints if (t.key, t.effect) != (taint.key, taint.effect))
    cordoned = node.spec.unschedulable and taint is not _CORDON
    return replace(node, spec=replace(node.spec, taints=taints, unschedulable=cordoned))


def _beside(first: Obstacle, other: Obstacle | None) -> Obstacle:
    """The first obstacle; its change helps only where there is no other behind it."""
    if other is None:
        return first
    because = f"{first.because}; {other.because}"
    return Obstacle(because, "", first.lasts or other.lasts, first.kind, other.pods)


def _taint(node: Node, taint: Taint) -> Obstacle:
    because = f"{node.name} has the taint {taint}, which it does not tolerate"
    if taint.key.startswith(_OF_A_CONDITION):
        return Obstacle(because, "", False, REASON_TAINT)
    change = f"remove the taint from {node.name}, or tolerate it"
    return Obstacle(because, change, True, REASON_TAINT)


def _selector(pod: Pod, node: Node, origin: Origin, kind: str) -> Obstacle:
    labels = node.metadata.labels or {}
    asked = pod.spec.node_selector or {}
    unmet = {key: value for key, value in asked.items() if labels.get(key) != value}
    if not unmet:
        return Obstacle(f"its required node affinity leaves {node.name} out", "", True, kind)
    pairs = ",".join(f"{key}={value}" for key, value in unmet.items())
    because = f"its nodeSelector {pairs} is met by no label of {node.name}"
    change = f"kubectl label node {node.name} {pairs.replace(',', ' ')}"
    if origin.selector is not None and not unmet.items() <= origin.selector.items():
        because += f"; the template of {origin.owner} has no such selector, admission added it"
        if NODE_SELECTOR_ANNOTATION in (origin.annotations or {}):
            because += f" (namespace {pod.namespace}: {NODE_SELECTOR_ANNOTATION})"
            change += f", or give namespace {pod.namespace} an empty {NODE_SELECTOR_ANNOTATION}"
    return Obstacle(because, change, True, kind)


def _ports(pod: Pod, node: Node, here: Iterable[Pod]) -> Obstacle:
    wanted = {(protocol, port) for _, protocol, port in host_ports(pod)}
    holders = [other for other in here if any((p[1], p[2]) in wanted for p in host_ports(other))]
    numbers = sorted({p[2] for o in holders for p in host_ports(o) if (p[1], p[2]) in wanted})
    ports = "host port" + ("s " if len(numbers) > 1 else " ") + ", ".join(map(str, numbers))
    names = ", ".join(other.name for other in holders)
    because = f"{ports} of {node.name} {'is' if len(numbers) == 1 else 'are'} held by {names}"
    going = any(other.metadata.deletion_timestamp is not None for other in holders)
    return Obstacle(because, "", not going, REASON_PORTS, tuple(holders))


def _room(pod: Pod, node: Node, here: list[Pod], reasons: list[str]) -> Obstacle:
    info, asks = _node_info(node, here), pod_requests(pod)
    words, holders = [], here
    for reason in reasons:
        name = reason.removeprefix("Insufficient ")
        if name == reason:
            owners = sorted({_owner(other) for other in here})
            most = info.allocatable.get(PODS, 0)
            words.append(f"room for {most} pods and has {len(here)} ({first_names(owners, 3)})")
        else:
            free = _amount(name, max(0, info.free.get(name, 0)))
            words.append(f"{free} of {name} left and is asked for {_amount(name, asks[name])}")
            holders = [other for other in here if pod_requests(other).get(name)]
    going = [other.name for other in here if other.metadata.deletion_timestamp is not None]
    because = f"{node.name} has {', '.join(words)}"
    if going:
        because += f", until {going[0]}, which is terminating, is gone"
        return Obstacle(because, "", False, reasons[0], tuple(holders))
    if not holders:
        because += "; no pod there takes of it"
    elif {priority(other) for other in holders} == {priority(pod)}:
        because += f", all of priority {priority(pod)} as this one: never until one leaves"
    else:
        because += f", none of lower priority than its {priority(pod)}: never until one leaves"
    change = f"move a pod away from {node.name}" if holders else "ask for less"
    if holders and priority(pod) <= max(map(priority, holders)):
        change += ", or give it a higher priorityClassName (system-node-critical)"
    return Obstacle(because, change, True, reasons[0], tuple(holders))


def _owner(pod: Pod) -> str:
    owner = controller_of(pod.metadata)
    return owner.name if owner is not None else pod.name


def _amount(name: str, units: int) -> str:
    if name == CPU:
        return f"{units / 1000:g}"
    return f"{units / (1 << 20):.0f}Mi" if name in _MEMORY else str(units)
