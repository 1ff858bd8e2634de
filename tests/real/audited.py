"""The API server's audit log: all writes, and those of controllers as Timeline records.

Controllers are the real controller manager's, and the enforcing daemon's in their place.

A write's effect is the difference between the object before and after it, both as the API server
answered with them, so that every writer's answers are followed and the controllers' are told.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Json = dict[str, Any]

_CONTROLLERS = {
    "pod-garbage-collector": "pod-gc",
    "daemon-set-controller": "daemonset",
    "node-controller": "node-lifecycle",
    "node-lifecycle-controller": "node-lifecycle",
    "taint-eviction-controller": "taint-eviction",
    "pod-garbage-collector-controller": "pod-gc",
    "daemonset-controller": "daemonset",
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


@dataclass(frozen=True)
class Write:
    """One request to write an object, and what it was answered with.

    `at`: when it came, in seconds since the epoch; `agent`: the whole user agent, of which `who` is
    the last part, a controller's own name; `name`: also where the server made it up.
    """

    at: float
    agent: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    message: str
    answer: Json

    @property
    def who(self) -> str:
        """A controller of the controller manager calls itself after a slash."""
        return self.agent.rpartition("/")[2]

    @property
    def accepted(self) -> bool:
        """True if the server did it."""
        return self.code < 300


def writes(audit: Iterable[Json]) -> Iterator[Write]:
    """All requests to write objects, refused ones too, in the order in which they came."""
    for entry in sorted(audit, key=lambda e: str(e["requestReceivedTimestamp"])):
        ref = entry.get("objectRef") or {}
        if "resource" not in ref:
            continue
        status, answer = entry["responseStatus"], entry.get("responseObject") or {}
        named = answer.get("metadata") or {}
        yield Write(
            at=instant(entry["requestReceivedTimestamp"]),
            agent=entry.get("userAgent", ""),
            verb=entry["verb"],
            resource=ref["resource"],
            subresource=ref.get("subresource", ""),
            namespace=ref.get("namespace", ""),
            name=str(ref.get("name") or named.get("name") or ""),
            code=status["code"],
            message=status.get("message", ""),
            answer=answer,
        )


def instant(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def records(audit: Iterable[Json], t0: float, until_s: float, early_s: float = 0.0) -> list[Json]:
    """What the controllers wrote between `t0` (seconds since the epoch) and `until_s` after it.

    `early_s`: and so much before it, where `t0` is told by another clock.
    """
    known: dict[tuple[str, str, str], Json] = {}
    found = []
    for write in writes(audit):
        if not write.accepted:
            continue
        key = (write.resource, write.namespace, write.name)
        before = known.get(key, {})
        if write.answer.get("kind") not in (None, "Status", "Binding"):
            known[key] = write.answer
        at = round(write.at - t0, 3)
        controller = _CONTROLLERS.get(write.who, "")
        if -early_s <= at <= until_s and controller:
            for record in _effects(write, controller, before):
                found.append({"at": at, "cause": None, "reason": "", **record})
    return found


def _effects(write: Write, controller: str, before: Json) -> Iterator[Json]:
    after = write.answer
    match write.resource, write.verb:
        case "events", "create":
            yield from _event(after)
        case "nodes", _:
            yield from _node_effects(write, before)
        case "pods", "create":
            owner = after["metadata"]["ownerReferences"][0]["name"]
            revision = after["metadata"]["labels"].get("controller-revision-hash")
            detail = {"node": _bound_by_affinity(after), "owner": owner, "revision": revision}
            yield _record(write, controller, "CreatePod", detail)
        case "pods", "delete":
            yield _record(write, _evicting(controller), "DeletePod", {})
        case "pods", _:
            yield from _pod_effects(write, controller, before)
        case "controllerrevisions", verb:
            action = {"create": "Create", "delete": "Delete"}.get(verb, "Update")
            detail = {"revision": after.get("revision")}
            yield _record(write, controller, f"{action}ControllerRevision", detail)
        case "daemonsets", _ if write.subresource == "status":
            counts = {c: after["status"].get(c, 0) for c in _COUNTS}
            yield _record(write, controller, "UpdateDaemonSetStatus", counts)


def _node_effects(write: Write, before: Json) -> Iterator[Json]:
    after = write.answer
    here = "node-lifecycle"
    old = {c["type"]: c for c in before.get("status", {}).get("conditions", [])}
    for condition in after.get("status", {}).get("conditions", []):
        if old.get(condition["type"], {}).get("status") != condition["status"]:
            detail = {k: condition.get(k, "") for k in ("type", "status", "reason")}
            yield _record(write, here, "SetNodeCondition", detail)
    was, has = _taints(before), _taints(after)
    for action, taints in (("AddTaint", has - was), ("RemoveTaint", was - has)):
        for key, effect in sorted(taints):
            yield _record(write, here, action, {"key": key, "effect": effect})
    labels = before.get("metadata", {}).get("labels") or {}
    for key, value in (after.get("metadata", {}).get("labels") or {}).items():
        if labels.get(key) != value:
            yield _record(write, here, "SetNodeLabel", {"key": key, "value": value})


def _pod_effects(write: Write, controller: str, before: Json) -> Iterator[Json]:
    old = {c["type"]: c for c in before.get("status", {}).get("conditions", [])}
    for condition in write.answer.get("status", {}).get("conditions", []):
        type_, was = condition["type"], old.get(condition["type"], {})
        if type_ == "Ready" and was.get("status") != condition["status"]:
            yield _record(write, "node-lifecycle", "MarkPodNotReady", {})
        elif type_ == "DisruptionTarget" and was != condition:  # another one may give its reason
            detail = {k: condition.get(k, "") for k in ("type", "status", "reason")}
            yield _record(write, _evicting(controller), "SetPodCondition", detail)


def _evicting(controller: str) -> str:
    """The real node controller and taint eviction share a name; only the latter ends pods."""
    return "taint-eviction" if controller == "node-lifecycle" else controller


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


def _record(write: Write, controller: str, action: str, detail: Json) -> Json:
    about = {"kind": _KINDS[write.resource], "name": write.name}
    if write.namespace:
        about["namespace"] = write.namespace
    return {"controller": controller, "action": action, "object": about, "detail": detail}


def _taints(node: Json) -> set[tuple[str, str]]:
    return {(t["key"], t["effect"]) for t in node.get("spec", {}).get("taints") or []}


def _bound_by_affinity(pod: Json) -> str:
    """The node that a DaemonSet's pod was made for."""
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])
