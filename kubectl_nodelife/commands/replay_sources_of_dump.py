"""Reads what a replay is made from out of a dump: its Events, nodes with who wrote them, pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kubectl_nodelife.commands.cluster.dump import Dump, load
from kubectl_nodelife.commands.drain_review import DrainTraces
from kubectl_nodelife.commands.replay_sources import Traces
from kubectl_nodelife.kube.core import Event
from kubectl_nodelife.kube.documents import Json
from kubectl_nodelife.kube.kinds import Kind
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.outlook.replay.lines import last_seen_ns
from kubectl_nodelife.outlook.replay.timeline import ReplaySources

if TYPE_CHECKING:
    import msgspec

_NO_EVENTS: Final = "no Events were read: only what objects keep is shown; dump 'events -A', too"
_NO_BUDGETS: Final = "no PodDisruptionBudgets were read: for how long one was at zero is unknown"
_MANAGED, _QUOTED = "managedFields", b'"managedFields"'
_NO_MANAGERS: Final = (
    "no node has managedFields: who cordoned or tainted nodes is unknown; dump them with "
    "'kubectl get nodes -o yaml --show-managed-fields'"
)


class DumpTraces(NamedTuple):
    """A dump and its traces."""

    dump: Dump
    traces: Traces


def traces_of_dump(
    filename: Sequence[str], now: str | None, profile: str | None = None
) -> DumpTraces:
    """The traces in a dump. Its moment is the newest Event's, where that is newer and none is given
    with `now` (RFC 3339). Raises BadInput.
    """
    managed = False

    def note(kind: Kind, raw: Json | msgspec.Raw | dict[str, Any]) -> None:
        nonlocal managed
        if kind.type is Node:
            found = raw["metadata"] if isinstance(raw, dict) else bytes(raw)
            managed = managed or (
                _MANAGED in found if isinstance(found, dict) else _QUOTED in found
            )

    dump = load(filename, now, profile, note)
    events = [obj for obj in dump.objects if isinstance(obj, Event)]
    nodes = [obj for obj in dump.objects if isinstance(obj, Node)]
    pods = [obj for obj in dump.objects if isinstance(obj, Pod)]
    warnings = list(dump.warnings)
    if not dump.has_read("Event"):
        warnings.append(_NO_EVENTS)
    if nodes and not managed:
        warnings.append(_NO_MANAGERS)
    newest = max((last_seen_ns(event) or 0 for event in events), default=0)
    moment_ns = dump.moment_ns if now else max(dump.moment_ns, newest)
    source = {"kind": "snapshot", "context": None, "server": ", ".join(filename)}
    sources = ReplaySources(None, events, nodes, pods)
    return DumpTraces(dump, Traces(sources, source, moment_ns, warnings))


def drain_traces_of(dump: Dump) -> DrainTraces:
    """What a dump tells of drains besides: its budgets."""
    budgets = [obj for obj in dump.objects if isinstance(obj, PodDisruptionBudget)]
    unread = [] if dump.has_read("PodDisruptionBudget") else [_NO_BUDGETS]
    return DrainTraces(budgets, unread)
