"""Words a kubelet's patch of a pod's status for the records: an action for each condition."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, SetPodCondition
from kubectl_nodelife.kube.pod import Pod, PodStatus
from kubectl_nodelife.sim.acts import told

NAME = "pod-status"
"""The controller name in records of what a status manager sends."""


class PodNews(msgspec.Struct):
    """The cause of the version of a pod that is to be sent: the sentence, and the record."""

    because: str = ""
    cause: Action | None = None


def patch_actions(pod: Pod, status: PodStatus, news: PodNews, version: int) -> Iterator[Action]:
    """The patch, told condition by condition; the phase goes with the first."""
    phase = status.phase if status.phase != pod.status.phase else ""
    node = pod.spec.node_name
    for condition in status.conditions:
        if pod.status.condition(condition.type) == condition:
            continue
        because = news.because or (
            f"the kubelet of {node} sees that {condition.type} is not what it had reported, and "
            "sets it right"
        )
        yield SetPodCondition(
            controller=NAME,
            because=because,
            cause=news.cause,
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            condition=condition,
            phase=phase,
        )
        phase = ""
    if phase or all(c in pod.status.conditions for c in status.conditions):
        because = news.because or (
            f"the kubelet of {node} sees that the status is not what it had reported, and sets it "
            "right"
        )
        record = told(pod, "StatusPatched", f"{because} (version {version})", cause=news.cause)
        yield replace(record, controller=NAME)
