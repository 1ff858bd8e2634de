"""The engine: events in, actions out, no I/O, and no clock but the `now` that it is given.

`step` is a generator, so that a live driver can take the actions of a burst in slices of some
milliseconds; it must be exhausted before the next step, and events that come meanwhile wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import cast

from kubectl_nodelife.engine.actions import Action, Requeue
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Actions, Controller
from kubectl_nodelife.engine.events import Change, Event, Outcome, Synced
from kubectl_nodelife.engine.timers import Timers
from kubectl_nodelife.kube.pod import Pod, same_but_for_conditions

Changed = Callable[[Change, Cache, int], Actions]


class RequeueInThePast(Exception):
    """A controller asked to be woken at an instant not after now: virtual time would stop."""


class Engine:
    """Controllers in their order, over one cache."""

    def __init__(
        self,
        controllers: Sequence[Controller],
        cache: Cache,
        *,
        join: bool = False,
        kinds: Iterable[str] = (),
    ) -> None:
        """`kinds` must say Synced before the first decision; `join`: begin beside a running one."""
        self.controllers = list(controllers)
        self.cache = cache
        self.started = False
        self._join = join
        self._unsynced = set(kinds)
        self._timers = Timers()
        self._by_name = {c.name: c for c in self.controllers}
        watched = {kind for c in self.controllers for kind in c.watches}
        self._watchers: dict[str, list[Changed]] = {
            kind: [c.changed for c in self.controllers if kind in c.watches] for kind in watched
        }
        self._condition_readers: list[Changed] = [
            c.changed for c in self.controllers if "Pod" in c.watches and c.reads_pod_conditions
        ]

    def next_due(self) -> int | None:
        """The earliest instant at which some controller wants to be woken, or None."""
        return self._timers.next_due()

    def wake(self, requeue: Requeue) -> None:
        """Let a controller be woken at another instant than it asked for itself."""
        self._timers.set((requeue.controller, requeue.key), requeue.at_ns)

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[Action]:
        """Take in the events, wake who is due at or before now, and yield what they decide.

        Raises RequeueInThePast.
        """
        for taken in self._take_in(events, now_ns):
            if type(taken) is Outcome:
                yield from self._settle(self._failed(taken, now_ns), now_ns)
                continue
            for changed in self._concerned(taken):
                if actions := changed(taken, self.cache, now_ns):
                    yield from self._settle(actions, now_ns)
        if not self.started and not self._unsynced:
            self.started = True
            for controller in self.controllers:
                begin = controller.join if self._join else controller.start
                yield from self._settle(begin(self.cache, now_ns), now_ns)
        if self.started:
            for due in self._timers.pop_due(now_ns):
                name, key = cast("tuple[str, Hashable]", due)
                woken = self._by_name[name].reconcile(key, self.cache, now_ns)
                yield from self._settle(woken, now_ns)

    def _concerned(self, change: Change) -> Sequence[Changed]:
        """The handlers of those who want to know."""
        old, new = change.old, change.new
        if type(old) is Pod and type(new) is Pod and same_but_for_conditions(old, new):
            return self._condition_readers
        return self._watchers.get(change.kind, ())

    def _take_in(self, events: Iterable[Event], now_ns: int) -> list[Change | Outcome]:
        """Bring the cache up to date with all events, before anybody decides on one of them.

        Upstream's handlers only queue names, and workers read the cache when their turn comes: what
        happened at one instant is seen as a whole.
        """
        taken: list[Change | Outcome] = []
        for event in events:
            if type(event) is Outcome:
                if not event.done:  # what is done, the controllers took for done when they decided
                    taken.append(event)
            elif type(event) is Synced:
                self._unsynced.discard(event.kind)
            else:
                change = self.cache.apply(event, now_ns)
                if change is not None and self.started:
                    taken.append(change)
        return taken

    def _failed(self, outcome: Outcome, now_ns: int) -> Actions:
        controller = self._by_name.get(outcome.action.controller)
        return controller.failed(outcome, self.cache, now_ns) if controller is not None else ()

    def _settle(self, actions: Actions, now_ns: int) -> Iterator[Action]:
        for action in actions:
            if type(action) is Requeue:
                if action.at_ns <= now_ns:
                    raise RequeueInThePast(f"{action} at {now_ns}")
                self._timers.set((action.controller, action.key), action.at_ns)
            else:
                yield action
