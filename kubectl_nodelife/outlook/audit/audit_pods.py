"""Audits all pods in one pass: readiness that contradicts containers or node, stuck deletions.

Our own design. Nothing is wrong with most pods of a large cluster. They are recognised first, from
a few fields (`_is_plain`); a test compares that shortcut with the full rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import msgspec

from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import SECOND_NS, human_duration
from kubectl_nodelife.kube.wellknown import FALSE, TRUE
from kubectl_nodelife.kubelet.conditions import CONTAINERS_READY, INITIALIZED, READY
from kubectl_nodelife.kubelet.releases import StatusRules, rules_for
from kubectl_nodelife.outlook.audit import classes
from kubectl_nodelife.outlook.audit.classes import (
    GATES,
    LAGGING,
    MARKED_NODE_DOWN,
    NOTES,
    OK,
    QUIET,
    RECOVERING,
    STALE_READY,
    STUCK_NOT_READY,
    UNHEARD,
    UNKNOWN,
    Classification,
    bears_the_mark,
    classify,
)
from kubectl_nodelife.outlook.audit.findings import (
    NODE_READY_SINCE,
    OVERDUE_NS,
    STARTING_REASONS,
    AuditContext,
    PodFinding,
    Since,
    evicted_leftover,
    finish_times,
    never_evicted,
    newest,
    not_evicted,
    not_starting,
    orphaned,
    start_times,
    terminating,
    transition,
    words,
)
from kubectl_nodelife.workloads.force_advice import (
    NodeReadiness,
    kubelet_reports,
    node_readiness,
    release_of,
)

_ORDER = {name: place for place, name in enumerate(NOTES)}


_DECISIVE_CONDITIONS = frozenset({READY, CONTAINERS_READY, INITIALIZED})


class AuditInput(msgspec.Struct, frozen=True):
    """The objects to judge. `nodes` by name, `renewals`: node -> when its Lease was renewed last,
    in ns (None: never); None where that kind was not read. `unlisted`: nodes of which nothing says
    whether they exist."""

    pods: Collection[Pod]
    nodes: Mapping[str, Node] | None
    renewals: Mapping[str, int | None] | None
    unlisted: Collection[str] = ()


class AuditResult(msgspec.Struct, frozen=True):
    """The findings of one pass over the pods. `counts`: class -> findings, and `ok`, `unknown` and
    `unheard` -> pods without a finding: consistent, saying too little, and on nodes whose
    kubelet is silent, so that what they say may be old. `waiting`: of the pods without a finding
    those whose containers wait, by the reason that they give. `unheard`: those nodes.
    """

    findings: tuple[PodFinding, ...]
    counts: dict[str, int]
    waiting: dict[str, int]
    warnings: tuple[str, ...]
    not_evaluated: tuple[str, ...]
    unheard: tuple[str, ...] = ()


def audit(seen: AuditInput, settings: Settings, now_ns: int) -> AuditResult:
    """Judge every pod once. Findings stand in the order of their classes, then by name."""
    context = context_of(settings, now_ns)
    health = health_of_nodes(seen)
    grace_ns = context.release.heartbeat_ns
    reporting = {
        name
        for name, node in health.items()
        if kubelet_reports(node, grace_ns, now_ns) or not (node.ready or node.heartbeat_ns)
    }
    ready = {n for n in reporting if health[n].is_ready and not no_execute_taints(health[n].taints)}
    findings: list[PodFinding] = []
    counts: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    unheard: set[str] = set()
    plain = marks_without_node = 0
    for pod in seen.pods:
        node_name = pod.spec.node_name
        if node_name in ready and _is_plain(pod):
            plain += 1
            continue
        node = health.get(node_name) or missing_node(
            pod, read=seen.nodes is not None and node_name not in seen.unlisted
        )
        of_pod = list(pod_findings(pod, node, context))
        findings += of_pod
        if not of_pod:
            is_unheard = node.exists and node.read and node.name not in reporting
            if is_unheard:
                unheard.add(node.name)
            counts[UNHEARD if is_unheard else _quiet_class(pod, node, context)] += 1
            waiting.update(waits_for(pod))
            marks_without_node += not node.read and bears_the_mark(pod.status)
        for finding in of_pod:
            counts[finding.name] += 1
    counts[OK] += plain
    findings.sort(key=_place)
    return AuditResult(
        findings=tuple(findings),
        counts={name: counts[name] for name in (*_ORDER, *QUIET) if counts[name]},
        waiting=dict(waiting.most_common()),
        warnings=tuple(_warnings(health, now_ns, settings.node_monitor_grace_period_ns)),
        not_evaluated=tuple(_not_evaluated(seen, health, marks_without_node)),
        unheard=tuple(sorted(unheard)),
    )


def context_of(settings: Settings, now_ns: int) -> AuditContext:
    """The settings and the instant that every pod is judged by."""
    operators = settings.gate("TaintTolerationComparisonOperators")
    return AuditContext(rules_for(settings.profile), release_of(settings), operators, now_ns)


def health_of_nodes(seen: AuditInput) -> dict[str, NodeReadiness]:
    """Each node's health, by name."""
    renewals, nodes = seen.renewals or {}, seen.nodes or {}
    return {name: node_readiness(node, renewals.get(name)) for name, node in nodes.items()}


def pod_findings(pod: Pod, node: NodeReadiness, context: AuditContext) -> Iterator[PodFinding]:
    """The findings about one pod; `node` is the one that it is bound to.

    A pod that is deleted, orphaned or put out is judged as that alone; its readiness says nothing.
    """
    if pod.metadata.deletion_timestamp is not None:
        yield from terminating(pod, node, context)
        return
    if not node.exists:
        yield orphaned(pod, node, context)
        return
    if pod.status.phase == "Failed" and (leftover := [*evicted_leftover(pod, node, context)]):
        yield from leftover
        return
    class_ = classify(pod, node, context.rules, now_ns=context.now_ns)
    if class_.name not in (OK, UNKNOWN):
        yield from readiness(pod, node, class_, context)
    if pod.status.phase == "Pending":
        yield from not_starting(pod, node, context)
    if node.is_ready and node.taints:
        yield from not_evicted(pod, node, context)
    if node.is_down:
        yield from never_evicted(pod, node, context)


def missing_node(pod: Pod, *, read: bool) -> NodeReadiness:
    """The health of a node of which there is no object: it was not read, or does not exist, or the
    pod is not bound at all."""
    name = pod.spec.node_name
    return NodeReadiness(name=name, read=read and bool(name), exists=not (read and name))


def _is_plain(pod: Pod) -> bool:
    """True if the pod, on a Ready node, certainly is `ok`: running, all conditions True, every
    container reported and ready. False says nothing."""
    spec, status = pod.spec, pod.status
    containers, statuses = spec.containers, status.container_statuses
    if (
        status.phase != "Running"
        or pod.metadata.deletion_timestamp is not None
        or statuses is None
        or len(statuses) != len(containers)
        or spec.readiness_gates
    ):
        return False
    ready = False
    for condition in status.conditions:
        if condition.status != "True":
            if condition.type in _DECISIVE_CONDITIONS:
                return False
        elif condition.type == READY:
            ready = not (condition.reason or condition.message)
    if not ready or any(c.restart_policy for c in spec.init_containers):
        return False
    for reported in statuses:
        if not reported.ready:
            return False
    if len(statuses) == 1:
        all_named = statuses[0].name == containers[0].name
    else:
        all_named = {s.name for s in statuses} == {c.name for c in containers}
    return all_named and (not spec.init_containers or _all_initialized(pod))


def _all_initialized(pod: Pod) -> bool:
    init = {s.name for s in pod.status.init_container_statuses or () if s.ready}
    return all(c.name in init for c in pod.spec.init_containers)


def _quiet_class(pod: Pod, node: NodeReadiness, context: AuditContext) -> str:
    """`ok` or `unknown` for a pod without a finding."""
    if pod.metadata.deletion_timestamp is not None:
        return OK
    name = classify(pod, node, context.rules, now_ns=context.now_ns).name
    return UNKNOWN if name == UNKNOWN else OK


def waits_for(pod: Pod) -> list[str]:
    """Why the pod waits, in one word of the scheduler's or the kubelet's; none where it does not.

    A pod that is only being started is not counted: that passes by itself.
    """
    status = pod.status
    scheduled = status.condition("PodScheduled")
    if not pod.spec.node_name and scheduled is not None and scheduled.status == "False":
        return [scheduled.reason or "Unscheduled"]
    for reported in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = reported.state.waiting
        if waiting is not None and waiting.reason not in STARTING_REASONS:
            return [waiting.reason or "Waiting"]
    return []


def _place(finding: PodFinding) -> tuple[int, str, str]:
    return (_ORDER[finding.name], finding.pod.namespace, finding.pod.name)


def _warnings(health: Mapping[str, NodeReadiness], now_ns: int, grace_ns: int) -> Iterator[str]:
    """Nodes that are called Ready although their Lease is older than the grace period.

    That the node is lost is not concluded from it: the node controller does, or it is not at work.
    """
    for node in health.values():
        heartbeat = node.heartbeat_ns if node.heartbeat_from_lease else None
        if node.is_ready and heartbeat is not None and now_ns - heartbeat > grace_ns:
            age, grace_s = human_duration(now_ns - heartbeat), grace_ns // SECOND_NS
            yield (
                f"node {node.name} is Ready=True, but its lease is {age} old (grace period"
                f" {grace_s}s): its pods are judged as on a Ready node; see"
                f" `kubectl nodelife status`"
            )


def _not_evaluated(
    seen: AuditInput, health: Mapping[str, NodeReadiness], marks_without_node: int
) -> Iterator[str]:
    if seen.nodes is None:
        yield (
            "nodes were not read: whether pods are on a dead or missing node, or only marked"
            " because of one, is not known"
        )
        if marks_without_node:
            yield f"{marks_without_node} pods bear the node controller's mark"
    elif seen.renewals is None:
        yield "leases were not read: how old the nodes' heartbeats are is not known"
    else:
        silent = sorted(name for name in health if name not in seen.renewals)
        if silent:
            yield f"no lease was read of {len(silent)} nodes: {', '.join(silent[:5])}"
    for node in health.values():
        if not node.ready:
            yield f"node {node.name} has no Ready condition: its pods are judged by themselves"


def readiness(
    pod: Pod, node: NodeReadiness, class_: Classification, context: AuditContext
) -> Iterator[PodFinding]:
    """The finding of a class of readiness; none for a difference that may still be on its way."""
    since_ns, since_field = _since(pod, node, class_)
    young = since_ns is not None and context.now_ns - since_ns <= OVERDUE_NS
    if class_.name == LAGGING and young:
        return
    yield PodFinding(
        *(class_.name, pod, node, context, _sentence(pod, node, class_), since_ns, since_field),
        remedy=_remedy(pod, node, class_),
        issues=_issues(pod, node, class_, context.rules),
        classification=class_,
    )


def _sentence(pod: Pod, node: NodeReadiness, class_: Classification) -> str:
    expected = class_.expected
    computed = "" if expected is None else expected.message
    match class_.name:
        case classes.MARKED_NODE_DOWN:
            return f"its containers were ready, and node {node.name} is Ready={node.ready}"
        case classes.STUCK_NOT_READY | classes.RECOVERING:
            return f"Ready is False without a reason; its containers and node {node.name} are ready"
        case classes.GATES if expected is not None and expected.status == TRUE:
            return "its gates are all True now, and the kubelet has not set Ready yet"
        case classes.GATES:
            return computed
        case classes.LAGGING:
            stored = pod.status.condition(READY)
            if stored is None or expected is None or words(stored) == words(expected):
                return "ContainersReady or Initialized does not fit its container statuses"
            return f"Ready is {words(stored)}, and by its container statuses {words(expected)}"
    if pod.status.phase in TERMINAL_PHASES:
        return f"Ready is True, and its phase is {pod.status.phase}"
    if node.is_down:
        return f"Ready is True, and node {node.name} is Ready={node.ready}"
    return f"Ready is True, and its containers are not: {computed or 'no statuses'}"


def _remedy(pod: Pod, node: NodeReadiness, class_: Classification) -> str:
    """The remedy where it is not that of the class; else ""."""
    if class_.name != STALE_READY:
        return ""
    if pod.status.phase in TERMINAL_PHASES:
        return "delete the pod, or leave it: a kubelet of 1.25 or later does not write this"
    return "" if node.is_down else classes.NOTES[LAGGING].remedy


def _since(pod: Pod, node: NodeReadiness, class_: Classification) -> Since:
    """The newest instant at which one of the facts that make the class came about."""
    ready = transition(pod.status.condition(READY))
    if class_.name in (MARKED_NODE_DOWN, GATES):
        return ready
    if class_.name in (STUCK_NOT_READY, RECOVERING) or node.is_down:
        return newest([ready, (node.ready_since_ns, NODE_READY_SINCE)])
    return newest([ready, *finish_times(pod), *start_times(pod)])


def _issues(
    pod: Pod, node: NodeReadiness, class_: Classification, rules: StatusRules
) -> tuple[str, ...]:
    """Issues known for this very shape, beside those of the class."""
    if class_.name == STUCK_NOT_READY:
        blind = rules.listing_blinds_reconcile
        return classes.BLIND_RECONCILE if blind else classes.UNREADY_AFTER_RECOVERY
    if class_.name != STALE_READY:
        return ()
    if pod.status.phase in TERMINAL_PHASES:
        return classes.TERMINAL_AND_READY
    if not node.is_down:
        return ()
    return classes.READY_ON_NOT_READY_NODE if node.ready == FALSE else classes.READY_ON_LOST_NODE
