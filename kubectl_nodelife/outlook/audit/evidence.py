"""Cites the fields that a finding stands on: their paths and values, and the newest of their times.

A finding is cited when it is shown, not when it is found: of 50,000 pods marked in a lost zone most
are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import ContainerStatus, Pod, PodCondition
from kubectl_nodelife.kube.times import format_time
from kubectl_nodelife.kube.wellknown import DISRUPTION_TARGET
from kubectl_nodelife.kubelet.conditions import (
    CONTAINERS_READY,
    INITIALIZED,
    READY,
    containers_ready_condition,
    initialized_condition,
    ready_condition,
)
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.outlook.audit import notes
from kubectl_nodelife.outlook.audit.classify import LAGGING
from kubectl_nodelife.workloads.node_readiness import NodeReadiness

Evidence = tuple[str, str]
"""(path of a field, its value as text)"""

Since = tuple[int | None, str]
"""(instant in ns or None, path of the field that holds it)"""

NODE_READY_SINCE = "node.status.conditions[Ready].lastTransitionTime"


def evidence_of(name: str, pod: Pod, node: NodeReadiness, rules: StatusRules) -> Iterator[Evidence]:
    """The fields on which a finding of class `name` about this pod stands."""
    deleted_ns = pod.metadata.deletion_timestamp
    if deleted_ns is not None:
        yield ("pod.metadata.deletionTimestamp", format_time(deleted_ns))
        if pod.metadata.finalizers:
            yield ("pod.metadata.finalizers", ", ".join(pod.metadata.finalizers))
    yield from _OF_CLASS.get(name, _readiness)(name, pod, rules)
    yield from _node_evidence(pod, node)


def _phase(name: str, pod: Pod, rules: StatusRules) -> Iterator[Evidence]:
    yield ("pod.status.phase", pod.status.phase)


def _leftover(name: str, pod: Pod, rules: StatusRules) -> Iterator[Evidence]:
    status = pod.status
    yield ("pod.status.phase", status.phase)
    for field in ("reason", "message"):
        if getattr(status, field):
            yield (f"pod.status.{field}", getattr(status, field))
    yield from _condition_evidence(status.condition(DISRUPTION_TARGET))


def _never_evicted(name: str, pod: Pod, rules: StatusRules) -> Iterator[Evidence]:
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


_OF_CLASS: Final[dict[str, Callable[[str, Pod, StatusRules], Iterator[Evidence]]]] = {
    notes.TERMINATING_DEAD_NODE: _phase,
    notes.TERMINATING_FINALIZER: _phase,
    notes.TERMINATING_SLOW: _phase,
    notes.ORPHANED: _phase,
    notes.EVICTED_LEFTOVER: _leftover,
    notes.DAEMONSET_NEVER_EVICTED: _never_evicted,
    notes.NEVER_EVICTED: _never_evicted,
}


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
    known = [(time, field) for time, field in times if time is not None]
    return max(known, default=(None, ""))


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
