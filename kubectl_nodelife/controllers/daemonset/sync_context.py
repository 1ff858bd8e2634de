"""What one sync of a set works with, and how it makes API calls.

A sync is written from top to bottom as upstream's, as a generator: it yields the calls of one step
together and is resumed, at once or later, with those that failed. Nothing here waits or does I/O;
the controller resumes a sync when the cache shows what it did.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from kubectl_nodelife.controllers.daemonset.backoff import FailedPodsBackoff
from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.expectations import ControllerExpectations
from kubectl_nodelife.controllers.daemonset.template import PodTemplate
from kubectl_nodelife.controllers.daemonset.tracked_set import Key, SetIndex, TrackedSet
from kubectl_nodelife.engine.actions import Action, RecordEvent
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.kube.workload import DaemonSet

CONTROLLER = "daemonset"

NOT_FOUND = 404
ALREADY_EXISTS = 409
INVALID = 422
GATEWAY_TIMEOUT = 504

Failures = list[Outcome]
Steps = Generator[list[Action], Failures, None]


class SyncError(Exception):
    """The sync of a set ends with an error: it is told, and the set is tried again later."""


@dataclass
class SyncContext:
    """One sync's set and what all syncs share. `now` moves on when the sync is resumed.

    The set and its template stay as they were when the sync began, as upstream's copy does.
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

    key: Key = field(init=False)
    rules: Behaviour = field(init=False)
    """The release's rules."""

    def __post_init__(self) -> None:
        self.key = self.tracked.key
        self.rules = self.tracked.rules

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


def describe(failure: Outcome) -> str:
    """A failed call in words."""
    kind, (namespace, name) = failure.action.target
    where = f"{namespace}/{name}" if namespace else name
    return failure.message or f"{kind} {where}: the server answered {failure.code}"
