"""Makes the findings that do not concern readiness: terminating, orphaned, evicted, never evicted.

What holds for every finding of a class is in `classes.py`. A finding's age is an upper bound: the
newest time at which one of its facts came about, None where no object shows it.

The fields that a finding stands on are cited, with paths and values, when it is shown, not when it
is found: of 50,000 pods marked in a lost zone most are never shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.taints import is_for_lost_node
from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import (
    TERMINAL_PHASES,
    ContainerStatus,
    Pod,
    PodCondition,
    is_daemon_pod,
)
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import SECOND_NS, format_time, human_duration, human_seconds
from kubectl_nodelife.kubelet.conditions import (
    CONTAINERS_READY,
    INITIALIZED,
    READY,
    containers_ready_condition,
    initialized_condition,
    ready_condition,
)
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.outlook.audit import classes
from kubectl_nodelife.outlook.audit.classes import (
    LAGGING,
    MARKED_NODE_DOWN,
    STALE_READY,
    Classification,
)
from kubectl_nodelife.outlook.eviction_forecast import LOST, eviction_due, eviction_forecast
from kubectl_nodelife.sim.kubelet_state import NOT_STARTED_NS
from kubectl_nodelife.workloads.force_advice import (
    ForceAdvice,
    NodeReadiness,
    Release,
    force_advice,
)

OVERDUE_NS: Final = 60 * SECOND_NS
"""A pod that is deleted is waited for so long past its deletionTimestamp, which already holds the
grace period; a condition may differ from the container statuses for so long."""
STARTING_REASONS: Final = frozenset({"ContainerCreating", "PodInitializing"})

_MAY_BE_EVICTED: Final = frozenset({STALE_READY, MARKED_NODE_DOWN})
_NOT_EVICTED: Final = (
    "see why {} (disabled, stopped or stuck: 'kubectl nodelife diverge' says more); the kubelet"
    " undoes the mark when the node is back"
)
_FINALIZER_OWNERS: Final = {
    "batch.kubernetes.io/job-tracking": "the Job controller, which has not counted this pod yet",
    "foregroundDeletion": "the garbage collector, which deletes the dependents first",
    "orphan": "the garbage collector, which sets the dependents free first",
}
_PUT_OUT: Final = {
    "Evicted": "the kubelet evicted it",
    "NodeShutdown": "its node was shutting down and did not admit it",
    "Shutdown": "its node was shut down",
    "Preempting": "the kubelet preempted it for a critical pod",
}
_SHUTDOWN_REASON, _SHUTDOWN_WORDS = "Terminated", "node shutdown"


Evidence = tuple[str, str]
"""(path of a field, its value as text)"""
Since = tuple[int | None, str]
"""(instant in ns or None, path of the field that holds it)"""
NODE_READY_SINCE = "node.status.conditions[Ready].lastTransitionTime"


class AuditContext(msgspec.Struct, frozen=True):
    """The settings and the instant (ns) that every pod is judged by. `operators`: whether taints'
    values are compared, as of `eviction_forecast`."""

    rules: StatusRules
    release: Release
    operators: bool
    now_ns: int


class ExpectedEviction(msgspec.Struct, frozen=True):
    """When the taints of a node that is down end a pod. `due_ns` None: they do not, or not yet."""

    due_ns: int | None
    because: str


class PodFinding(msgspec.Struct, frozen=True, gc=False):
    """One thing that is wrong or worth knowing about one pod.

    `since_ns`: it can be so since then at the earliest; `since_field` says where that is written.
    `because` is this pod's own sentence; meaning, remedy and risk are those of the class.
    `evictions_go_on`: taint-eviction is seen at work, so that no eviction is overdue.
    `taint_due_ns`: since when its node should have a NoExecute taint, where that is overdue.
    """

    name: str
    pod: Pod
    node: NodeReadiness
    context: AuditContext
    because: str
    since_ns: int | None = None
    since_field: str = ""
    issues: tuple[str, ...] = ()
    remedy: str = ""
    advice: ForceAdvice | None = None
    classification: Classification | None = None
    evictions_go_on: bool = False
    taint_due_ns: int | None = None

    @property
    def awaits_taint(self) -> bool:
        """True if it is evicted once its node gets a NoExecute taint, which it has not yet."""
        eviction = self.eviction
        tainted = no_execute_taints(self.node.taints)
        return eviction is not None and eviction.due_ns is None and not tainted

    @property
    def is_overdue(self) -> bool:
        """True if its eviction should have come, and there was time enough to see that."""
        eviction = None if self.evictions_go_on else self.eviction
        due_ns = eviction.due_ns if eviction is not None else None
        return due_ns is not None and self.context.now_ns - due_ns > OVERDUE_NS

    @property
    def note(self) -> classes.ClassNote:
        """The severity, meaning and remedy of its class."""
        return classes.NOTES[self.name]

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The fields that it stands on."""
        return tuple(_evidence_of(self))

    @property
    def eviction(self) -> ExpectedEviction | None:
        """When the pod is evicted; None where its node is not down, or the pod on its way already.

        A timer runs from the moment of the taint, as the taint-eviction controller's does.
        """
        node = self.node
        if self.name not in _MAY_BE_EVICTED or not (node.exists and node.is_down):
            return None
        taints, operators = no_execute_taints(node.taints), self.context.operators
        outcome = eviction_forecast(
            self.pod, taints or (_coming_taint(node),), comparison_operators=operators
        )
        due_ns = eviction_due(taints, outcome)
        if outcome.after_seconds is None:
            return ExpectedEviction(None, f"never evicted: {outcome.because}")
        if due_ns is None:
            wait = f"{human_seconds(outcome.after_seconds)} after the node's NoExecute taint"
            return ExpectedEviction(None, f"evicted {wait}: {outcome.because}")
        return ExpectedEviction(due_ns, outcome.because)

    @property
    def what_to_do(self) -> str:
        """The remedy for this pod, or else the one of its class."""
        if self.name == MARKED_NODE_DOWN and self.taint_due_ns is not None:
            return _NOT_EVICTED.format("node-lifecycle does not taint its node")
        if self.name == MARKED_NODE_DOWN and self.is_overdue:
            return _NOT_EVICTED.format("taint-eviction does not delete it")
        return self.remedy or self.note.remedy

    @property
    def known_issues(self) -> tuple[str, ...]:
        """Upstream's issues about this, those of this very shape first."""
        return (*self.issues, *self.note.issues)


def terminating(pod: Pod, node: NodeReadiness, context: AuditContext) -> Iterator[PodFinding]:
    """A pod that should be gone: deleted, and more than `OVERDUE_NS` past its time."""
    deleted_ns = pod.metadata.deletion_timestamp
    if deleted_ns is None or context.now_ns - deleted_ns <= OVERDUE_NS:
        return
    name, because = _terminating_class(pod, node)
    advice, remedy = None, "read the nodes too; then it can be said who has to act"
    if node.ready or not node.exists or not pod.spec.node_name:
        advice = force_advice(pod, node, context.release, context.now_ns)
        remedy = advice.sentence
    field = "pod.metadata.deletionTimestamp"
    yield PodFinding(
        name, pod, node, context, because, deleted_ns, field, remedy=remedy, advice=advice
    )


def _terminating_class(pod: Pod, node: NodeReadiness) -> tuple[str, str]:
    """(class, sentence)."""
    if not pod.spec.node_name:
        return classes.ORPHANED, "deleted, and never bound to a node"
    if not node.exists:
        return classes.ORPHANED, f"deleted, and node {node.name} does not exist"
    if node.is_down:
        out_of_service = node.has_taint(wellknown.TAINT_NODE_OUT_OF_SERVICE)
        how = "out of service" if out_of_service else f"Ready={node.ready}"
        return classes.TERMINATING_DEAD_NODE, f"deleted, and node {node.name} is {how}"
    if pod.metadata.finalizers:
        return classes.TERMINATING_FINALIZER, f"kept by {_finalizers(pod)}"
    if not node.is_ready:
        because = "deleted and still there; whether its node is Ready is not known"
        return classes.TERMINATING_SLOW, because
    deleted_ns, heartbeat_ns = pod.metadata.deletion_timestamp, node.heartbeat_ns
    if deleted_ns is not None and heartbeat_ns is not None and heartbeat_ns < deleted_ns:
        because = f"deleted, node {node.name} is Ready, and has not reported since"
        return classes.TERMINATING_SLOW, because
    return classes.TERMINATING_SLOW, f"deleted, and node {node.name} is Ready"


def _finalizers(pod: Pod) -> str:
    return ", ".join(
        f"{name} ({_FINALIZER_OWNERS[name]})" if name in _FINALIZER_OWNERS else name
        for name in pod.metadata.finalizers
    )


def not_starting(pod: Pod, node: NodeReadiness, context: AuditContext) -> Iterator[PodFinding]:
    """A pending pod that is bound to a Ready node for long, and has no container yet.

    A kubelet makes containers once volumes are mounted and the sandbox is there, and tries that
    again for ever (`syncPod`; a try at volumes ends after 2m3s).
    """
    status, since_ns, field = pod.status, *transition(pod.status.condition("PodScheduled"))
    if not node.is_ready or since_ns is None:
        return
    if not pod.spec.node_name or context.now_ns - since_ns <= NOT_STARTED_NS:
        return
    reported = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    waits = [one.state.waiting.reason for one in reported if one.state.waiting is not None]
    if len(waits) != len(reported) or not set(waits) <= STARTING_REASONS:
        return
    word = waits[0] if waits else "its kubelet has said nothing of it"
    because = f"bound {human_duration(context.now_ns - since_ns)} ago, and still {word}"
    yield PodFinding(classes.NOT_STARTING, pod, node, context, because, since_ns, field)


def not_evicted(pod: Pod, node: NodeReadiness, context: AuditContext) -> Iterator[PodFinding]:
    """A pod whose deletion for a NoExecute taint of its Ready node is overdue. That of a lost node
    is none of those: node-lifecycle takes it off."""
    taints = no_execute_taints(node.taints)
    if pod.status.phase in TERMINAL_PHASES or any(map(is_for_lost_node, taints)):
        return
    forecast = eviction_forecast(pod, taints, comparison_operators=context.operators)
    due_ns = eviction_due(taints, forecast)
    if due_ns is None or context.now_ns - due_ns <= OVERDUE_NS:
        return
    late = human_duration(context.now_ns - due_ns)
    because = f"its deletion is overdue since {format_time(due_ns)} ({late}): {forecast.because}"
    yield PodFinding(classes.NOT_EVICTED, pod, node, context, because, due_ns, "node.spec.taints")


def orphaned(pod: Pod, node: NodeReadiness, context: AuditContext) -> PodFinding:
    """A pod whose node does not exist."""
    because = f"bound to node {node.name}, which does not exist"
    return PodFinding(classes.ORPHANED, pod, node, context, because)


def evicted_leftover(pod: Pod, node: NodeReadiness, context: AuditContext) -> Iterator[PodFinding]:
    """A pod that has failed because it was evicted, preempted or shut down with its node."""
    status = pod.status
    target = status.condition(wellknown.DISRUPTION_TARGET)
    if status.reason in _PUT_OUT or (
        status.reason == _SHUTDOWN_REASON and _SHUTDOWN_WORDS in status.message
    ):
        because = _PUT_OUT.get(status.reason, "its node was shut down")
    elif target is not None and target.status == wellknown.TRUE:
        because = f"it was put out: {target.message or target.reason}"
    else:
        return
    owner = controller_of(pod.metadata)
    job = owner is not None and owner.kind == "Job"
    since = newest([transition(target), *finish_times(pod)])
    remedy = "leave it: its Job counts it, and removes it by its own rules" if job else ""
    yield PodFinding(classes.EVICTED_LEFTOVER, pod, node, context, because, *since, remedy=remedy)


def never_evicted(pod: Pod, node: NodeReadiness, context: AuditContext) -> Iterator[PodFinding]:
    """A pod that stays on its node, which is down, because it tolerates that for ever."""
    if not node.exists or pod.status.phase in TERMINAL_PHASES:
        return
    if all(t.toleration_seconds is not None for t in pod.spec.tolerations):
        return
    taints = no_execute_taints(node.taints) or (_coming_taint(node),)
    forecast = eviction_forecast(pod, taints, comparison_operators=context.operators)
    if forecast.after_seconds is not None:
        return
    name = classes.DAEMONSET_NEVER_EVICTED if is_daemon_pod(pod) else classes.NEVER_EVICTED
    because = f"node {node.name} is Ready={node.ready}, and it tolerates that for ever"
    since_ns = node.ready_since_ns
    yield PodFinding(name, pod, node, context, because, since_ns, NODE_READY_SINCE)


def _coming_taint(node: NodeReadiness) -> Taint:
    """The taint that the node lifecycle controller gives a node in this state."""
    unreachable, not_ready = LOST
    return not_ready if node.ready == wellknown.FALSE else unreachable


def _evidence_of(finding: PodFinding) -> Iterator[Evidence]:
    pod, deleted_ns = finding.pod, finding.pod.metadata.deletion_timestamp
    if deleted_ns is not None:
        yield ("pod.metadata.deletionTimestamp", format_time(deleted_ns))
        if pod.metadata.finalizers:
            yield ("pod.metadata.finalizers", ", ".join(pod.metadata.finalizers))
    if finding.classification is not None:
        yield from _readiness(finding.name, pod, finding.context.rules)
    elif finding.name in (classes.DAEMONSET_NEVER_EVICTED, classes.NEVER_EVICTED):
        yield from _tolerations(pod)
    else:
        yield ("pod.status.phase", pod.status.phase)
    if finding.name == classes.EVICTED_LEFTOVER:
        for field in ("reason", "message"):
            if getattr(pod.status, field):
                yield (f"pod.status.{field}", getattr(pod.status, field))
        yield from _condition_evidence(pod.status.condition(wellknown.DISRUPTION_TARGET))
    yield from _node_evidence(pod, finding.node)


def _tolerations(pod: Pod) -> Iterator[Evidence]:
    for toleration in pod.spec.tolerations:
        if toleration.toleration_seconds is None:
            key, effect = toleration.key or "every key", toleration.effect or "every effect"
            yield ("pod.spec.tolerations", f"{key}:{effect}, for ever")
    owner = controller_of(pod.metadata)
    if owner is not None:
        yield ("pod.metadata.ownerReferences", f"{owner.kind}/{owner.name}")


def _readiness(name: str, pod: Pod, rules: StatusRules) -> Iterator[Evidence]:
    status = pod.status
    shown = [READY, CONTAINERS_READY, *([INITIALIZED] if name == LAGGING else [])]
    shown += [gate.condition_type for gate in pod.spec.readiness_gates]
    for type_ in shown:
        yield from _condition_evidence(status.condition(type_))
    yield ("pod.status.phase", status.phase)
    for container in status.container_statuses or ():
        ready = "true" if container.ready else "false"
        path = f"pod.status.containerStatuses[{container.name}]"
        yield (path, f"ready: {ready}, {_state_word(container)}")
    if name == LAGGING:
        for computed in (ready_condition, containers_ready_condition, initialized_condition):
            expected = computed(pod.spec, status, rules)
            yield (f"{expected.type} by the container statuses", words(expected))


def words(condition: PodCondition) -> str:
    """`False (ContainersNotReady: containers with unready status: [a])`, or `True`."""
    reason = ": ".join(word for word in (condition.reason, condition.message) if word)
    return f"{condition.status} ({reason})" if reason else condition.status


def transition(condition: PodCondition | None) -> Since:
    """Since when a pod's condition has its status."""
    if condition is None:
        return None, ""
    path = f"pod.status.conditions[{condition.type}].lastTransitionTime"
    return condition.last_transition_time, path


def finish_times(pod: Pod) -> Iterator[Since]:
    """When its containers ended, this time or the last."""
    for container in pod.status.container_statuses or ():
        path = f"pod.status.containerStatuses[{container.name}]"
        for word, state in (("state", container.state), ("lastState", container.last_state)):
            if state.terminated is not None:
                yield state.terminated.finished_at, f"{path}.{word}.terminated.finishedAt"


def start_times(pod: Pod) -> Iterator[Since]:
    """Since when its containers run."""
    for container in pod.status.container_statuses or ():
        if container.state.running is not None:
            path = f"pod.status.containerStatuses[{container.name}].state.running.startedAt"
            yield container.state.running.started_at, path


def newest(times: Iterable[Since]) -> Since:
    """The last of the instants that are known."""
    read = [(time, field) for time, field in times if time is not None]
    return max(read, default=(None, ""))


def _condition_evidence(condition: PodCondition | None) -> Iterator[Evidence]:
    """The fields of a pod's condition with their values; none for a condition that is not there."""
    if condition is None:
        return
    path = f"pod.status.conditions[{condition.type}]"
    yield (f"{path}.status", condition.status)
    if condition.reason:
        yield (f"{path}.reason", condition.reason)
    if condition.last_transition_time is not None:
        yield (f"{path}.lastTransitionTime", format_time(condition.last_transition_time))


def _node_evidence(pod: Pod, node: NodeReadiness) -> Iterator[Evidence]:
    """Fields of the pod's node with their values; more of them where the node is not Ready."""
    if not pod.spec.node_name:
        yield ("pod.spec.nodeName", "")
        return
    if not node.read:
        return
    if not node.exists:
        yield ("pod.spec.nodeName", f"{pod.spec.node_name}: no such node")
        return
    path = f"node {node.name}: status.conditions[Ready]"
    if node.ready:
        yield (f"{path}.status", node.ready)
    if node.ready_since_ns is not None:
        yield (f"{path}.lastTransitionTime", format_time(node.ready_since_ns))
    if node.is_ready:
        return
    if node.ready_reason:
        yield (f"{path}.reason", node.ready_reason)
    if node.heartbeat_ns is not None:
        yield (node.heartbeat_field, format_time(node.heartbeat_ns))
    if node.taints:
        yield (f"node {node.name}: spec.taints", ", ".join(str(t) for t in node.taints))


def _state_word(container: ContainerStatus) -> str:
    state = container.state
    if state.running is not None:
        return "running"
    if state.terminated is not None:
        return f"terminated, exit code {state.terminated.exit_code}"
    return "waiting" if state.waiting is not None else "no state"
