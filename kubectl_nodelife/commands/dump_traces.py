"""Reads what a replay is made from out of a dump: its Events, nodes with who wrote them, pods."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from kubectl_nodelife.commands.cluster.dump import load
from kubectl_nodelife.commands.tracing import Traces, managers
from kubectl_nodelife.kube.core import Event
from kubectl_nodelife.kube.documents import Json
from kubectl_nodelife.kube.kinds import Kind
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.replay.lines import FieldManagerEntry, last_seen_ns
from kubectl_nodelife.outlook.replay.timeline import ReplaySources

_NO_EVENTS: Final = "no Events were read: only what objects keep is told; dump 'events -A', too"
_NO_MANAGERS: Final = (
    "no node has managedFields: not told: who cordoned or tainted nodes; dump them with "
    "'kubectl get nodes -o yaml --show-managed-fields'"
)


def traces_of_dump(filename: Sequence[str], now: str | None) -> Traces:
    """The traces in a dump. Its moment is the newest Event's, where that is newer and none is given
    with `now` (RFC 3339). Raises BadInput.
    """
    writers: dict[str, list[FieldManagerEntry]] = {}

    def note(kind: Kind, raw: Json | msgspec.Raw | dict[str, Any]) -> None:
        if kind.type is Node:
            node = raw if isinstance(raw, dict) else msgspec.json.decode(raw)
            entries = writers.setdefault(node["metadata"]["name"], [])
            with suppress(AttributeError, TypeError, ValueError):  # no decision reads the field
                entries.extend(managers(node))

    dump = load(filename, now, None, note)
    events = [obj for obj in dump.objects if isinstance(obj, Event)]
    nodes = [(o, sorted(set(writers[o.name]))) for o in dump.objects if isinstance(o, Node)]
    pods = [obj for obj in dump.objects if isinstance(obj, Pod)]
    warnings = list(dump.warnings)
    if not dump.has_read("Event"):
        warnings.append(_NO_EVENTS)
    if nodes and not any(entries for _, entries in nodes):
        warnings.append(_NO_MANAGERS)
    newest = max((last_seen_ns(event) or 0 for event in events), default=0)
    moment_ns = dump.moment_ns if now else max(dump.moment_ns, newest)
    source = {"kind": "snapshot", "context": None, "server": ", ".join(filename)}
    return Traces(ReplaySources(None, events, nodes, pods), source, moment_ns, warnings)
