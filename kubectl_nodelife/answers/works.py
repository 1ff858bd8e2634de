"""Works in progress, as far as the cluster shows them: nodes that are emptied, DaemonSets that roll
out, an upgrade run.

Each is one line with a command that says more. An eviction that is refused leaves no trace in the
cluster: what a work waits for, and what was promised of it, `followed_works` adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from kubectl_nodelife.controllers.upgrade.marks import UnreadableMark, mark_of
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.enumeration import counted
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import ANNOTATION_CONFIG_MIRROR, DRAIN_IN_PROGRESS, TRUE
from kubectl_nodelife.kube.workload import DaemonSet

MOST_WORKS: Final = 50
_OVER: Final = frozenset({"Succeeded", "Failed"})


class Wait(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that a work waits for, and since when by the stream's clock; None: not known."""

    what: str
    because: str
    since_s: float | None = None


class WorkInProgress(msgspec.Struct, frozen=True, rename="camel"):
    """One of them. `done` of `total`; `command` says more.

    `since_s`: since when it is known; `promised`: between which instants it should end, as was said
    then; `expected`: as it is said now. All of them by the stream's clock; None: not known.
    `budgets`: each in a line.
    """

    kind: str
    name: str
    done: int
    total: int
    sentence: str
    command: str
    namespace: str = ""
    since_s: float | None = None
    promised: tuple[float, float] | None = None
    expected: tuple[float, float] | None = None
    waits: list[Wait] = []
    budgets: list[str] = []


def works_of(cache: Cache, emptied: Collection[str] = ()) -> list[WorkInProgress]:
    """Upgrades first, then DaemonSets, then nodes; at most MOST_WORKS of each. `emptied`: nodes
    that are known to be, where the cluster does not show it now.
    """
    nodes = nodes_emptied(cache) | set(emptied)
    return [*_upgrades(cache), *_first(_roll_outs(cache)), *_first(_emptied(cache, nodes))]


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


def nodes_emptied(cache: Cache) -> set[str]:
    """Cordoned nodes with a pod that a drain moves and that is being deleted, and those of which
    the one who drains them says so.
    """
    return {
        node.name
        for node in cache.nodes.values()
        if node.spec.unschedulable
        and (
            begun_ns(node) is not None
            or any(pod.metadata.deletion_timestamp is not None for pod in moving(cache, node.name))
        )
    }


def begun_ns(node: Node) -> int | None:
    """Since when a node's condition says that it is drained (KEP-5683); None: it does not."""
    condition = node.status.condition(DRAIN_IN_PROGRESS)
    if condition is None or condition.status != TRUE:
        return None
    return condition.last_transition_time


def _emptied(cache: Cache, names: Collection[str]) -> Iterator[WorkInProgress]:
    """Those of the nodes that are cordoned and have pods left that a drain would move."""
    for name in names:
        node = cache.nodes.get(name)
        pods = moving(cache, name)
        if node is None or not node.spec.unschedulable or not pods:
            continue
        going = sum(pod.metadata.deletion_timestamp is not None for pod in pods)
        verb = "is" if going == 1 else "are"
        says = f"cordoned; {counted(len(pods), 'pod')} left to move, {going} {verb} Terminating"
        command = f"kubectl nodelife drain-plan {name}"
        yield WorkInProgress("Node", name, 0, len(pods), says, command)


def moving(cache: Cache, node: str) -> list[Pod]:
    """The pods on a node that a drain would evict."""
    return [pod for pod in cache.pods_on(node) if _moves(pod)]


def _moves(pod: Pod) -> bool:
    """True if a drain would evict it."""
    owner = controller_of(pod.metadata)
    if pod.status.phase in _OVER or (owner is not None and owner.kind == "DaemonSet"):
        return False
    return ANNOTATION_CONFIG_MIRROR not in (pod.metadata.annotations or {})
