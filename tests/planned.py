"""Planned actions, as controllers yield them, with all that a test does not vary filled in: the
controller that yields such an action, a sentence, and the namespace and uid of `tests.objects`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from kubectl_nodelife.engine.actions import AddTaints, CreatePod, MarkPodNotReady, SetNodeConditions
from kubectl_nodelife.kube.node import NodeCondition, Taint
from kubectl_nodelife.kube.pod import PodCondition

Planned = TypeVar("Planned")


def on_node(kind: Callable[..., Planned], name: str = "n1", **fields: Any) -> Planned:
    """An action on a node."""
    own = {"controller": "node-lifecycle", "because": "b", "node_uid": f"uid-{name}"}
    return kind(node=name, **{**own, **fields})


def on_pod(kind: Callable[..., Planned], name: str = "p", **fields: Any) -> Planned:
    """An action on a pod."""
    own = {"controller": "taint-eviction", "because": "b"}
    own |= {"namespace": "default", "pod_uid": f"uid-{name}"}
    return kind(pod=name, **{**own, **fields})


def lost(name: str = "n1", **fields: Any) -> SetNodeConditions:
    """The node is called lost."""
    unknown = NodeCondition("Ready", "Unknown", "NodeStatusUnknown")
    return on_node(SetNodeConditions, name, **{"conditions": (unknown,), **fields})


def tainted(name: str, *taints: Taint, **fields: Any) -> AddTaints:
    return on_node(AddTaints, name, taints=taints, **fields)


def not_ready(name: str = "p", **fields: Any) -> MarkPodNotReady:
    """A pod of a lost node is marked."""
    own = {"controller": "node-lifecycle", "condition": PodCondition("Ready", "False")}
    return on_pod(MarkPodNotReady, name, **{**own, **fields})


def create_pod(name: str = "p", node: str = "n1", owner: str = "ds", **fields: Any) -> CreatePod:
    """A DaemonSet gets its pod on a node."""
    own = {"controller": "daemonset", "manifest": {}, "owner_uid": f"uid-{owner}", "revision": "1"}
    return on_pod(CreatePod, name, node=node, owner=owner, **{**own, **fields})
