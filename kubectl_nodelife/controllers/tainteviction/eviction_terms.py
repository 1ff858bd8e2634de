"""When a pod has to go from a tainted node, with the sentences that say why: made once for all pods
of a node that have the same tolerations.
"""

from __future__ import annotations

import msgspec

from kubectl_nodelife.controllers.tainteviction.delete import CONTROLLER
from kubectl_nodelife.controllers.tainteviction.join import RunningTimer
from kubectl_nodelife.controllers.tainteviction.timed_workers import Work
from kubectl_nodelife.controllers.tainteviction.tolerance import (
    ToleratedStay,
    why_deleted,
    why_scheduled,
)
from kubectl_nodelife.engine.actions import Action, ScheduleEviction
from kubectl_nodelife.kube.pod import Pod


class EvictionTerms(msgspec.Struct, frozen=True, gc=False):
    """The stay that a list of tolerations allows on one node now, with its sentences made once."""

    stay: ToleratedStay
    because: str
    because_deleted: str

    def schedule(self, pod: Pod, due_ns: int, cause: Action | None) -> ScheduleEviction:
        """The pod will be deleted then."""
        return ScheduleEviction(
            controller=CONTROLLER,
            because=self.because,
            cause=cause,
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            pod_uid=pod.metadata.uid,
            due_ns=due_ns,
            toleration_seconds=self.stay.seconds or 0,
            taints=self.stay.taints,
        )


def terms_of_stay(stay: ToleratedStay, node: str, since_ns: int) -> EvictionTerms:
    """The stay with its sentences, counted from that instant."""
    if stay.seconds is None:
        return EvictionTerms(stay, "", "")
    because = why_scheduled(stay, node, since_ns)
    return EvictionTerms(stay, because, why_deleted(stay, node, since_ns))


def work_of_timer(pod: Pod, timer: RunningTimer) -> Work:
    """The work that a running controller has for the pod."""
    node = pod.spec.node_name
    terms = terms_of_stay(timer.stay, node, timer.created_ns)
    return Work(
        pod.key,
        node,
        timer.created_ns,
        timer.due_ns,
        terms.schedule(pod, timer.due_ns, None),
        terms.because_deleted,
        timer.earliest_ns,
        timer.latest_ns,
        timer.doubt,
    )
