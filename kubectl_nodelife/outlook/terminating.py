"""Explains why a pod is still Terminating, and what would end it."""

from __future__ import annotations

from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kubelet.reclaim import what_can_hold
from kubectl_nodelife.kubelet.releases import rules_for
from kubectl_nodelife.outlook.node import Outlook
from kubectl_nodelife.workloads.force_advice import force_advice, release_of
from kubectl_nodelife.workloads.node_readiness import NodeReadiness, node_readiness


def why_terminating(outlook: Outlook, node: Node | None, pod: Pod) -> str:
    """One sentence, with the numbers; what to do is what `audit` and `drain-plan` say of it."""
    ends = pod.metadata.deletion_timestamp
    assert ends is not None
    over_ns = outlook.now_ns - ends
    if over_ns < 0:
        left = human_duration(-over_ns)
        return f"its grace period ends in {left}."
    over = f"its grace period was over {human_duration(over_ns)} ago"
    of_node = NodeReadiness(name=pod.spec.node_name, exists=False)
    if node is not None:
        heartbeat = outlook.cache.heartbeats.get(node.name)
        renewal = heartbeat.renewal(outlook.now_ns) if heartbeat is not None else None
        of_node = node_readiness(node, renewal[0] if renewal is not None else None)
    advice = force_advice(pod, of_node, release_of(outlook.settings), outlook.now_ns)
    why = ""
    if pod.metadata.finalizers:
        why = f"the finalizers {', '.join(pod.metadata.finalizers)} hold it; "
    elif node is not None:
        why = f"only its kubelet can finish that, and its node is Ready={of_node.ready}; "
    return f"{over}; {why}{advice.sentence}."


def what_can_hold_it(outlook: Outlook, node: Node | None, pod: Pod) -> list[str]:
    """The resources that the kubelet of a Ready node must see gone before it lets the object go,
    and what is known of each; empty while the grace period lasts, or where no kubelet can answer.

    Follows `PodResourcesAreReclaimed` up to 1.26, `SyncTerminatedPod` later (`kubelet/reclaim`).
    """
    ends = pod.metadata.deletion_timestamp
    if node is None or ends is None or outlook.now_ns < ends:
        return []
    if not node.is_ready:
        return []
    rules = rules_for(outlook.settings.profile)
    return [
        f"{resource.capitalize()} can hold it: {known}."
        for resource, known in what_can_hold(pod, rules)
    ]
