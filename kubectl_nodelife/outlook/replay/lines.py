"""Makes a line of everything that a source shows, a change, an Event or fields of objects, and
judges which of the requests that were told came to nothing; `changes -f` shows lines of writes.

Some sources tell of a write before it is done. A cloud provider records DeletingNode before it
deletes the node (`MonitorNodes`), taint-eviction TaintManagerEviction before it deletes the pod
(`deletePodHandler`); whoever disrupts a pod sets DisruptionTarget before the deletion. That the
object is there afterwards, and is not on its way, says that it was not deleted.

The documents of writes are the same as a daemon's changes, of writes that were seen and not
planned: nearly all are `confirmed`, and `by` says whose they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kubectl_nodelife.kube.deletion import deletion_asked_ns
from kubectl_nodelife.kube.field_managers import TAINTS, UNSCHEDULABLE, condition_field
from kubectl_nodelife.kube.node import Node, NodeCondition, Taint
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.times import format_micro_time, parse_time
from kubectl_nodelife.kube.wellknown import (
    DISRUPTION_TARGET,
    LIFECYCLE_CONDITIONS,
    NODE_READY,
    TRUE,
    UNKNOWN,
)
from kubectl_nodelife.kube.workload import Event
from kubectl_nodelife.outlook.replay import DECISIONS, replay_line
from kubectl_nodelife.outlook.replay.replay_line import EVENT, JOURNAL, OBJECT, Actor, ReplayLine

LIFECYCLE: Final = "lifecycle"
"""The family of conditions such as DrainInProgress."""

_DRAIN_OF: Final = re.compile(r"drain of node (\S+)")
_NAMED_POD: Final = re.compile(r"(?:Created|Deleted) pod: (\S+)")


def of_change(change: Mapping[str, Any]) -> ReplayLine | None:
    """The line of a contract's Change; None for an Event that may never have been sent."""
    action, obj, detail = change["action"], change["object"], change["detail"]
    if action == "RecordEvent":
        return None
    timestamp = change["time"]
    outcome = "confirmed" if change["outcome"] == "decided" else change["outcome"]
    if action not in DECISIONS and outcome == "confirmed":
        timestamp = change.get("settledTime") or timestamp
    kind, namespace, name = obj["kind"], obj.get("namespace", ""), obj["name"]
    identity = _identity_of_change(action, detail, kind, namespace, name, outcome)
    drain = _DRAIN_OF.search(change["reason"])
    if action == "SetUnschedulable":
        action, detail = identity[0].capitalize(), {}
    return ReplayLine(
        time_ns=int(parse_time(timestamp)),
        actor=replay_line.of_change(change["controller"], outcome),
        action=action,
        kind=kind,
        namespace=namespace,
        name=name,
        node=change.get("node", "") or (drain[1] if drain is not None else ""),
        detail=_words(action, detail),
        sets=detail,
        why=change["reason"],
        outcome=outcome,
        seen=(JOURNAL,),
        identity=identity,
        change=change["id"],
        change_cause=change["cause"],
    )


def _identity_of_change(
    action: str, detail: Mapping[str, Any], kind: str, namespace: str, name: str, outcome: str
) -> tuple[str, ...]:
    match action:
        case "SetNodeCondition" if detail["type"] == NODE_READY:
            return (_ready_word(detail["status"]), name)
        case "SetNodeCondition" if detail["type"] in LIFECYCLE_CONDITIONS:
            return (LIFECYCLE, name, detail["type"], detail["status"])
        case "AddTaint":
            return ("taint", name, detail["key"], detail["effect"])
        case "RemoveTaint":
            return ("untaint", name, detail["key"], detail["effect"])
        case "MarkPodNotReady":
            return ("pod-not-ready", namespace, name)
        case "DeletePod":
            return ("delete", namespace, name)
        case "EvictPod" if outcome == "applied":
            return ("delete", namespace, name)
        case "ScheduleEviction":
            return ("timer", namespace, name)
        case "CancelEviction":
            return ("cancel", namespace, name)
        case "SetUnschedulable":
            return ("cordon" if detail.get("unschedulable") else "uncordon", name)
        case "CreatePod":
            return ("create", namespace, str(detail.get("owner", "")).rpartition("/")[2])
    return (action, kind, namespace, name, *(str(v) for v in detail.values()))


def _ready_word(status: str) -> str:
    return "ready" if status == TRUE else "not-ready"


def _words(action: str, detail: Mapping[str, Any]) -> str:
    match action:
        case "SetNodeCondition" | "SetPodCondition" | "MarkPodNotReady":
            reason = f" ({detail['reason']})" if detail.get("reason") else ""
            return f"{detail['type']}={detail['status']}{reason}"
        case "AddTaint" | "RemoveTaint":
            value = f"={detail['value']}" if detail.get("value") else ""
            return f"{detail['key']}{value}:{detail['effect']}"
        case "SetZoneState":
            return f"{detail['from']} to {detail['to']} at {detail['rate']:g}/s"
        case "ScheduleEviction" | "CancelEviction" if "due" in detail:
            return f"due {detail['due'].partition('.')[0].rstrip('Z')}Z"
    return ", ".join(f"{k}={v}" for k, v in detail.items() if not isinstance(v, (list, dict)))


def last_seen_ns(event: Event) -> int | None:
    """When an Event was last seen; None where it has no time at all."""
    times = (event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    last = event.series.last_observed_time if event.series is not None else None
    return next((int(t) for t in (last, *times) if t is not None), None)


def of_event(event: Event) -> ReplayLine | None:
    """The line of an Event, at its last time; None where it has no time at all."""
    at_ns, series = last_seen_ns(event), event.series
    if at_ns is None:
        return None
    involved, message = event.involved_object, event.message
    identity = _identity_of_event(event)
    first = event.first_timestamp or event.event_time
    return ReplayLine(
        time_ns=at_ns,
        first_ns=int(first) if first is not None and first < at_ns else None,
        count=max(event.count, series.count if series is not None else 0, 1),
        actor=replay_line.of_event(event),
        action=event.reason,
        kind=involved.kind,
        namespace=involved.namespace,
        name=involved.name,
        node=event.source.host if involved.kind == "Pod" else "",
        why=message,
        seen=(EVENT,),
        identity=identity,
        detail="cancelled" if identity[0] == "cancel" else "",
        names=tuple(_NAMED_POD.findall(message)),
    )


def _identity_of_event(event: Event) -> tuple[str, ...]:
    """As `_identity_of_change`, of what the components say of the same things."""
    involved, named = event.involved_object, _NAMED_POD.findall(event.message)
    where = (involved.namespace, involved.name)
    match involved.kind, event.reason:
        case "Node", "NodeNotReady":
            return ("not-ready", involved.name)
        case "Node", "NodeReady":
            return ("ready", involved.name)
        case "Node", "NodeNotSchedulable":
            return ("cordon", involved.name)
        case "Node", "NodeSchedulable":
            return ("uncordon", involved.name)
        case "Pod", "NodeNotReady":
            return ("pod-not-ready", *where)
        case "Pod", "TaintManagerEviction":
            cancelled = event.message.startswith("Cancelling")
            return ("cancel" if cancelled else "delete", *where)
        case "Pod", "Killing":
            return ("kill", *where)
        case "Pod", "Scheduled":
            return ("schedule", *where)
        case _, "SuccessfulDelete" if named:
            return ("delete", involved.namespace, named[0])
        case _, "SuccessfulCreate":
            return ("create", *where)
    return (event.reason, involved.kind, *where, event.metadata.name)


def of_node(node: Node) -> Iterator[ReplayLine]:
    """Conditions that changed, taints with a time, and the last writer of the spec."""
    for condition in node.status.conditions:
        if condition.type == NODE_READY or condition.type in LIFECYCLE_CONDITIONS:
            yield from _of_condition(node, condition)
    writer = node.managers.writer_of(TAINTS)
    for taint in node.spec.taints:
        if taint.time_added is not None:
            at_ns = int(taint.time_added)
            actor = replay_line.of_taint(taint.key, at_ns, writer)
            same = ("taint", node.name, taint.key, taint.effect)
            yield _trace(node, at_ns, actor, "AddTaint", same, str(taint), _of_taint(taint))
    yield from _by_hand(node)


def _of_condition(node: Node, condition: NodeCondition) -> Iterator[ReplayLine]:
    """Ready, and those by which people and their programs say what they do with the node."""
    since = condition.last_transition_time
    if since is None:
        return
    reason = f" ({condition.reason})" if condition.reason else ""
    words = f"{condition.type}={condition.status}{reason}"
    why = condition.message
    if condition.type == NODE_READY:
        why = ""  # a kubelet's own words, which no decision reads
        actor = replay_line.of_manager("kubelet", node.name)
        if condition.status == UNKNOWN:  # which no kubelet says of itself
            actor = replay_line.of_change("node-lifecycle", "confirmed")
        identity: tuple[str, ...] = (_ready_word(condition.status), node.name)
    else:
        writer = node.managers.writer_of(condition_field(condition.type))
        actor = replay_line.of_manager(writer.name if writer is not None else "")
        identity = (LIFECYCLE, node.name, condition.type, condition.status)
    sets = {"type": condition.type, "status": condition.status, "reason": condition.reason}
    yield _trace(node, int(since), actor, "SetNodeCondition", identity, words, sets, why)


def _by_hand(node: Node) -> Iterator[ReplayLine]:
    """Writes to the spec by others than the control plane."""
    writer = node.managers.writer_of(UNSCHEDULABLE)
    if writer is not None and node.spec.unschedulable:
        actor, identity = replay_line.of_manager(writer.name), ("cordon", node.name)
        yield _trace(node, writer.time_ns, actor, "Cordon", identity, "unschedulable", {})
    writer = node.managers.writer_of(TAINTS)
    if writer is not None and writer.name != "kube-controller-manager":
        taints = [t for t in node.spec.taints if t.time_added is None]
        words = ", ".join(map(str, taints)) or "none without a time"
        actor, identity = replay_line.of_manager(writer.name), ("taints", node.name)
        sets = {"taints": [_of_taint(taint) for taint in taints]}
        yield _trace(node, writer.time_ns, actor, "SetTaints", identity, words, sets)


def _of_taint(taint: Taint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def _trace(
    node: Node,
    at_ns: int,
    actor: Actor,
    action: str,
    identity: tuple[str, ...],
    detail: str,
    sets: Mapping[str, Any],
    why: str = "",
) -> ReplayLine:
    about = ("Node", "", node.name, identity, (OBJECT,))
    return ReplayLine(at_ns, actor, action, *about, detail=detail, why=why, sets=sets)


FINISHED: Final = "finished"
"""The family of lines about pods that were ended and whose objects are there; the last part of the
identity is the pod's status.reason."""

MODE: Final = "observed"

_WRITES: Final = frozenset(
    {
        *("not-ready", "ready", "taint", "untaint", "taints", "cordon", "uncordon"),
        *("pod-not-ready", "delete", "kill", "create", "schedule", "cancel"),
        *("RegisteredNode", "RemovingNode", "DeletingNode", "DeletingNodeFailed"),
        *("ScaleDown", "Rebooted", "Evicted", "Preempted", LIFECYCLE, FINISHED),
    }
)
"""The families of lines about a write to a node or pod; the rest are about something else."""

_SETS: Final = {
    "AddTaint": ("key", "value", "effect"),
    "RemoveTaint": ("key", "value", "effect"),
    "SetNodeCondition": ("type", "status", "reason"),
}
"""What the detail of a daemon's record of each write has."""


def of_pod(pod: Pod) -> Iterator[ReplayLine]:
    """A pod that is being deleted: since when, and by whom if its conditions say so. One that its
    kubelet has ended (eviction under pressure, shutdown) has failed, and is there."""
    target = pod.status.condition(DISRUPTION_TARGET)
    disrupted = target is not None and target.status == TRUE
    deleted_ns, actor, why = deletion_asked_ns(pod.metadata), replay_line.UNKNOWN_ACTOR, ""
    if deleted_ns is not None:
        at_ns = deleted_ns
    elif target is not None and disrupted and target.last_transition_time is not None:
        at_ns = int(target.last_transition_time)
    else:
        return
    if target is not None and disrupted:
        actor = replay_line.DISRUPTORS.get(target.reason, Actor("other", target.reason))
        why = target.message
    stays = deleted_ns is None and pod.status.phase in TERMINAL_PHASES
    reason = f" ({pod.status.reason})" if pod.status.reason else ""
    action = "SetPodPhase" if stays else "DeletePod"
    identity = (FINISHED, *pod.key, pod.status.reason) if stays else ("delete", *pod.key)
    detail = f"{pod.status.phase}{reason}" if stays else ""
    about = ("Pod", *pod.key, identity, (OBJECT,), pod.spec.node_name)
    yield ReplayLine(at_ns, actor, action, *about, detail, why)


ATTEMPTED: Final = "attempted"
FAILED: Final = "failed"

_DELETING, _REFUSED = "DeletingNode", "DeletingNodeFailed"
_TOLD_BEFOREHAND: Final = frozenset({"DeletePod", "TaintManagerEviction"})


def judge_attempts(lines: Iterable[ReplayLine], nodes: Iterable[Node], pods: Iterable[Pod]) -> None:
    """Give the lines that no journal has the outcome `attempted` or `failed`, where they came to
    nothing. `nodes`, `pods`: as they are now."""
    of_others = [line for line in lines if not line.outcome]
    there = {node.name for node in nodes}
    staying = {pod.key: pod for pod in pods if pod.metadata.deletion_timestamp is None}
    refused = {line.name for line in of_others if line.family == _REFUSED}
    for line in of_others:
        if line.family == _REFUSED or (line.family == _DELETING and line.name in refused):
            line.outcome = FAILED
        elif (line.family == _DELETING and line.name in there) or _spared(line, staying):
            line.outcome = ATTEMPTED


def _spared(line: ReplayLine, staying: Mapping[tuple[str, str], Pod]) -> bool:
    """True if the very pod is there still: one that was made later only has its name."""
    pod = staying.get((line.namespace, line.name))
    if line.family != "delete" or line.action not in _TOLD_BEFOREHAND or pod is None:
        return False
    created = pod.metadata.creation_timestamp
    return created is None or int(created) <= line.time_ns


def changes_seen(lines: Iterable[ReplayLine]) -> list[dict[str, Any]]:
    """The contract's Changes among these lines, numbered as they come."""
    writes = [line for line in lines if line.family in _WRITES]
    ids = {line: number for number, line in enumerate(writes, 1)}
    return [_change(line, ids) for line in writes]


def _change(line: ReplayLine, ids: Mapping[ReplayLine, int]) -> dict[str, Any]:
    by, obj = line.documents
    cause = ids.get(line.cause) if line.cause is not None else None
    more: dict[str, Any] = {
        "node": line.node,
        "count": line.count if line.count > 1 else None,
        "firstTime": format_micro_time(line.first_ns) if line.first_ns is not None else None,
        "causeInferred": cause is not None and line.inferred,
    }
    return {
        "id": ids[line],
        "time": format_micro_time(line.time_ns),
        "controller": line.actor.name,
        "by": by,
        "action": line.action,
        "object": obj,
        "detail": _detail(line),
        "reason": line.why,
        "cause": cause,
        "mode": MODE,
        "outcome": line.outcome or "confirmed",
        "seenBy": list(line.seen),
        **{key: value for key, value in more.items() if value},
    }


def _detail(line: ReplayLine) -> dict[str, str]:
    """The detail that a daemon's record of the line's action would have."""
    names = _SETS.get(line.action)
    if names is not None and line.sets:
        return {name: line.sets.get(name) or "" for name in names}
    return {"told": line.detail} if line.detail else {}
