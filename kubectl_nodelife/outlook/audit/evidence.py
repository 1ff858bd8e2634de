"""The fields that a finding stands on, as paths with their values, and the instants among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubectl_nodelife.controllers.pod_status.classify import NodeHealth
from kubectl_nodelife.kube.pod import ContainerStatus, Pod, PodCondition
from kubectl_nodelife.kube.times import format_time

Evidence = tuple[str, str]
"""(path of a field, its value as text)"""

Since = tuple[int | None, str]
"""(instant in ns or None, path of the field that holds it)"""

NODE_READY_SINCE = "node.status.conditions[Ready].lastTransitionTime"


def condition_evidence(condition: PodCondition | None) -> Iterator[Evidence]:
    """What a pod's condition says; nothing for one that is not there."""
    if condition is None:
        return
    path = f"pod.status.conditions[{condition.type}]"
    yield (f"{path}.status", condition.status)
    if condition.reason:
        yield (f"{path}.reason", condition.reason)
    if condition.last_transition_time is not None:
        yield (f"{path}.lastTransitionTime", format_time(condition.last_transition_time))


def container_evidence(container: ContainerStatus) -> Evidence:
    """What is reported of a container."""
    ready = "true" if container.ready else "false"
    path = f"pod.status.containerStatuses[{container.name}]"
    return path, f"ready: {ready}, {_state_word(container)}"


def node_evidence(pod: Pod, node: NodeHealth) -> Iterator[Evidence]:
    """What the node is; more of it where the node is not Ready."""
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
        yield (f"node {node.name}: {node.heartbeat_field}", format_time(node.heartbeat_ns))
    if node.taints:
        yield (f"node {node.name}: spec.taints", ", ".join(str(t) for t in node.taints))


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


def _state_word(container: ContainerStatus) -> str:
    state = container.state
    if state.running is not None:
        return "running"
    if state.terminated is not None:
        return f"terminated, exit code {state.terminated.exit_code}"
    return "waiting" if state.waiting is not None else "no state"
