"""How a simulated cluster ends: what is compared with the undisturbed run, and what must hold.

Left out of the comparison is what hangs on the order of things upstream as well: whether pods are
ready (those of a node that came back may stay marked), and the daemon pod of a node whose kubelet
is dead (it is of the version that was rolled out when the kubelet died). A set's status is judged
by itself. Where a node gets a NoSchedule taint after the set's last sync nobody syncs it again
(`syncNodeUpdate` of pkg/controller/daemon/daemon_controller.go), nor where it gets any taint while
the pod that was made for it waits to be bound, so that such a node may be counted either way.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, TypeVar

from kubectl_nodelife.controllers.daemonset.template import get_target_node_name
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from tests.daemonset.naive import DEFAULTS as TOLERATED

Json = dict[str, Any]
T = TypeVar("T")
Count = tuple[int, int, int, int]
"""Of one node, or of all: desired, current, misscheduled, up to date."""

_HASH = "controller-revision-hash"


def end_of(store: Any, first_pods: set[str]) -> Json:
    """What the cluster is in the end, as far as no chance has a say in it."""
    end: Json = {}
    alive = set()
    for node in _all(store, "Node", Node):
        ready = next((c.status for c in node.status.conditions if c.type == "Ready"), "")
        end[f"node {node.name}"] = [ready, *sorted(f"{t.key}:{t.effect}" for t in node.spec.taints)]
        if ready == "True":
            alive.add(node.name)
    for pod in _all(store, "Pod", Pod):
        going = pod.metadata.deletion_timestamp is not None
        if pod.uid in first_pods:
            end[f"pod {pod.name}"] = f"{pod.status.phase}{' going' if going else ''}"
        elif _is_daemon(pod) and not going and pod.spec.node_name in alive:
            key = f"agent on {pod.spec.node_name}"
            end[key] = end.get(key, 0) + 1
    end["revisions"] = len(store.collections["ControllerRevision"].entries)
    return end


def wrong_status(store: Any) -> Iterator[str]:
    """A sentence for each DaemonSet whose status no sync of the end's cluster could have left."""
    for daemon_set in _all(store, "DaemonSet", DaemonSet):
        revisions = _all(store, "ControllerRevision", ControllerRevision)
        newest = max(revisions, key=lambda r: r.revision, default=ControllerRevision())
        hash_ = (newest.metadata.labels or {}).get(_HASH, "")
        choices = [_counts(store, node, hash_) for node in _all(store, "Node", Node)]
        possible = {tuple(map(sum, zip(*counts, strict=True))) for counts in product(*choices)}
        status = daemon_set.status
        told = (
            status.desired_number_scheduled,
            status.current_number_scheduled,
            status.number_misscheduled,
            status.updated_number_scheduled,
        )
        if told not in possible:
            yield f"the status of {daemon_set.name} is {told}, and must be of {sorted(possible)}"


def unmarked_pods(store: Any) -> Iterator[str]:
    """A sentence for each pod that Services still count on, though its node is lost.

    Nothing takes a pod out of that but a mark, its end, or a node whose kubelet is back. One that
    reports Ready=False after a silence marks its living pods Ready again, and upstream marks pods
    only where a node was Ready before.
    """
    lost = {
        node.name: ready.status
        for node in _all(store, "Node", Node)
        if (ready := node.ready()) is not None and ready.status == "Unknown"
    }
    for pod in _all(store, "Pod", Pod):
        ready = pod.status.condition("Ready")
        if pod.spec.node_name in lost and ready is not None and ready.status != "False":
            status = lost[pod.spec.node_name]
            yield f"pod {pod.name} is Ready on {pod.spec.node_name}, whose Ready is {status}"


def _counts(store: Any, node: Node, newest: str) -> list[Count]:
    """What the node may count as."""
    all_pods = (pod for pod in _all(store, "Pod", Pod) if _is_daemon(pod))
    pods = [pod for pod in all_pods if get_target_node_name(pod) == node.name]
    oldest = min(pods, key=lambda p: p.metadata.creation_timestamp or 0, default=None)
    updated = oldest is not None and (oldest.metadata.labels or {}).get(_HASH) == newest
    without: Count = (0, 0, int(bool(pods)), 0)
    counted: Count = (1, int(bool(pods)), 0, int(updated))
    effects = {t.effect for t in node.spec.taints if not _is_tolerated(t)}
    if "NoExecute" in effects and (not pods or any(pod.spec.node_name for pod in pods)):
        return [without]
    return [counted, without] if effects & {"NoExecute", "NoSchedule"} else [counted]


def _is_tolerated(taint: Taint) -> bool:
    return (taint.key, taint.effect) in TOLERATED


def _is_daemon(pod: Pod) -> bool:
    return (pod.metadata.labels or {}).get("app") == "agent"


def _all(store: Any, kind: str, type_: type[T]) -> Iterator[T]:
    for entry in store.collections[kind].entries.values():
        assert isinstance(entry.obj, type_)
        yield entry.obj
