"""What is assumed to follow in the cluster from what a dry run decides, and after what time.

Evicted pods stop, and those that somebody makes anew are Ready on another node; Jobs end, canaries
are scheduled, Ready and gone again; a node's machine meets its targets once its work has taken the
assumed time, or gives way to a new one of the same name.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.marks import ANNOTATION, LABEL_STATE
from kubectl_nodelife.controllers.upgrade.policy import NODE_INFO_FIELDS, UpgradePolicy
from kubectl_nodelife.engine.actions import CreateCanary, CreateJob
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.meta import KubeObject, Time, controller_of
from kubectl_nodelife.kube.node import Node, NodeCondition
from kubectl_nodelife.kube.pod import ContainerStatus, Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import TAINT_NODE_UNSCHEDULABLE

POD_STOPS_S: Final = 2
POD_STARTS_S: Final = 2
LIFECYCLE_S: Final = 1
_OURS: Final = "nodelife.dev/"


def is_remade(pod: Pod) -> bool:
    """True if somebody makes another in its place, on some node."""
    owner = controller_of(pod.metadata)
    return owner is not None and owner.kind not in ("DaemonSet", "Node", "Job")


def replacement(pod: Pod, node: str, at_ns: int) -> Pod:
    """The pod as its owner makes it anew: on that node, Ready, made at that time.

    It keeps its name, also where the real one would not: then nothing else is to be told apart.
    """
    meta = replace(pod.metadata, uid=f"dry-{pod.uid}", creation_timestamp=Time(at_ns))
    meta = replace(meta, deletion_timestamp=None, deletion_grace_period_seconds=None)
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=node))


def emptiest_node(view: Cache) -> str:
    """The schedulable node with the fewest pods, "" where there is none."""
    free = [
        (len(list(view.pods_on(node.name))), node.name)
        for node in view.nodes.values()
        if not node.spec.unschedulable
        and not any(taint.effect != "PreferNoSchedule" for taint in node.spec.taints)
    ]
    return min(free)[1] if free else ""


def job(action: CreateJob, *, is_done: bool) -> KubeObject:
    """The Job, complete once its time is over."""
    meta = {**action.manifest["metadata"], "uid": f"dry-{action.name}"}
    conditions = [{"type": "Complete", "status": "True"}] if is_done else []
    status = {"conditions": conditions}
    return decode("Job", {**action.manifest, "metadata": meta, "status": status})


def newcomer(node: Node, at_ns: int) -> Node:
    """The machine that takes the node's place, made at that time and marked by nobody."""
    meta = node.metadata
    labels = {key: value for key, value in (meta.labels or {}).items() if key != LABEL_STATE}
    notes = {key: value for key, value in (meta.annotations or {}).items() if key != ANNOTATION}
    meta = replace(meta, uid=f"dry-{meta.uid}", creation_timestamp=Time(at_ns))
    taints = tuple(
        taint
        for taint in node.spec.taints
        if taint.key != TAINT_NODE_UNSCHEDULABLE and not taint.key.startswith(_OURS)
    )
    spec = replace(node.spec, unschedulable=False, taints=taints)
    return replace(node, metadata=replace(meta, labels=labels, annotations=notes), spec=spec)


def canary(action: CreateCanary, at_ns: int, now_ns: int) -> KubeObject:
    """The canary as scheduler and kubelet would have it by now."""
    runs = now_ns - at_ns >= POD_STARTS_S * SECOND_NS
    conditions = [{"type": "PodScheduled", "status": "True"}]
    if runs:
        since = format_time(at_ns + POD_STARTS_S * SECOND_NS)
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": since})
    manifest = action.manifest
    return decode(
        "Pod",
        {
            **manifest,
            "metadata": {**manifest["metadata"], "uid": f"dry-{action.pod}"},
            "spec": {**manifest["spec"], "nodeName": action.node},
            "status": {
                "phase": "Running" if runs else "Pending",
                "podIP": "192.0.2.1" if runs else "",
                "conditions": conditions,
            },
        },
    )


def meeting(node: Node, policy: UpgradePolicy) -> Node:
    """The node as it would meet its targets."""
    info, meta, status = node.status.node_info, node.metadata, node.status
    labels, annotations = dict(meta.labels or {}), dict(meta.annotations or {})
    for target in policy.target:
        if target.kind == "nodeInfo":
            value = f"dry-{node.name}" if target.key == "bootID" else target.value
            info = replace(info, **{NODE_INFO_FIELDS[target.key]: value})
        elif target.kind == "condition":
            others = tuple(c for c in status.conditions if c.type != target.key)
            met = NodeCondition(target.key, target.value, "DryRun")
            status = replace(status, conditions=(*others, met))
        elif target.kind in ("label", "annotation"):
            (labels if target.kind == "label" else annotations)[target.key] = target.value
    meta = replace(meta, labels=labels, annotations=annotations)
    return replace(node, metadata=meta, status=replace(status, node_info=info))


def restarted(pod: KubeObject) -> Pod:
    """A pod with other containers, as after a reboot."""
    assert isinstance(pod, Pod)
    known = pod.status.container_statuses or [
        ContainerStatus(name=container.name, ready=True) for container in pod.spec.containers
    ]
    statuses = [replace(status, container_id=f"dry://{pod.uid}/{status.name}") for status in known]
    return replace(pod, status=replace(pod.status, container_statuses=statuses))
