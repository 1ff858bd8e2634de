"""What the controller remembers: its sets, how far the sync of each is, and which of its own calls
the cache does not show yet.

A set is found by name, by uid and by namespace (`SetIndex`).

A sync is a value (`SyncContext`). Its steps are plain functions, put on a list. A step decides and
returns its API calls, the next one is given those that failed. Nothing here waits or does I/O:
between two steps the controller keeps the record until the cache shows the calls, and may copy it
meanwhile.

Expectations follow `ControllerExpectations` (`pkg/controller/controller_utils.go`). One record a
key: pending creates, pending deletes, and when they were set. A controller must not decide on a set
again before the cache shows what it did last; a record older than five minutes is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.node_status_index import (
    IndexedBy,
    NodeStatusIndex,
    UpdateBudget,
    allows_surge,
)
from kubectl_nodelife.controllers.daemonset.placement import Placement
from kubectl_nodelife.controllers.daemonset.pods_on_node import DaemonPods, FailedPodsBackoff
from kubectl_nodelife.controllers.daemonset.template import PodTemplate, template_generation
from kubectl_nodelife.copy_on_write import copy_of_dict, fork_dict, unchanging
from kubectl_nodelife.engine.actions import Action, OriginFields, RecordEvent, of_object
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.kube.meta import KubeObject, LabelSelector, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet

Key = tuple[str, str]

EVERYTHING = LabelSelector()

CONTROLLER = "daemonset"

NOT_FOUND = 404
ALREADY_EXISTS = 409
INVALID = 422
GATEWAY_TIMEOUT = 504

Failures = Sequence[Outcome]
Calls = Sequence[Action]
Step = Callable[["SyncContext", Failures], Calls]
"""A function of a module, or a `partial` of one with what it needs to know: values only."""

EXPECTATIONS_TIMEOUT_NS = 5 * MINUTE_NS


class RevisionHistory(NamedTuple):
    """The revision of the present template, and the others, as the last sync left them."""

    current: ControllerRevision
    old: tuple[ControllerRevision, ...]


class TrackedSet:
    """A set with its pods and what each node is to it.

    Raises InputError where the template is not a pod template.
    """

    def __init__(
        self,
        daemon_set: DaemonSet,
        rules: Behaviour,
        cache: Cache,
        orphans: dict[Key, Pod],
    ) -> None:
        self.daemon_set = daemon_set
        self.key: Key = daemon_set.key
        self.rules = rules
        self.history: RevisionHistory | None = None
        self._cache = cache
        self._read()
        self._claim_afresh(orphans)

    def _read(self) -> None:
        """Read out of the set what is asked for again and again."""
        self.template = PodTemplate(self.daemon_set, self.rules)
        self.generation = template_generation(self.daemon_set)
        self.surge_allowed = self.rules.surge and allows_surge(self.daemon_set)
        """Two pods may stand on a node while it is updated."""
        self.budgets: dict[int, UpdateBudget] = {}
        """The budget of an update, by the number of nodes that want a pod, as far as asked for."""

    def _claim_afresh(self, orphans: dict[Key, Pod]) -> None:
        self.pods = DaemonPods(self.daemon_set, self.rules)
        namespace, pods = self.daemon_set.namespace, self._cache.pods_of(self.daemon_set.uid)
        self.pods.fill(pod for pod in pods if pod.metadata.namespace == namespace)
        for pod in orphans.values():
            for _ in self.pods.observe(None, pod):
                pass
        placement = Placement(self.template)
        self.node_index = NodeStatusIndex(self._cache, self.pods, placement)

    def fork(self, cache: Cache) -> TrackedSet:
        """The same set over the fork of the cache."""
        other = copy(self)
        other._cache = cache
        other.budgets = dict(self.budgets)
        other.pods = self.pods.fork()
        other.node_index = self.node_index.fork(cache, other.pods)
        return other

    def over(self, cache: Cache) -> TrackedSet | None:
        """The set as a controller finds it that begins over another cache with the same pods; None
        where that may be another way.
        """
        if self.pods.to_adopt or self.pods.to_release:
            return None
        other = self.fork(cache)
        other.history = None
        other.node_index.mark_others(unchanging(self._cache.nodes))
        return other

    @property
    def pod_count(self) -> int:
        """How many pods the set controls."""
        return self._cache.count_of(self.daemon_set.uid)

    @property
    def selects_everything(self) -> bool:
        """True if the selector is there and empty, which upstream refuses to act on."""
        return self.daemon_set.spec.selector == EVERYTHING

    def update(self, daemon_set: DaemonSet, orphans: dict[Key, Pod]) -> None:
        """Take in a newer version of the set."""
        old = self.daemon_set
        self.daemon_set = daemon_set
        if daemon_set.status.collision_count != old.status.collision_count:
            self.history = None
        if daemon_set.spec is old.spec and daemon_set.metadata is old.metadata:
            return  # a status was written
        self._read()
        if daemon_set.metadata.annotations != old.metadata.annotations:
            self.history = None
        deleting = daemon_set.metadata.deletion_timestamp is not None
        was_deleting = old.metadata.deletion_timestamp is not None
        if daemon_set.spec.template != old.spec.template:
            self.history = None
            self.node_index.replace_placement(Placement(self.template))
        if daemon_set.spec.selector != old.spec.selector or deleting != was_deleting:
            self.history = None
            self._claim_afresh(orphans)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Take in a change of a pod that is or was ours, or an orphan of the namespace."""
        for node in self.pods.observe(old, new):
            self.node_index.mark(node)

    def refresh(self, now: int, revision_hash: str) -> NodeStatusIndex:
        """The node status index as of now, measured against that hash."""
        seconds = self.daemon_set.spec.min_ready_seconds
        yardstick = IndexedBy(revision_hash, self.generation, seconds, self.surge_allowed)
        self.node_index.refresh(now, yardstick)
        return self.node_index


@dataclass
class SetIndex:
    """All sets, the pods without a controller, and the revisions, each by namespace."""

    by_key: dict[Key, TrackedSet] = field(default_factory=dict)
    by_uid: dict[tuple[str, str], TrackedSet] = field(default_factory=dict)
    """By namespace and uid: a server that is wrong may give one uid to sets of two namespaces."""
    by_namespace: dict[str, dict[Key, TrackedSet]] = field(default_factory=dict)
    orphans: dict[str, dict[Key, Pod]] = field(default_factory=dict)
    revisions: dict[str, dict[Key, ControllerRevision]] = field(default_factory=dict)
    invalid: dict[Key, str] = field(default_factory=dict)
    """Sets whose template cannot be read, and why; nothing is done about them."""

    def fork(self, cache: Cache) -> SetIndex:
        """Another index of the same, over the fork of the cache."""
        other = SetIndex(invalid=dict(self.invalid))
        for tracked in self.by_key.values():
            other._follow(tracked.fork(cache))
        self.orphans, other.orphans = fork_dict(self.orphans, copy_of_dict)
        self.revisions, other.revisions = fork_dict(self.revisions, copy_of_dict)
        return other

    def take_over(
        self, running: SetIndex, daemon_set: DaemonSet, rules: Behaviour, cache: Cache
    ) -> None:
        """Follow a set as one does that runs on the same pods, if it has that set."""
        known = running.by_key.get(daemon_set.key)
        if known is not None and known.daemon_set is daemon_set and known.rules == rules:
            tracked = known.over(cache)
            if tracked is not None:
                self._follow(tracked)

    def add(self, daemon_set: DaemonSet, rules: Behaviour, cache: Cache) -> None:
        """Follow a set."""
        orphans = self.orphans.get(daemon_set.namespace, {})
        try:
            tracked = TrackedSet(daemon_set, rules, cache, orphans)
        except InputError as error:
            self.invalid[daemon_set.key] = str(error)
            return
        self.invalid.pop(daemon_set.key, None)
        self._follow(tracked)

    def _follow(self, tracked: TrackedSet) -> None:
        key = tracked.key
        self.by_key[key] = self.by_uid[key[0], tracked.daemon_set.uid] = tracked
        self.by_namespace.setdefault(key[0], {})[key] = tracked

    def update(self, tracked: TrackedSet, daemon_set: DaemonSet) -> None:
        """Take in a newer version of a set that is followed."""
        try:
            tracked.update(daemon_set, self.orphans.get(daemon_set.namespace, {}))
        except InputError as error:
            self.remove(daemon_set.key)
            self.invalid[daemon_set.key] = str(error)

    def remove(self, key: Key) -> TrackedSet | None:
        """Follow a set no longer; returns what was known of it."""
        self.invalid.pop(key, None)
        tracked = self.by_key.pop(key, None)
        if tracked is None:
            return None
        self.by_uid.pop((key[0], tracked.daemon_set.uid), None)
        members = self.by_namespace[key[0]]
        del members[key]
        if not members:
            del self.by_namespace[key[0]]
        return tracked

    def in_namespace(self, namespace: str) -> Iterator[TrackedSet]:
        """The sets of a namespace."""
        yield from self.by_namespace.get(namespace, {}).values()

    def matching(self, obj: KubeObject) -> Iterator[TrackedSet]:
        """The sets of the object's namespace whose selector matches its labels.

        Follows `getDaemonSetsForPod`: an object without labels, and a set whose selector is empty,
        match nothing.
        """
        labels = obj.metadata.labels
        if not labels:
            return
        for tracked in self.in_namespace(obj.namespace):
            selector = tracked.daemon_set.spec.selector
            if selector != EVERYTHING and matches(selector, labels):
                yield tracked

    def resolve(self, obj: KubeObject) -> TrackedSet | None:
        """The set that controls the object, by kind, name and uid.

        Follows `resolveControllerRef`.
        """
        owner = controller_of(obj.metadata)
        if owner is None or owner.kind != "DaemonSet":
            return None
        tracked = self.by_key.get((obj.namespace, owner.name))
        return tracked if tracked is not None and tracked.daemon_set.uid == owner.uid else None

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Keep orphans, and every set's pods, up with a change."""
        present = new if new is not None else old
        assert present is not None
        owners = {_controller_uid(present): None}
        if old is not None and old.metadata is not present.metadata:
            owners = {_controller_uid(old): None, **owners}
        for uid in owners:
            if uid:
                tracked = self.by_uid.get((present.namespace, uid))
                if tracked is not None:
                    tracked.observe_pod(old, new)
        if "" in owners:
            self._observe_orphan(present, old, new, owners)

    def observe_first(self, pods: Iterable[Pod]) -> None:
        """Take in the pods of no controller that were there before any set is followed."""
        for pod in pods:
            if not _controller_uid(pod):
                self.orphans.setdefault(pod.namespace, {})[pod.key] = pod

    def _observe_orphan(
        self, present: Pod, old: Pod | None, new: Pod | None, owners: dict[str, None]
    ) -> None:
        members = self.orphans.setdefault(present.namespace, {})
        members.pop(present.key, None)
        if new is not None and not _controller_uid(new):
            members[new.key] = new
        for tracked in self.in_namespace(present.namespace):
            if tracked.daemon_set.uid not in owners:
                tracked.observe_pod(old, new)

    def observe_revision(
        self, old: ControllerRevision | None, new: ControllerRevision | None
    ) -> None:
        """Keep the revisions up with a change; sets that may claim it construct history anew."""
        present = new if new is not None else old
        assert present is not None
        members = self.revisions.setdefault(present.namespace, {})
        if new is None:
            members.pop(present.key, None)
        else:
            members[new.key] = new
        for tracked in self.in_namespace(present.namespace):
            selector = tracked.daemon_set.spec.selector
            for revision in (old, new):
                if revision is None:
                    continue
                owner = controller_of(revision.metadata)
                if (owner is not None and owner.uid == tracked.daemon_set.uid) or (
                    owner is None and matches(selector, revision.metadata.labels)
                ):
                    tracked.history = None


class SyncError(Exception):
    """The sync of a set ends with an error: it is reported, and the set is tried again later."""


@dataclass
class SyncContext:
    """One sync's set, what all syncs share, and how far it is. `now` moves on when it is resumed.

    The set and its template stay as they were when the sync began, as upstream's copy does.
    `steps`: what is left to do, the next one last. `on_error`: what is done all the same after an
    error. `events` go out before the next calls. `error`: what it ends with, "" if well.
    """

    tracked: TrackedSet
    daemon_set: DaemonSet
    template: PodTemplate
    index: SetIndex
    cache: Cache
    expectations: ControllerExpectations
    backoff: FailedPodsBackoff
    now: int
    cause: Action | None = None
    requeue_at_ns: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    on_error: Step | None = None
    events: list[Action] = field(default_factory=list)
    error: str = ""

    # What steps leave to later ones:
    revisions: Sequence[ControllerRevision] = ()
    """The set's revisions, while its history is constructed."""
    history: RevisionHistory | None = None
    """The history, once it is constructed."""
    failed_calls: list[str] = field(default_factory=list)
    """The errors of the creates and deletes that are being carried out."""

    key: Key = field(init=False)
    rules: Behaviour = field(init=False)
    """The release's rules."""

    def __post_init__(self) -> None:
        self.key = self.tracked.key
        self.rules = self.tracked.rules

    def fork(
        self,
        tracked: TrackedSet,
        index: SetIndex,
        cache: Cache,
        expectations: ControllerExpectations,
        backoff: FailedPodsBackoff,
    ) -> SyncContext:
        """Another sync at the same point, over forks of what all syncs share."""
        other = copy(self)
        other.tracked, other.index, other.cache = tracked, index, cache
        other.expectations, other.backoff = expectations, backoff
        other.requeue_at_ns, other.steps = list(self.requeue_at_ns), list(self.steps)
        other.events, other.failed_calls = list(self.events), list(self.failed_calls)
        return other

    def then(self, *steps: Step) -> Calls:
        """Do these next, in this order, before what is left to do. Returns no calls."""
        self.steps.extend(reversed(steps))
        return ()

    def advance(self, failures: Failures) -> Calls:
        """Go on, with those of the last calls that failed: the next calls, none at the end."""
        while self.steps:
            step = self.steps.pop()
            try:
                calls = step(self, failures)
            except SyncError as error:
                self._fail(str(error))
                calls = ()
            failures = ()
            if calls:
                return [*self._pop_events(), *calls]
        return self._pop_events()

    def _fail(self, error: str) -> None:
        """End the sync with an error: of the steps that are left only `on_error` is taken."""
        self.error = self.error or error
        self.steps = [self.on_error] if self.on_error is not None else []
        self.on_error = None

    def _pop_events(self) -> list[Action]:
        events, self.events = self.events, []
        return events

    def why(self, because: str, cause: Action | None = None) -> OriginFields:
        """Whose an action of this sync is, and what led to it; without `cause`, what woke it."""
        return {"controller": CONTROLLER, "because": because, "cause": cause or self.cause}

    def event(
        self, type_: str, reason: str, message: str, cause: Action | None = None
    ) -> RecordEvent:
        """An event on the set."""
        return RecordEvent(
            **self.why(message, cause),
            kind="DaemonSet",
            **of_object(self.daemon_set),
            type=type_,
            reason=reason,
            message=message,
        )


def raise_first(_sync: SyncContext, failures: Failures) -> Calls:
    """The step after calls none of which may fail. Raises SyncError for the first that did."""
    if failures:
        raise SyncError(describe(failures[0]))
    return ()


def describe(failure: Outcome) -> str:
    """A failed call in words."""
    kind, (namespace, name) = failure.action.target
    where = f"{namespace}/{name}" if namespace else name
    return failure.message or f"{kind} {where}: the server answered {failure.code}"


@dataclass
class ControlleeExpectations:
    """Pending creates (`adds`) and deletes of one key; both may fall below zero."""

    adds: int
    deletes: int
    timestamp_ns: int

    def fulfilled(self) -> bool:
        """True if nothing is pending."""
        return self.adds <= 0 and self.deletes <= 0

    def expired(self, now: int) -> bool:
        """True if the record is older than the time-out; exactly as old is not expired."""
        return now - self.timestamp_ns > EXPECTATIONS_TIMEOUT_NS


class ControllerExpectations:
    """The records of all keys. Follows upstream's type of the same name."""

    def __init__(self) -> None:
        self._records: dict[Key, ControlleeExpectations] = {}

    def fork(self) -> ControllerExpectations:
        """Others of which the same is expected."""
        other = ControllerExpectations()
        other._records = {key: copy(record) for key, record in self._records.items()}
        return other

    def get(self, key: Key) -> ControlleeExpectations | None:
        """The record of a key, or None."""
        return self._records.get(key)

    def satisfied(self, key: Key, now: int) -> bool:
        """True if a sync may act on the key: no record, all seen, or timed out."""
        record = self._records.get(key)
        return record is None or record.fulfilled() or record.expired(now)

    def expect(self, key: Key, adds: int, deletes: int, now: int) -> None:
        """Set what is pending, replacing what was there. Follows `SetExpectations`."""
        self._records[key] = ControlleeExpectations(adds, deletes, now)

    def lower(self, key: Key, adds: int = 0, deletes: int = 0) -> None:
        """Lower what is pending; a key without a record is left alone. `LowerExpectations`."""
        record = self._records.get(key)
        if record is not None:
            record.adds -= adds
            record.deletes -= deletes

    def creation_observed(self, key: Key) -> None:
        """A create that was expected showed itself, or failed."""
        self.lower(key, adds=1)

    def deletion_observed(self, key: Key) -> None:
        """A delete that was expected showed itself, or failed."""
        self.lower(key, deletes=1)

    def delete(self, key: Key) -> None:
        """Forget the key: its set is gone. Follows `DeleteExpectations`."""
        self._records.pop(key, None)


def _controller_uid(pod: Pod) -> str:
    owner = controller_of(pod.metadata)
    return owner.uid if owner is not None else ""
