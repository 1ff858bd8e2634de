"""Does a pod's readiness fit its containers and its node? Seen from outside, by the API alone.

Our own design on top of upstream's facts. We cannot know what runs; we know what the kubelet last
*reported*, and can compute the conditions that follow from it. The node lifecycle controller marks
the pods of a lost node by setting Ready to False and nothing else: no reason, no message, and
ContainersReady stays True. That shape is what most classes turn on.

Ages are not judged here, but where a class turns on how long the node has been Ready again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubectl_nodelife.kube.pod import Pod, PodCondition, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import FALSE, TRUE
from kubectl_nodelife.kubelet.conditions import (
    CONTAINERS_READY,
    INITIALIZED,
    READINESS_GATES_NOT_READY,
    READY,
    TERMINAL_PHASES,
    containers_ready_condition,
    initialized_condition,
    ready_condition,
)
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.workloads.node_readiness import NodeReadiness

OK: Final = "ok"
STUCK_NOT_READY: Final = "stuck-not-ready"
MARKED_NODE_DOWN: Final = "marked-node-down"
RECOVERING: Final = "recovering"
GATES: Final = "gates"
STALE_READY: Final = "stale-ready"
UNKNOWN: Final = "unknown"
LAGGING: Final = "lagging"

SETTLE_NS: Final = 60 * SECOND_NS
"""Six batches of a kubelet: what it was going to mend it has mended by then."""

LEAST_SETTLE_NS: Final = 20 * SECOND_NS
"""Two batches; a shorter settle time is not taken."""


class Classification(msgspec.Struct, frozen=True, gc=False):
    """A class of readiness, and the Ready condition that the pod should have (None: not to be
    said)."""

    name: str
    expected: PodCondition | None = None


def classify(
    pod: Pod, node: NodeReadiness, rules: StatusRules, *, now_ns: int, settle_ns: int = SETTLE_NS
) -> Classification:
    """The class of the pod's readiness. `node` is the one the pod is bound to."""
    status = pod.status
    stored = status.condition(READY)
    if stored is None:
        return Classification(UNKNOWN)
    expected = ready_condition(pod.spec, status, rules)
    if stored.status == TRUE and (node.is_down or status.phase in TERMINAL_PHASES):
        return Classification(STALE_READY, expected)
    if not status.container_statuses:
        return Classification(UNKNOWN)
    if stored.status == TRUE and expected.status != TRUE:
        return Classification(STALE_READY, expected)
    if stored.status == FALSE and stored.reason == READINESS_GATES_NOT_READY:
        return Classification(GATES, expected)
    if expected.status == TRUE and bears_the_mark(status):
        return Classification(_class_of_mark(pod, node, now_ns, settle_ns), expected)
    return Classification(OK if _fits(pod, stored, expected, rules) else LAGGING, expected)


def bears_the_mark(status: PodStatus) -> bool:
    """True if Ready is False in the way that only the node controller makes it so. Follows the
    traces of `MarkPodsNotReady`."""
    ready, containers = status.condition(READY), status.condition(CONTAINERS_READY)
    return (
        ready is not None
        and containers is not None
        and (ready.status, ready.reason, ready.message) == (FALSE, "", "")
        and containers.status == TRUE
    )


def settle_time_ns(settle_ns: int) -> int:
    """The settle time asked for, but never less than a healthy kubelet needs for two batches."""
    return max(settle_ns, LEAST_SETTLE_NS)


def _class_of_mark(pod: Pod, node: NodeReadiness, now_ns: int, settle_ns: int) -> str:
    if node.is_down:
        return MARKED_NODE_DOWN
    if not node.is_ready:
        return UNKNOWN
    if pod.status.phase != "Running" or pod.metadata.deletion_timestamp is not None:
        return LAGGING
    since = node.ready_since_ns
    if since is not None and now_ns - since < settle_time_ns(settle_ns):
        return RECOVERING
    return STUCK_NOT_READY


def _fits(pod: Pod, stored: PodCondition, expected: PodCondition, rules: StatusRules) -> bool:
    """True if Ready agrees word for word, and the conditions behind it by status.

    The words of a terminal pod are those of the release that it ended under, and say nothing.
    """
    status = pod.status
    if stored.status != expected.status:
        return False
    words_count = status.phase not in TERMINAL_PHASES
    if words_count and (stored.reason, stored.message) != (expected.reason, expected.message):
        return False
    return _agrees(
        status.condition(CONTAINERS_READY), containers_ready_condition(pod.spec, status, rules)
    ) and _agrees(status.condition(INITIALIZED), initialized_condition(pod.spec, status, rules))


def _agrees(stored: PodCondition | None, expected: PodCondition) -> bool:
    return stored is None or stored.status == expected.status
