"""Makes the finding about a pod's readiness: which fields it stands on, and since when."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import FALSE, TRUE
from kubectl_nodelife.kubelet.conditions import READY, TERMINAL_PHASES
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.outlook.audit import notes
from kubectl_nodelife.outlook.audit.classify import (
    GATES,
    LAGGING,
    MARKED_NODE_DOWN,
    RECOVERING,
    STALE_READY,
    STUCK_NOT_READY,
    Classification,
)
from kubectl_nodelife.outlook.audit.evidence import (
    NODE_READY_SINCE,
    Since,
    finish_times,
    newest,
    start_times,
    transition,
    words,
)
from kubectl_nodelife.outlook.audit.findings import OVERDUE_NS, AuditContext, PodFinding
from kubectl_nodelife.workloads.node_readiness import NodeReadiness


def readiness(
    pod: Pod, node: NodeReadiness, found: Classification, context: AuditContext
) -> Iterator[PodFinding]:
    """The finding of a class of readiness; none for a difference that may still be on its way."""
    since_ns, since_field = _since(pod, node, found)
    young = since_ns is not None and context.now_ns - since_ns <= OVERDUE_NS
    if found.name == LAGGING and young:
        return
    yield PodFinding(
        name=found.name,
        pod=pod,
        node=node,
        rules=context.rules,
        because=_SENTENCES[found.name](pod, node, found),
        remedy=_remedy(pod, node, found),
        since_ns=since_ns,
        since_field=since_field,
        issues=_issues(pod, node, found, context.rules),
        classification=found,
    )


def _stale_ready(pod: Pod, node: NodeReadiness, found: Classification) -> str:
    if pod.status.phase in TERMINAL_PHASES:
        return f"Ready is True, and its phase is {pod.status.phase}"
    if node.is_down:
        return f"Ready is True, and node {node.name} is Ready={node.ready}"
    expected = "" if found.expected is None else found.expected.message
    return f"Ready is True, and its containers are not: {expected or 'no statuses'}"


def _marked(pod: Pod, node: NodeReadiness, found: Classification) -> str:
    return f"its containers were ready, and node {node.name} is Ready={node.ready}"


def _ready_but_marked(pod: Pod, node: NodeReadiness, found: Classification) -> str:
    return f"Ready is False without a reason; its containers and node {node.name} are ready"


def _gates(pod: Pod, node: NodeReadiness, found: Classification) -> str:
    if found.expected is not None and found.expected.status == TRUE:
        return "its gates are all True now, and the kubelet has not set Ready yet"
    return "" if found.expected is None else found.expected.message


def _lagging(pod: Pod, node: NodeReadiness, found: Classification) -> str:
    stored, expected = pod.status.condition(READY), found.expected
    if stored is None or expected is None or words(stored) == words(expected):
        return "ContainersReady or Initialized does not fit its container statuses"
    return f"Ready is {words(stored)}, and by its container statuses {words(expected)}"


_SENTENCES = {
    STALE_READY: _stale_ready,
    MARKED_NODE_DOWN: _marked,
    STUCK_NOT_READY: _ready_but_marked,
    RECOVERING: _ready_but_marked,
    GATES: _gates,
    LAGGING: _lagging,
}


def _remedy(pod: Pod, node: NodeReadiness, found: Classification) -> str:
    """The remedy where it is not that of the class; else ""."""
    if found.name != STALE_READY:
        return ""
    if pod.status.phase in TERMINAL_PHASES:
        return "delete the pod, or leave it: a kubelet of 1.25 or later does not write this"
    return "" if node.is_down else notes.NOTES[LAGGING].remedy


def _since(pod: Pod, node: NodeReadiness, found: Classification) -> Since:
    """The newest instant at which one of the facts that make the class came about."""
    ready = transition(pod.status.condition(READY))
    if found.name in (MARKED_NODE_DOWN, GATES):
        return ready
    if found.name in (STUCK_NOT_READY, RECOVERING) or node.is_down:
        return newest([ready, (node.ready_since_ns, NODE_READY_SINCE)])
    return newest([ready, *finish_times(pod), *start_times(pod)])


def _issues(
    pod: Pod, node: NodeReadiness, found: Classification, rules: StatusRules
) -> tuple[str, ...]:
    """Issues known for this very shape, beside those of the class."""
    if found.name == STUCK_NOT_READY:
        blind = rules.listing_blinds_reconcile
        return notes.BLIND_RECONCILE if blind else notes.UNREADY_AFTER_RECOVERY
    if found.name != STALE_READY:
        return ()
    if pod.status.phase in TERMINAL_PHASES:
        return notes.TERMINAL_AND_READY
    if not node.is_down:
        return ()
    return notes.READY_ON_NOT_READY_NODE if node.ready == FALSE else notes.READY_ON_LOST_NODE
