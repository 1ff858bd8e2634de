"""The page of `simulate`: what happened, when and why; lost pods; the settings that mattered.

The table has one line for what happens alike to many objects at one instant, and leaves out Events
about what controllers do; `-o wide` has a line for each record, with its number and its cause's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.enumeration import counted, first_names
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NODE_STATUS_NEVER_UPDATED
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.record_words import (
    instant_text,
    joined_records,
    object_name,
    reason_words,
    record_words,
)
from kubectl_nodelife.report.table import Column, Table, columns
from kubectl_nodelife.sim.losses import NodeLoss, WorkloadLoss
from kubectl_nodelife.sim.story import Story
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


class NarrationPage:
    """A `Story` as an answer."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """The narration, the losses, the end, the settings."""
        story = self._story
        lines = list(_each(story.records) if wide else _folded(story.records))
        yield Table(_COLUMNS, lines) if lines else "Nothing happened."
        if story.nodes:
            rows = [_node_row(loss) for loss in story.nodes]
            yield from _cut(_NODE_COLUMNS, rows, "nodes that were lost", wide)
        if story.workloads:
            rows = [_workload_row(loss) for loss in story.workloads]
            yield from _cut(_WORKLOAD_COLUMNS, rows, "workloads that lost pods", wide)
        yield _ending(story)
        settings = _settings(story)
        if settings:
            yield settings

    def document(self) -> object:
        """The contract's Timeline."""
        return self._story.document()

    def names(self) -> Iterable[str]:
        """kind/name of each object to which something happened, in that order."""
        seen: dict[str, None] = {}
        for record in self._story.records:
            seen.setdefault(object_name(record))
        return seen


def _each(records: Sequence[Record]) -> Iterator[Sequence[object]]:
    for number, r in enumerate(records):
        cause = _NEVER if r.cause is None else r.cause
        yield (
            number,
            instant_text(r.at),
            r.controller,
            record_words(r),
            object_name(r),
            cause,
            reason_words(r),
        )


def _folded(records: Sequence[Record]) -> Iterator[Sequence[object]]:
    """One line for what happens alike at one instant."""
    lines: dict[tuple[float, str, str], list[Record]] = {}
    at = -1.0
    for record, what in joined_records(records):
        if record.at != at:
            yield from _lines(lines)
            lines, at = {}, record.at
        lines.setdefault((record.at, record.controller, what), []).append(record)
    yield from _lines(lines)


def _lines(lines: dict[tuple[float, str, str], list[Record]]) -> Iterator[Sequence[object]]:
    for (at, controller, what), records in lines.items():
        names = list(dict.fromkeys(object_name(r) for r in records))
        reasons = dict.fromkeys(reason_words(r) for r in records)
        why = next(iter(reasons)) + (" (and alike)" if len(reasons) > 1 else "")
        yield ("", instant_text(at), controller, what, first_names(names, _NAMED), "", why)


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
    return (
        f"{loss.kind.lower()}/{loss.namespace}/{loss.name}",
        loss.pods,
        loss.deleted,
        _or_never(loss.first_deleted_at),
        _or_never(loss.last_deleted_at),
        loss.replaced,
    )


def _cut(
    columns: Sequence[Column], rows: list[Sequence[object]], of: str, wide: bool
) -> Iterator[Block]:
    """The table; of a long one the first rows, unless wide."""
    if wide or len(rows) <= _SHOWN:
        yield Table(columns, rows)
        return
    yield Table(columns, rows[:_SHOWN])
    yield f"... and {len(rows) - _SHOWN} more {of} (-o wide shows all)"


def _ending(story: Story) -> str:
    """How things stand at the end."""
    pods: dict[str, int] = story.final["pods"]
    at = format_duration(story.duration_ns)
    not_ready = sum(node["ready"] != "True" for node in story.final["nodes"])
    lines = [
        f"At the end, {at} after the start: {counted(len(story.final['nodes']), 'node')}, "
        f"{not_ready} not ready; "
        f"{counted(pods['total'], 'pod')}, {pods['notReady']} not ready, "
        f"{pods['terminating']} terminating, {pods['unbound']} without a node; "
        f"{pods['gone']} of the first pods are gone."
    ]
    for zone in story.final["zones"]:
        if zone["state"] not in (None, "Normal"):
            name = zone["name"] or "the nodes without a zone"
            lines.append(
                f"Zone {name} is in {zone['state']}: {zone['notReady']} of {zone['nodes']} nodes "
                f"not ready, tainted at {zone['rate']:g} nodes a second."
            )
    if "upgrade" in story.final:
        lines.append(_upgraded(story.final["upgrade"]))
    return "\n".join(lines)


def _upgraded(came: dict[str, Any]) -> str:
    """What became of an upgrade's nodes, and how low the cluster got."""
    fates = ", ".join(f"{len(came[fate])} {fate}" for fate in ("done", "failed", "held", "skipped"))
    took = format_duration(round(came["seconds"]) * SECOND_NS)
    lowest = came["lowestAvailable"]
    at = format_duration(round(lowest["at"]) * SECOND_NS)
    return (
        f"The upgrade took {took}: {fates}. At the least {counted(lowest['all'], 'node')} "
        f"{'was' if lowest['all'] == 1 else 'were'} available, {at} after its start; "
        f"{counted(came['evictions'], 'pod')} evicted."
    )


def _settings(story: Story) -> str:
    """The settings that decided something, with where each comes from."""
    happened: dict[str, None] = {}
    for r in story.records:
        happened.update(dict.fromkeys(_kinds_of(r)))
    flags = dict.fromkeys(
        flag for kind in _MATTERED if kind in happened for flag in _MATTERED[kind]
    )
    shown = [
        f"  {flag}={story.settings.flags[flag]} ({story.settings.origins[flag]})"
        for flag in flags
        if flag in story.settings.flags
    ]
    if not shown:
        return ""
    return "\n".join([f"Settings that mattered (profile {story.settings.profile.name}):", *shown])


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
