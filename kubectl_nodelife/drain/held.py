"""What keeps a pod that is marked deleted: a silent kubelet, or a finalizer."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.workloads.force_advice import finalizers_that_hold

OVERDUE_NS: Final = 1 * MINUTE_NS
"""A pod that long past its grace does not go by itself any more."""


def why_held(
    pod: Pod, node: str, snapshot: PlanSnapshot, due_ns: int, silent: str | None
) -> tuple[str, str] | None:
    """(gate, reason) of what keeps the pod for ever, or None.

    `due_ns`: when it is to be gone, since the plan's moment. `silent`: why its kubelet is held to
    be silent, None where it lives.
    """
    collected = snapshot.out_of_service(node)
    if pod.metadata.deletion_grace_period_seconds != 0 and silent is not None and not collected:
        return "kubelet-unreachable", f"{silent}: nothing ends the pod or says that it did"
    if finalizers := finalizers_that_hold(pod):
        return "finalizer", f"finalizer {', '.join(finalizers)} keeps the object"
    if due_ns < -OVERDUE_NS and not (silent is not None and collected):
        return (
            "kubelet-unreachable",
            f"it should have been gone {human_duration(-due_ns)} ago; its kubelet has not ended it",
        )
    return None
