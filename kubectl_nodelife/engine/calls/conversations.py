"""Which conversation carries out which action, and what it would send.

`converse` is the one way from an action to the API server: a live executor drives it over the
network, a test over the sandbox, and `request_of` over the object as it is known, which shows what
would be sent without sending it. Each conversation is a generator that yields a call and is sent
the answer; it does no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.calls import (
    daemonset_calls,
    event_calls,
    node_calls,
    pod_calls,
    upgrade_calls,
)
from kubectl_nodelife.engine.calls.call import (
    NOT_FOUND,
    OK,
    Answer,
    Call,
    Conversation,
    Get,
    ListObjects,
    Read,
    Request,
    Result,
    WaitUntil,
    request_of_call,
)
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.workload import DaemonSet

CONVERSATIONS: Final[dict[type[Action], Callable[[Any, KubeObject | None, int], Conversation]]] = {
    actions.SetNodeConditions: node_calls.set_node_conditions,
    actions.AddTaints: node_calls.change_taints,
    actions.RemoveTaints: node_calls.change_taints,
    actions.SetNodeLabels: node_calls.set_node_labels,
    actions.SetUnschedulable: node_calls.set_unschedulable,
    actions.SetPodCondition: pod_calls.set_pod_condition,
    actions.MarkPodNotReady: pod_calls.mark_pod_not_ready,
    actions.SetPodReason: pod_calls.set_pod_reason,
    actions.SetPodPhase: pod_calls.set_pod_phase,
    actions.DeletePod: pod_calls.delete_pod,
    actions.EvictPod: pod_calls.evict_pod,
    actions.SetPodReady: pod_calls.set_pod_ready,
    actions.RollBackDaemonSet: daemonset_calls.roll_back,
    actions.CreatePod: pod_calls.create_pod,
    actions.SetPodLabel: pod_calls.set_pod_label,
    actions.AdoptObject: daemonset_calls.adopt,
    actions.ReleaseObject: daemonset_calls.release,
    actions.CreateControllerRevision: daemonset_calls.create_revision,
    actions.UpdateControllerRevision: daemonset_calls.update_revision,
    actions.DeleteControllerRevision: daemonset_calls.delete_revision,
    actions.UpdateDaemonSetStatus: daemonset_calls.update_status,
    actions.RaiseCollisionCount: daemonset_calls.raise_collision_count,
    actions.ClaimNode: upgrade_calls.patch_node,
    actions.SetUpgradeState: upgrade_calls.patch_node,
    actions.OpenForProof: upgrade_calls.patch_node,
    actions.ReleaseNode: upgrade_calls.patch_node,
    actions.RestoreNode: upgrade_calls.patch_node,
    actions.FailNode: upgrade_calls.patch_node,
    actions.MarkNode: upgrade_calls.patch_node,
    actions.CreateCanary: upgrade_calls.create,
    actions.DeleteCanary: upgrade_calls.delete,
    actions.CreateJob: upgrade_calls.create,
    actions.DeleteJob: upgrade_calls.delete,
    actions.UpdateRun: upgrade_calls.update_run,
    actions.RecordEvent: event_calls.record_event,
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
