"""Explains why a pod is still Terminating, and what would end it."""

from __future__ import annotations

from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import TAINT_NODE_OUT_OF_SERVICE
from kubectl_nodelife.outlook.node import Outlook


def why_terminating(outlook: Outlook, node: Node | None, pod: Pod) -> str:
    """One sentence, with the numbers."""
    ends = pod.metadata.deletion_timestamp
    assert ends is not None
    over_ns = outlook.now_ns - ends
    if over_ns < 0:
        left = format_duration(-over_ns // SECOND_NS * SECOND_NS)
        return f"its grace period ends in {left}."
    over = f"its grace period was over {format_duration(over_ns // SECOND_NS * SECOND_NS)} ago"
    finalizers = ", ".join(pod.metadata.finalizers)
    if finalizers:
        return f"{over}; the finalizers {finalizers} hold it, whoever owns them must take them off."
    if not pod.spec.node_name:
        return f"{over} and no node has it: pod-gc deletes it within 20s."
    if node is None:
        return f"{over} and its node {pod.spec.node_name} does not exist: pod-gc deletes it."
    ready = node.ready()
    if ready is not None and ready.status == "True":
        return (
            f"{over}, but its kubelet is alive: look at its containers and volumes, do not force."
        )
    if any(t.key == TAINT_NODE_OUT_OF_SERVICE for t in node.spec.taints):
        return f"{over}; its node is out of service: pod-gc deletes it within 20s."
    status = "Unknown" if ready is None else f"Ready={ready.status}"
    way_out = "delete the node object"
    if outlook.settings.profile.has("gc_out_of_service"):
        way_out = f"taint it {TAINT_NODE_OUT_OF_SERVICE}=nodeshutdown:NoExecute, or {way_out}"
    return (
        f"{over}; only its kubelet can finish that, and its node is {status}. "
        f"Once the machine is known to be off, {way_out}."
    )
