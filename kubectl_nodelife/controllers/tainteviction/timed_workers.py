"""Deletions that wait for their time, one per pod.

Follows pkg/controller/tainteviction/timed_workers.go. A key is free, has a worker with a timer, or
holds a marker: work that ran at once or, up to 1.32, any work that ran without an error. The
caller runs the handler: at once where the answer says so, else when `take_due` yields the work. A
run is taken for a success as soon as it began, since success is never reported; `fail` takes that
back. Left out on purpose: the races of real threads, which leave markers behind or delete what was
cancelled an instant before.

`PendingEviction` is one of them as reports show it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import copy

import msgspec

from kubectl_nodelife.copy_on_write import copy_of_dict, fork_dict
from kubectl_nodelife.engine.actions import ScheduleEviction

Key = tuple[str, str]


class Work(msgspec.Struct, gc=False):
    """One deletion: upstream's worker is `created_ns` and its timer, which ends at `due_ns`.

    `because` is the sentence of the deletion. Where a controller was joined, its own timer may end
    elsewhere: between `earliest_ns` and `latest_ns`, and `doubt` says why (else it is empty).
    """

    key: Key
    node: str
    created_ns: int
    due_ns: int
    schedule: ScheduleEviction
    because: str
    earliest_ns: int
    latest_ns: int
    doubt: str = ""


class TimedWorkers:
    """The workers by key, by node, and by the instant of their timers."""

    def __init__(self, *, sticky_keys: bool) -> None:
        """`sticky_keys`: up to 1.32 a run without an error leaves a marker."""
        self._sticky = sticky_keys
        self._workers: dict[Key, Work | None] = {}
        self._by_node: dict[str, dict[Key, Work]] = {}
        self._by_instant: dict[int, list[Work]] = {}

    def fork(self) -> TimedWorkers:
        """Others with the same timers."""
        other = copy(self)
        self._workers, other._workers = fork_dict(self._workers)
        self._by_node, other._by_node = fork_dict(self._by_node, copy_of_dict)
        self._by_instant, other._by_instant = fork_dict(self._by_instant, list)
        return other

    def __contains__(self, key: Key) -> bool:
        return key in self._workers

    def get(self, key: Key) -> Work | None:
        """The key's worker with a timer. Follows `GetWorkerUnsafe`."""
        return self._workers.get(key)

    def on(self, node: str) -> Collection[Work]:
        """The workers of the pods of a node."""
        return self._by_node.get(node, {}).values()

    def nodes(self) -> Collection[str]:
        """The nodes with a worker."""
        return self._by_node.keys()

    def add(self, work: Work, now_ns: int) -> bool:
        """Take the work unless its key is there. Follows `AddWork`.

        True: its timer is over at once, and the caller must run it.
        """
        if work.key in self._workers:
            return False
        if work.due_ns <= now_ns:
            self._workers[work.key] = None
            return True
        self._workers[work.key] = work
        self._by_node.setdefault(work.node, {})[work.key] = work
        self._by_instant.setdefault(work.due_ns, []).append(work)
        return False

    def is_first_at(self, work: Work) -> bool:
        """True if no work added before has its timer at the same instant."""
        return self._by_instant[work.due_ns][0] is work

    def any_at(self, at_ns: int) -> bool:
        """True if some timer ends at that very instant."""
        works = self._by_instant.get(at_ns, ())
        return any(self._workers.get(work.key) is work for work in works)

    def cancel(self, key: Key) -> Work | None:
        """Free the key; returns the worker if its timer still ran. Follows `CancelWork`."""
        work = self._workers.pop(key, None)
        if work is not None:
            self._leave_node(work)
        return work

    def take_due(self, at_ns: int) -> Iterator[Work]:
        """Take out, in the order of adding, the works whose timers end at that very instant."""
        for work in self._by_instant.pop(at_ns, ()):
            if self._workers.get(work.key) is work:
                self._workers[work.key] = None
                self._leave_node(work)
                yield work

    def finish(self, key: Key) -> None:
        """A run has ended, as far as is known without an error."""
        if not self._sticky:
            self.fail(key)

    def fail(self, key: Key) -> None:
        """A run has ended with an error: the key is free, unless it has a worker again."""
        if self._workers.get(key) is None:
            self._workers.pop(key, None)

    def _leave_node(self, work: Work) -> None:
        workers = self._by_node[work.node]
        del workers[work.key]
        if not workers:
            del self._by_node[work.node]


class PendingEviction(msgspec.Struct, frozen=True):
    """A deletion that waits for its time, for reports. Instants in ns since the epoch.

    `earliest_ns` and `latest_ns` differ from `due_ns` where a controller that was joined may have
    set its own timer to another instant; `doubt` then says why.
    """

    pod: Key
    node: str
    due_ns: int
    created_ns: int
    toleration_seconds: int
    because: str
    earliest_ns: int
    latest_ns: int
    doubt: str


def view(work: Work) -> PendingEviction:
    """The work as reports see it."""
    return PendingEviction(
        pod=work.key,
        node=work.node,
        due_ns=work.due_ns,
        created_ns=work.created_ns,
        toleration_seconds=work.schedule.toleration_seconds,
        because=work.schedule.because,
        earliest_ns=work.earliest_ns,
        latest_ns=work.latest_ns,
        doubt=work.doubt,
    )
