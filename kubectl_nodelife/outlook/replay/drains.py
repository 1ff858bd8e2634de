"""Finds drains among what happened: a node was cordoned, or evicted from, and its pods then left.

No object and no Event says "drain". What one leaves is a cordon, evictions by the Eviction API as
long as the pods are Terminating, and afterwards the kubelet's Events about pods that it stopped.
Where only those are left, a drain is concluded if the node has none of the pods any more that a
drain would take. `drain_review` looks back on one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.pod import Pod, stays_on_its_node
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, human_duration
from kubectl_nodelife.outlook.replay import replay_line
from kubectl_nodelife.outlook.replay.replay_line import (
    CONTROLLER,
    KUBELET,
    ORDER_OF_SOURCES,
    USER,
    Actor,
    ReplayLine,
)

DRAIN: Final = "drain"
"""The family of such a line."""

_EVICTED: Final = "pods were evicted through the Eviction API"
_CONCLUDED: Final = "concluded: it was cordoned, pods were stopped, and none that can move is left"

_PAUSE_NS: Final = 15 * MINUTE_NS
"""Pods that leave so long after the one before belong to no drain, or to another."""


def drains(lines: Sequence[ReplayLine], pods: Collection[Pod]) -> Iterator[ReplayLine]:
    """One line a drain; `lines` in the order of time, each pod's with its node.

    `pods` as they are now, none where they were not read.
    """
    by_node: dict[str, list[ReplayLine]] = defaultdict(list)
    deleted = (line for line in lines if line.family == "delete" and _happened(line))
    ended_otherwise = {_key(line) for line in deleted if line.actor.kind == CONTROLLER}
    for line in lines:
        if line.family in ("cordon", "uncordon"):
            by_node[line.name].append(line)
        elif _has_left(line) and _key(line) not in ended_otherwise:
            by_node[line.about_node].append(line)
    still = {pod.spec.node_name for pod in pods if drain_takes(pod)}
    for node, of_node in by_node.items():
        for drain in _of_node(node, sorted(of_node, key=_cordon_first)):
            if drain.why == _EVICTED or (pods and node not in still):
                yield drain


def _cordon_first(line: ReplayLine) -> tuple[int, bool]:
    """`kubectl drain` cordons a tenth of a second before its first evictions, and what Events and
    managedFields show has whole seconds.
    """
    return line.time_ns // SECOND_NS, line.family != "cordon"


def _of_node(node: str, lines: Sequence[ReplayLine]) -> Iterator[ReplayLine]:
    cordon: ReplayLine | None = None
    evictions: list[ReplayLine] = []
    for line in lines:
        if line.family in ("cordon", "uncordon"):
            yield from _drain(node, cordon, evictions)
            cordon, evictions = (line if line.family == "cordon" else None), []
            continue
        before = evictions[-1] if evictions else cordon
        if before is not None and line.time_ns - before.time_ns > _PAUSE_NS:
            yield from _drain(node, cordon, evictions)
            cordon, evictions = None, []
        if cordon is not None or evictions or _is_eviction(line):
            evictions.append(line)
    yield from _drain(node, cordon, evictions)


def _drain(
    node: str, cordon: ReplayLine | None, evictions: Sequence[ReplayLine]
) -> Iterator[ReplayLine]:
    if not evictions:
        return
    first, last = evictions[0], evictions[-1]
    pods = len({_key(line) for line in evictions})
    left = f"{counted(pods, 'pod')} left"
    lasted = human_duration(last.time_ns - first.time_ns)
    seen = {source for line in evictions for source in line.seen}
    detail = left if pods == 1 else f"{left} in {lasted}"
    why = _EVICTED if any(map(_is_eviction, evictions)) else _CONCLUDED
    sources = tuple(source for source in ORDER_OF_SOURCES if source in seen)
    about = ("Node", "", node, (DRAIN, node), sources)
    actor = _who(cordon, evictions)
    yield ReplayLine(first.time_ns, actor, "Drain", *about, detail=detail, why=why)


def _who(cordon: ReplayLine | None, evictions: Sequence[ReplayLine]) -> Actor:
    ordered = next((line.actor for line in evictions if line.actor.kind == USER), None)
    if ordered is not None:
        return ordered
    if cordon is not None and cordon.actor.kind != KUBELET:  # which only reports a cordon
        return cordon.actor
    return replay_line.UNKNOWN_ACTOR


def _has_left(line: ReplayLine) -> bool:
    gone = line.family in ("delete", "kill") and line.kind == "Pod" and line.about_node != ""
    return gone and _happened(line)


def drain_takes(pod: Pod) -> bool:
    """Whether `kubectl drain` would still ask the pod to go."""
    return not stays_on_its_node(pod) and pod.metadata.deletion_timestamp is None


def _is_eviction(line: ReplayLine) -> bool:
    return line.actor == replay_line.EVICTION_API or (line.action == "EvictPod" and _happened(line))


def _happened(line: ReplayLine) -> bool:
    return line.outcome in ("", "confirmed", "applied")


def _key(line: ReplayLine) -> tuple[str, str]:
    return line.namespace, line.identity[-1]
