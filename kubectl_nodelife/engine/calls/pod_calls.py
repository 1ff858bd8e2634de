"""Conversations about pods: conditions, phase, deletion, eviction, labels.

Follows `MarkPodsNotReady` (pkg/controller/util/node), `addConditionAndDeletePod`
(pkg/controller/tainteviction) and `markFailedAndDeletePod` (pkg/controller/podgc). Every DELETE
carries the uid of the pod that was decided on; what pod-gc deletes is read once more and deleted
under the version read, because a forced deletion cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from kubectl_nodelife.engine.actions import (
    CreatePod,
    DeletePod,
    EvictPod,
    MarkPodNotReady,
    PodAction,
    SetPodCondition,
    SetPodLabel,
    SetPodPhase,
    SetPodReady,
    SetPodReason,
)
from kubectl_nodelife.engine.calls.call import (
    FORBIDDEN,
    MERGE,
    NOT_FOUND,
    OK,
    TOO_MANY_REQUESTS,
    Answer,
    Body,
    Call,
    Delete,
    Evict,
    Get,
    NodeAbsent,
    NodeOutOfService,
    Patch,
    Post,
    Precondition,
    Result,
    WaitUntil,
)
from kubectl_nodelife.engine.calls.steps import (
    UNCHANGED,
    Conversation,
    as_seen,
    conflict,
    failed,
    is_another,
    read,
    same,
    whole,
    write,
)
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, NodeSpec, Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import TAINT_NODE_OUT_OF_SERVICE, TRUE

EVICTION_RETRY_NS: Final = 5 * SECOND_NS
NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
_FINISHED: Final = frozenset({"Succeeded", "Failed"})

OUT_OF_SERVICE: Final = Node(spec=NodeSpec(taints=(Taint(key=TAINT_NODE_OUT_OF_SERVICE),)))
"""A node of which nothing else is known."""

Established = Generator[Call, Answer, Result | None]


def mark_pod_not_ready(
    action: MarkPodNotReady, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """PATCH of the condition, under the version seen."""
    body = {"status": {"conditions": [whole(action.condition)]}}
    patch = Patch(*action.target, body, as_seen(action, seen), "status")
    return (yield from write(action, patch))


def set_pod_reason(action: SetPodReason, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH of reason and message, under the version seen."""
    body = {"status": {"reason": action.reason, "message": action.message}}
    patch = Patch(*action.target, body, as_seen(action, seen), "status")
    return (yield from write(action, patch))


def set_pod_condition(
    action: SetPodCondition, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """Read, then PATCH of the condition, and of the phase that goes along, if that changes it."""
    return (yield from _patch_status(action, action.phase, action.condition, now_ns))


def set_pod_phase(action: SetPodPhase, seen: KubeObject | None, now_ns: int) -> Conversation:
    """Read, then PATCH of the phase."""
    return (yield from _patch_status(action, action.phase, None, now_ns))


def delete_pod(action: DeletePod, seen: KubeObject | None, now_ns: int) -> Conversation:
    """DELETE under the uid; where it is forced, after another read and under the version read."""
    kind, key = action.target
    if not action.force:
        grace = action.grace_period_seconds
        about = as_seen(action, seen) if action.if_unchanged else same(action, seen)
        return (yield from write(action, Delete(kind, key, about, grace)))
    found = yield from read(action, quorum=True)
    if isinstance(found, Result):
        return found
    refused = yield from _still_holds(action, seen, found.obj)
    if refused is not None:
        return refused
    preconditions = (*as_seen(action, found.obj), *_about_node(action))
    return (yield from write(action, Delete(kind, key, preconditions, 0)))


def set_pod_label(action: SetPodLabel, seen: KubeObject | None, now_ns: int) -> Conversation:
    """Merge patch of one label."""
    body = {"metadata": {"labels": {action.key: action.value}}}
    patch = Patch(*action.target, body, same(action, seen), content_type=MERGE)
    return (yield from write(action, patch))


def create_pod(action: CreatePod, seen: KubeObject | None, now_ns: int) -> Conversation:
    """POST of the manifest, whose name was chosen: sent twice, it makes one pod."""
    return (yield from write(action, Post(*action.target, action.manifest)))


def evict_pod(action: EvictPod, seen: KubeObject | None, now_ns: int) -> Conversation:
    """Eviction; while a budget refuses it, or the namespace is terminating, again every 5 s.

    Follows `evictPods` (k8s.io/kubectl/pkg/drain). Whoever drives this ends it where its own time
    is over.
    """
    call = Evict(action.target[1], same(action, seen), action.grace_period_seconds)
    while True:
        answer = yield call
        if answer.ok:
            return Result(answer.code, changed=True)
        if answer.code == NOT_FOUND:
            return UNCHANGED
        terminating = answer.code == FORBIDDEN and NAMESPACE_TERMINATING in answer.causes
        if answer.code != TOO_MANY_REQUESTS and not terminating and not answer.is_ambiguous:
            found = yield Get(*action.target)
            gone = found.code == NOT_FOUND or (found.obj and is_another(action, found.obj))
            return UNCHANGED if gone else failed(answer)
        if answer.code >= 500:
            return failed(answer)  # a budget that cannot be evaluated
        yield WaitUntil((answer.now_ns or now_ns) + EVICTION_RETRY_NS)
        found = yield Get(*action.target)
        pod = found.obj
        if found.code == NOT_FOUND or (pod is not None and is_another(action, pod)):
            return UNCHANGED
        if pod is not None and not terminating and action.shown_by(pod):
            return Result(OK, changed=True, fresh=pod)


def _patch_status(
    action: PodAction, phase: str, condition: PodCondition | None, now_ns: int
) -> Conversation:
    found = yield from read(action, quorum=True)
    if isinstance(found, Result):
        return found
    pod = found.obj
    if not isinstance(pod, Pod) or action.effect(pod, now_ns) is pod:
        return UNCHANGED
    refused = yield from _node_state(action)
    if refused is not None:
        return refused
    generation = pod.metadata.generation
    status: Body = {}
    if phase:
        status = {"observedGeneration": generation} if generation else {}
        status["phase"] = phase
    if condition is not None:
        types = [c.type for c in pod.status.conditions]
        if condition.type not in types:
            types.append(condition.type)
        changed = {k: v for k, v in whole(condition).items() if v is not None}
        changed["observedGeneration"] = generation
        status["$setElementOrder/conditions"] = [{"type": t} for t in types]
        status["conditions"] = [changed]
    preconditions = (*same(action, pod), *_about_node(action))
    patch = Patch(*action.target, {"status": status}, preconditions, "status")
    return (yield from write(action, patch))


def _still_holds(
    action: DeletePod, seen: KubeObject | None, found: KubeObject | None
) -> Established:
    """Whether a forced deletion would be decided again on what was read; None where it would."""
    if isinstance(seen, Pod) and isinstance(found, Pod):
        before, now = seen.metadata, found.metadata
        recovered = seen.status.phase in _FINISHED and found.status.phase not in _FINISHED
        kept = before.deletion_timestamp is not None and now.deletion_timestamp is None
        moved = seen.spec.node_name != found.spec.node_name
        if recovered or kept or moved:
            return conflict("the pod is no longer as it was when this was decided", found)
    return (yield from _node_state(action))


def _about_node(action: PodAction) -> tuple[Precondition, ...]:
    if action.if_node_gone:
        return (NodeAbsent(action.if_node_gone),)
    if action.if_node_out_of_service:
        return (NodeOutOfService(action.if_node_out_of_service),)
    return ()


def _node_state(action: PodAction) -> Established:
    """Establish what must hold of the pod's node; None where it does."""
    if action.if_node_gone:
        answer = yield Get("Node", ("", action.if_node_gone))
        if answer.code == NOT_FOUND and answer.reason == "NotFound":
            return None
        if answer.ok:
            return conflict(f"node {action.if_node_gone} exists")
        return failed(answer)
    if action.if_node_out_of_service:
        answer = yield Get("Node", ("", action.if_node_out_of_service))
        if not answer.ok or not isinstance(answer.obj, Node):
            return failed(answer)
        if not is_out_of_service(answer.obj):
            return conflict(f"node {action.if_node_out_of_service} is in service")
    return None


def is_out_of_service(node: Node) -> bool:
    """Whether pod-gc may force the deletion of the node's terminating pods."""
    ready = node.ready()
    is_ready = ready is not None and ready.status == TRUE
    return not is_ready and any(t.key == TAINT_NODE_OUT_OF_SERVICE for t in node.spec.taints)


def set_pod_ready(action: SetPodReady, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH of one condition's status, under the version judged."""
    changed = {
        "type": "Ready",
        "status": action.status,
        "lastTransitionTime": format_time(action.at),
    }
    body = {"status": {"conditions": [changed]}}
    patch = Patch(*action.target, body, as_seen(action, seen), "status")
    return (yield from write(action, patch))
