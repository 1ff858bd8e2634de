"""An action as the one request that carries it out: method, path, content type, body. No I/O.

What a dry run says it would send and what an executor sends come from here, so that they cannot
differ. Upstream writes statuses with UpdateStatus; a slice does not hold the whole object, so that
here everything is a patch of what changes. Strategic merge patches, which merge conditions by type;
a uid or a resourceVersion in their metadata is a precondition to the API server, and so is the uid
in the options of a DELETE. An Event is not described: it changes nothing.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any, Final

import msgspec

from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    MarkPodNotReady,
    RemoveTaints,
    SetNodeConditions,
    SetNodeLabels,
    SetPodCondition,
    SetPodPhase,
    SetPodReason,
)
from kubectl_nodelife.engine.daemonset_actions import (
    AdoptObject,
    CreateControllerRevision,
    CreatePod,
    DeleteControllerRevision,
    RaiseCollisionCount,
    ReleaseObject,
    SetPodLabel,
    UpdateControllerRevision,
    UpdateDaemonSetStatus,
)
from kubectl_nodelife.kube.encode import encode
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node

STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json"

Body = dict[str, Any]


class Request(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One request to the API server; `path` without the server."""

    method: str
    path: str
    content_type: str
    body: Body


def request_of(action: Action, before: KubeObject | None) -> Request | None:
    """The request that brings the action about on the object as it is `before`.

    None for what is not a request (a decision that only concerns ourselves) or not told (an Event).
    """
    if not action.writes:
        return None
    made = _request(action, before)
    if made is None:
        return None
    method, below, body = made
    content_type = STRATEGIC_MERGE if method == "PATCH" else JSON
    return Request(method, _path(action, method, below), content_type, body)


Made = tuple[str, str, Body]
"""Method, what stands behind the object's path, body."""


@singledispatch
def _request(action: Action, before: KubeObject | None) -> Made | None:
    return None


@_request.register
def _(action: SetNodeConditions, before: KubeObject | None) -> Made:
    conditions = [encode(c) for c in action.conditions]
    return "PATCH", "/status", {"metadata": _same(action), "status": {"conditions": conditions}}


@_request.register(AddTaints)
@_request.register(RemoveTaints)
def _(action: AddTaints | RemoveTaints, before: KubeObject | None) -> Made:
    """All taints of the node: the list is replaced, so the version must still be this one."""
    after = action.effect(before, 0)
    taints = after.spec.taints if isinstance(after, Node) else action.taints
    metadata = _same(action)
    if before is not None and before.metadata.resource_version:
        metadata["resourceVersion"] = before.metadata.resource_version
    return "PATCH", "", {"metadata": metadata, "spec": {"taints": [encode(t) for t in taints]}}


@_request.register
def _(action: SetNodeLabels, before: KubeObject | None) -> Made:
    return "PATCH", "", {"metadata": {**_same(action), "labels": action.labels}}


@_request.register
def _(action: SetPodCondition, before: KubeObject | None) -> Made:
    status: Body = {"conditions": [encode(action.condition)]}
    if action.phase:
        status["phase"] = action.phase
    return "PATCH", "/status", {"metadata": _same(action), "status": status}


@_request.register
def _(action: MarkPodNotReady, before: KubeObject | None) -> Made:
    status = {"conditions": [encode(action.condition)]}
    return "PATCH", "/status", {"metadata": _same(action), "status": status}


@_request.register
def _(action: SetPodReason, before: KubeObject | None) -> Made:
    status = {"reason": action.reason, "message": action.message}
    return "PATCH", "/status", {"metadata": _same(action), "status": status}


@_request.register
def _(action: SetPodPhase, before: KubeObject | None) -> Made:
    return "PATCH", "/status", {"metadata": _same(action), "status": {"phase": action.phase}}


@_request.register
def _(action: DeletePod, before: KubeObject | None) -> Made:
    options = _delete_options(action)
    if action.grace_period_seconds is not None:
        options["gracePeriodSeconds"] = action.grace_period_seconds
    return "DELETE", "", options


@_request.register
def _(action: CreatePod, before: KubeObject | None) -> Made:
    return "POST", "", action.manifest


@_request.register
def _(action: SetPodLabel, before: KubeObject | None) -> Made:
    return "PATCH", "", {"metadata": {**_same(action), "labels": {action.key: action.value}}}


@_request.register
def _(action: AdoptObject, before: KubeObject | None) -> Made:
    return "PATCH", "", {"metadata": {**_same(action), "ownerReferences": [encode(action.owner)]}}


@_request.register
def _(action: ReleaseObject, before: KubeObject | None) -> Made:
    gone = {"$patch": "delete", "uid": action.owner_uid}
    return "PATCH", "", {"metadata": {**_same(action), "ownerReferences": [gone]}}


@_request.register
def _(action: CreateControllerRevision, before: KubeObject | None) -> Made:
    return "POST", "", encode(action.revision)


@_request.register
def _(action: UpdateControllerRevision, before: KubeObject | None) -> Made:
    metadata: Body = _same(action)
    if action.hash_label is not None:
        key, value = action.hash_label
        metadata["labels"] = {key: value}
    return "PATCH", "", {"metadata": metadata, "revision": action.number}


@_request.register
def _(action: DeleteControllerRevision, before: KubeObject | None) -> Made:
    return "DELETE", "", _delete_options(action)


@_request.register
def _(action: UpdateDaemonSetStatus, before: KubeObject | None) -> Made:
    return "PATCH", "/status", {"metadata": _same(action), "status": encode(action.status)}


@_request.register
def _(action: RaiseCollisionCount, before: KubeObject | None) -> Made:
    status = {"collisionCount": (action.seen or 0) + 1}
    return "PATCH", "/status", {"metadata": _same(action), "status": status}


def _same(action: Action) -> Body:
    """The precondition that the object is the one decided upon."""
    return {"uid": action.uid} if action.uid else {}


def _delete_options(action: Action) -> Body:
    options: Body = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if action.uid:
        options["preconditions"] = {"uid": action.uid}
    return options


def _path(action: Action, method: str, below: str) -> str:
    name, (namespace, object_name) = action.target
    kind = kind_named(name)
    version = kind.api_version
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    inside = f"/namespaces/{namespace}" if namespace else ""
    collection = f"{root}{inside}/{kind.plural}"
    return collection if method == "POST" else f"{collection}/{object_name}{below}"
