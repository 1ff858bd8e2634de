"""Conversations of what a person orders with `repair` and `rollout undo`: one write, as shown.

Follows `DaemonSetRollbacker.Rollback` (k8s.io/kubectl/pkg/polymorphichelpers): a strategic merge
patch with the revision's data. The preconditions, uid and version as judged, are ours.
"""

from __future__ import annotations

from kubectl_nodelife.engine.actions import RollBackDaemonSet, SetPodReady
from kubectl_nodelife.engine.calls.call import Patch
from kubectl_nodelife.engine.calls.steps import Conversation, as_seen, write
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import format_time


def set_pod_ready(action: SetPodReady, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH of one condition's status, under the version judged."""
    changed = {
        "type": "Ready",
        "status": action.status,
        "lastTransitionTime": format_time(action.at),
    }
    body = {"status": {"conditions": [changed]}}
    patch = Patch(*action.target, body, as_seen(action, seen), "status")
    return (yield from write(action, patch))


def roll_back(action: RollBackDaemonSet, seen: KubeObject | None, now_ns: int) -> Conversation:
    """PATCH with the revision's data, under the version judged."""
    patch = Patch(*action.target, action.patch, as_seen(action, seen))
    return (yield from write(action, patch))
