"""Builds the timeline of a replay from all sources: merged, linked, filtered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubectl_nodelife.kube.core import Event
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.replay import lines
from kubectl_nodelife.outlook.replay.causes import in_order, link
from kubectl_nodelife.outlook.replay.drains import drains
from kubectl_nodelife.outlook.replay.merging import merged
from kubectl_nodelife.outlook.replay.replay_line import ReplayLine

QUIET: Final = frozenset({"Pulling", "Pulled", "Created", "Started", "AddedInterface"})
"""Events that tell nothing about why pods and nodes come and go."""

QUIET_CHANGES: Final = frozenset({"UpdateDaemonSetStatus"})
"""Changes of which there is one after each other change, and which say no more than that."""

_ASSIGNED: Final = re.compile(r"Successfully assigned \S+ to (\S+)")


class ReplaySources(NamedTuple):
    """The traces that were read. `changes` are the contract's documents; None: no journal."""

    changes: Sequence[Mapping[str, Any]] | None = None
    events: Sequence[Event] = ()
    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()


class ReplayFilter(NamedTuple):
    """Which lines. `node`: the node and the pods on it; what led to a line comes with it."""

    since_ns: int
    until_ns: int
    node: str = ""
    pod: tuple[str, str] | None = None
    quiet: bool = False


_DISRUPTIONS: Final = frozenset(
    {
        "DeletePod",
        "EvictPod",
        "Evicted",
        "MarkPodNotReady",
        "NodeNotReady",
        "Preempted",
        "SetPodCondition",
        "TaintManagerEviction",
    }
)


def tells_of_nodes(line: ReplayLine) -> bool:
    """True if it belongs to the story of nodes: about a node or a zone, or a pod that lost its
    place by one."""
    return line.kind in ("Node", "Zone") or (line.kind == "Pod" and line.action in _DISRUPTIONS)


def timeline(sources: ReplaySources, wanted: ReplayFilter) -> list[ReplayLine]:
    """The lines in the order of time, with their causes."""
    found = merged(_all(sources, wanted))
    _place(found, sources)
    found = sorted([*drains(found, sources.pods), *found], key=lambda line: line.time_ns)
    link(found)
    shown = [line for line in in_order(found) if wanted.since_ns <= line.time_ns <= wanted.until_ns]
    return _with_causes(shown, [line for line in shown if _asked_for(line, wanted)])


def _all(sources: ReplaySources, wanted: ReplayFilter) -> Iterable[ReplayLine]:
    for change in sources.changes or ():
        told = wanted.quiet or change["action"] not in QUIET_CHANGES
        if told and (line := lines.of_change(change)) is not None:
            yield line
    for event in sources.events:
        told = wanted.quiet or event.reason not in QUIET
        if told and (line := lines.of_event(event)) is not None:
            yield line
    for node in sources.nodes:
        yield from lines.of_node(node)
    for pod in sources.pods:
        yield from lines.of_pod(pod)


def _place(found: Iterable[ReplayLine], sources: ReplaySources) -> None:
    """Tell of each pod on which node it is or was, as far as anything says so."""
    nodes = {pod.key: pod.spec.node_name for pod in sources.pods if pod.spec.node_name}
    unplaced = []
    for line in found:
        key = (line.namespace, line.name)
        if line.kind != "Pod":
            continue
        if assigned := _ASSIGNED.search(line.why):
            line.node = line.node or assigned[1]
        if line.node:
            nodes.setdefault(key, line.node)
        else:
            unplaced.append(line)
    for line in unplaced:
        line.node = nodes.get((line.namespace, line.name), "")


def _asked_for(line: ReplayLine, wanted: ReplayFilter) -> bool:
    if wanted.node:
        return line.about_node == wanted.node
    if wanted.pod is not None:
        namespace, name = wanted.pod
        about = line.kind == "Pod" and (line.namespace, line.name) == wanted.pod
        return about or (line.namespace == namespace and name in line.names)
    return True


def _with_causes(shown: Sequence[ReplayLine], chosen: Iterable[ReplayLine]) -> list[ReplayLine]:
    """The chosen ones and all that led to them, as long as it is shown at all."""
    kept: set[ReplayLine] = set()
    within = set(shown)
    for line in chosen:
        above: ReplayLine | None = line
        while above is not None and above in within and above not in kept:
            kept.add(above)
            above = above.cause
    return [line for line in shown if line in kept]
