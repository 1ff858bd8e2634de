"""Reads what a replay is made from out of a dump: its Events, nodes with who wrote them, pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubectl_nodelife.commands.cluster.dump import load
from kubectl_nodelife.commands.tracing import Traces
from kubectl_nodelife.kube.core import Event
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.replay.lines import last_seen_ns
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
    dump = load(filename, now, None)
    events = [obj for obj in dump.objects if isinstance(obj, Event)]
    nodes = [obj for obj in dump.objects if isinstance(obj, Node)]
    pods = [obj for obj in dump.objects if isinstance(obj, Pod)]
    warnings = list(dump.warnings)
    if not dump.has_read("Event"):
        warnings.append(_NO_EVENTS)
    if nodes and not any(node.managers for node in nodes):
        warnings.append(_NO_MANAGERS)
    newest = max((last_seen_ns(event) or 0 for event in events), default=0)
    moment_ns = dump.moment_ns if now else max(dump.moment_ns, newest)
    source = {"kind": "snapshot", "context": None, "server": ", ".join(filename)}
    return Traces(ReplaySources(None, events, nodes, pods), source, moment_ns, warnings)
