"""The older eviction without taints: pods of a node that was lost for pod-eviction-timeout are
deleted.

Follows `doEvictionPass`, `DeletePods` and `SetPodTerminationReason` of v1.16's
pkg/controller/nodelifecycle and pkg/controller/util/node. No release has it since 1.27.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubectl_nodelife.engine.actions import Action, DeletePod, RecordEvent, SetPodReason
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.workload import DaemonSet

CONTROLLER = "node-lifecycle"
NODE_LOST = "NodeLost"


def delete_pods(
    name: str,
    node: Node | None,
    pods: Iterable[Pod],
    cache: Cache,
    because: str,
    cause: Action | None,
    *,
    by_pod_worker: bool = False,
) -> Iterator[Action]:
    """Give every pod of the node the reason NodeLost, and delete those that no DaemonSet wants
    there.

    Follows `DeletePods`. Pods that terminate already are not deleted again. What is left out where
    a write fails says `engine.dependent_writes`.
    """
    here = [pod for pod in pods if pod.spec.node_name == name]
    if here:
        yield RecordEvent(
            controller=CONTROLLER,
            because=because,
            cause=cause,
            kind="Node",
            name=name,
            object_uid=node.uid if node else "",
            reason="DeletingAllPods",
            message=f"Node {name} event: Deleting all Pods from Node {name}.",
        )
    for pod in here:
        yield from _delete_pod(pod, name, cache, because, cause, by_pod_worker)


def _delete_pod(
    pod: Pod, name: str, cache: Cache, because: str, cause: Action | None, by_pod_worker: bool
) -> Iterator[Action]:
    meta = pod.metadata
    if pod.status.reason != NODE_LOST:
        yield SetPodReason(
            controller=CONTROLLER,
            because=because,
            cause=cause,
            namespace=meta.namespace,
            pod=meta.name,
            pod_uid=meta.uid,
            reason=NODE_LOST,
            message=f"Node {name} which was running pod {meta.name} is unresponsive",
            by_pod_worker=by_pod_worker,
        )
    if meta.deletion_grace_period_seconds is not None or belongs_to_daemon_set(pod, cache):
        return
    delete = DeletePod(
        controller=CONTROLLER,
        because=because,
        cause=cause,
        namespace=meta.namespace,
        pod=meta.name,
        pod_uid=meta.uid,
        by_pod_worker=by_pod_worker,
    )
    yield delete
    yield RecordEvent(
        controller=CONTROLLER,
        because=because,
        cause=delete,
        kind="Pod",
        namespace=meta.namespace,
        name=meta.name,
        object_uid=meta.uid,
        reason="NodeControllerEviction",
        message=f"Marking for deletion Pod {meta.name} from Node {name}",
    )


def belongs_to_daemon_set(pod: Pod, cache: Cache) -> bool:
    """True if some DaemonSet of the namespace selects the pod. Follows `GetPodDaemonSets`."""
    labels = pod.metadata.labels
    if not labels:
        return False
    for obj in cache.all("DaemonSet"):
        if isinstance(obj, DaemonSet) and obj.namespace == pod.namespace:
            selector = obj.spec.selector
            if selector is None or not (selector.match_labels or selector.match_expressions):
                continue
            if matches(selector, labels):
                return True
    return False
