"""Makes the findings that do not concern readiness: terminating, orphaned, evicted, never evicted.

What holds for every finding of a class is in `notes.py`. A finding's age is an upper bound: the
newest time at which one of its facts came about, None where no object tells it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import (
    DISRUPTION_TARGET,
    FALSE,
    NO_EXECUTE,
    TAINT_NODE_NOT_READY,
    TAINT_NODE_OUT_OF_SERVICE,
    TAINT_NODE_UNREACHABLE,
    TRUE,
)
from kubectl_nodelife.kubelet.conditions import TERMINAL_PHASES
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.outlook.audit import notes
from kubectl_nodelife.outlook.audit.classify import MARKED_NODE_DOWN, STALE_READY, Classification
from kubectl_nodelife.outlook.audit.evidence import (
    NODE_READY_SINCE,
    Evidence,
    evidence_of,
    finish_times,
    newest,
    transition,
)
from kubectl_nodelife.outlook.eviction_forecast import eviction_forecast
from kubectl_nodelife.workloads.force_advice import ForceAdvice, Release, force_advice
from kubectl_nodelife.workloads.node_readiness import NodeReadiness

OVERDUE_NS: Final = 60 * SECOND_NS
"""A pod that is deleted is waited for so long past its deletionTimestamp, which already holds the
grace period; a condition may differ from the container statuses for so long."""

_MAY_BE_EVICTED: Final = frozenset({STALE_READY, MARKED_NODE_DOWN})
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


class AuditContext(msgspec.Struct, frozen=True):
    """The settings and the instant that every pod is judged by. Instants and durations in ns."""

    rules: StatusRules
    release: Release
    settle_ns: int
    now_ns: int


class ExpectedEviction(msgspec.Struct, frozen=True):
    """When the taints of a node that is down end a pod. `due_ns` None: they do not, or not yet."""

    due_ns: int | None
    because: str


class PodFinding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing that is wrong or worth knowing about one pod.

    `since_ns`: it can be so since then at the earliest; `since_field` says where that is written.
    `because` is this pod's own sentence; meaning, remedy and risk are those of the class.
    """

    name: str
    pod: Pod
    node: NodeReadiness
    rules: StatusRules
    because: str
    since_ns: int | None = None
    since_field: str = ""
    issues: tuple[str, ...] = ()
    remedy: str = ""
    advice: ForceAdvice | None = None
    classification: Classification | None = None

    @property
    def note(self) -> notes.ClassNote:
        """The severity, meaning and remedy of its class."""
        return notes.NOTES[self.name]

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The fields that it stands on."""
        return tuple(evidence_of(self.name, self.pod, self.node, self.rules))

    @property
    def eviction(self) -> ExpectedEviction | None:
        """When the pod is evicted; None where its node is not down, or the pod on its way already.

        A timer runs from the moment of the taint, as the taint-eviction controller's does.
        """
        node = self.node
        if self.name not in _MAY_BE_EVICTED or not (node.exists and node.is_down):
            return None
        taints = no_execute_taints(node.taints)
        outcome = eviction_forecast(self.pod, taints or (_coming_taint(node),))
        since = [taint.time_added for taint in taints if taint.time_added is not None]
        if outcome.after_seconds is None:
            return ExpectedEviction(None, f"never evicted: {outcome.because}")
        if not since:
            wait = f"{outcome.after_seconds}s after the node's NoExecute taint"
            return ExpectedEviction(None, f"evicted {wait}: {outcome.because}")
        due_ns = min(since) + outcome.after_seconds * SECOND_NS
        return ExpectedEviction(due_ns, outcome.because)

    @property
    def what_to_do(self) -> str:
        """The remedy for this pod, or else the one of its class."""
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
    yield PodFinding(
        name=name,
        pod=pod,
        node=node,
        rules=context.rules,
        because=because,
        remedy=remedy,
        since_ns=deleted_ns,
        since_field="pod.metadata.deletionTimestamp",
        advice=advice,
    )


def _terminating_class(pod: Pod, node: NodeReadiness) -> tuple[str, str]:
    """(class, sentence)."""
    if not pod.spec.node_name:
        return notes.ORPHANED, "deleted, and never bound to a node"
    if not node.exists:
        return notes.ORPHANED, f"deleted, and node {node.name} does not exist"
    if node.is_down:
        out_of_service = node.has_taint(TAINT_NODE_OUT_OF_SERVICE)
        how = "out of service" if out_of_service else f"Ready={node.ready}"
        return notes.TERMINATING_DEAD_NODE, f"deleted, and node {node.name} is {how}"
    if pod.metadata.finalizers:
        return notes.TERMINATING_FINALIZER, f"kept by {_finalizers(pod)}"
    if not node.is_ready:
        because = "deleted and still there; whether its node is Ready is not known"
        return notes.TERMINATING_SLOW, because
    deleted_ns, heard_ns = pod.metadata.deletion_timestamp, node.heartbeat_ns
    if deleted_ns is not None and heard_ns is not None and heard_ns < deleted_ns:
        because = f"deleted, node {node.name} is Ready, and nothing was heard of it since"
        return notes.TERMINATING_SLOW, because
    return notes.TERMINATING_SLOW, f"deleted, and node {node.name} is Ready"


def _finalizers(pod: Pod) -> str:
    return ", ".join(
        f"{name} ({_FINALIZER_OWNERS[name]})" if name in _FINALIZER_OWNERS else name
        for name in pod.metadata.finalizers
    )


def orphaned(pod: Pod, node: NodeReadiness, context: AuditContext) -> PodFinding:
    """A pod whose node does not exist."""
    return PodFinding(
        name=notes.ORPHANED,
        pod=pod,
        node=node,
        rules=context.rules,
        because=f"bound to node {node.name}, which does not exist",
    )


def evicted_leftover(pod: Pod, node: NodeReadiness, context: AuditContext) -> Iterator[PodFinding]:
    """A pod that has failed because somebody put it out."""
    status = pod.status
    target = status.condition(DISRUPTION_TARGET)
    if status.reason in _PUT_OUT or (
        status.reason == _SHUTDOWN_REASON and _SHUTDOWN_WORDS in status.message
    ):
        because = _PUT_OUT.get(status.reason, "its node was shut down")
    elif target is not None and target.status == TRUE:
        because = f"it was put out: {target.message or target.reason}"
    else:
        return
    owner = controller_of(pod.metadata)
    job = owner is not None and owner.kind == "Job"
    since = newest([transition(target), *finish_times(pod)])
    yield PodFinding(
        name=notes.EVICTED_LEFTOVER,
        pod=pod,
        node=node,
        rules=context.rules,
        because=because,
        remedy="leave it: its Job counts it, and removes it by its own rules" if job else "",
        since_ns=since[0],
        since_field=since[1],
    )


def never_evicted(pod: Pod, node: NodeReadiness, context: AuditContext) -> Iterator[PodFinding]:
    """A pod that stays on its node, which is down, because it tolerates that for ever."""
    if not node.exists or pod.status.phase in TERMINAL_PHASES:
        return
    if all(t.toleration_seconds is not None for t in pod.spec.tolerations):
        return
    taints = no_execute_taints(node.taints) or (_coming_taint(node),)
    if eviction_forecast(pod, taints).after_seconds is not None:
        return
    owner = controller_of(pod.metadata)
    daemon = owner is not None and owner.kind == "DaemonSet"
    yield PodFinding(
        name=notes.DAEMONSET_NEVER_EVICTED if daemon else notes.NEVER_EVICTED,
        pod=pod,
        node=node,
        rules=context.rules,
        because=f"node {node.name} is Ready={node.ready}, and it tolerates that for ever",
        since_ns=node.ready_since_ns,
        since_field=NODE_READY_SINCE,
    )


def _coming_taint(node: NodeReadiness) -> Taint:
    """The taint that the node lifecycle controller gives a node in this state."""
    key = TAINT_NODE_NOT_READY if node.ready == FALSE else TAINT_NODE_UNREACHABLE
    return Taint(key=key, effect=NO_EXECUTE)
