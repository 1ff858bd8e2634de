"""The words of a simulated run's records, as the narration of `simulate` shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.sim.api import CLUSTER
from kubectl_nodelife.sim.timeline import Record

_TELLING_EVENTS = frozenset({"FailedPlacement"})
"""Events of controllers that are told without -o wide: of what they are about there is no other
record."""


def joined_records(records: Sequence[Record]) -> Iterator[tuple[Record, str]]:
    """Each record with its words; the records of one action are told together."""
    i = 0
    while i < len(records):
        first = records[i]
        alike = [first]
        while i + len(alike) < len(records) and _same_action(first, records[i + len(alike)]):
            alike.append(records[i + len(alike)])
        i += len(alike)
        if (
            first.action == "RecordEvent"
            and first.controller != CLUSTER
            and first.detail["reason"] not in _TELLING_EVENTS
        ):
            continue
        if first.action == "SetNodeCondition":
            words = _conditions(alike)
        else:
            words = ", ".join(dict.fromkeys(filter(None, map(_detail, alike))))
        refused = "(refused)" if first.error else ""
        yield first, " ".join(filter(None, (first.action, words, refused)))


def _same_action(one: Record, other: Record) -> bool:
    return (
        one.action in ("SetNodeCondition", "AddTaint", "RemoveTaint", "SetNodeLabel")
        and one.action == other.action
        and one.at == other.at
        and one.object == other.object
        and one.cause == other.cause
        and one.controller == other.controller
    )


def _conditions(records: Iterable[Record]) -> str:
    """`Ready+MemoryPressure=Unknown`, or `Ready=True, MemoryPressure=False`."""
    by_status: dict[str, list[str]] = {}
    for r in records:
        by_status.setdefault(r.detail["status"], []).append(r.detail["type"])
    return ", ".join(f"{'+'.join(types)}={status}" for status, types in by_status.items())


def record_words(record: Record) -> str:
    """A record's own words; those of an Event with its message."""
    said = record.detail.get("message") if record.action == "RecordEvent" else None
    detail = ": ".join(filter(None, (_detail(record), said)))
    return " ".join(filter(None, (record.action, detail)))


def _detail(record: Record) -> str:
    d = record.detail
    match record.action:
        case "SetNodeCondition" | "SetPodCondition":
            reason = f" ({d['reason']})" if d.get("reason") else ""
            ended = d.get("phase") in ("Failed", "Succeeded")
            phase = f", phase {d['phase']}" if ended else ""
            return f"{d['type']}={d['status']}{reason}{phase}"
        case "AddTaint" | "RemoveTaint":
            value = f"={d['value']}" if d.get("value") else ""
            return f"{d['key']}{value}:{d['effect']}"
        case "SetNodeLabel":
            return f"{d['key']}={d['value']}"
        case "RecordEvent":
            return str(d["reason"])
        case "SetPodReason":
            return str(d["reason"])
        case "ScheduleEviction":
            return f"at {instant_text(d['due'])}"
        case "CancelEviction":
            return f"of {instant_text(d['due'])}"
        case "SetZoneState":
            return f"{d['from']} -> {d['to']}, {d['rate']:g} nodes/s"
        case "UpdateDaemonSetStatus" if "numberReady" in d:
            return _daemon_counts(d)
        case "DeletePod":
            grace = d.get("gracePeriodSeconds")
            return "" if grace is None else f"grace {grace}s"
        case "MarkPodNotReady" | "QueueNode" | "UnqueueNode" | "CreatePod":
            return ""
    return " ".join(f"{key}={value}" for key, value in d.items())


def _daemon_counts(detail: dict[str, Any]) -> str:
    """`5 of 6 ready, 2 updated, 1 misscheduled`."""
    wanted = detail["desiredNumberScheduled"]
    counts = [f"{detail['numberReady']} of {wanted} ready"]
    if detail["updatedNumberScheduled"] != wanted:
        counts.append(f"{detail['updatedNumberScheduled']} updated")
    if detail["numberMisscheduled"]:
        counts.append(f"{detail['numberMisscheduled']} misscheduled")
    return ", ".join(counts)


def reason_words(record: Record) -> str:
    """Why it was done, and how it was refused."""
    node = record.detail.get("node") if record.action == "CreatePod" else ""
    where = f"{record.reason}; on {node}" if node else record.reason
    return f"{where} (refused: {record.error})" if record.error else where


def object_name(record: Record) -> str:
    """kind/namespace/name."""
    o = record.object
    return "/".join(filter(None, (o.kind.lower(), o.namespace, o.name)))


def instant_text(seconds: float) -> str:
    """Seconds since the start as a duration."""
    return format_duration(round(seconds * 1000) * MILLISECOND_NS)
