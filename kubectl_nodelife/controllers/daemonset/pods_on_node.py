"""Decides what one set should do on one node: make a pod, delete some, or wait.

Follows `podsShouldBeOnNode` (`pkg/controller/daemon/daemon_controller.go`), first match wins. Pure
but for the backoff of failed pods, which upstream too advances while it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kubectl_nodelife.controllers.daemonset.availability import is_pod_available
from kubectl_nodelife.controllers.daemonset.backoff import (
    FailedPodsBackoff,
    failed_pods_backoff_key,
)
from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.placement_decision import PlacementDecision
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import DaemonSet

FAILED_DAEMON_POD = "FailedDaemonPod"
SUCCEEDED_DAEMON_POD = "SucceededDaemonPod"


@dataclass(frozen=True)
class PodToDelete:
    """A pod that must go, and why."""

    pod: Pod
    because: str


@dataclass
class NodeDecision:
    """The decision on one node. `events` are (type, reason, message) on the set."""

    create_because: str = ""
    delete: list[PodToDelete] = field(default_factory=list)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    failed_pods: int = 0
    requeue_at_ns: int | None = None
    suspend: bool = False


@dataclass(frozen=True)
class NodeQuestion:
    """All that the decision depends on, besides the node's verdict and pods."""

    daemon_set: DaemonSet
    revision_hash: str
    surge_allowed: bool
    rules: Behaviour
    backoff: FailedPodsBackoff
    now: int


def pod_age_key(pod: Pod) -> tuple[bool, int, str]:
    """Sort key for "the oldest": bound pods first, then by creation time, then by name."""
    created = pod.metadata.creation_timestamp
    return (not pod.spec.node_name, -1 if created is None else created, pod.name)


def pods_should_be_on_node(
    question: NodeQuestion, node_name: str, verdict: PlacementDecision, pods: Sequence[Pod] | None
) -> NodeDecision:
    """The decision for one node; `pods` None: the node has no entry in the map of pods.

    An entry without pods can come from the surge rules only; it counts as an entry, as upstream.
    """
    decision = NodeDecision()
    if verdict.want_to_run and not verdict.should_run:
        decision.suspend = True
    elif verdict.should_run and pods is None:
        decision.create_because = f"{verdict.text}, and it has no pod of the set"
    elif verdict.should_continue_running:
        running = _running_pods(question, node_name, pods or (), decision)
        if question.surge_allowed:
            _decide_with_surge(question, verdict, running, decision)
        else:
            _keep_the_oldest(running, decision)
    elif pods is not None:
        again = question.rules.unfit_terminating_deleted_again
        for pod in pods:
            if again or pod.metadata.deletion_timestamp is None:
                decision.delete.append(PodToDelete(pod, f"{verdict.text}: its pod must go"))
    return decision


def _running_pods(
    question: NodeQuestion, node_name: str, pods: Sequence[Pod], decision: NodeDecision
) -> list[Pod]:
    """The pods that neither terminate nor are finished; finished ones are put up for deletion."""
    running = []
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None:
            continue
        if pod.status.phase == "Failed":
            _decide_on_failed_pod(question, node_name, pod, decision)
        elif pod.status.phase == "Succeeded" and question.rules.succeeded_pods_deleted:
            message = (
                f"Found succeeded daemon pod {pod.namespace}/{pod.name} on node {node_name},"
                " will try to delete it"
            )
            decision.events.append(("Normal", SUCCEEDED_DAEMON_POD, message))
            decision.delete.append(PodToDelete(pod, f"the pod on {node_name} has succeeded"))
        else:
            running.append(pod)
    return running


def _decide_on_failed_pod(
    question: NodeQuestion, node_name: str, pod: Pod, decision: NodeDecision
) -> None:
    """Delete it, or leave it while its node is in backoff.

    The set comes back after the *whole* delay, counted from now, not after what is left of it:
    `enqueueDaemonSetAfter(ds, failedPodsBackoff.Get(backoffKey))`.
    """
    decision.failed_pods += 1
    because = f"the pod on {node_name} has failed"
    if question.rules.failed_pods_back_off:
        key = failed_pods_backoff_key(question.daemon_set, node_name)
        if question.backoff.in_backoff_since_update(key, question.now):
            at_ns = question.now + question.backoff.get(key)
            earlier = decision.requeue_at_ns
            decision.requeue_at_ns = at_ns if earlier is None else min(earlier, at_ns)
            return
        delay_s = question.backoff.next(key, question.now) / 1e9
        because += f"; the next failure there waits {delay_s:g}s"
    message = (
        f"Found failed daemon pod {pod.namespace}/{pod.name} on node {node_name},"
        " will try to kill it"
    )
    decision.events.append(("Warning", FAILED_DAEMON_POD, message))
    decision.delete.append(PodToDelete(pod, because))


def _keep_the_oldest(running: list[Pod], decision: NodeDecision) -> None:
    if len(running) > 1:
        oldest, *rest = sorted(running, key=pod_age_key)
        for pod in rest:
            decision.delete.append(
                PodToDelete(pod, f"one pod a node is enough; {oldest.name} is older")
            )


def _decide_with_surge(
    question: NodeQuestion, verdict: PlacementDecision, running: list[Pod], decision: NodeDecision
) -> None:
    """Section "surge allowed": two pods, one of each version, may stand side by side."""
    if len(running) <= 1:
        if not running and verdict.should_run:
            decision.create_because = f"{verdict.text}, and no pod of the set runs there"
        return
    newest: Pod | None = None
    old: Pod | None = None
    for pod in sorted(running, key=pod_age_key):
        labels = pod.metadata.labels or {}
        if labels.get(LABEL_CONTROLLER_REVISION_HASH, "") == question.revision_hash:
            if newest is None:
                newest = pod
                continue
        elif old is None:
            old = pod
            continue
        decision.delete.append(PodToDelete(pod, "more pods on the node than one of each version"))
    if newest is None or old is None:
        return
    if not old.ready():
        because = f"the old pod is not Ready and {newest.name} takes its place"
        decision.delete.append(PodToDelete(old, because))
    elif is_pod_available(
        newest,
        question.daemon_set.spec.min_ready_seconds,
        question.now,
        question.rules.available_at_the_instant,
    ):
        decision.delete.append(PodToDelete(old, f"its successor {newest.name} is available"))
