"""The page of `simulate`: what happened, when and why; lost pods; the settings that mattered.

The table has one line for what happens alike to many objects at one instant, or as fast as a
controller's client may write, and leaves out Events about what controllers do; `-o wide` has a line
for each record, with its number and its cause's.

As a page of HTML it has lanes of zones, drains, nodes that were lost, an upgrade and workloads that
lost pods, then the same blocks. templates/simulate.html makes the markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.pod import TERMINAL_PHASES
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NODE_STATUS_NEVER_UPDATED
from kubectl_nodelife.outlook.fates import BACK, PODS_LEAVE, Fate, FateStep, folded
from kubectl_nodelife.report import html
from kubectl_nodelife.report.formats import Block, Column, Page, Table, columns
from kubectl_nodelife.report.upgrade_plan import PLAYED, played_rows
from kubectl_nodelife.sim.api import CLUSTER
from kubectl_nodelife.sim.run import NodeLoss, RunSummary, WorkloadLoss
from kubectl_nodelife.sim.timeline import Record

_COLUMNS = columns("#* | at | by:2 | what | object | cause* | why")
_NODE_COLUMNS = columns(
    "node | zone | lost as | silent at* | lost at | tainted at | back at | pods | "
    "marked* | deleted | first | last | gone*"
)
_WORKLOAD_COLUMNS = columns("workload | pods | deleted | first | last | replaced")
_NAMED = 2
_SHOWN = 20
_NEVER = "-"

# what happened -> the flags that decided when, or whether
_MATTERED = {
    "lost": ("node-monitor-grace-period", "node-monitor-period"),
    "never posted": ("node-startup-grace-period", "node-monitor-period"),
    "tainted": ("node-eviction-rate",),
    "zone": ("unhealthy-zone-threshold", "large-cluster-size-threshold"),
    "partial": ("secondary-node-eviction-rate",),
    "classic": ("pod-eviction-timeout",),
    "terminated": ("terminated-pod-gc-threshold",),
}


_PAUSES_S = dict.fromkeys(("node-lifecycle", "taint-eviction", "pod-gc", "daemonset"), 3.0) | {
    CLUSTER: 0.25
}
"""So soon the next of its kind must follow to stand in one line; what owners and kubelets do
follows the controllers' writes one by one."""

_SHOWN_EVENTS = frozenset({"FailedPlacement"})
"""Events of controllers that are shown without -o wide: of what they are about there is no other
record."""


def narration_page(summary: RunSummary) -> Page:
    """A `RunSummary` as an answer. Names: kind/name of each object to which something happened, in
    that order."""
    return Page(
        partial(narration, summary),
        summary.document,
        lambda: dict.fromkeys(map(object_name, summary.records)),
    )


def narration(summary: RunSummary, *, wide: bool) -> Iterator[Block]:
    """The story in short, what happened, the losses, the end, the settings."""
    yield "\n".join(_story(summary))
    lines = list(_each(summary.records) if wide else _folded(summary.records))
    yield Table(_COLUMNS, lines) if lines else "Nothing happened."
    nodes = [_node_row(loss) for loss in summary.nodes]
    yield from _cut(_NODE_COLUMNS, nodes, "nodes that were lost", wide)
    workloads = [_workload_row(loss) for loss in summary.workloads]
    yield from _cut(_WORKLOAD_COLUMNS, workloads, "workloads that lost pods", wide)
    yield from (loop.sentence for loop in summary.loops)
    yield _ending(summary)
    yield _settings(summary)


def _story(summary: RunSummary) -> Iterator[str]:
    """In at most three lines: the nodes that were lost, the pods that were, the worst moment."""
    losses = summary.nodes
    if losses:
        yield _lost_nodes(losses)
    deleted = sum(loss.deleted for loss in summary.workloads)
    if deleted:
        span = _span(
            [w.first_deleted_at for w in summary.workloads],
            [w.last_deleted_at for w in summary.workloads],
        )
        replaced = sum(loss.replaced for loss in summary.workloads)
        pods, of = counted(deleted, "pod"), counted(len(summary.workloads), "workload")
        yield f"{pods} of {of} deleted {span}; {counted(replaced, 'new one')} made."
    elif losses:
        yield "No controller deleted a pod."
    if len(losses) > 1:
        at, most = _worst_moment(losses)
        nodes = counted(len(summary.final["nodes"]), "node")
        yield f"The worst moment: {most} of {nodes} lost at once, from {instant_text(at)} on."


def _lost_nodes(losses: Sequence[NodeLoss]) -> str:
    """`3 nodes of zone r1/a lost at 1m40.02s (silent at 1m0s), all tainted ..., all back ...`"""
    zones = list(dict.fromkeys(loss.zone for loss in losses))
    where = f" of zone {zones[0]}" if len(zones) == 1 and zones[0] else ""
    if len(zones) > 1:
        where = f" of {len(zones)} zones"
    name = losses[0].name if len(losses) == 1 else counted(len(losses), "node")
    parts = [f"{name}{where} lost {_span_of(losses, 'lost_at')}"]
    silent = [loss for loss in losses if loss.silent_at is not None]
    if silent:
        parts[0] += f" (silent {_span_of(silent, 'silent_at')})"
    tainted = [loss for loss in losses if loss.tainted_at is not None]
    parts.append(f"{_how_many(tainted, losses)}tainted {_span_of(tainted, 'tainted_at')}".rstrip())
    back = [loss for loss in losses if loss.back_at is not None]
    parts.append(f"{_how_many(back, losses)}back {_span_of(back, 'back_at')}".rstrip())
    return ", ".join(parts) + "."


def _how_many(some: Sequence[NodeLoss], losses: Sequence[NodeLoss]) -> str:
    if not some:
        return "never "
    if len(some) == len(losses):
        return "" if len(losses) == 1 else "all "
    return f"{len(some)} of them "


def _span_of(losses: Sequence[NodeLoss], field: str) -> str:
    instants = [getattr(loss, field) for loss in losses]
    return _span(instants, instants)


def _span(firsts: Sequence[float | None], lasts: Sequence[float | None]) -> str:
    """`at 1m40s`, or `from 1m40s to 2m0s`; "" of no instants."""
    begins = [at for at in firsts if at is not None]
    ends = [at for at in lasts if at is not None]
    if not begins or not ends:
        return ""
    begin, end = instant_text(min(begins)), instant_text(max(ends))
    return f"at {begin}" if begin == end else f"from {begin} to {end}"


def _worst_moment(losses: Sequence[NodeLoss]) -> tuple[float, int]:
    """When most nodes were lost at once, in seconds since the start, and how many."""
    changes = [(loss.lost_at, 1) for loss in losses]
    changes += [(loss.back_at, -1) for loss in losses if loss.back_at is not None]
    lost = most = 0
    worst_at = 0.0
    for at, change in sorted(changes):
        lost += change
        if lost > most:
            most, worst_at = lost, at
    return worst_at, most


def _each(records: Sequence[Record]) -> Iterator[Sequence[object]]:
    for number, r in enumerate(records):
        at, cause = instant_text(r.at), _NEVER if r.cause is None else r.cause
        what, why = record_words(r), reason_words(r)
        yield number, at, r.controller, what, object_name(r), cause, why


class NarrationLine:
    """What a controller does alike to many objects, without a pause."""

    def __init__(self, controller: str, what: str, first: Record) -> None:
        self.controller, self.what, self.records = controller, what, [first]
        self._names = {object_name(first): None}

    def takes(self, record: Record) -> bool:
        """True if the record is of the same instant, or its controller goes on to another object at
        the pace of its client; it is in the line then."""
        last, name = self.records[-1].at, object_name(record)
        pause_s = _PAUSES_S.get(self.controller, 0.0)
        if record.at != last and (
            record.error
            or name in self._names
            or NO_EXECUTE in self.what  # at a rate of its own
            or record.at - last >= pause_s
        ):
            return False
        self.records.append(record)
        self._names[name] = None
        return True

    def row(self) -> Sequence[object]:
        """The row of the table."""
        first, last = self.records[0].at, self.records[-1].at
        when = instant_text(first) + ("" if first == last else f"-{instant_text(last)}")
        reasons = dict.fromkeys(reason_words(r) for r in self.records)
        why = next(iter(reasons)) + (" (and alike)" if len(reasons) > 1 else "")
        names = first_names(list(self._names), _NAMED)
        return ("", when, self.controller, self.what, names, "", why)


def _folded(records: Sequence[Record]) -> Iterator[Sequence[object]]:
    """One line for what happens alike at one instant, or is written without a pause; in the order
    in which each began."""
    lines: list[NarrationLine] = []
    open_lines: dict[tuple[str, str], NarrationLine] = {}
    for record, what in joined_records(records):
        line = open_lines.get((record.controller, what))
        if line is None or not line.takes(record):
            line = NarrationLine(record.controller, what, record)
            open_lines[record.controller, what] = line
            lines.append(line)
    return (line.row() for line in lines)


def _or_never(seconds: float | None) -> str:
    return _NEVER if seconds is None else instant_text(seconds)


def _node_row(loss: NodeLoss) -> Sequence[object]:
    return (
        loss.name,
        loss.zone,
        loss.ready,
        _or_never(loss.silent_at),
        instant_text(loss.lost_at),
        _or_never(loss.tainted_at),
        _or_never(loss.back_at),
        loss.pods,
        loss.marked,
        loss.deleted,
        _or_never(loss.first_deleted_at),
        _or_never(loss.last_deleted_at),
        loss.finished,
    )


def _workload_row(loss: WorkloadLoss) -> Sequence[object]:
    name = f"{loss.kind.lower()}/{loss.namespace}/{loss.name}"
    first, last = _or_never(loss.first_deleted_at), _or_never(loss.last_deleted_at)
    return (name, loss.pods, loss.deleted, first, last, loss.replaced)


def _cut(
    columns: Sequence[Column], rows: list[Sequence[object]], of: str, wide: bool
) -> Iterator[Block]:
    """The table; of a long one the first rows, unless wide."""
    if wide or len(rows) <= _SHOWN:
        yield Table(columns, rows)
        return
    yield Table(columns, rows[:_SHOWN])
    yield f"... and {len(rows) - _SHOWN} more {of} (-o wide shows all)"


def _ending(summary: RunSummary) -> str:
    """How things stand at the end."""
    pods: dict[str, int] = summary.final["pods"]
    at = format_duration(summary.duration_ns)
    not_ready = sum(node["ready"] != "True" for node in summary.final["nodes"])
    lines = [
        f"At the end, {at} after the start: {counted(len(summary.final['nodes']), 'node')}, "
        f"{not_ready} not ready; "
        f"{counted(pods['total'], 'pod')}, {pods['notReady']} not ready, "
        f"{pods['terminating']} terminating, {pods['unbound']} without a node; "
        f"{pods['gone']} of the first pods are gone."
    ]
    for zone in summary.final["zones"]:
        if zone["state"] not in (None, "Normal"):
            name = zone["name"] or "the nodes without a zone"
            lines.append(
                f"Zone {name} is in {zone['state']}: {zone['notReady']} of {zone['nodes']} nodes "
                f"not ready, tainted at {zone['rate']:g} nodes a second."
            )
    if "upgrade" in summary.final:
        lines.append(_upgraded(summary.final["upgrade"]))
    return "\n".join(lines)


def _upgraded(came: dict[str, Any]) -> str:
    """The fate of an upgrade's nodes, and how low the cluster got."""
    fates = ", ".join(f"{len(came[fate])} {fate}" for fate in ("done", "failed", "held", "skipped"))
    took = format_duration(round(came["seconds"]) * SECOND_NS)
    lowest = came["lowestAvailable"]
    at = format_duration(round(lowest["at"]) * SECOND_NS)
    return (
        f"The upgrade took {took}: {fates}. At the least {counted(lowest['all'], 'node')} "
        f"{'was' if lowest['all'] == 1 else 'were'} available, {at} after its start; "
        f"{counted(came['evictions'], 'pod')} evicted."
    )


def _settings(summary: RunSummary) -> str:
    """The settings that decided something, with where each comes from."""
    happened: dict[str, None] = {}
    for r in summary.records:
        happened.update(dict.fromkeys(_kinds_of(r)))
    flags = dict.fromkeys(
        flag for kind in _MATTERED if kind in happened for flag in _MATTERED[kind]
    )
    shown = [
        f"  {flag}={summary.settings.flags[flag]} ({summary.settings.origins[flag]})"
        for flag in flags
        if flag in summary.settings.flags
    ]
    if not shown:
        return ""
    return "\n".join([f"Settings that mattered (profile {summary.settings.profile.name}):", *shown])


def _kinds_of(record: Record) -> Iterator[str]:
    detail: dict[str, Any] = record.detail
    if record.controller == "node-lifecycle":
        if record.action == "SetNodeCondition":
            never = detail["reason"] == NODE_STATUS_NEVER_UPDATED
            yield "never posted" if never else "lost"
        elif record.action == "AddTaint" and detail["effect"] == "NoExecute":
            yield "tainted"
        elif record.action == "SetZoneState" and detail["to"] != "Normal":
            yield "zone"
            if detail["to"] == "PartialDisruption":
                yield "partial"
        elif record.action == "DeletePod":
            yield "classic"
    elif record.controller == "pod-gc" and record.action == "DeletePod":
        yield "terminated"


def joined_records(records: Sequence[Record]) -> Iterator[tuple[Record, str]]:
    """Each record with its words; the records of one action are shown together."""
    for _, numbered in groupby(enumerate(records), key=_action_of):
        alike = [record for _, record in numbered]
        first = alike[0]
        if (
            first.action == "RecordEvent"
            and first.controller != CLUSTER
            and first.detail["reason"] not in _SHOWN_EVENTS
        ):
            continue
        if first.action == "SetNodeCondition":
            words = _conditions(alike)
        else:
            words = ", ".join(dict.fromkeys(filter(None, map(_detail, alike))))
        refused = "(refused)" if first.error else ""
        yield first, " ".join(filter(None, (first.action, words, refused)))


def _action_of(numbered: tuple[int, Record]) -> object:
    """What is the same for the records of one action; the number where it has but one."""
    number, r = numbered
    together = r.action in ("SetNodeCondition", "AddTaint", "RemoveTaint", "SetNodeLabel")
    return (r.action, r.at, r.object, r.cause, r.controller) if together else number


def _conditions(records: Iterable[Record]) -> str:
    """`Ready+MemoryPressure=Unknown`, or `Ready=True, MemoryPressure=False`."""
    by_status: dict[str, list[str]] = {}
    for r in records:
        by_status.setdefault(r.detail["status"], []).append(r.detail["type"])
    return ", ".join(f"{'+'.join(types)}={status}" for status, types in by_status.items())


def record_words(record: Record) -> str:
    """A record's own words; those of an Event with its message."""
    message = record.detail.get("message") if record.action == "RecordEvent" else None
    detail = ": ".join(filter(None, (_detail(record), message)))
    return " ".join(filter(None, (record.action, detail)))


def _detail(record: Record) -> str:
    d = record.detail
    match record.action:
        case "SetNodeCondition" | "SetPodCondition":
            reason = f" ({d['reason']})" if d.get("reason") else ""
            ended = d.get("phase") in TERMINAL_PHASES
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


_BARS: Final = (("stopped", "zone not Normal"), ("going", "is drained"), *html.STATES_OF_NODES)
_MOST_LANES: Final = 300
_MOST_ROWS: Final = 2000

_HEADINGS: Final = {
    "at": "What happened",
    "node": "Nodes that were lost",
    "workload": "Workloads that lost pods",
}
"""Of the tables, by their first column."""
_ENDS: Final = {
    "Drained": "drained",
    "DrainFailed": "drain failed",
    "DrainRefused": "drain refused",
}


def html_page(summary: RunSummary) -> str:
    """The page as HTML."""
    parts = html.parts_of(narration(summary, wide=False), _HEADINGS, wide=False)
    last = max(1.0, summary.duration_ns / SECOND_NS)
    lanes, hurt = list(_rows(summary, last)), [_workload_lane(each) for each in summary.workloads]
    only = f", {summary.only}" if summary.only else ""
    return html.render_page(
        "simulate",
        title=f"Simulation of {summary.name}{only}" if summary.name else f"Simulation{only}",
        bars=_key(lanes[:_MOST_LANES]),
        when=html.draw_lanes(lanes[:_MOST_LANES], 0.0, last) if lanes else None,
        more_lanes=max(0, len(lanes) - _MOST_LANES),
        hurt=html.draw_lanes(hurt[:_MOST_LANES], 0.0, last) if hurt else None,
        more_hurt=max(0, len(hurt) - _MOST_LANES),
        parts=parts,
        profile=summary.settings.profile.name,
    )


def _key(rows: Iterable[html.Row]) -> list[tuple[str, str]]:
    """What those colours mean that are there."""
    drawn = {bar.style for row in rows for bar in row.bars}
    return [(style, word) for style, word in (*_BARS, *PLAYED) if style in drawn]


def _rows(summary: RunSummary, last: float) -> Iterator[html.Row]:
    """Zones that left Normal, drains, an upgrade, then nodes that were lost, those of one fate as
    one."""
    states: dict[str, list[tuple[float, str]]] = {}
    for record in summary.records:
        if record.action == "SetZoneState":
            states.setdefault(record.object.name, []).append((record.at, record.detail["to"]))
    for zone, its in states.items():
        row = html.zone_row(zone, its, last, _whole)
        if row.bars:
            yield row
    yield from _drains(summary.records, last)
    if (course := summary.course) is not None:
        yield from played_rows(course, course.origin_ns - summary.start_ns, last, _whole)
    yield from html.rows_of(folded(map(_fate, summary.nodes)), last, _whole)


def _whole(seconds: float) -> str:
    """To the second; the table below has the milliseconds."""
    return instant_text(round(seconds))


def _fate(loss: NodeLoss) -> Fate:
    """A kubelet that says itself that its node is not ready does not fall silent."""
    instants = (
        (loss.ready, loss.lost_at, loss.lost_at, 0),
        ("tainted", loss.tainted_at, loss.tainted_at, 0),
        (PODS_LEAVE, loss.first_deleted_at, loss.last_deleted_at, loss.deleted),
        (BACK, loss.back_at, loss.back_at, 0),
    )
    words = {"False": "NotReady"}
    steps = tuple(
        FateStep(words.get(says, says), low_s, high_s, pods)
        for says, low_s, high_s, pods in instants
        if low_s is not None and high_s is not None
    )
    steps = tuple(sorted(steps, key=lambda step: (step.says == BACK, step.low_s)))
    stays = "not back" if loss.back_at is None else ""
    return Fate(loss.name, loss.zone, "", loss.silent_at, steps, stays)


def _drains(records: Iterable[Record], last: float) -> Iterator[html.Row]:
    """From the start of each drain to its end, if it comes."""
    begun: dict[str, float] = {}
    for record in records:
        if record.controller == CLUSTER and record.action == "RecordEvent":
            reason, name = record.detail["reason"], record.object.name
            if reason == "DrainStarted":
                begun.setdefault(name, record.at)
            elif reason in _ENDS and name in begun:
                words = f"{_ENDS[reason]} {_whole(record.at)}"
                yield html.Row(name, [html.Bar(begun.pop(name), record.at, "going")], words=words)
    for name, at in begun.items():
        yield html.Row(name, [html.Bar(at, last, "going")], words="drained to the end")


def _workload_lane(loss: WorkloadLoss) -> html.Row:
    """A workload that lost pods: how many are deleted, and how many new ones are made."""
    begin, end = loss.first_deleted_at, loss.last_deleted_at
    bars = [] if begin is None or end is None else [html.Bar(begin, end, "leave")]
    when = "" if begin is None or end is None else f" {_between(begin, end)}"
    words = f"{loss.deleted} deleted{when} → {loss.replaced} new ones"
    name = f"{loss.namespace}/{loss.name}"
    return html.Row(name, bars, note=f"{loss.kind}, {loss.pods} pods", words=words)


def _between(begin: float, end: float) -> str:
    return "–".join(dict.fromkeys((_whole(begin), _whole(end))))
