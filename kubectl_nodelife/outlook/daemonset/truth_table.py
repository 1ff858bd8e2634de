"""Says for each node whether it should run a pod of the set, whether one may stay, and why."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubectl_nodelife.controllers.daemonset.node_status_index import ROLLING_UPDATE
from kubectl_nodelife.controllers.daemonset.pods_on_node import (
    NodeDecision,
    available_from,
    is_past,
)
from kubectl_nodelife.controllers.daemonset.rolling_update import UpdateStep
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.daemonset.rollout_outlook import rollout_outlook
from kubectl_nodelife.outlook.daemonset.rollout_verdict import NEVER, hindrances, taken_for_good
from kubectl_nodelife.outlook.daemonset.view import SetView, trouble_of

NOT_THERE = "NodeMissing"


class PodCell(msgspec.Struct, frozen=True, rename="camel"):
    """A pod of the set on a node."""

    name: str
    revision: str
    phase: str
    ready: bool
    available: bool
    terminating: bool
    trouble: str
    scheduled: bool


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
    rows = []
    decided = view.decisions
    step = view.update_step()
    turns = _turns(view) if step is not None else {}
    for name, verdict, pods in view.nodes():
        cells = [pod_cell(view, pod) for pod in pods]
        upcoming = _next(name, pods, decided.get(name), step) or _waits(view, name, pods, turns)
        if verdict is None:
            text = "there is no such node; pod garbage collection takes bound pods away"
            rows.append(NodeRow(name, False, False, False, cells, NOT_THERE, name, text, upcoming))
            continue
        runs = (verdict.want_to_run, verdict.should_run, verdict.should_continue_running)
        rule = (verdict.rule, verdict.subject, verdict.text)
        failed = [f'failed to place pod on "{name}": {why}' for why in verdict.failed_placements]
        rows.append(NodeRow(name, *runs, cells, *rule, upcoming, failed))
    return rows


def pod_cell(view: SetView, pod: Pod) -> PodCell:
    """The fields of a pod that a row shows."""
    since = available_from(pod, view.daemon_set.spec.min_ready_seconds)
    at_once = view.tracked.rules.available_at_the_instant
    available = since is not None and is_past(since, view.now_ns, at_once)
    trouble = trouble_of(view, pod)
    return PodCell(
        name=pod.name,
        revision=view.revision_of(pod),
        phase=pod.status.phase,
        ready=pod.ready(),
        available=available,
        terminating=pod.metadata.deletion_timestamp is not None,
        trouble=trouble.words if trouble is not None else "",
        scheduled=bool(pod.spec.node_name),
    )


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


def _turns(view: SetView) -> dict[str, str]:
    """What a rolling update does on the nodes for which it is not a wait alone; "" for the rest."""
    outlook = rollout_outlook(view)
    verdict = outlook.verdict
    turns = {}
    if verdict.verdict == NEVER and verdict.node:
        holds = "holds the update up: " if outlook.old_nodes else ""
        turns = {"": f"wait for its turn in the update, which {verdict.node} holds up"}
        turns[verdict.node] = f"{holds}{verdict.because}"
        for also in hindrances(view, {}):
            if also.verdict == NEVER:
                turns.setdefault(also.node, also.because)
    for node, pod, why in taken_for_good(view):
        turns[node] = f"the update deletes {pod.name}, and none is made while {why} stands"
    return turns


def _waits(view: SetView, node: str, pods: list[Pod], turns: Mapping[str, str]) -> str:
    """The wait of a node whose pods are not as they should be while nothing is done; else "".

    `turns`: of `_turns`.
    """
    if pods and all(pod.metadata.deletion_timestamp is not None for pod in pods):
        return "wait until the terminating pod is gone"
    if view.knows_updated and node in view.node_index.with_old:
        if view.daemon_set.spec.update_strategy.type == ROLLING_UPDATE:
            return turns.get(node) or turns.get("") or "wait for its turn in the update"
        return "leave the old pod until it is deleted"
    return turns.get(node, "")
