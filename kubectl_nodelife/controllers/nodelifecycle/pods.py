"""Pods of a lost node: their condition Ready becomes False.

Follows `MarkPodsNotReady` of pkg/controller/util/node/controller_utils.go. Phase and termination do
not matter there; a pod without the condition is not touched.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, MarkPodNotReady, RecordEvent
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import whole_seconds

CONTROLLER = "node-lifecycle"


def mark_pods_not_ready(
    pods: Iterable[Pod],
    node: str,
    now_ns: int,
    *,
    with_event: bool,
    because: str,
    cause: Action | None,
    by_pod_worker: bool = False,
) -> list[Action]:
    """Set Ready=False on each pod of the node that has the condition with another status."""
    now = whole_seconds(now_ns)
    marks: list[Action] = []
    before, condition = PodCondition(), PodCondition()
    for pod in pods:
        ready = pod.status.condition("Ready")
        if ready is None or ready.status == "False" or pod.spec.node_name != node:
            continue
        if ready is not before:
            before, condition = ready, replace(ready, status="False", last_transition_time=now)
        meta = pod.metadata
        mark = MarkPodNotReady(
            controller=CONTROLLER,
            because=because,
            cause=cause,
            namespace=meta.namespace,
            pod=meta.name,
            pod_uid=meta.uid,
            condition=condition,
            by_pod_worker=by_pod_worker,
        )
        marks.append(mark)
        if with_event:
            marks.append(
                RecordEvent(
                    controller=CONTROLLER,
                    because=because,
                    cause=mark,
                    kind="Pod",
                    namespace=meta.namespace,
                    name=meta.name,
                    object_uid=meta.uid,
                    type="Warning",
                    reason="NodeNotReady",
                    message="Node is not ready",
                )
            )
    return marks
