"""Conversations about pods: conditions, phase, deletion, eviction, labels.

Follows `MarkPodsNotReady` (pkg/controller/util/node), `addConditionAndDeletePod`
(pkg/controller/tainteviction) and `markFailedAndDeletePod` (pkg/controller/podgc). Every DELETE
carries the uid of the pod that was decided on; what pod-gc deletes is read once more and deleted
under the version read, because a forced deletion cannot be taken back.

What `kubectl drain` does after the API server's answer to an eviction is one table
(`after_eviction`), after `evictPods` (k8s.io/kubectl/pkg/drain/drain.go, v1.36): a simulated drain,
a live one and the evictions of an upgrade ask it alike.
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
    CONFLICT,
    FORBIDDEN,
    MERGE,
    NO_ANSWER,
    NOT_FOUND,
    OK,
    TOO_MANY_REQUESTS,
    UNCHANGED,
    Answer,
    Body,
    Call,
    Conversation,
    Delete,
    Evict,
    Get,
    ListObjects,
    Patch,
    Post,
    Result,
    WaitUntil,
    as_seen,
    conflict,
    failed,
    is_another,
    patch_status,
    read,
    same,
    whole,
    write,
)
from kubectl_nodelife.kube.codec import convert
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, NodeSpec, Taint
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.kube.wellknown import (
    LABEL_CONTROLLER_REVISION_HASH,
    TAINT_NODE_OUT_OF_SERVICE,
)

RESENDS_FOR_NS: Final = 5 * SECOND_NS
"""So long a create whose answer was lost is sent again; later it is decided anew."""

LOOKS_FOR_NS: Final = 300 * SECOND_NS
"""So long a pod is looked for whose create was not answered, as expectations last."""

_ON_ITS_WAY: Final = frozenset({NO_ANSWER, 502, 504})
"""Answers after which the API server may still be about to do what was asked."""

_LONGEST_PAUSE_NS: Final = 30 * SECOND_NS

OUT_OF_SERVICE: Final = Node(spec=NodeSpec(taints=(Taint(key=TAINT_NODE_OUT_OF_SERVICE),)))
"""A node of which nothing else is known."""

Established = Generator[Call, Answer, Result | None]

EVICTION_RETRY_NS: Final = 5 * SECOND_NS
"""How long kubectl sleeps before it asks again; the server's Retry-After does not matter to it."""
NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
"""The cause of a 403 in a namespace that is being deleted."""
WAIT: Final = "wait"
GONE: Final = "gone"
ASK_AGAIN: Final = "ask again"
FAIL: Final = "fail"


def mark_pod_not_ready(
    action: MarkPodNotReady, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """PATCH of the condition, under the version seen."""
    return patch_status(action, seen, {"conditions": [whole(action.condition)]})


def set_pod_reason(action: SetPodReason, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH of reason and message, under the version seen."""
    return patch_status(action, seen, {"reason": action.reason, "message": action.message})


def delete_pod(action: DeletePod, seen: KubeObject | None, now_ns: int) -> Conversation:
    """DELETE under the uid; where it is forced, after another read and under the version read."""
    kind, key = action.target
    if not action.force:
        grace = action.grace_period_seconds
        about = as_seen(action, seen) if action.if_unchanged else same(action, seen)
        return (yield from write(action, Delete(kind, key, about, grace)))
    current = yield from read(action, quorum=True)
    if isinstance(current, Result):
        return current
    refused = yield from _still_holds(action, seen, current.obj)
    if refused is not None:
        return refused
    return (yield from write(action, Delete(kind, key, as_seen(action, current.obj), 0)))


def set_pod_label(action: SetPodLabel, seen: KubeObject | None, now_ns: int) -> Conversation:
    """Merge patch of one label."""
    body = {"metadata": {"labels": {action.key: action.value}}}
    return write(action, Patch(*action.target, body, same(action, seen), content_type=MERGE))


def create_pod(action: CreatePod, seen: KubeObject | None, now_ns: int) -> Conversation:
    """POST of the manifest, whose name was chosen: sent twice, it makes one pod.

    Where no answer came, the pods of its owner decide whether it was made. One that is not there
    may be on its way still: the same is sent once more, and found where its name is taken by then.
    While nothing can be read nothing is known, and it is looked for again.
    """
    post, listed = Post(*action.target, action.manifest), _siblings(action)
    answer = yield post
    asked_ns, pause_ns, lost = answer.now_ns or now_ns, SECOND_NS, False
    while not answer.ok:
        if not answer.is_ambiguous and not (lost and answer.code == CONFLICT):
            return failed(answer)
        lost = True
        listing = yield listed
        if listing.ok and (pod := _made(action, listing.raw)) is not None:
            return Result(OK, changed=True, fresh=pod)
        at_ns = listing.now_ns or now_ns
        refused = listing.ok and answer.code not in _ON_ITS_WAY and answer.code != CONFLICT
        if refused or at_ns - asked_ns > (RESENDS_FOR_NS if listing.ok else LOOKS_FOR_NS):
            return failed(answer)
        yield WaitUntil(at_ns + pause_ns)
        if listing.ok:
            answer = yield post
        pause_ns = min(2 * pause_ns, _LONGEST_PAUSE_NS)
    return Result(answer.code, changed=True, fresh=answer.obj)


def _siblings(action: CreatePod) -> ListObjects:
    """The pods that the same set has made of the same revision."""
    labels = (action.manifest.get("metadata") or {}).get("labels") or {}
    revision = labels.get(LABEL_CONTROLLER_REVISION_HASH)
    selector = ((LABEL_CONTROLLER_REVISION_HASH, revision),) if revision else ()
    return ListObjects("Pod", action.namespace, selector)


def _made(action: CreatePod, listed: Body | None) -> Pod | None:
    """The owner's pod of that name, or that is there for the node already; None: there is none."""
    created = None
    for raw in (listed or {}).get("items") or ():
        try:
            pod: Pod = convert(raw, Pod, "", "")
        except InputError:
            continue
        going = pod.metadata.deletion_timestamp is not None or pod.status.phase in TERMINAL_PHASES
        if action.shown_by(pod) and (pod.name == action.pod or not going):
            created = pod if created is None or pod.name == action.pod else created
    return created


def evict_pod(action: EvictPod, seen: KubeObject | None, now_ns: int) -> Conversation:
    """Eviction, asked for again as `after_eviction` says; a lost answer is asked for again too.

    The driver ends it where its own time is over. A refusal for good of a pod that is gone
    by then is none.
    """
    call = Evict(action.target[1], same(action, seen), action.grace_period_seconds)
    going = seen is not None and action.shown_by(seen)
    while True:
        answer = yield call
        if answer.ok:
            return Result(answer.code, changed=True)
        terminating = NAMESPACE_TERMINATING in answer.causes
        then = after_eviction(answer.code, terminating=terminating, going=going)
        if then in (GONE, WAIT):
            return UNCHANGED
        if then == FAIL and answer.code >= 500:
            return failed(answer)  # a budget that cannot be evaluated
        if then == FAIL and answer.code != NO_ANSWER:
            current = yield Get(*action.target)
            gone = current.code == NOT_FOUND or (current.obj and is_another(action, current.obj))
            return UNCHANGED if gone else failed(answer)
        yield WaitUntil((answer.now_ns or now_ns) + EVICTION_RETRY_NS)
        current = yield Get(*action.target)
        pod = current.obj
        if current.code == NOT_FOUND or (pod is not None and is_another(action, pod)):
            return UNCHANGED
        going = pod is not None and action.shown_by(pod)
        if going and not terminating:
            return Result(OK, changed=True, fresh=pod)


def set_pod_condition(
    action: SetPodCondition | SetPodPhase, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """Read, then PATCH of the condition, or of the phase, or both, if that changes the pod."""
    current = yield from read(action, quorum=True)
    if isinstance(current, Result):
        return current
    pod = current.obj
    if not isinstance(pod, Pod) or action.effect(pod, now_ns) is pod:
        return UNCHANGED
    refused = yield from _node_state(action)
    if refused is not None:
        return refused
    generation = pod.metadata.generation
    status: Body = {}
    if action.phase:
        status = {"observedGeneration": generation} if generation else {}
        status["phase"] = action.phase
    if isinstance(action, SetPodCondition):
        condition = action.condition
        types = [c.type for c in pod.status.conditions]
        if condition.type not in types:
            types.append(condition.type)
        changed = {k: v for k, v in whole(condition).items() if v is not None}
        changed["observedGeneration"] = generation
        status["$setElementOrder/conditions"] = [{"type": t} for t in types]
        status["conditions"] = [changed]
    patch = Patch(*action.target, {"status": status}, same(action, pod), "status")
    return (yield from write(action, patch))


def _still_holds(
    action: DeletePod, seen: KubeObject | None, current: KubeObject | None
) -> Established:
    """None if a forced deletion would be decided again on what was read, else a conflict."""
    if isinstance(seen, Pod) and isinstance(current, Pod):
        before, now = seen.metadata, current.metadata
        ended = seen.status.phase in TERMINAL_PHASES
        recovered = ended and current.status.phase not in TERMINAL_PHASES
        undeleted = before.deletion_timestamp is not None and now.deletion_timestamp is None
        moved = seen.spec.node_name != current.spec.node_name
        if recovered or undeleted or moved:
            return conflict("the pod is no longer as it was when this was decided", current)
    return (yield from _node_state(action))


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
    """True if pod-gc may force the deletion of the node's terminating pods."""
    return not node.is_ready and any(t.key == TAINT_NODE_OUT_OF_SERVICE for t in node.spec.taints)


def set_pod_ready(action: SetPodReady, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH of one condition's status, under the version judged."""
    since = format_time(action.at)
    changed = {"type": "Ready", "status": action.status, "lastTransitionTime": since}
    return patch_status(action, seen, {"conditions": [changed]})


def after_eviction(code: int, *, terminating: bool, going: bool) -> str:
    """WAIT until the pod is gone, it is GONE, ASK_AGAIN after `EVICTION_RETRY_NS`, or FAIL the pod.

    `code`: HTTP status. `terminating`: the answer has the cause `NAMESPACE_TERMINATING`. `going`:
    the pod was marked deleted when it was last read; in such a namespace its eviction can never
    succeed, and it goes all the same.
    """
    if 200 <= code < 300:
        return WAIT
    if code == NOT_FOUND:
        return GONE
    if code == TOO_MANY_REQUESTS:
        return ASK_AGAIN
    if code == FORBIDDEN and terminating:
        return WAIT if going else ASK_AGAIN
    return FAIL
