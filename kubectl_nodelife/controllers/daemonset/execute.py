"""Carry out a decision: creates in growing batches, deletes at once, expectations around both.

Follows `syncNodes` (`pkg/controller/daemon/daemon_controller.go`). Creates run in batches of 1, 2,
4, 8 …, and stop after a batch with an error, as `slowStartBatch`
(`pkg/controller/controller_utils.go`) does: a namespace full of quota errors costs a handful of
calls, not 250.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b

from kubectl_nodelife.controllers.daemonset.history import SAFE_ALPHABET
from kubectl_nodelife.controllers.daemonset.pods_on_node import PodToDelete
from kubectl_nodelife.controllers.daemonset.sync_context import (
    CONTROLLER,
    GATEWAY_TIMEOUT,
    NOT_FOUND,
    Calls,
    Failures,
    SyncContext,
    SyncError,
    describe,
)
from kubectl_nodelife.engine.actions import Action, CreatePod, DeletePod
from kubectl_nodelife.engine.events import Outcome

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
    told = _note_failed_creates(sync, failures)
    sync.told += [*_told_creates(sync, batch, failures), *told]
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
    known = context.cache.nodes.get(node)
    kubelet_version = known.status.node_info.kubelet_version if known is not None else ""
    return CreatePod(
        controller=CONTROLLER,
        because=because,
        cause=context.cause,
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


def _told_creates(
    context: SyncContext, batch: Sequence[CreatePod], failures: Failures
) -> list[Action]:
    failed = {f.action.target for f in failures}
    return [
        context.event("Normal", "SuccessfulCreate", f"Created pod: {action.target[1][1]}", action)
        for action in batch
        if action.target not in failed
    ]


def _note_failed_creates(context: SyncContext, failures: Failures) -> list[Action]:
    told: list[Action] = []
    for failure in failures:
        rules = context.rules
        if rules.terminating_namespace_is_fine and NAMESPACE_TERMINATING in failure.message:
            continue
        message = f"Error creating: {describe(failure)}"
        told.append(context.event("Warning", "FailedCreate", message, failure.action))
        if rules.create_timeout_ignored and failure.code == GATEWAY_TIMEOUT:
            continue
        context.expectations.creation_observed(context.key)
        context.failed_calls.append(describe(failure))
    return told


def _delete(delete: Sequence[PodToDelete], sync: SyncContext, _failures: Failures) -> Calls:
    if not delete:
        return ()
    batch = tuple(
        DeletePod(
            controller=CONTROLLER,
            because=doomed.because,
            cause=sync.cause,
            namespace=doomed.pod.namespace,
            pod=doomed.pod.name,
            pod_uid=doomed.pod.uid,
        )
        for doomed in delete
    )
    sync.then(partial(_deleted, batch))
    return batch


def _deleted(batch: Sequence[DeletePod], sync: SyncContext, failures: Failures) -> Calls:
    """Take in the outcome of the deletes."""
    failed = {f.action.target: f for f in failures}
    for action in batch:
        failure = failed.get(action.target)
        if failure is None:
            message = f"Deleted pod: {action.pod}"
            sync.told.append(sync.event("Normal", "SuccessfulDelete", message, action))
        else:
            sync.told += _note_failed_delete(sync, failure)
    return ()


def _note_failed_delete(context: SyncContext, failure: Outcome) -> list[Action]:
    context.expectations.deletion_observed(context.key)
    if context.rules.not_found_on_delete_is_fine and failure.code == NOT_FOUND:
        return []
    context.failed_calls.append(describe(failure))
    message = f"Error deleting: {describe(failure)}"
    return [context.event("Warning", "FailedDelete", message, failure.action)]


def slow_start_batches(
    count: int, initial: int = SLOW_START_INITIAL_BATCH_SIZE
) -> Iterator[tuple[int, int]]:
    """(position, size) of each batch for `count` calls; the caller stops early on an error."""
    position = 0
    size = min(count, initial)
    while size > 0:
        yield position, size
        position += size
        size = min(2 * size, count - position)
