"""Adds to the queue the sets that a change in the cluster concerns, and says when each is due.

Follows the event handlers and `syncNodeUpdate`, `shouldIgnoreNodeUpdate` of
`pkg/controller/daemon/daemon_controller.go`. They decide nothing about pods; they lower
expectations and add keys. From 1.33 node events wait in a queue of their own and are judged later,
on the present node; before, the old node is judged against the new one.

The queue follows client-go `util/workqueue`: keys are deduplicated while they wait; a delayed add
keeps the earlier instant; failures wait for the longer of a delay per key (5 ms, doubling, 1000 s
at most) and a token bucket shared by all keys (10 a second, 100 at once).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.memory import (
    ControllerExpectations,
    SetIndex,
    TrackedSet,
)
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Change
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta, controller_of
from kubectl_nodelife.kube.node import Node, NodeStatus
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import TRUE
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet

NodeQueue = dict[str, Action | None]

SECOND_NS = 1_000_000_000
BASE_DELAY_NS = 5_000_000
MAX_DELAY_NS = 1000 * SECOND_NS
BUCKET_QPS = 10
BUCKET_BURST = 100
Key = tuple[str, str]


def should_ignore_node_update(old: Node, new: Node, rules: Behaviour) -> bool:
    """True if nothing that placement depends on changed. Follows `shouldIgnoreNodeUpdate`.

    1.11 has it within `updateNode`.
    """
    same = old.spec.taints == new.spec.taints and (old.metadata.labels or {}) == (
        new.metadata.labels or {}
    )
    if rules.node_filter_labels_and_taints:
        return same
    if rules.node_filter_true_conditions:
        return same and _true_conditions(old) == _true_conditions(new)
    return _true_conditions(old) == _true_conditions(new) and _without_conditions(
        old
    ) == _without_conditions(new)


def _true_conditions(node: Node) -> set[str]:
    return {c.type for c in node.status.conditions if c.status == "True"}


def _without_conditions(node: Node) -> Node:
    status: NodeStatus = replace(node.status, conditions=())
    return replace(node, metadata=replace(node.metadata, resource_version=""), status=status)


@dataclass(eq=False)
class EventHandlers:
    """The handlers, over one index, queue and set of expectations."""

    rules: Behaviour
    index: SetIndex
    queue: WorkQueue
    expectations: ControllerExpectations
    nodes: NodeQueue = field(default_factory=dict)

    def fork(
        self, index: SetIndex, queue: WorkQueue, expectations: ControllerExpectations
    ) -> EventHandlers:
        """Others, over forks of index, queue and expectations."""
        return EventHandlers(self.rules, index, queue, expectations, dict(self.nodes))

    def daemon_set(
        self, old: DaemonSet | None, new: DaemonSet | None, cache: Cache, cause: Action | None
    ) -> None:
        """A set came, changed or went; a change of uid is both. `addDaemonset` and its like."""
        if old is not None and (new is None or new.uid != old.uid):
            self.index.remove(old.key)
            self.expectations.delete(old.key)
            self.queue.add(old.key, cause)
        if new is None:
            return
        tracked = self.index.by_key.get(new.key)
        if tracked is None:
            self.index.add(new, self.rules, cache)
        else:
            self.index.update(tracked, new)
        if old is not None and old.spec is new.spec and old.metadata is new.metadata:
            cause = None  # a status was written: nothing that follows follows from that
        self.queue.add(new.key, cause)

    def revision(
        self,
        old: ControllerRevision | None,
        new: ControllerRevision | None,
        cause: Action | None,
    ) -> None:
        """A revision came, changed or went. `addHistory`, `updateHistory`, `deleteHistory`."""
        self.index.observe_revision(old, new)
        if old is None and new is not None:
            if new.metadata.deletion_timestamp is not None:
                self._add(self.index.resolve(new), cause)
            elif controller_of(new.metadata) is None:
                self._add_matching(new, cause)
        elif new is None and old is not None:
            self._add(self.index.resolve(old), cause)
        elif old is not None and new is not None and not _is_resync(old, new, cause):
            self._owner_or_orphan(old, new, cause)

    def passes_by(self, change: Change) -> bool:
        """True if a pod's change is none of any set's business: something else controls the pod."""
        old, new = change.old, change.new
        if new is not None and _may_be_a_daemons(new.metadata):
            return False
        if self.rules.simulated_predicates or self.rules.suspends:
            return False  # then any pod takes room that a set may wait for
        if old is None or (new is not None and old.metadata is new.metadata):
            return True
        return not _may_be_a_daemons(old.metadata)

    def pod(
        self, old: Pod | None, new: Pod | None, cache: Cache, now: int, cause: Action | None
    ) -> None:
        """A pod came, changed or went. `addPod`, `updatePod`, `deletePod`."""
        self.index.observe_pod(old, new)
        if self.rules.simulated_predicates:
            self._mark_for_all(old, new)
        if old is None and new is not None:
            self._pod_added(new, now, cause)
        elif new is None and old is not None:
            self._pod_deleted(old, now, cause)
        elif old is not None and new is not None and not _is_resync(old, new, cause):
            self._pod_updated(old, new, now, cause)

    def _pod_added(self, pod: Pod, now: int, cause: Action | None) -> None:
        if pod.metadata.deletion_timestamp is not None:
            self._pod_deleted(pod, now, cause)
        elif controller_of(pod.metadata) is not None:
            tracked = self.index.resolve(pod)
            if tracked is not None:
                self.expectations.creation_observed(tracked.key)
                self._add(tracked, cause)
        else:
            self._add_matching(pod, cause)

    def _pod_updated(self, old: Pod, new: Pod, now: int, cause: Action | None) -> None:
        terminates = new.metadata.deletion_timestamp is not None
        if terminates and self.rules.deletion_observed_at_the_mark:
            self._pod_deleted(new, now, cause)
            return
        tracked = self._owner_or_orphan(old, new, cause)
        if tracked is None:
            return
        seconds = tracked.daemon_set.spec.min_ready_seconds
        if seconds > 0 and not old.ready() and new.ready():
            self.queue.add_after(tracked.key, now + (seconds + 1) * SECOND_NS)

    def await_availability(self, cache: Cache, now: int) -> None:
        """Delay each set until its Ready pods have been so for minReadySeconds, as `updatePod` of a
        controller that saw them become Ready has done.
        """
        for tracked in self.index.by_key.values():
            seconds = tracked.daemon_set.spec.min_ready_seconds
            for pod in cache.pods_of(tracked.daemon_set.uid) if seconds > 0 else ():
                ready = pod.status.condition("Ready")
                if ready is not None and ready.status == TRUE:
                    at_ns = (ready.last_transition_time or 0) + (seconds + 1) * SECOND_NS
                    if at_ns > now:
                        self.queue.add_after(tracked.key, at_ns)

    def _pod_deleted(self, pod: Pod, now: int, cause: Action | None) -> None:
        tracked = self.index.resolve(pod)
        if tracked is not None:
            self.expectations.deletion_observed(tracked.key)
            self._add(tracked, cause)
        elif self.rules.suspends and pod.spec.node_name:
            self._requeue_suspended(pod.spec.node_name, now)

    def _requeue_suspended(self, node: str, now: int) -> None:
        """Room came free on a node for which sets wait. `requeueSuspendedDaemonPods`."""
        for key, tracked in self.index.by_key.items():
            if node in tracked.node_index.suspended:
                self.queue.add_rate_limited(key, now)

    def _mark_for_all(self, old: Pod | None, new: Pod | None) -> None:
        nodes = {pod.spec.node_name for pod in (old, new) if pod is not None}
        for tracked in self.index.by_key.values():
            for node in nodes - {""}:
                tracked.node_index.mark(node)

    def node(self, old: Node | None, new: Node | None, cache: Cache, cause: Action | None) -> None:
        """A node came, changed or went. `addNode`, `updateNode`; one that goes wakes no sync."""
        present = new if new is not None else old
        assert present is not None
        if old is not None and new is not None and should_ignore_node_update(old, new, self.rules):
            return
        for tracked in self.index.by_key.values():
            tracked.node_index.mark(present.name)
        if new is None:
            return
        if self.rules.node_queue:
            self.nodes.setdefault(new.name, cause)
        elif old is None:
            for tracked in self.index.by_key.values():
                if tracked.node_index.verdict(new).should_run:
                    self._add(tracked, cause)
        else:
            self._node_changed(old, new, cause)

    def _node_changed(self, old: Node, new: Node, cause: Action | None) -> None:
        for tracked in self.index.by_key.values():
            before, after = tracked.node_index.verdict(old), tracked.node_index.verdict(new)
            if (before.should_run, before.should_continue_running) != (
                after.should_run,
                after.should_continue_running,
            ):
                self._add(tracked, cause)

    def drain_nodes(self, cache: Cache) -> None:
        """Judge the nodes that wait, as they are now. Follows `syncNodeUpdate`.

        It groups a node's pods by the name of the DaemonSet that controls them, not by its uid: one
        that an earlier set of the same name has left there stands in for the pod of the present set
        (docs/upstream/daemonset-pod-of-an-earlier-set.md).
        """
        for name, cause in self.nodes.items():
            node = cache.nodes.get(name)
            if node is None:
                continue
            there = {_owner_key(pod) for pod in cache.pods_on(name)}
            for tracked in self.index.by_key.values():
                verdict = tracked.node_index.verdict(node)
                scheduled = tracked.key in there
                if (
                    (verdict.should_run and not scheduled)
                    or (not verdict.should_continue_running and scheduled)
                    or (scheduled and tracked.daemon_set.status.number_misscheduled > 0)
                ):
                    self._add(tracked, cause)
        self.nodes.clear()

    def _owner_or_orphan(
        self, old: KubeObject, new: KubeObject, cause: Action | None
    ) -> TrackedSet | None:
        """The common part of updates; returns the present owner if it is a known set."""
        old_owner, new_owner = controller_of(old.metadata), controller_of(new.metadata)
        changed = old_owner != new_owner
        if changed and old_owner is not None:
            self._add(self.index.resolve(old), cause)
        if new_owner is not None:
            tracked = self.index.resolve(new)
            self._add(tracked, cause)
            return tracked
        if changed or (old.metadata.labels or {}) != (new.metadata.labels or {}):
            self._add_matching(new, cause)
        return None

    def _add(self, tracked: TrackedSet | None, cause: Action | None) -> None:
        if tracked is not None:
            self.queue.add(tracked.key, cause)

    def _add_matching(self, obj: KubeObject, cause: Action | None) -> None:
        for tracked in self.index.matching(obj):
            self._add(tracked, cause)


def _owner_key(pod: Pod) -> tuple[str, str] | None:
    """Namespace and name of the DaemonSet that controls the pod, whatever its uid."""
    owner = controller_of(pod.metadata)
    if owner is None or owner.kind != "DaemonSet":
        return None
    return (pod.namespace, owner.name)


def _may_be_a_daemons(meta: ObjectMeta) -> bool:
    """True if a DaemonSet controls the object, or nothing does."""
    owner = controller_of(meta)
    return owner is None or owner.kind == "DaemonSet"


def _is_resync(old: KubeObject, new: KubeObject, cause: Action | None) -> bool:
    """True if a resync brought the same version again; versions unknown are taken for different.

    What a play does, or a dry run plans, changes an object and not its version: it has a cause, but
    for a deletion that a dry run takes back.
    """
    was, now = old.metadata, new.metadata
    if cause is not None or (was.deletion_timestamp is None) is not (
        now.deletion_timestamp is None
    ):
        return False
    return now.resource_version != "" and now.resource_version == was.resource_version


class RateLimiter:
    """The default controller rate limiter. Follows `DefaultControllerRateLimiter`."""

    def __init__(self) -> None:
        self._failures: dict[Key, int] = {}
        self._bucket = TokenBucket(BUCKET_QPS, BUCKET_BURST)

    def fork(self) -> RateLimiter:
        """Another one with the same failures and tokens."""
        other = RateLimiter()
        other._failures, other._bucket = dict(self._failures), copy(self._bucket)
        return other

    def when(self, key: Key, now: int) -> int:
        """How long (ns) the key must wait; counts as one more failure."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        exponential = min(BASE_DELAY_NS << min(failures, 40), MAX_DELAY_NS)
        return max(exponential, self._bucket.reserve(now) - now)

    def forget(self, key: Key) -> None:
        """The key succeeded."""
        self._failures.pop(key, None)

    def failures(self, key: Key) -> int:
        """How often the key failed in a row."""
        return self._failures.get(key, 0)


class WorkQueue:
    """Keys to sync, each with the action that led to it where that is known.

    `keeps_later`: the later of two delayed adds is kept as well, not forgotten as upstream does.
    There a surge that begins before the last pods are available may stand until some other event.
    """

    def __init__(self) -> None:
        self.limiter = RateLimiter()
        self.ready: dict[Key, Action | None] = {}
        self.delayed: dict[Key, int] = {}
        self.rate_limited: set[Key] = set()
        self.keeps_later = False
        self._later: dict[Key, set[int]] = {}

    def fork(self) -> WorkQueue:
        """Another queue with the same keys."""
        other = WorkQueue()
        other.limiter = self.limiter.fork()
        other.ready, other.delayed = dict(self.ready), dict(self.delayed)
        other.rate_limited = set(self.rate_limited)
        other.keeps_later = self.keeps_later
        other._later = {key: set(instants) for key, instants in self._later.items()}
        return other

    def add(self, key: Key, cause: Action | None = None) -> None:
        """Sync the key soon."""
        if self.ready.get(key) is None:
            self.ready[key] = cause

    def add_after(self, key: Key, at_ns: int) -> None:
        """Sync the key at that instant, or earlier if it was to be anyway."""
        present = self.delayed.get(key)
        if present is None or at_ns < present:
            self.delayed[key] = at_ns
        if self.keeps_later and present is not None and at_ns != present:
            seconds = -(-max(at_ns, present) // SECOND_NS)  # at most one a second is kept
            self._later.setdefault(key, set()).add(seconds * SECOND_NS)

    def add_rate_limited(self, key: Key, now: int) -> None:
        """Sync the key after a delay that grows with its failures."""
        self.rate_limited.add(key)
        self.add_after(key, now + self.limiter.when(key, now))

    def forget(self, key: Key) -> None:
        """The key was synced without an error."""
        self.limiter.forget(key)

    def drop(self, key: Key) -> None:
        """The key need not be synced any more."""
        self.ready.pop(key, None)
        self.delayed.pop(key, None)
        self._later.pop(key, None)
        self.rate_limited.discard(key)

    def next_due(self) -> int | None:
        """When the earliest delayed key is due, or None."""
        return min(self.delayed.values(), default=None)

    def pop(self, now: int) -> list[tuple[Key, Action | None]]:
        """Take out all keys that are ready or due, in the order in which they came."""
        if self.delayed:
            due = sorted((at, key) for key, at in self.delayed.items() if at <= now)
            for _, key in due:
                del self.delayed[key]
                self.rate_limited.discard(key)
                self.ready.setdefault(key, None)
                self._bring_later(key, now)
        taken = list(self.ready.items())
        self.ready.clear()
        return taken

    def _bring_later(self, key: Key, now: int) -> None:
        """The key waits for the earliest of the instants that were kept and are still to come."""
        later = {at for at in self._later.pop(key, ()) if at > now}
        if later:
            self.delayed[key] = min(later)
            self._later[key] = later - {min(later)}
