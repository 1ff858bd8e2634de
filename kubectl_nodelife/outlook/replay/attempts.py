"""Which requests came to nothing: what a source tells before it is done, and the cluster does not
show afterwards.

A cloud provider records DeletingNode before it deletes the node (`MonitorNodes`), taint-eviction
TaintManagerEviction before it deletes the pod (`deletePodHandler`); whoever disrupts a pod sets
DisruptionTarget before the deletion. That the object is there afterwards, and is not on its way,
says that it was not deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.replay.replay_line import ReplayLine

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
    made = pod.metadata.creation_timestamp
    return made is None or int(made) <= line.time_ns
