"""Decides when Ready=False, set by the node controller, may be undone from outside, and how.

Our own design. A running kubelet restores Ready within two sync batches, so every condition here is
a reason to believe that this kubelet never will and that the pod can serve. Each condition that
does not hold is a refusal of its own, in one line. The kubelet may overwrite the patch at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import (
    FALSE,
    TAINT_NODE_NOT_READY,
    TAINT_NODE_UNREACHABLE,
    TRUE,
)
from kubectl_nodelife.kubelet.conditions import (
    CONTAINERS_READY,
    READY,
    containers_ready_condition,
    is_sidecar,
)
from kubectl_nodelife.kubelet.pods import is_mirror_pod
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.outlook.audit.classify import STUCK_NOT_READY, Classification, settle_time_ns
from kubectl_nodelife.workloads.node_readiness import NodeReadiness

PER_NODE_AND_SECOND: Final = 5
"""No more pods of one node are repaired in a second."""


class FirstSeen(msgspec.Struct, frozen=True):
    """Since when a pod has been seen in its class without a break, and its resourceVersion then
    ("": not known, as where the times in a single snapshot tell the age)."""

    first_seen_ns: int
    resource_version: str = ""


def times_of_one_look(pod: Pod, node: NodeReadiness) -> FirstSeen | None:
    """The age of the class as one look at the objects proves it; None where it does not.

    What makes the class is Ready False, ContainersReady True and the node Ready. Each carries the
    time since when it has been so, and since 1.16 the mark of the node controller moves that time
    too (PR 78104).
    """
    times = [node.ready_since_ns]
    for type_ in (READY, CONTAINERS_READY):
        condition = pod.status.condition(type_)
        times.append(None if condition is None else condition.last_transition_time)
    known = [time for time in times if time is not None]
    return FirstSeen(max(known)) if len(known) == len(times) else None


class RepairLimits(msgspec.Struct, frozen=True):
    """How long things must have been so. Both in ns."""

    settle_ns: int
    heartbeat_ns: int
    """A node is alive whose heartbeat is younger: the node monitor grace period."""


def refusals(
    pod: Pod,
    node: NodeReadiness,
    found: Classification,
    sighting: FirstSeen | None,
    rules: StatusRules,
    limits: RepairLimits,
    now_ns: int,
) -> tuple[str, ...]:
    """Every reason against undoing the mark; none means that it is safe."""
    if found.name != STUCK_NOT_READY:
        return (f"its class is {found.name}, and only {STUCK_NOT_READY} is undone",)
    return (
        *_node_refusals(node, limits, now_ns),
        *_pod_refusals(pod, found, rules),
        *_sighting_refusals(pod, sighting, limits, now_ns),
    )


def _node_refusals(node: NodeReadiness, limits: RepairLimits, now_ns: int) -> Iterator[str]:
    settle_ns = settle_time_ns(limits.settle_ns)
    if not node.exists or not node.is_ready:
        yield f"node {node.name} is not Ready"
        return
    if node.ready_since_ns is None:
        yield f"node {node.name} does not say since when it is Ready"
    elif now_ns - node.ready_since_ns < settle_ns:
        yield f"node {node.name} has been Ready for less than {settle_ns // SECOND_NS}s"
    if node.heartbeat_ns is None:
        yield f"node {node.name} has no heartbeat that was read: no lease and no lastHeartbeatTime"
    elif now_ns - node.heartbeat_ns >= limits.heartbeat_ns:
        age = human_duration(now_ns - node.heartbeat_ns)
        yield f"the last heartbeat of node {node.name} is {age} old ({node.heartbeat_field})"
    for key in (TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE):
        if node.has_taint(key):
            yield f"node {node.name} still has the taint {key}"


def _pod_refusals(pod: Pod, found: Classification, rules: StatusRules) -> Iterator[str]:
    status = pod.status
    if not pod.uid or not pod.metadata.resource_version:
        yield "without its uid and resourceVersion the patch would have no precondition"
    if pod.metadata.deletion_timestamp is not None:
        yield "it is terminating"
    if status.phase != "Running":
        yield f"its phase is {status.phase or 'not set'}"
    if is_mirror_pod(pod):
        yield "it is a mirror pod: only its kubelet knows it"
    containers_ready = containers_ready_condition(pod.spec, status, rules)
    stored = status.condition(CONTAINERS_READY)
    if stored is None or stored.status != TRUE or containers_ready.status != TRUE:
        yield "its containers are not all ready"
    for name in _not_running(pod, rules):
        yield f"container {name} is not reported as running and ready"
    if found.expected is None or found.expected.status != TRUE:
        yield "its readiness gates are not all True"
    ready = status.condition(READY)
    if ready is None or (ready.status, ready.reason, ready.message) != (FALSE, "", ""):
        yield "its Ready condition was not made by the node controller"


def _not_running(pod: Pod, rules: StatusRules) -> Iterator[str]:
    """Regular containers and sidecars that are not reported as ready and running."""
    sidecars = [c for c in pod.spec.init_containers if rules.sidecars and is_sidecar(c)]
    reported = (
        *(pod.status.init_container_statuses or ()),
        *(pod.status.container_statuses or ()),
    )
    fit = {s.name for s in reported if s.ready and s.state.running is not None}
    return (c.name for c in (*sidecars, *pod.spec.containers) if c.name not in fit)


def _sighting_refusals(
    pod: Pod, sighting: FirstSeen | None, limits: RepairLimits, now_ns: int
) -> Iterator[str]:
    settle_ns = settle_time_ns(limits.settle_ns)
    if sighting is None:
        yield "nothing proves since when it has been so"
        return
    if now_ns - sighting.first_seen_ns < settle_ns:
        yield f"it is not proven to have been so for {settle_ns // SECOND_NS}s"
    if sighting.resource_version not in ("", pod.metadata.resource_version):
        yield "its status changed meanwhile: a kubelet at work mends it by itself"
