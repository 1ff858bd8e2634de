"""The state of one sync of a set: what it works with, what is left to do, and what it collected;
and what the controller's own calls will show in the cache.

A sync is a value. Its steps are plain functions, put on a list. A step decides and returns its API
calls, the next one is given those that failed. Nothing here waits or does I/O: between two steps
the controller keeps the record until the cache shows the calls, and may copy it meanwhile.

Expectations follow `ControllerExpectations` (`pkg/controller/controller_utils.go`). One record a
key: pending creates, pending deletes, and when they were set. A controller must not decide on a set
again before the cache shows what it did last; a record older than five minutes is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.pods_on_node import FailedPodsBackoff
from kubectl_nodelife.controllers.daemonset.template import PodTemplate
from kubectl_nodelife.controllers.daemonset.tracked_set import (
    Key,
    RevisionHistory,
    SetIndex,
    TrackedSet,
)
from kubectl_nodelife.engine.actions import Action, RecordEvent
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet

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

    def event(
        self, type_: str, reason: str, message: str, cause: Action | None = None
    ) -> RecordEvent:
        """An event on the set."""
        return RecordEvent(
            controller=CONTROLLER,
            because=message,
            cause=cause or self.cause,
            kind="DaemonSet",
            namespace=self.daemon_set.namespace,
            name=self.daemon_set.name,
            object_uid=self.daemon_set.uid,
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
