"""One sync of one set, from top to bottom.

Follows `syncDaemonSet`, `manage`, `updateDaemonSet` and `updateDaemonSetStatus`
(`pkg/controller/daemon/daemon_controller.go`). Upstream decides on the whole cluster in each sync;
so does this, but looks again only at nodes that changed (`node_status_index.py`).

A decision is carried out as `syncNodes` does it: creates in batches of 1, 2, 4, 8 …, ended after a
batch with an error, as `slowStartBatch` (`pkg/controller/controller_utils.go`) does, so that a
namespace full of quota errors costs a handful of calls and not 250; deletes at once; expectations
around both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b

from kubectl_nodelife.controllers.daemonset.history import (
    SAFE_ALPHABET,
    adopt,
    claim_or_fail,
    clean_up_history,
    construct_history,
    hash_label,
    release,
)
from kubectl_nodelife.controllers.daemonset.memory import (
    GATEWAY_TIMEOUT,
    NOT_FOUND,
    Calls,
    Failures,
    SyncContext,
    SyncError,
    describe,
)
from kubectl_nodelife.controllers.daemonset.node_status_index import (
    ROLLING_UPDATE,
    NodeStatusIndex,
    differences,
    status_differs,
    status_from_tally,
)
from kubectl_nodelife.controllers.daemonset.pods_on_node import (
    NodeDecision,
    NodeQuestion,
    PodToDelete,
    pods_should_be_on_node,
)
from kubectl_nodelife.controllers.daemonset.rolling_update import UpdateImpossibleError, plan_update
from kubectl_nodelife.engine.actions import (
    Action,
    CreatePod,
    DeletePod,
    UpdateDaemonSetStatus,
    of_object,
    of_pod,
)
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus

NAMESPACE_TERMINATING = "being terminated"
"""Part of the server's message when a namespace that is going refuses new objects."""

_SUFFIX_LENGTH = 5
_NAME_LIMIT = 63

BURST_REPLICAS = 250
SLOW_START_INITIAL_BATCH_SIZE = 1


def sync_nodes(
    delete: Sequence[PodToDelete],
    create: Sequence[tuple[str, str]],
    revision_hash: str,
    sync: SyncContext,
    _failures: Failures,
) -> Calls:
    """Delete these pods and make one on each of these nodes (node, because); 250 each at most.

    Raises SyncError in the end, with all that went wrong.
    """
    create, delete = tuple(create[:BURST_REPLICAS]), tuple(delete[:BURST_REPLICAS])
    sync.expectations.expect(sync.key, len(create), len(delete), sync.now)
    if not create and not delete:
        return ()
    sync.failed_calls = []
    batches = tuple(slow_start_batches(len(create)))
    return sync.then(
        partial(_create_batch, create, batches, revision_hash),
        partial(_delete, delete),
        _raise_failed_calls,
    )


def _raise_failed_calls(sync: SyncContext, _failures: Failures) -> Calls:
    if sync.failed_calls:
        raise SyncError("; ".join(sync.failed_calls))
    return ()


def _create_batch(
    create: Sequence[tuple[str, str]],
    batches: Sequence[tuple[int, int]],
    revision_hash: str,
    sync: SyncContext,
    _failures: Failures,
) -> Calls:
    """The first of these batches (position, size)."""
    if not batches:
        return ()
    position, size = batches[0]
    taken: set[str] = set()
    batch = tuple(
        create_pod(sync, node, revision_hash, because, taken)
        for node, because in create[position : position + size]
    )
    sync.then(partial(_created, batch, create, batches, revision_hash))
    return batch


def _created(
    batch: Sequence[CreatePod],
    create: Sequence[tuple[str, str]],
    batches: Sequence[tuple[int, int]],
    revision_hash: str,
    sync: SyncContext,
    failures: Failures,
) -> Calls:
    """Take in the outcome of a batch of creates; the next one follows unless something failed."""
    events = _note_failed_creates(sync, failures)
    sync.events += [*_creation_events(sync, batch, failures), *events]
    if not sync.failed_calls:
        return sync.then(partial(_create_batch, create, batches[1:], revision_hash))
    position, size = batches[0]
    classic = sync.rules.slow_start_skips_from_the_batch
    skipped = len(create) - (size if classic else position + size)
    sync.expectations.lower(sync.key, adds=skipped)
    return ()


def create_pod(
    context: SyncContext, node: str, revision_hash: str, because: str, taken: set[str]
) -> CreatePod:
    """The action that makes the set's pod for a node."""
    daemon_set = context.daemon_set
    name = pod_name(context, node, taken)
    taken.add(name)
    shown = context.cache.nodes.get(node)
    kubelet_version = shown.status.node_info.kubelet_version if shown is not None else ""
    return CreatePod(
        **context.why(because),
        namespace=daemon_set.namespace,
        pod=name,
        manifest=context.template.pod_manifest(name, node, revision_hash, kubelet_version),
        node=node,
        owner=daemon_set.name,
        owner_uid=daemon_set.uid,
        revision=revision_hash,
    )


def pod_name(context: SyncContext, node: str, taken: set[str]) -> str:
    """A free name of the form that the server would generate; the same in every run."""
    base = f"{context.daemon_set.name}-"[: _NAME_LIMIT - _SUFFIX_LENGTH]
    seed = f"{context.daemon_set.uid}/{node}/{context.now}"
    attempt = 0
    while True:
        digest = blake2b(f"{seed}/{attempt}".encode(), digest_size=4).digest()
        number = int.from_bytes(digest, "big")
        suffix = ""
        for _ in range(_SUFFIX_LENGTH):
            number, digit = divmod(number, len(SAFE_ALPHABET))
            suffix += SAFE_ALPHABET[digit]
        name = base + suffix
        if name not in taken and (context.daemon_set.namespace, name) not in context.cache.pods:
            return name
        attempt += 1


def _creation_events(
    context: SyncContext, batch: Sequence[CreatePod], failures: Failures
) -> list[Action]:
    failed = {f.action.target for f in failures}
    return [
        context.event("Normal", "SuccessfulCreate", f"Created pod: {action.target[1][1]}", action)
        for action in batch
        if action.target not in failed
    ]


def _note_failed_creates(context: SyncContext, failures: Failures) -> list[Action]:
    events: list[Action] = []
    for failure in failures:
        rules = context.rules
        if rules.terminating_namespace_is_fine and NAMESPACE_TERMINATING in failure.message:
            continue
        message = f"Error creating: {describe(failure)}"
        events.append(context.event("Warning", "FailedCreate", message, failure.action))
        if rules.create_timeout_ignored and failure.code == GATEWAY_TIMEOUT:
            continue
        context.expectations.creation_observed(context.key)
        context.failed_calls.append(describe(failure))
    return events


def _delete(delete: Sequence[PodToDelete], sync: SyncContext, _failures: Failures) -> Calls:
    if not delete:
        return ()
    batch = tuple(DeletePod(**sync.why(doomed.because), **of_pod(doomed.pod)) for doomed in delete)
    sync.then(partial(_deleted, batch))
    return batch


def _deleted(batch: Sequence[DeletePod], sync: SyncContext, failures: Failures) -> Calls:
    """Take in the outcome of the deletes."""
    failed = {f.action.target: f for f in failures}
    for action in batch:
        failure = failed.get(action.target)
        if failure is None:
            message = f"Deleted pod: {action.pod}"
            sync.events.append(sync.event("Normal", "SuccessfulDelete", message, action))
        else:
            sync.events += _note_failed_delete(sync, failure)
    return ()


def _note_failed_delete(context: SyncContext, failure: Outcome) -> list[Action]:
    context.expectations.deletion_observed(context.key)
    if context.rules.not_found_on_delete_is_fine and failure.code == NOT_FOUND:
        return []
    context.failed_calls.append(describe(failure))
    message = f"Error deleting: {describe(failure)}"
    return [context.event("Warning", "FailedDelete", message, failure.action)]


def slow_start_batches(count: int) -> Iterator[tuple[int, int]]:
    """(position, size) of each batch for `count` calls; the caller stops early on an error."""
    position = 0
    size = min(count, SLOW_START_INITIAL_BATCH_SIZE)
    while size > 0:
        yield position, size
        position += size
        size = min(2 * size, count - position)


StatusOf = Callable[[DaemonSet], DaemonSetStatus]


SELECTING_ALL = "This daemon set is selecting all pods. A non-empty selector is required."


def sync_daemon_set(sync: SyncContext, _failures: Failures) -> Calls:
    """The first step of a sync: what it ends with is left in `sync.error`."""
    if sync.tracked.selects_everything:
        return [sync.event("Warning", "SelectingAll", SELECTING_ALL)]
    if sync.daemon_set.metadata.deletion_timestamp is not None:
        return ()
    return sync.then(construct_history, _update_daemon_set)


def _update_daemon_set(sync: SyncContext, _failures: Failures) -> Calls:
    """The history is known. Later releases write the status also after an error."""
    assert sync.history is not None
    revision_hash = hash_label(sync.history.current)
    if not sync.expectations.satisfied(sync.key, sync.now):
        return update_status(sync, revision_hash, not sync.rules.waiting_sync_keeps_generation)
    observe = partial(_observe, revision_hash)
    sync.on_error = observe if sync.rules.status_written_after_error else None
    return sync.then(
        partial(manage, revision_hash),
        partial(_update_pods, revision_hash),
        clean_up_history,
        observe,
    )


def _update_pods(revision_hash: str, sync: SyncContext, _failures: Failures) -> Calls:
    strategy = sync.daemon_set.spec.update_strategy.type
    if strategy == ROLLING_UPDATE and sync.expectations.satisfied(sync.key, sync.now):
        return rolling_update(sync, revision_hash)
    return ()


def _observe(revision_hash: str, sync: SyncContext, _failures: Failures) -> Calls:
    sync.on_error = None
    return update_status(sync, revision_hash, observe=True)


def manage(revision_hash: str, sync: SyncContext, _failures: Failures) -> Calls:
    """The create step: claim pods, decide for each node, carry it out. Raises SyncError."""
    if not sync.tracked.pods.to_adopt and not sync.tracked.pods.to_release:
        return _manage_nodes(revision_hash, sync, ())
    return sync.then(claim_pods, partial(_manage_nodes, revision_hash))


def _manage_nodes(revision_hash: str, sync: SyncContext, _failures: Failures) -> Calls:
    node_index = sync.tracked.refresh(sync.now, revision_hash)
    create: list[tuple[str, str]] = []
    delete: list[PodToDelete] = []
    failed = 0
    _report_failed_placements(sync, node_index)
    for node, decision in decisions(sync, node_index, revision_hash):
        if decision.create_because:
            create.append((node, f"node {node}: {decision.create_because}"))
        delete += decision.delete
        failed += decision.failed_pods
        sync.events += [sync.event(*event) for event in decision.events]
        if decision.requeue_at_ns is not None:
            sync.requeue_at_ns.append(decision.requeue_at_ns)
    if node_index.strays and sync.rules.unscheduled_pods_of_missing_nodes_deleted:
        delete += _unscheduled_pods_without_node(sync, node_index)
    if failed and sync.rules.failed_pods_end_the_sync:
        sync.then(partial(_raise_failed_pods, failed))
    return sync_nodes(delete, create, revision_hash, sync, ())


def _raise_failed_pods(failed: int, sync: SyncContext, _failures: Failures) -> Calls:
    ns, name = sync.key
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


def claim_pods(sync: SyncContext, _failures: Failures) -> Calls:
    """Adopt matching orphans, release what no longer matches. Raises SyncError."""
    pods = sync.tracked.pods
    sync.then(claim_or_fail)
    return [
        *(adopt(sync, "Pod", pod) for pod in pods.to_adopt.values()),
        *(release(sync, "Pod", pod) for pod in pods.to_release.values()),
    ]


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


def _report_failed_placements(sync: SyncContext, node_index: NodeStatusIndex) -> None:
    """1.11 reports at every evaluation of the predicates why a pod cannot be placed."""
    if not node_index.failing:
        return
    for node in sorted(node_index.failing):
        facts = node_index.facts(node)
        verdict = facts.verdict if facts is not None else None
        for reason in verdict.failed_placements if verdict is not None else ():
            message = f'failed to place pod on "{node}": {reason}'
            sync.events.append(sync.event("Warning", "FailedPlacement", message))


def rolling_update(sync: SyncContext, revision_hash: str) -> Calls:
    """The update step. Raises SyncError."""
    node_index = sync.tracked.refresh(sync.now, revision_hash)
    _report_failed_placements(sync, node_index)
    try:
        step = plan_update(sync.tracked, node_index, revision_hash, sync.now)
    except UpdateImpossibleError as error:
        raise SyncError(str(error)) from None
    return sync_nodes(step.delete, step.create, revision_hash, sync, ())


def update_status(sync: SyncContext, revision_hash: str, observe: bool) -> Calls:
    """Write the status if it differs; come back when minReadySeconds are over. Raises SyncError."""
    node_index = sync.tracked.refresh(sync.now, revision_hash)
    _report_failed_placements(sync, node_index)
    tally = node_index.tally
    if tally.ready != tally.available:
        sync.then(_come_back)
    if status_differs(sync.daemon_set, tally, observe):
        sync.then(partial(store_status, partial(status_from_tally, tally=tally, observe=observe)))
    return ()


def _come_back(sync: SyncContext, _failures: Failures) -> Calls:
    """Some ready pod is not available yet, though it may be so once minReadySeconds are over."""
    seconds = sync.daemon_set.spec.min_ready_seconds
    if sync.rules.requeue_for_min_ready_after_status and seconds > 0:
        sync.requeue_at_ns.append(sync.now + seconds * SECOND_NS)
    return ()


def store_status(status_of: StatusOf, sync: SyncContext, _failures: Failures) -> Calls:
    """Write the status, once more after an error. Raises SyncError.

    `status_of` makes the status for the set as last read. Follows `storeDaemonSetStatus`.
    """
    return _write_status(sync, sync.daemon_set, status_of, attempt=1)


def _write_status(
    sync: SyncContext, daemon_set: DaemonSet, status_of: StatusOf, attempt: int
) -> Calls:
    status = status_of(daemon_set)
    changes = differences(daemon_set.status, status)
    sync.then(partial(_status_written, status_of, attempt))
    return [
        UpdateDaemonSetStatus(
            **sync.why(
                f"reported {'; '.join(changes)}" if changes else "a generation was acted on"
            ),
            **of_object(daemon_set),
            status=status,
            reread=attempt > 1,
        )
    ]


def _status_written(
    status_of: StatusOf, attempt: int, sync: SyncContext, failures: Failures
) -> Calls:
    if not failures:
        return ()
    if attempt < (2 if sync.rules.status_update_retried else 1):
        return _write_status(sync, sync.tracked.daemon_set, status_of, attempt + 1)
    ns, name = sync.key
    raise SyncError(f"error storing status for daemon set {ns}/{name}: {describe(failures[0])}")
