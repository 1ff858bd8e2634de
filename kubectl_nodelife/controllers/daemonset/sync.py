"""One sync of one set, from top to bottom.

Follows `syncDaemonSet`, `manage`, `updateDaemonSet` and `updateDaemonSetStatus`
(`pkg/controller/daemon/daemon_controller.go`). Upstream decides on the whole cluster in each sync;
so does this, but looks again only at nodes that changed (`node_status_index.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubectl_nodelife.controllers.daemonset.budget import ROLLING_UPDATE
from kubectl_nodelife.controllers.daemonset.construct_history import (
    adopt,
    claim_or_fail,
    clean_up_history,
    construct_history,
    release,
)
from kubectl_nodelife.controllers.daemonset.execute import sync_nodes
from kubectl_nodelife.controllers.daemonset.history import hash_label
from kubectl_nodelife.controllers.daemonset.node_status_index import NodeStatusIndex
from kubectl_nodelife.controllers.daemonset.pods_on_node import (
    NodeDecision,
    NodeQuestion,
    PodToDelete,
    pods_should_be_on_node,
)
from kubectl_nodelife.controllers.daemonset.status import (
    differences,
    status_differs,
    status_from_tally,
)
from kubectl_nodelife.controllers.daemonset.sync_context import (
    CONTROLLER,
    Steps,
    SyncContext,
    SyncError,
    describe,
)
from kubectl_nodelife.controllers.daemonset.tracked_set import RevisionHistory
from kubectl_nodelife.controllers.daemonset.update_plan import (
    UpdateImpossibleError,
    plan_update,
)
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.daemonset_actions import UpdateDaemonSetStatus
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus

SECOND_NS = 1_000_000_000

SELECTING_ALL = "This daemon set is selecting all pods. A non-empty selector is required."


def sync_daemon_set(context: SyncContext) -> Steps:
    """One sync. Raises SyncError."""
    if context.tracked.selects_everything:
        yield [context.event("Warning", "SelectingAll", SELECTING_ALL)]
        return
    if context.daemon_set.metadata.deletion_timestamp is not None:
        return
    history = yield from construct_history(context)
    revision_hash = hash_label(history.current)
    if not context.expectations.satisfied(context.key, context.now):
        yield from update_status(context, revision_hash, observe=False)
        return
    error: SyncError | None = None
    try:
        yield from _update_daemon_set(context, history, revision_hash)
    except SyncError as raised:
        if not context.rules.status_written_after_error:
            raise
        error = raised
    try:
        yield from update_status(context, revision_hash, observe=True)
    except SyncError as raised:
        error = error or raised
    if error is not None:
        raise error


def _update_daemon_set(context: SyncContext, history: RevisionHistory, revision_hash: str) -> Steps:
    yield from manage(context, revision_hash)
    strategy = context.daemon_set.spec.update_strategy.type
    if strategy == ROLLING_UPDATE and context.expectations.satisfied(context.key, context.now):
        yield from rolling_update(context, revision_hash)
    yield from clean_up_history(context, history)


def manage(context: SyncContext, revision_hash: str) -> Steps:
    """The create step: claim pods, decide for each node, carry it out. Raises SyncError."""
    if context.tracked.pods.to_adopt or context.tracked.pods.to_release:
        yield from claim_pods(context)
    node_index = context.tracked.refresh(context.now, revision_hash)
    create: list[tuple[str, str]] = []
    delete: list[PodToDelete] = []
    told = list(_failed_placements(context, node_index)) if node_index.failing else []
    failed = 0
    for node, decision in decisions(context, node_index, revision_hash):
        if decision.create_because:
            create.append((node, f"node {node}: {decision.create_because}"))
        delete += decision.delete
        failed += decision.failed_pods
        told += [context.event(*event) for event in decision.events]
        if decision.requeue_at_ns is not None:
            context.requeue_at_ns.append(decision.requeue_at_ns)
    if node_index.strays and context.rules.unscheduled_pods_of_missing_nodes_deleted:
        delete += _unscheduled_pods_without_node(context, node_index)
    if told:
        yield told
    yield from sync_nodes(context, delete, create, revision_hash)
    if failed and not context.rules.failed_pods_back_off:
        ns, name = context.key
        raise SyncError(f"deleted {failed} failed pods of DaemonSet {ns}/{name}")


def decisions(
    context: SyncContext, node_index: NodeStatusIndex, revision_hash: str
) -> Iterable[tuple[str, NodeDecision]]:
    """The decision for each node where there may be something to do, in name order."""
    if not node_index.busy:
        return
    question = NodeQuestion(
        context.daemon_set,
        revision_hash,
        context.tracked.surge_allowed,
        context.rules,
        context.backoff,
        context.now,
    )
    for node in sorted(node_index.busy):
        facts = node_index.facts(node)
        if facts is not None and facts.verdict is not None:
            pods = context.tracked.pods.on_node(node)
            yield node, pods_should_be_on_node(question, node, facts.verdict, pods)


def claim_pods(context: SyncContext) -> Steps:
    """Adopt matching orphans, release what no longer matches. Raises SyncError."""
    pods = context.tracked.pods
    calls: list[Action] = [adopt(context, "Pod", pod) for pod in pods.to_adopt.values()]
    calls += [release(context, "Pod", pod) for pod in pods.to_release.values()]
    if calls:
        claim_or_fail((yield calls))


def _unscheduled_pods_without_node(
    context: SyncContext, node_index: NodeStatusIndex
) -> list[PodToDelete]:
    """Pods that wait for a node which is not there. Follows `getUnscheduledPodsWithoutNode`."""
    return [
        PodToDelete(pod, f"it waits for node {node}, which does not exist")
        for node in sorted(node_index.strays)
        for pod in context.tracked.pods.on_node(node) or ()
        if not pod.spec.node_name
    ]


def _failed_placements(context: SyncContext, node_index: NodeStatusIndex) -> Iterable[Action]:
    """1.11 tells at every evaluation of the predicates why a pod cannot be placed."""
    for node in sorted(node_index.failing):
        facts = node_index.facts(node)
        verdict = facts.verdict if facts is not None else None
        for reason in verdict.failed_placements if verdict is not None else ():
            message = f'failed to place pod on "{node}": {reason}'
            yield context.event("Warning", "FailedPlacement", message)


def rolling_update(context: SyncContext, revision_hash: str) -> Steps:
    """The update step. Raises SyncError."""
    node_index = context.tracked.refresh(context.now, revision_hash)
    if node_index.failing:
        yield list(_failed_placements(context, node_index))
    try:
        step = plan_update(context.tracked, node_index, revision_hash, context.now)
    except UpdateImpossibleError as error:
        raise SyncError(str(error)) from None
    yield from sync_nodes(context, step.delete, step.create, revision_hash)


def update_status(context: SyncContext, revision_hash: str, observe: bool) -> Steps:
    """Write the status if it differs; come back when minReadySeconds are over. Raises SyncError."""
    node_index = context.tracked.refresh(context.now, revision_hash)
    if node_index.failing:
        yield list(_failed_placements(context, node_index))
    tally = node_index.tally
    if status_differs(context.daemon_set, tally, observe):
        yield from store_status(context, lambda fresh: status_from_tally(fresh, tally, observe))
    seconds = context.daemon_set.spec.min_ready_seconds
    waiting = tally.ready != tally.available
    if context.rules.requeue_for_min_ready_after_status and seconds > 0 and waiting:
        context.requeue_at_ns.append(context.now + seconds * SECOND_NS)


def store_status(context: SyncContext, status_of: Callable[[DaemonSet], DaemonSetStatus]) -> Steps:
    """Write the status, once more after an error. Raises SyncError.

    `status_of` makes the status for the set as last read. Follows `storeDaemonSetStatus`.
    """
    attempts = 2 if context.rules.status_update_retried else 1
    failures = []
    for attempt in range(attempts):
        daemon_set = context.daemon_set if attempt == 0 else context.tracked.daemon_set
        status = status_of(daemon_set)
        found = differences(daemon_set.status, status)
        failures = yield [
            UpdateDaemonSetStatus(
                controller=CONTROLLER,
                because=f"reported {'; '.join(found)}" if found else "a generation was acted on",
                cause=context.cause,
                namespace=daemon_set.namespace,
                name=daemon_set.name,
                set_uid=daemon_set.uid,
                status=status,
                reread=attempt > 0,
            )
        ]
        if not failures:
            return
    ns, name = context.key
    raise SyncError(f"error storing status for daemon set {ns}/{name}: {describe(failures[0])}")
