"""The DaemonSet controller as the engine sees it: changes in, actions out.

Follows the queue and workers of `pkg/controller/daemon/daemon_controller.go`. A key that changes
touch waits one nanosecond, so that all changes of one instant lead to one sync; one that a node's
change touches is synced before the taints are seen with which the node lifecycle controller answers
that change, since its patch takes some milliseconds and a sync begins at once. A sync that has
made calls is put aside until the cache shows what they did, or they failed; a key that is added
meanwhile is synced again afterwards. Left out: the number of workers (each set's sync is its own).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import cast

from kubectl_nodelife.controllers.daemonset.behaviour import behaviour_of
from kubectl_nodelife.controllers.daemonset.handlers import EventHandlers, WorkQueue
from kubectl_nodelife.controllers.daemonset.memory import (
    CONTROLLER,
    EXPECTATIONS_TIMEOUT_NS,
    Calls,
    ControllerExpectations,
    SetIndex,
    SyncContext,
    TrackedSet,
)
from kubectl_nodelife.controllers.daemonset.pods_on_node import FailedPodsBackoff
from kubectl_nodelife.controllers.daemonset.sync import sync_daemon_set
from kubectl_nodelife.engine.actions import (
    Action,
    CreateControllerRevision,
    CreatePod,
    RecordEvent,
    Requeue,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Change, Outcome
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet

Key = tuple[str, str]
Target = tuple[str, Key]

_QUEUE = "queue"
_OVERDUE = "overdue"
_CREATES = (CreatePod, CreateControllerRevision)


@dataclass
class RunningSync:
    """A sync that waits for the cache to show its calls, or for their failure."""

    context: SyncContext
    waiting: dict[Target, Action] = field(default_factory=dict)
    failures: list[Outcome] = field(default_factory=list)
    again: bool = False
    since_ns: int = 0


class DaemonSetController:
    """Keeps one pod of each DaemonSet on each node that should have one."""

    name = CONTROLLER
    watches = frozenset({"DaemonSet", "ControllerRevision", "Pod", "Node"})
    reads_conditions_of = frozenset({"DaemonSet", ""})
    reads_success = False

    def __init__(self, settings: Settings, backoff: FailedPodsBackoff | None = None) -> None:
        self.rules = behaviour_of((1, settings.profile.minor), settings.gates)
        self.index = SetIndex()
        self.queue = WorkQueue()
        self.expectations = ControllerExpectations()
        self.backoff = backoff or FailedPodsBackoff()
        self.handlers = EventHandlers(self.rules, self.index, self.queue, self.expectations)
        self.errors: dict[Key, str] = {}
        """The error that the last sync of a set ended with, if it did."""
        self._running: dict[Key, RunningSync] = {}
        self._awaited: dict[Target, Key] = {}
        self._wake_at_ns: int | None = None

    def fork(self, cache: Cache) -> DaemonSetController:
        """Another one with the same memory, syncs in progress among it."""
        other = copy(self)
        other.index, other.queue = self.index.fork(cache), self.queue.fork()
        other.expectations, other.backoff = self.expectations.fork(), self.backoff.fork()
        other.handlers = self.handlers.fork(other.index, other.queue, other.expectations)
        other.errors, other._awaited = dict(self.errors), dict(self._awaited)
        other._running = {}
        for key, running in self._running.items():
            indexed = self.index.by_key.get(key)
            tracked = running.context.tracked  # it may have been replaced since
            tracked = other.index.by_key[key] if tracked is indexed else tracked.fork(cache)
            context = running.context.fork(
                tracked, other.index, cache, other.expectations, other.backoff
            )
            theirs = other._running[key] = copy(running)
            theirs.context, theirs.waiting = context, dict(running.waiting)
            theirs.failures = list(running.failures)
        return other

    def start(self, cache: Cache, now_ns: int) -> Iterator[Action | Requeue]:
        """Begin as a restarted controller: every set is synced, nothing is remembered. What nodes
        and pods are to it, one that runs on the same pods knows already, where there is one.
        """
        running = _running_on(cache)
        self.index.observe_first(cache.pods_of_nobody())
        for revision in cache.all("ControllerRevision"):
            assert isinstance(revision, ControllerRevision)
            self.index.observe_revision(None, revision)
        for daemon_set in cache.all("DaemonSet"):
            assert isinstance(daemon_set, DaemonSet)
            if running is not None:
                self.index.take_over(running.index, daemon_set, self.rules, cache)
            self.handlers.daemon_set(None, daemon_set, cache, None)
        yield from self._wake(now_ns, at_once=True)

    def join(self, cache: Cache, now_ns: int) -> Iterator[Action | Requeue]:
        """Begin beside a running one: the same, since all but its backoffs can be seen, and the
        delayed keys of pods that are yet to be available.
        """
        yield from self.start(cache, now_ns)
        self.handlers.await_availability(cache, now_ns)
        yield from self._wake(now_ns)

    def assume_longest_back_offs(self, cache: Cache, now_ns: int) -> None:
        """Take in the longest back-offs of failed pods that the running controller may have; before
        `join`, or after one that did nothing. Otherwise none are assumed.
        """
        if not self.rules.failed_pods_back_off:
            return
        for daemon_set in cache.all("DaemonSet"):
            assert isinstance(daemon_set, DaemonSet)
            for pod in cache.pods_of(daemon_set.uid):
                node = pod.spec.node_name
                if node and pod.metadata.namespace == daemon_set.namespace:
                    at_ns = self.backoff.assume_longest(daemon_set, node, pod, now_ns)
                    if at_ns > now_ns:
                        self.queue.add_after(daemon_set.key, at_ns)

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Iterable[Action | Requeue]:
        """Pass the change to the handlers, and go on with a sync that waited for it."""
        if not self._awaited and change.kind == "Pod" and self.handlers.passes_by(change):
            return ()
        return self._changed(change, cache, now_ns)

    def _changed(self, change: Change, cache: Cache, now_ns: int) -> Iterator[Action | Requeue]:
        self.note(change, cache, now_ns)
        present = change.new if change.new is not None else change.old
        if present is not None and self._awaited:
            yield from self._resolve((change.kind, present.key), None, now_ns)
        yield from self._wake(now_ns, at_once=change.kind == "Node")

    def note(self, change: Change, cache: Cache, now_ns: int) -> None:
        """Keep indexes and queue up with a change; no sync goes on."""
        old, new, cause = change.old, change.new, change.cause
        if change.kind == "Pod":
            pods = cast("tuple[Pod | None, Pod | None]", (old, new))
            self.handlers.pod(*pods, cache, now_ns, cause)
        elif change.kind == "Node":
            nodes = cast("tuple[Node | None, Node | None]", (old, new))
            self.handlers.node(*nodes, cache, cause)
        elif change.kind == "DaemonSet":
            assert isinstance(old, DaemonSet | None) and isinstance(new, DaemonSet | None)
            self.handlers.daemon_set(old, new, cache, cause)
            present = new if new is not None else old
            if present is not None and present.key not in self.index.by_key:
                self._abandon(present.key)
        elif change.kind == "ControllerRevision":
            assert isinstance(old, ControllerRevision | None)
            assert isinstance(new, ControllerRevision | None)
            self.handlers.revision(old, new, cause)

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Iterator[Action | Requeue]:
        """Sync what the queue holds, or give up a sync whose calls never showed."""
        if key == _QUEUE:
            self._wake_at_ns = None
            self.backoff.collect(now_ns)
            self.handlers.drain_nodes(cache)
            for set_key, cause in self.queue.pop(now_ns):
                yield from self.sync(set_key, cache, now_ns, cause)
        elif isinstance(key, tuple) and key[0] == _OVERDUE:
            yield from self._give_up((key[1], key[2]), now_ns)
        yield from self._wake(now_ns)

    def outcome(self, outcome: Outcome, cache: Cache, now_ns: int) -> Iterator[Action | Requeue]:
        """A call failed; the sync that made it goes on once all its calls are answered."""
        yield from self._resolve(outcome.action.target, outcome, now_ns)
        yield from self._wake(now_ns)

    def sync(
        self, key: Key, cache: Cache, now_ns: int, cause: Action | None = None
    ) -> Iterator[Action | Requeue]:
        """Begin a sync of a set, unless one is under way: then it comes after that."""
        running = self._running.get(key)
        if running is not None:
            running.again = True
            return
        tracked = self.index.by_key.get(key)
        if tracked is None:
            self.expectations.delete(key)
            return
        context = self.context(tracked, cache, now_ns, cause)
        context.then(sync_daemon_set)
        running = RunningSync(context)
        self._running[key] = running
        yield from self._go_on(running, now_ns)

    def context(
        self, tracked: TrackedSet, cache: Cache, now_ns: int, cause: Action | None = None
    ) -> SyncContext:
        """The context that a sync of the set works in."""
        return SyncContext(
            tracked=tracked,
            daemon_set=tracked.daemon_set,
            template=tracked.template,
            index=self.index,
            cache=cache,
            expectations=self.expectations,
            backoff=self.backoff,
            now=now_ns,
            cause=cause,
        )

    def rests(self, key: Hashable) -> bool:
        """True if it is a time-out of a sync that has ended."""
        return isinstance(key, tuple) and key[0] == _OVERDUE and key[1:] not in self._running

    def _go_on(self, running: RunningSync, now_ns: int) -> Iterator[Action | Requeue]:
        """Resume a sync with its failures, until it waits again or ends."""
        context = running.context
        context.now = now_ns
        while True:
            failures, running.failures = running.failures, []
            batch = context.advance(failures)
            if not batch:
                self._end(running, context.error, now_ns)
                return
            running.since_ns = now_ns
            self._await(running, batch)
            yield from batch
            if running.waiting:
                at_ns = now_ns + EXPECTATIONS_TIMEOUT_NS
                yield Requeue(self.name, (_OVERDUE, *context.key), at_ns)
                return

    def _await(self, running: RunningSync, batch: Calls) -> None:
        """Note which calls the cache will show; those that change nothing it will not."""
        for action in batch:
            if not action.writes or isinstance(action, RecordEvent):
                continue
            target = action.target
            present = running.context.cache.get(*target)
            if isinstance(action, _CREATES) or present is None:
                shows = isinstance(action, _CREATES) and present is None
            else:
                shows = action.effect(present, running.context.now) is not present
            if shows:
                running.waiting[target] = action
                self._awaited[target] = running.context.key

    def _resolve(
        self, target: Target, outcome: Outcome | None, now_ns: int
    ) -> Iterator[Action | Requeue]:
        key = self._awaited.pop(target, None)
        running = self._running.get(key) if key is not None else None
        if running is None or running.waiting.pop(target, None) is None:
            return
        if outcome is not None:
            running.failures.append(outcome)
        if not running.waiting:
            yield from self._go_on(running, now_ns)

    def _end(self, running: RunningSync, error: str, now_ns: int) -> None:
        key = running.context.key
        self._running.pop(key, None)
        for at_ns in running.context.requeue_at_ns:
            self.queue.add_after(key, at_ns)
        if error:
            self.errors[key] = error
            self.queue.add_rate_limited(key, now_ns)
        else:
            self.errors.pop(key, None)
            self.queue.forget(key)
        if running.again:
            self.queue.add(key, running.context.cause)

    def _give_up(self, key: Key, now_ns: int) -> Iterator[Action | Requeue]:
        running = self._running.get(key)
        if running is None or now_ns - running.since_ns < EXPECTATIONS_TIMEOUT_NS:
            return
        self._abandon(key)
        self._end(running, "what the sync did was not seen within five minutes", now_ns)
        yield from ()

    def _abandon(self, key: Key) -> None:
        """Drop a sync that is under way."""
        running = self._running.pop(key, None)
        if running is None:
            return
        for target in running.waiting:
            self._awaited.pop(target, None)

    def _wake(self, now_ns: int, *, at_once: bool = False) -> Iterator[Requeue]:
        """Ask to be woken for what the queue holds, unless that was asked for already.

        `at_once`: when all changes of this instant are delivered, else a nanosecond later.
        """
        soon = now_ns if at_once else now_ns + 1
        due = self.queue.next_due()
        if self.queue.ready or self.handlers.nodes:
            due = soon
        if due is None or (self._wake_at_ns is not None and self._wake_at_ns <= due):
            return
        self._wake_at_ns = max(due, soon)
        yield Requeue(self.name, _QUEUE, self._wake_at_ns)


def _running_on(cache: Cache) -> DaemonSetController | None:
    known_to = (c for c in cache.known_to if isinstance(c, DaemonSetController))
    return next(known_to, None)


def hash_of_all(cache: Cache, daemon_set: DaemonSet) -> str | None:
    """The revision hash that all pods of the set carry, if a controller that runs on these pods
    knows that.
    """
    running = _running_on(cache)
    tracked = running.index.by_key.get(daemon_set.key) if running is not None else None
    if tracked is None or tracked.daemon_set.uid != daemon_set.uid:
        return None
    return tracked.pods.hash_of_all(tracked.pod_count)
