"""Which conversation carries out which action, and what it would send.

`converse` is the one way from an action to the API server: a live executor drives it over the
network, a test over the sandbox, and `request_of` over the object as it is known, which shows what
would be sent without sending it. Each conversation is a generator that yields a call and is sent
the answer; it does no I/O and reads no clock.

Follows, for nodes, `tryUpdateNodeHealth` (pkg/controller/nodelifecycle), `AddOrUpdateTaintOnNode`,
`RemoveTaintOffNode` and `AddOrUpdateLabelsOnNode` (pkg/controller/controller_utils.go); for
DaemonSets, `snapshot`, `storeDaemonSetStatus` (pkg/controller/daemon) and the ref managers of
pkg/controller/controller_ref_manager.go; for Events, `makeEvent` (client-go/tools/record/event.go),
whose repeats are correlated where they are sent (`live/events.py`). Upstream puts whole statuses;
here they are patches of the conditions and counts under the same resourceVersion, so that fields
which no slice holds, and conditions set by others, stay as they are.

The PATCH of a node's state in an upgrade is a JSON merge patch under the version that was judged,
and is refused with 409 where anything changed since; it is not tried again here, for the next pass
decides anew. Taints go as the whole list, which the API holds to be one value. What an upgrade
creates has a name that was worked out: 409 means that it is there already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.actions import STATUS_COUNTS, Action, camel_case
from kubectl_nodelife.engine.calls import pod_calls
from kubectl_nodelife.engine.calls.call import (
    CONFLICT,
    MERGE,
    NOT_FOUND,
    OK,
    UNCHANGED,
    Answer,
    Body,
    Call,
    Conversation,
    Delete,
    Get,
    ListObjects,
    Patch,
    Post,
    Read,
    Request,
    Result,
    WaitUntil,
    another,
    as_seen,
    conflict,
    failed,
    is_another,
    is_done,
    patch_status,
    read,
    request_of_call,
    same,
    unchanged,
    whole,
    write,
)
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.times import MILLISECOND_NS, format_time
from kubectl_nodelife.kube.workload import DaemonSet

CONFLICT_TRIES: Final = 5
CONFLICT_BACKOFF_NS: Final = 100 * MILLISECOND_NS
"""`UpdateTaintBackoff` and `UpdateLabelBackoff`: 5 steps of 100 ms with jitter 1."""


def set_node_conditions(
    action: actions.SetNodeConditions, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """One PATCH of the status as seen; after an error a fresh read for the next decision."""
    kind, key = action.target
    body = {"status": {"conditions": [whole(c) for c in action.conditions]}}
    answer = yield Patch(kind, key, body, as_seen(action, seen), "status")
    if answer.ok:
        return Result(answer.code, changed=True, fresh=answer.obj)
    current = yield Get(kind, key)
    if current.obj is None:
        return failed(answer)
    if is_another(action, current.obj):
        return another(action)
    if answer.is_ambiguous and action.effect(current.obj, now_ns) is current.obj:
        return Result(OK, changed=True, fresh=current.obj)
    return failed(answer, current.obj)


def change_taints(
    action: actions.AddTaints | actions.RemoveTaints, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """Patch the whole list under the version read, and again after a conflict."""

    def patch(before: Node, after: Node, found: Answer) -> Patch:
        taints = [_with_unknown_fields(t, found) for t in after.spec.taints]
        body: Body = {"spec": {"taints": taints or None}}
        return Patch(*action.target, body, unchanged(before))

    return (yield from _patch_as_read(action, now_ns, patch))


def set_node_labels(
    action: actions.SetNodeLabels, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """Patch the labels, and again after a conflict. As upstream's, the patch names no version: what
    else changed in the node since it was read takes nothing from its labels.
    """
    body = {"metadata": {"labels": dict(action.labels)}}

    def patch(before: Node, after: Node, found: Answer) -> Patch:
        return Patch(*action.target, body, same(action, before))

    return (yield from _patch_as_read(action, now_ns, patch))


def _patch_as_read(
    action: actions.AddTaints | actions.RemoveTaints | actions.SetNodeLabels,
    now_ns: int,
    patch: Callable[[Node, Node, Answer], Patch],
) -> Conversation:
    """Read the node, patch it if that changes it, and begin again after a conflict. `patch`: makes
    the call of the node as it was read, as the action leaves it, and of the answer.
    """
    result = UNCHANGED
    for attempt in range(CONFLICT_TRIES):
        current = yield from read(action, quorum=attempt > 0)
        if isinstance(current, Result):
            return current
        before = current.obj
        after = action.effect(before, now_ns)
        if after is before or not isinstance(before, Node) or not isinstance(after, Node):
            return UNCHANGED
        result = yield from write(action, patch(before, after, current))
        if result.code != CONFLICT:
            return result
        if attempt + 1 < CONFLICT_TRIES:
            last = current.now_ns or now_ns
            yield WaitUntil(last + CONFLICT_BACKOFF_NS, last + 2 * CONFLICT_BACKOFF_NS)
    return result


def set_unschedulable(
    action: actions.SetUnschedulable, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """Read, then patch under the version read; again after a conflict."""
    result = UNCHANGED
    for _ in range(CONFLICT_TRIES):
        current = yield from read(action, quorum=True)
        if isinstance(current, Result):
            return current
        if current.obj is None or is_done(action, current.obj, now_ns):
            return UNCHANGED
        body = {"spec": {"unschedulable": True if action.unschedulable else None}}
        result = yield from write(action, Patch(*action.target, body, unchanged(current.obj)))
        if result.code != CONFLICT:
            break
    return result


def _with_unknown_fields(taint: Taint, found: Answer) -> Body:
    """The taint as it was read where it was there already, with fields that no slice holds."""
    encoded = encode(taint)
    spec = (found.raw or {}).get("spec")
    for raw in (spec or {}).get("taints") or ():
        if all(raw.get(key) == value for key, value in encoded.items()):
            return dict(raw)
    return encoded


_ROLLBACK_TRIES: Final = 5


def create_revision(
    action: actions.CreateControllerRevision, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """POST; where the name is taken, the one that has it is read for the next decision.

    A create whose answer was lost is found by its name, and by its owner and number.
    """
    body = encode(action.revision)
    body.setdefault("revision", action.revision.revision)
    result = yield from write(action, Post(*action.target, body))
    if result.code != CONFLICT:
        return result
    existing = yield Get(*action.target)
    return Result(CONFLICT, result.message, result.reason, fresh=existing.obj)


def update_revision(
    action: actions.UpdateControllerRevision, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """PATCH of number and label under the version seen."""
    body: Body = {"revision": action.number}
    if action.hash_label is not None:
        key, value = action.hash_label
        body["metadata"] = {"labels": {key: value}}
    return (yield from write(action, Patch(*action.target, body, as_seen(action, seen))))


def delete_revision(
    action: actions.DeleteControllerRevision, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """DELETE under the uid."""
    return (yield from write(action, Delete(*action.target, same(action, seen))))


def adopt(action: actions.AdoptObject, seen: KubeObject | None, now_ns: int) -> Conversation:
    """Read the owner from the API server itself, then add the reference.

    An owner that is gone, another one or terminating must not adopt: the garbage collector would
    take what was adopted.
    """
    owner = action.owner
    current = yield Get(owner.kind, (action.namespace, owner.name))
    if current.obj is None:
        gone = conflict(f"{owner.kind} {owner.name} is gone") if current.code == 404 else None
        return gone or failed(current)
    if current.obj.uid != owner.uid:
        return conflict(f"{owner.kind} {owner.name} is another object now")
    if current.obj.metadata.deletion_timestamp is not None:
        return conflict(f"{owner.kind} {owner.name} is being deleted")
    body = {"metadata": {"ownerReferences": [encode(owner)]}}
    return (yield from write(action, Patch(*action.target, body, same(action, seen))))


def release(action: actions.ReleaseObject, seen: KubeObject | None, now_ns: int) -> Conversation:
    """Take the reference out."""
    gone = {"$patch": "delete", "uid": action.owner_uid}
    body = {"metadata": {"ownerReferences": [gone]}}
    return (yield from write(action, Patch(*action.target, body, same(action, seen))))


def update_status(
    action: actions.UpdateDaemonSetStatus, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """PATCH of the counts under the version seen; the second try reads that version first."""
    if action.reread:
        current = yield from read(action, quorum=True)
        if isinstance(current, Result):
            return current
        seen = current.obj
    counts = {camel_case(field): getattr(action.status, field) for field in STATUS_COUNTS}
    return (yield from patch_status(action, seen, counts))


def raise_collision_count(
    action: actions.RaiseCollisionCount, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """Read the set; unless the count is raised already, raise it by one."""
    current = yield from read(action, quorum=True)
    if isinstance(current, Result):
        return current
    daemon_set = current.obj
    assert isinstance(daemon_set, DaemonSet)
    if action.check and daemon_set.status.collision_count != action.seen:
        return conflict("the collision count was raised already", daemon_set)
    raised = {"collisionCount": (daemon_set.status.collision_count or 0) + 1}
    return (yield from patch_status(action, daemon_set, raised))


def roll_back(
    action: actions.RollBackDaemonSet, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """PATCH with the revision's data, under the version judged.

    In the middle of a rollout the status changes each second: of a set with the generation that was
    judged nothing else has changed, and the patch is sent under its newer version.
    """
    for _ in range(_ROLLBACK_TRIES):
        patch = Patch(*action.target, action.patch, as_seen(action, seen))
        result = yield from write(action, patch)
        if result.code != CONFLICT or seen is None or not seen.metadata.generation:
            return result
        current = yield from read(action, quorum=True)
        if isinstance(current, Result) or current.obj is None:
            return result
        if current.obj.metadata.generation != seen.metadata.generation:
            return result
        seen = current.obj
    return result


ALREADY_EXISTS = "AlreadyExists"


def patch_node(action: actions.NodeMarkPatch, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH of cordon, taints, labels and annotations, under the version judged."""
    after = action.effect(seen, now_ns)
    if not isinstance(seen, Node) or not isinstance(after, Node):
        return conflict("the node was never seen")
    if after is seen:
        return UNCHANGED
    body: Body = {}
    metadata = {"annotations": action.annotations, "labels": action.labels}
    if changed := {key: dict(value) for key, value in metadata.items() if value}:
        body["metadata"] = changed
    spec: Body = {}
    if after.spec.unschedulable != seen.spec.unschedulable:
        spec["unschedulable"] = True if after.spec.unschedulable else None
    if after.spec.taints is not seen.spec.taints:
        spec["taints"] = [encode(taint) for taint in after.spec.taints] or None
    if spec:
        body["spec"] = spec
    patch = Patch(*action.target, body, as_seen(action, seen), content_type=MERGE)
    return (yield from write(action, patch))


def update_run(action: actions.UpdateRun, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH of the Lease's annotations, under the version judged."""
    if action.effect(seen, now_ns) is seen:
        return UNCHANGED
    body: Body = {"metadata": {"annotations": dict(action.annotations)}}
    patch = Patch(*action.target, body, as_seen(action, seen), content_type=MERGE)
    return (yield from write(action, patch))


def create_object(
    action: actions.CreateForNode, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """POST of the manifest; one of that name that is there already will do."""
    result = yield from write(action, Post(*action.target, action.manifest))
    if result.code == CONFLICT and result.reason in ("", ALREADY_EXISTS):
        return UNCHANGED
    return result


def delete_object(
    action: actions.DeleteForNode, seen: KubeObject | None, now_ns: int
) -> Conversation:
    """DELETE under the uid; a Job's pods go with it, for by default they would stay."""
    policy = "Background" if action.kind == "Job" else ""
    call = Delete(*action.target, same(action, seen), propagation_policy=policy)
    result = yield from write(action, call)
    return UNCHANGED if result.code == NOT_FOUND else result


COMPONENTS: Final = {
    "node-lifecycle": "node-controller",
    "taint-eviction": "taint-eviction-controller",
    "daemonset": "daemonset-controller",
    "enforce": "kubectl-nodelife",
    "upgrade": "kubectl-nodelife",
}
"""Controller -> what its events name as their source."""


def record_event(action: actions.RecordEvent, seen: KubeObject | None, now_ns: int) -> Conversation:
    """POST of the event."""
    body = event_body(action, now_ns)
    meta = body["metadata"]
    return (yield from write(action, Post("Event", (meta["namespace"], meta["name"]), body)))


def event_body(action: actions.RecordEvent, now_ns: int) -> Body:
    """The Event object: a Node's goes to the namespace `default`."""
    component = COMPONENTS.get(action.controller, action.controller)
    involved: Body = {
        "kind": action.kind,
        "namespace": action.namespace,
        "name": action.name,
        "uid": action.object_uid,
        "apiVersion": kind_named(action.kind).api_version,
    }
    stamp = format_time(now_ns)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{action.name}.{now_ns:x}",
            "namespace": action.namespace or "default",
        },
        "involvedObject": {k: v for k, v in involved.items() if v},
        "reason": action.reason,
        "message": action.message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "type": action.type,
    }


CONVERSATIONS: Final[dict[type[Action], Callable[[Any, KubeObject | None, int], Conversation]]] = {
    actions.SetNodeConditions: set_node_conditions,
    actions.AddTaints: change_taints,
    actions.RemoveTaints: change_taints,
    actions.SetNodeLabels: set_node_labels,
    actions.SetUnschedulable: set_unschedulable,
    actions.SetPodCondition: pod_calls.set_pod_condition,
    actions.MarkPodNotReady: pod_calls.mark_pod_not_ready,
    actions.SetPodReason: pod_calls.set_pod_reason,
    actions.SetPodPhase: pod_calls.set_pod_condition,
    actions.DeletePod: pod_calls.delete_pod,
    actions.EvictPod: pod_calls.evict_pod,
    actions.SetPodReady: pod_calls.set_pod_ready,
    actions.RollBackDaemonSet: roll_back,
    actions.CreatePod: pod_calls.create_pod,
    actions.SetPodLabel: pod_calls.set_pod_label,
    actions.AdoptObject: adopt,
    actions.ReleaseObject: release,
    actions.CreateControllerRevision: create_revision,
    actions.UpdateControllerRevision: update_revision,
    actions.DeleteControllerRevision: delete_revision,
    actions.UpdateDaemonSetStatus: update_status,
    actions.RaiseCollisionCount: raise_collision_count,
    actions.NodeMarkPatch: patch_node,
    actions.CreateForNode: create_object,
    actions.DeleteForNode: delete_object,
    actions.UpdateRun: update_run,
    actions.RecordEvent: record_event,
}


def converse(action: Action, seen: KubeObject | None, now_ns: int) -> Conversation:
    """The conversation that carries the action out.

    `seen`: the object as the decision saw it, whose version is the precondition of what is written
    without another read. Raises KeyError for an action that is not a write.
    """
    return CONVERSATIONS[type(action)](action, seen, now_ns)


def request_of(action: Action, before: KubeObject | None, now_ns: int = 0) -> Request | None:
    """The request that would bring the action about on the object as it is `before`.

    None for a decision that only concerns ourselves, and where there is nothing to change.
    """
    if not action.writes:
        return None
    conversation = converse(action, before, now_ns)
    try:
        call = next(conversation)
        while isinstance(call, (Get, ListObjects, WaitUntil)):
            call = conversation.send(_as_known(action, call, before, now_ns))
        return request_of_call(call)
    except StopIteration:
        return None


def drive(conversation: Conversation, answer: Callable[[Call], Answer]) -> Result:
    """Carry a conversation to its end, `answer` answering each call at once."""
    try:
        call = next(conversation)
        while True:
            call = conversation.send(answer(call))
    except StopIteration as end:
        result: Result = end.value
        return result


def _as_known(
    action: Action, call: Read | WaitUntil, before: KubeObject | None, now_ns: int
) -> Answer:
    """The objects that a read would show were everything as the decision took it to be."""
    if isinstance(call, WaitUntil):
        return Answer(OK, now_ns=call.at_ns)
    if isinstance(call, ListObjects):
        return Answer(OK, raw={"items": []}, now_ns=now_ns)
    if (call.kind, call.key) == action.target:
        if before is None:
            return Answer(NOT_FOUND, reason="NotFound", now_ns=now_ns)
        return Answer(OK, before, now_ns=now_ns)
    if isinstance(action, actions.AdoptObject):
        namespace, name = call.key
        meta = ObjectMeta(name=name, namespace=namespace, uid=action.owner.uid)
        return Answer(OK, DaemonSet(metadata=meta), now_ns=now_ns)
    if isinstance(action, actions.PodAction) and action.if_node_out_of_service:
        return Answer(OK, pod_calls.OUT_OF_SERVICE, now_ns=now_ns)
    return Answer(NOT_FOUND, reason="NotFound", now_ns=now_ns)
