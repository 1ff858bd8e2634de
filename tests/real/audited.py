"""The writes of the real controllers, read off the audit log, as records of a Timeline.

A write's effect is the difference between the object before and after it, both as the API server
answered with them, so that every writer's answers are followed and the controllers' are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

Json = dict[str, Any]

_CONTROLLERS = {
    "pod-garbage-collector": "pod-gc",
    "daemon-set-controller": "daemonset",
    "node-controller": "node-lifecycle",
}
_EVENT_SOURCES = {
    "node-controller": "node-lifecycle",
    "taint-eviction-controller": "taint-eviction",
    "daemonset-controller": "daemonset",
}
_COUNTS = (
    *("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"),
    *("updatedNumberScheduled", "numberAvailable", "numberUnavailable"),
)


def records(audit: Iterable[Json], t0: float, until_s: float) -> list[Json]:
    """What the controllers wrote between `t0` (seconds since the epoch) and `until_s` after it."""
    known: dict[tuple[str, str, str], Json] = {}
    found = []
    for entry in sorted(audit, key=lambda e: str(e["requestReceivedTimestamp"])):
        ref = entry.get("objectRef") or {}
        if entry["responseStatus"]["code"] >= 400 or "resource" not in ref:
            continue
        after = entry.get("responseObject") or {}
        key = (ref["resource"], ref.get("namespace", ""), _name(entry))
        before = known.get(key, {})
        if after.get("kind") not in (None, "Status", "Binding"):
            known[key] = after
        at = round(_epoch(entry["requestReceivedTimestamp"]) - t0, 3)
        controller = _CONTROLLERS.get(entry.get("userAgent", "").rpartition("/")[2], "")
        if 0 <= at <= until_s and controller:
            for record in _effects(entry, controller, before, after):
                found.append({"at": at, "cause": None, "reason": "", **record})
    return found


def _effects(entry: Json, controller: str, before: Json, after: Json) -> Iterator[Json]:
    ref = entry["objectRef"]
    match ref["resource"], entry["verb"]:
        case "events", "create":
            yield from _event(after)
        case "nodes", _:
            yield from _node_effects(_name(entry), before, after)
        case "pods", "create":
            owner = after["metadata"]["ownerReferences"][0]["name"]
            revision = after["metadata"]["labels"].get("controller-revision-hash")
            detail = {"node": _bound_by_affinity(after), "owner": owner, "revision": revision}
            yield _record(controller, "CreatePod", ref, _name(entry), detail)
        case "pods", "delete":
            evicting = controller == "node-lifecycle"
            who = "taint-eviction" if evicting else controller
            yield _record(who, "DeletePod", ref, _name(entry), {})
        case "pods", _:
            yield from _pod_effects(controller, ref, before, after)
        case "controllerrevisions", verb:
            action = {"create": "Create", "delete": "Delete"}.get(verb, "Update")
            detail = {"revision": after.get("revision")}
            yield _record(controller, f"{action}ControllerRevision", ref, _name(entry), detail)
        case "daemonsets", _ if ref.get("subresource") == "status":
            counts = {c: after["status"].get(c, 0) for c in _COUNTS}
            yield _record(controller, "UpdateDaemonSetStatus", ref, ref["name"], counts)


def _node_effects(name: str, before: Json, after: Json) -> Iterator[Json]:
    ref = {"resource": "nodes"}
    here = "node-lifecycle"
    old = {c["type"]: c for c in before.get("status", {}).get("conditions", [])}
    for condition in after.get("status", {}).get("conditions", []):
        if old.get(condition["type"], {}).get("status") != condition["status"]:
            detail = {k: condition.get(k, "") for k in ("type", "status", "reason")}
            yield _record(here, "SetNodeCondition", ref, name, detail)
    was, has = _taints(before), _taints(after)
    for action, taints in (("AddTaint", has - was), ("RemoveTaint", was - has)):
        for key, effect in sorted(taints):
            yield _record(here, action, ref, name, {"key": key, "effect": effect})
    labels = before.get("metadata", {}).get("labels") or {}
    for key, value in (after.get("metadata", {}).get("labels") or {}).items():
        if labels.get(key) != value:
            yield _record(here, "SetNodeLabel", ref, name, {"key": key, "value": value})


def _pod_effects(controller: str, ref: Json, before: Json, after: Json) -> Iterator[Json]:
    old = {c["type"]: c for c in before.get("status", {}).get("conditions", [])}
    for condition in after.get("status", {}).get("conditions", []):
        type_, status = condition["type"], condition["status"]
        if old.get(type_, {}).get("status") == status:
            continue
        if type_ == "Ready":
            yield _record("node-lifecycle", "MarkPodNotReady", ref, ref["name"], {})
        elif type_ == "DisruptionTarget":
            evicting = controller == "node-lifecycle"
            who = "taint-eviction" if evicting else controller
            detail = {k: condition.get(k, "") for k in ("type", "status", "reason")}
            yield _record(who, "SetPodCondition", ref, ref["name"], detail)


def _event(event: Json) -> Iterator[Json]:
    source = (event.get("source") or {}).get("component") or event.get("reportingComponent", "")
    involved = event.get("involvedObject") or event.get("regarding") or {}
    if source in _EVENT_SOURCES:
        about = {k: involved[k] for k in ("kind", "namespace", "name") if involved.get(k)}
        detail = {"type": event.get("type"), "reason": event.get("reason")}
        yield {
            "controller": _EVENT_SOURCES[source],
            "action": "RecordEvent",
            "object": about,
            "detail": detail,
        }


_KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "controllerrevisions": "ControllerRevision",
    "daemonsets": "DaemonSet",
}


def _record(controller: str, action: str, ref: Json, name: str, detail: Json) -> Json:
    about = {"kind": _KINDS[ref["resource"]], "name": name}
    if ref.get("namespace"):
        about["namespace"] = ref["namespace"]
    return {"controller": controller, "action": action, "object": about, "detail": detail}


def _taints(node: Json) -> set[tuple[str, str]]:
    return {(t["key"], t["effect"]) for t in node.get("spec", {}).get("taints") or []}


def _bound_by_affinity(pod: Json) -> str:
    """The node that a DaemonSet's pod was made for."""
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])


def _name(entry: Json) -> str:
    """The object's name; one that the server made up is in its answer."""
    named = (entry.get("responseObject") or {}).get("metadata") or {}
    return str(entry["objectRef"].get("name") or named.get("name") or "")


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
