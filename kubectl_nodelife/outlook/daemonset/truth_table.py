"""Says for each node whether it should run a pod of the set, whether one may stay, and why."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubectl_nodelife.controllers.daemonset.pods_on_node import (
    NodeDecision,
    available_from,
    is_past,
)
from kubectl_nodelife.controllers.daemonset.rolling_update import ROLLING_UPDATE, UpdateStep
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.outlook.daemonset.view import SetView

NOT_THERE = "NodeMissing"
NOT_SCHEDULED = "not scheduled"


class PodCell(msgspec.Struct, frozen=True, rename="camel"):
    """A pod of the set on a node."""

    name: str
    revision: str
    phase: str
    ready: bool
    available: bool
    terminating: bool
    trouble: str


class NodeRow(msgspec.Struct, frozen=True, rename="camel"):
    """One row. `rule` decided, `subject` is what it is about, `because` says it in words.

    `should_run` is 1.11's wantToRun, `should_continue` shouldContinueRunning. `failed_placements`
    are the messages of 1.11's event FailedPlacement.

    `next` is what the controller would do there now, "" for nothing.
    """

    node: str
    should_run: bool
    should_schedule: bool
    should_continue: bool
    has: list[PodCell]
    rule: str
    subject: str
    because: str
    next: str
    failed_placements: list[str] = []


def truth_table(view: SetView) -> list[NodeRow]:
    """All nodes, in name order."""
    return list(_rows(view))


def _rows(view: SetView) -> Iterator[NodeRow]:
    decided = view.decisions()
    step = view.update_step()
    for name, verdict, pods in view.nodes():
        cells = [pod_cell(view, pod) for pod in pods]
        upcoming = _next(name, pods, decided.get(name), step) or _waits(view, name, pods)
        if verdict is None:
            text = "there is no such node; pod garbage collection takes bound pods away"
            yield NodeRow(name, False, False, False, cells, NOT_THERE, name, text, upcoming)
            continue
        yield NodeRow(
            name,
            verdict.want_to_run,
            verdict.should_run,
            verdict.should_continue_running,
            cells,
            verdict.rule,
            verdict.subject,
            verdict.text,
            upcoming,
            [f'failed to place pod on "{name}": {why}' for why in verdict.failed_placements],
        )


def pod_cell(view: SetView, pod: Pod) -> PodCell:
    """The fields of a pod that a row shows."""
    seconds = view.daemon_set.spec.min_ready_seconds
    since = available_from(pod, seconds)
    rules = view.tracked.rules
    available = since is not None and is_past(since, view.now_ns, rules.available_at_the_instant)
    return PodCell(
        name=pod.name,
        revision=view.revision_of(pod),
        phase=pod.status.phase,
        ready=pod.ready(),
        available=available,
        terminating=pod.metadata.deletion_timestamp is not None,
        trouble=trouble_of(view, pod),
    )


def trouble_of(view: SetView, pod: Pod) -> str:
    """Why the pod does not do its work, "" if it does."""
    node = view.cache.nodes.get(pod.spec.node_name)
    node_down = node is not None and not node.is_ready
    if pod.metadata.deletion_timestamp is not None:
        return "terminating, and its node is not Ready" if node_down else "terminating"
    if pod.status.phase in TERMINAL_PHASES:
        return pod.status.reason or pod.status.phase
    if not pod.spec.node_name:
        scheduled = pod.status.condition("PodScheduled")
        why = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
        return f"{NOT_SCHEDULED}: {why}" if why else NOT_SCHEDULED
    if pod.ready():
        return ""
    for status in pod.status.container_statuses or ():
        waiting = status.state.waiting
        if waiting is not None and waiting.reason:
            return f"container {status.name} waits: {waiting.reason}"
    return "its node is not Ready" if node_down else "not Ready"


def _next(
    node: str, pods: list[Pod], decision: NodeDecision | None, step: UpdateStep | None
) -> str:
    """The controller's next acts on the node, in words; "" for none."""
    words = []
    if decision is not None:
        if decision.create_because:
            words.append("create a pod")
        words += [f"delete {doomed.pod.name}: {doomed.because}" for doomed in decision.delete]
        if decision.requeue_at_ns is not None:
            words.append("wait for the failed pod's backoff to end")
        if decision.suspend:
            words.append("wait for room")
    if step is not None:
        names = {pod.name for pod in pods}
        here = [doomed for doomed in step.delete if doomed.pod.name in names]
        words += [f"delete {doomed.pod.name}: {doomed.because}" for doomed in here]
        words += [f"create a pod: {because}" for name, because in step.create if name == node]
    return "; ".join(words)


def _waits(view: SetView, node: str, pods: list[Pod]) -> str:
    """The wait of a node whose pods are not as they should be while nothing is done; else ""."""
    if pods and all(pod.metadata.deletion_timestamp is not None for pod in pods):
        return "wait until the terminating pod is gone"
    if view.knows_updated and node in view.node_index.with_old:
        if view.daemon_set.spec.update_strategy.type == ROLLING_UPDATE:
            return "wait for its turn in the update"
        return "leave the old pod until it is deleted"
    return ""
