"""The taint-eviction controller ("taint manager" up to 1.28).

Follows pkg/controller/tainteviction/taint_eviction.go and, for older releases, taint_manager.go of
pkg/controller/nodelifecycle/scheduler. Things happen in the order in which they are reported, as
upstream does for one node; between nodes upstream's order is chance. It does not look at timeAdded,
a pod's phase or owner, disruption budgets, or any rate. Left out on purpose: the eight workers and
their channels, which `ParallelWorkers` has; the second look that each pod gets for its own sake
after a start; tries that go on after a 404 or after a cancellation; the condition's
observedGeneration.

`ParallelWorkers` is the taint manager with its eight workers apart, so that their races can be
looked for. It follows `Run`, `worker` and `handleNodeUpdate` of
pkg/controller/tainteviction/taint_eviction.go: an update of a node or a pod goes to the worker of
the node's name; a worker that takes a pod first takes all nodes that wait for it; what counts is
what the cache shows by then. How long an update is under way and a worker busy is chance upstream.
Here a seed decides it, some thousandths of a second each, so that a race once found comes again.

Which worker handles a node is `hash` there (`worker_of`): FNV-1a of 32 bits over the node's name.
Upstream keeps the order of what concerns one node by giving all of it to one worker, while the
order between workers is chance. Elsewhere in this folder everything happens in the order in which
it is reported, which is one of upstream's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from copy import copy
from functools import partial
from itertools import islice
from typing import Any, Final, cast

import msgspec

from kubectl_nodelife.controllers.tainteviction.evictions import (
    CONTROLLER,
    EvictionTerms,
    Key,
    TimedWorkers,
    Work,
    cancelling_event,
    mark_and_delete,
    marking_event,
    terms_of_stay,
    tolerated_stay,
    work_of_running,
)
from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action, CancelEviction, DeletePod, Requeue, of_pod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Actions, TurnPart
from kubectl_nodelife.engine.events import NOT_SENT, Change, Outcome
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.names import fnv1a_32
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS

_TRIES: Final = 5
_RETRY_NS: Final = 10 * MILLISECOND_NS
_NOT_FOUND: Final = 404
_LOOK_AGAIN_NS: Final = SECOND_NS
"""An eviction that was not sent is looked at again after so long."""
_AT_ONCE: Final = 100
"""So many timers of one instant are one part of a turn: a live driver may pause after each."""


class TaintEvictionController:
    """Deletes pods from nodes with a NoExecute taint when their tolerations end.

    Not to be run where `settings.taint_manager` is False.
    """

    name = CONTROLLER
    watches = frozenset({"Node", "Pod"})
    reads_conditions_of: frozenset[str] = frozenset()
    reads_success = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tainted_nodes: dict[str, tuple[Taint, ...]] = {}
        self.workers = TimedWorkers(sticky_keys=settings.profile.has("sticky_timer_keys"))
        self._tainted_by: dict[str, Action] = {}
        self._failed_tries: dict[Key, tuple[int, DeletePod]] = {}
        self.dates_count_from_ns = 0
        """For `join`: a taint of an earlier date was dated by another clock, and may be young."""
        self._now_ns = 0
        self._run_now: set[Key] = set()
        self._infinite_cancels = settings.profile.has("infinite_cancels")
        operators = settings.gate("TaintTolerationComparisonOperators")
        self._stay = partial(tolerated_stay, comparison_operators=operators)
        self._with_condition = settings.gate("PodDisruptionConditions")

    # Views for reports

    def pending(self, node: str) -> list[Work]:
        """The evictions that are due on a node later, the next one first."""
        return sorted(self.workers.on(node), key=lambda w: (w.due_ns, w.key))

    # The engine's side

    def fork(self, cache: Cache) -> TaintEvictionController:
        """Another one with the same memory."""
        other = copy(self)
        self.tainted_nodes, other.tainted_nodes = fork_dict(self.tainted_nodes)
        self._tainted_by, other._tainted_by = fork_dict(self._tainted_by)
        self._failed_tries, other._failed_tries = fork_dict(self._failed_tries)
        other.workers, other._run_now = self.workers.fork(), set(self._run_now)
        return other

    def start(self, cache: Cache, now_ns: int) -> Actions:
        """Every node counts as added: the periods of all pods on tainted nodes begin now."""
        for name in sorted(cache.nodes):
            if no_execute_taints(cache.nodes[name].spec.taints):
                decided = self._node_changed(name, cache, now_ns, None)
                yield TurnPart(self.name, ("Node", ("", name)), decided)

    def join(self, cache: Cache, now_ns: int) -> Actions:
        """Take over a running controller's timers; what it must have deleted is deleted at once."""
        for name in sorted(cache.nodes):
            taints = no_execute_taints(cache.nodes[name].spec.taints)
            if taints:
                self.tainted_nodes[name] = taints
                for pod in cache.pods_on(name):
                    taken_over = self._take_over(pod, taints, cache, now_ns)
                    yield TurnPart(self.name, ("Pod", pod.key), taken_over)

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Actions:
        """Follows `PodUpdated` and `NodeUpdated`, which let only some changes through."""
        old: Any = change.old
        new: Any = change.new
        if change.kind == "Pod":
            if old is not None and new is not None and _same_terms(old, new):
                return ()
            return self._pod_changed((new or old).key, cache, now_ns, change.cause)
        if old is not None and new is not None and _same_taints(old, new):
            return ()
        return self._node_changed((new or old).name, cache, now_ns, change.cause)

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Actions:
        """The timers that end at the instant `key`, or the next try for the pod `key`."""
        if isinstance(key, int):
            due = self.workers.take_due(key)
            while works := list(islice(due, _AT_ONCE)):
                yield TurnPart(self.name, key, self._run_all(works, cache, now_ns))
            return
        pod_key = cast(Key, key)
        failed = self._failed_tries.get(pod_key)
        pod = cache.pods.get(pod_key)
        if failed is None or pod is None or self._may_stay(pod):
            self._failed_tries.pop(pod_key, None)
            self.workers.fail(pod_key)
            return
        again = mark_and_delete(pod, failed[1], now_ns, with_condition=self._with_condition)
        yield TurnPart(self.name, ("Pod", pod_key), again)

    def rests(self, key: Hashable) -> bool:
        """True if the timers of that instant were cancelled."""
        return isinstance(key, int) and not self.workers.any_at(key)

    def outcome(self, outcome: Outcome, cache: Cache, now_ns: int) -> Actions:
        """Up to five tries, 10 ms apart, then the work is dropped. Follows `deletePodHandler`.

        What was never sent is no try: the pod is looked at again soon, as its node is then.
        Upstream has no such case, for it sends what it has begun. A write that was withdrawn for
        news of the node may be due all the same: one taint may have been exchanged for another.
        """
        action = outcome.action
        if not isinstance(action, DeletePod):
            return ()
        key = (action.namespace, action.pod)
        tries, wait_ns = self._failed_tries.get(key, (0, action))[0], _LOOK_AGAIN_NS
        if outcome.code != NOT_SENT:
            tries, wait_ns = tries + 1, _RETRY_NS
            if tries == _TRIES or outcome.code == _NOT_FOUND:
                self._failed_tries.pop(key, None)
                self.workers.fail(key)
                return ()
        self._failed_tries[key] = (tries, action)
        return (Requeue(self.name, key, now_ns + wait_ns),)

    # Decisions

    def _node_changed(
        self, name: str, cache: Cache, now_ns: int, cause: Action | None
    ) -> Iterable[Action | Requeue]:
        """Follows `handleNodeUpdate`: what counts is the node as the cache shows it by now."""
        decided: list[Action | Requeue] = []
        node = cache.node(name)
        taints = no_execute_taints(node.spec.taints) if node is not None else ()
        if not taints:
            self.tainted_nodes.pop(name, None)
            self._tainted_by.pop(name, None)
            if node is None:  # the timers of its pods go on
                return decided
            for pod in cache.pods_on(name):
                decided += self._cancel(pod.key, f"node {name} has no NoExecute taint", cause)
            return decided
        self.tainted_nodes[name] = taints
        if cause is not None:
            self._tainted_by[name] = cause
        terms_by_tolerations: dict[int, EvictionTerms] = {}
        for pod in cache.pods_on(name):
            tolerations = pod.spec.tolerations
            terms = terms_by_tolerations.get(id(tolerations))
            if terms is None:
                terms = terms_of_stay(self._stay(tolerations, taints), name, now_ns)
                terms_by_tolerations[id(tolerations)] = terms
            if terms.stay.seconds is not None or pod.key in self.workers:
                decided += self._process_pod(pod, terms, cache, now_ns, cause)
        return decided

    def _pod_changed(
        self, key: Key, cache: Cache, now_ns: int, cause: Action | None
    ) -> Iterable[Action | Requeue]:
        """Follows `handlePodUpdate`: what counts is the pod as the cache shows it by now."""
        pod = cache.pods.get(key)
        if pod is None:
            self._run_now.discard(key)
            return self._cancel(key, "the pod is gone", cause)
        name = pod.spec.node_name
        taints = self.tainted_nodes.get(name)
        if taints is None:
            return ()
        terms = terms_of_stay(self._stay(pod.spec.tolerations, taints), name, now_ns)
        cause = cause or self._tainted_by.get(name)
        return self._process_pod(pod, terms, cache, now_ns, cause)

    def _process_pod(
        self, pod: Pod, terms: EvictionTerms, cache: Cache, now_ns: int, cause: Action | None
    ) -> list[Action | Requeue]:
        """Follows `processPodOnNode`.

        A timer that is set stays as it is, so that an update of the pod or an exchange of taints
        neither lengthens nor shortens it: upstream time passes between two looks at a pod, and so
        the second of one instant is taken for later here too. What it would only repeat is left
        out.
        """
        key, seconds = pod.key, terms.stay.seconds
        due_ns = now_ns + (seconds or 0) * SECOND_NS
        cancelled: list[Action | Requeue] = []
        if not terms.stay.is_tolerated:
            if self._ran(key, now_ns):
                return cancelled
            cancelled = self._cancel(key, terms.because, cause)
        elif seconds is None:
            if not self._infinite_cancels:
                return cancelled
            because = f"the pod tolerates the taints of node {pod.spec.node_name} for ever"
            return self._cancel(key, because, cause)
        if key in self.workers or (due_ns <= now_ns and self._ran(key, now_ns)):
            return cancelled
        return cancelled + self._begin(terms.work(pod, due_ns, cause), cache, now_ns)

    def _begin(self, work: Work, cache: Cache, now_ns: int) -> list[Action | Requeue]:
        if self.workers.add(work, now_ns):
            return [work.schedule, *self._run(work, cache, now_ns)]
        if self.workers.is_first_at(work):
            return [work.schedule, Requeue(self.name, work.due_ns, work.due_ns)]
        return [work.schedule]

    def _run_all(self, works: Iterable[Work], cache: Cache, now_ns: int) -> Iterator[Action]:
        for work in works:
            yield from self._run(work, cache, now_ns)

    def _run(self, work: Work, cache: Cache, now_ns: int) -> list[Action]:
        """The event and the first try. Follows `deletePodHandler`."""
        pod = cache.pods.get(work.key)
        if pod is None:
            self.workers.fail(work.key)
            return []
        self._failed_tries.pop(work.key, None)
        self.workers.finish(work.key)
        self._ran(work.key, now_ns)
        self._run_now.add(work.key)
        event = marking_event(work.key, work.because, work.schedule)
        delete = DeletePod(
            controller=CONTROLLER,
            because=work.because,
            cause=work.schedule,
            **of_pod(pod),
            taints=work.schedule.taints,
        )
        with_condition = self._with_condition
        return [event, *mark_and_delete(pod, delete, now_ns, with_condition=with_condition)]

    def _may_stay(self, pod: Pod) -> bool:
        """True if a try would come too late: news of a failure may be older than the recovery."""
        taints = self.tainted_nodes.get(pod.spec.node_name, ())
        return self._stay(pod.spec.tolerations, taints).seconds is None

    def _ran(self, key: Key, now_ns: int) -> bool:
        """True if the pod's deletion was begun at this very instant."""
        if self._now_ns != now_ns:
            self._now_ns = now_ns
            self._run_now.clear()
        return key in self._run_now

    def _cancel(self, key: Key, because: str, cause: Action | None) -> list[Action | Requeue]:
        """Follows `cancelWorkWithEvent`: only a timer that still ran is reported."""
        self._failed_tries.pop(key, None)
        work = self.workers.cancel(key)
        if work is None:
            return []
        cancelled = CancelEviction(
            controller=CONTROLLER,
            because=because,
            cause=cause,
            namespace=key[0],
            pod=key[1],
            pod_uid=work.schedule.pod_uid,
            due_ns=work.due_ns,
        )
        return [cancelled, cancelling_event(key, because, cancelled)]

    def _take_over(
        self, pod: Pod, taints: tuple[Taint, ...], cache: Cache, now_ns: int
    ) -> list[Action | Requeue]:
        """A pod's part of `join`. Where one whose time is over is terminating, that was done."""
        judge = partial(self._stay, pod.spec.tolerations)
        work = work_of_running(pod, taints, judge, now_ns, self.dates_count_from_ns)
        if work is None:
            return []
        if work.due_ns <= now_ns and pod.metadata.deletion_timestamp is not None:
            self.workers.add(work, now_ns)
            self.workers.finish(work.key)
            return []
        return self._begin(work, cache, now_ns)


def _same_terms(old: Pod, new: Pod) -> bool:
    """Same node and same tolerations: the only words of a pod that count."""
    before, after = old.spec.tolerations, new.spec.tolerations
    return old.spec.node_name == new.spec.node_name and (before is after or before == after)


def _same_taints(old: Node, new: Node) -> bool:
    """Same NoExecute taints in the same order; value and timeAdded count."""
    before, after = old.spec.taints, new.spec.taints
    return before is after or no_execute_taints(before) == no_execute_taints(after)


WORKERS: Final = 8


def worker_of(node_name: str, workers: int = WORKERS) -> int:
    """The worker's number, 0 or more and below `workers`."""
    return fnv1a_32(node_name.encode()) % workers


_WORKER: Final = "worker"
_LONGEST_US: Final = 5_000


class _WorkerInput(msgspec.Struct):
    """The queue of one worker: causes by node, and (node, cause) by pod, in order."""

    nodes: dict[str, Action | None] = {}
    pods: dict[Key, tuple[str, Action | None]] = {}
    is_busy: bool = False

    def fork(self) -> _WorkerInput:
        """The same for another controller."""
        return _WorkerInput(dict(self.nodes), dict(self.pods), self.is_busy)


class ParallelTaintEviction(TaintEvictionController):
    """The same with the workers of releases that handle nodes and pods at once."""

    def __init__(self, settings: Settings, seed: int) -> None:
        super().__init__(settings)
        self._seed = seed
        self._pauses = 0
        self._waiting = [_WorkerInput() for _ in range(WORKERS)]
        self._node_of: dict[Key, str] = {}

    def fork(self, cache: Cache) -> ParallelTaintEviction:
        """Another one with the same memory."""
        other = super().fork(cache)
        assert isinstance(other, ParallelTaintEviction)
        other._waiting = [w.fork() for w in self._waiting]
        other._node_of = dict(self._node_of)
        return other

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Actions:
        """A worker's turn; else as its base."""
        number = key[1] if isinstance(key, tuple) and key[0] == _WORKER else None
        if not isinstance(number, int):
            yield from super().reconcile(key, cache, now_ns)
            return
        waiting = self._waiting[number]
        nodes, waiting.nodes = waiting.nodes, {}
        for name, cause in nodes.items():
            decided = super()._node_changed(name, cache, now_ns, cause)
            yield TurnPart(self.name, ("Node", ("", name)), decided)
        if waiting.pods:
            pod_key = next(iter(waiting.pods))
            name, cause = waiting.pods.pop(pod_key)
            pod = cache.pods.get(pod_key)
            if pod is None or pod.spec.node_name == name:  # else another worker has it
                decided = super()._pod_changed(pod_key, cache, now_ns, cause)
                yield TurnPart(self.name, ("Pod", pod_key), decided)
        waiting.is_busy = bool(waiting.nodes or waiting.pods)
        if waiting.is_busy:
            yield Requeue(self.name, key, now_ns + self._pause_ns())

    def _node_changed(
        self, name: str, cache: Cache, now_ns: int, cause: Action | None
    ) -> Iterator[Action | Requeue]:
        number = worker_of(name)
        self._waiting[number].nodes.setdefault(name, cause)
        yield from self._wake(number, now_ns)

    def _pod_changed(
        self, key: Key, cache: Cache, now_ns: int, cause: Action | None
    ) -> Iterator[Action | Requeue]:
        pod = cache.pods.get(key)
        name = self._node_of.pop(key, "") if pod is None else pod.spec.node_name
        if pod is not None:
            self._node_of[key] = name
        number = worker_of(name)
        self._waiting[number].pods.setdefault(key, (name, cause))
        yield from self._wake(number, now_ns)

    def _wake(self, number: int, now_ns: int) -> Iterator[Requeue]:
        waiting = self._waiting[number]
        if not waiting.is_busy:
            waiting.is_busy = True
            yield Requeue(self.name, (_WORKER, number), now_ns + self._pause_ns())

    def _pause_ns(self) -> int:
        """The next of the pauses that follow from the seed; a hash, since nothing here is drawn."""
        self._pauses += 1
        return (1 + worker_of(f"{self._seed}/{self._pauses}", _LONGEST_US)) * 1_000
