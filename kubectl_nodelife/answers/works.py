"""Works in progress, as far as the cluster shows them: nodes that are emptied, DaemonSets that roll
out, an upgrade run.

Each is one line with a command that says more. What a drain waits for is not in the cluster: an
eviction that is refused leaves no trace there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from kubectl_nodelife.controllers.upgrade.marks import UnreadableMark, mark_of
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.enumeration import counted
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import ANNOTATION_CONFIG_MIRROR
from kubectl_nodelife.kube.workload import DaemonSet

MOST_WORKS: Final = 50
_OVER: Final = frozenset({"Succeeded", "Failed"})


class WorkInProgress(msgspec.Struct, frozen=True):
    """One of them. `done` of `total`; `command` says more."""

    kind: str
    name: str
    done: int
    total: int
    sentence: str
    command: str
    namespace: str = ""


def works_of(cache: Cache) -> list[WorkInProgress]:
    """Upgrades first, then DaemonSets, then nodes; at most MOST_WORKS of each."""
    return [*_upgrades(cache), *_first(_roll_outs(cache)), *_first(_emptied(cache))]


def _first(works: Iterator[WorkInProgress]) -> list[WorkInProgress]:
    return sorted(works, key=lambda work: (work.namespace, work.name))[:MOST_WORKS]


def _upgrades(cache: Cache) -> list[WorkInProgress]:
    """The nodes' marks by state; the run's Lease says more than they do."""
    states: Counter[str] = Counter()
    for node in cache.nodes.values():
        try:
            mark = mark_of(node)
        except UnreadableMark:
            states["Unreadable"] += 1
            continue
        if mark is not None:
            states[str(mark.state)] += 1
    if not states:
        return []
    words = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    command = "kubectl nodelife upgrade status"
    done = states["Done"]
    return [
        WorkInProgress("Upgrade", "nodes", done, states.total(), f"marked nodes: {words}", command)
    ]


def _roll_outs(cache: Cache) -> Iterator[WorkInProgress]:
    """DaemonSets whose controller has more to do, by their own status."""
    for obj in cache.all("DaemonSet"):
        if not isinstance(obj, DaemonSet):
            continue
        status = obj.status
        wanted = status.desired_number_scheduled
        done = min(status.updated_number_scheduled, status.number_available)
        if status.observed_generation < obj.metadata.generation:
            says = "its controller has not seen its latest change yet"
        elif done < wanted:
            says = (
                f"{status.updated_number_scheduled} of {wanted} pods are of the newest template, "
                f"{status.number_available} are available"
            )
        else:
            continue
        namespace = obj.metadata.namespace
        command = f"kubectl nodelife rollout status daemonset/{obj.name} -n {namespace}"
        yield WorkInProgress("DaemonSet", obj.name, done, wanted, says, command, namespace)


def _emptied(cache: Cache) -> Iterator[WorkInProgress]:
    """Cordoned nodes with pods that a drain would move, some of which are being deleted."""
    for node in cache.nodes.values():
        if not node.spec.unschedulable:
            continue
        pods = [pod for pod in cache.pods_on(node.name) if _moves(pod)]
        going = sum(pod.metadata.deletion_timestamp is not None for pod in pods)
        if going:
            verb = "is" if going == 1 else "are"
            says = f"cordoned; {counted(len(pods), 'pod')} left to move, {going} {verb} Terminating"
            command = f"kubectl nodelife drain-plan {node.name}"
            yield WorkInProgress("Node", node.name, 0, len(pods), says, command)


def _moves(pod: Pod) -> bool:
    """True if a drain would evict it."""
    owner = controller_of(pod.metadata)
    if pod.status.phase in _OVER or (owner is not None and owner.kind == "DaemonSet"):
        return False
    return ANNOTATION_CONFIG_MIRROR not in (pod.metadata.annotations or {})
