"""The engine and its loop: events in, actions out, no I/O, and no clock but the `now` that it is
given.

`step` is an iterator, so that a live driver can take the actions of a burst in slices of some
milliseconds; it must be exhausted before the next step, and events that come meanwhile wait.

What a controller decides on an object in quarantine is refused here (`is_refused`), whatever
executor carries out the rest: the controller learns a moment later that the call failed. Where bugs
are reported (`on_bug`), a controller that raises ends nothing either; otherwise, as in tests, it is
raised.

An action depends on its target, the node that a pod is made for, the heartbeat of a pod's node
where its controller decides from heartbeats, and the set that the target belongs to where it
decides from sets. If one of them is in quarantine, the action is refused, and what it led to with
it. An object without a name may be the one that is missing: the Lease of a node that has none, or
any set's revision.

Source, host and executor are what both loops drive. A source says what happened and when, in ticks;
the host takes a tick through the engine and passes each decision to an executor. `drive` does so on
virtual time until the source ends; `live.loop` has the same loop as an asyncio task, which pauses
between decisions. There are no other drivers.

A host that writes passes what was decided to an executor, which begins it and returns at once. What
came of it arrives later as an `events.Outcome`, the same way as all other events: by the source's
next tick on virtual time, by the decision task's queue on a live cluster. There are two executors:
the virtual cluster (`sim.world.World`), and the one that writes to a real cluster
(`live.executor.LiveExecutor`). A dry run has none: its host lays what was decided over what the
cluster shows (`engine.overlay`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from typing import Final, ParamSpec, Protocol, TypeGuard, cast

from kubectl_nodelife.engine.actions import (
    Action,
    ActionNumbers,
    AfterWrites,
    CreateControllerRevision,
    CreatePod,
    RecordEvent,
    Requeue,
)
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import ANY_OWNER, Actions, Controller, TurnPart
from kubectl_nodelife.engine.events import (
    Change,
    ConditionsChanged,
    Event,
    Gone,
    LeaseReads,
    Outcome,
    Put,
    Synced,
    WritesDone,
)
from kubectl_nodelife.engine.quarantine import Bug
from kubectl_nodelife.engine.workqueue import Timers
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.pod import Pod, same_but_for_conditions
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.unreadable import Ref

QUARANTINED: Final = 423
"""The code of the outcome of an action on an object in quarantine: locked."""

_REFUSAL_NS: Final = SECOND_NS
_BEGINNING: Final = "its beginning"

OnBug = Callable[[Bug], None]
P = ParamSpec("P")


class RequeueInThePast(Exception):
    """A controller asked to be woken at an instant not after now: virtual time would stop."""


class Engine:
    """Controllers in their order, over one cache.

    `decides`: a step is under way, so that the cache may show what a controller has not heard of.
    `timers_wait`: no controller is woken, while what happened in a gap is taken in piece by piece.
    `awaits_writes`: the executor says when writes are done that a controller waits for
    (`AfterWrites`); otherwise they count as done when they are decided.
    """

    def __init__(
        self,
        controllers: Sequence[Controller],
        cache: Cache,
        *,
        join: bool = False,
        kinds: Iterable[str] = (),
        on_bug: OnBug | None = None,
        numbers: ActionNumbers | None = None,
        awaits_writes: bool = False,
    ) -> None:
        """`kinds` must say Synced before the first decision; `join`: begin beside a running one.

        `on_bug` receives each exception of a controller, which is then contained. `numbers`:
        where to go on counting actions.
        """
        self.controllers = list(controllers)
        self.cache = cache
        self.started = self.decides = False
        self.timers_wait = False
        self._join = join
        self._unsynced = set(kinds)
        self._timers = Timers()
        self._on_bug = on_bug
        self._numbers = numbers or ActionNumbers()
        self._refused: deque[tuple[int, Outcome]] = deque()
        self._refused_actions: set[int] = set()  # of these the actions, by identity
        self._awaits_writes = awaits_writes
        self._written: deque[tuple[str, Hashable]] = deque()
        self._waking = False
        self._index_controllers()

    def _index_controllers(self) -> None:
        """Which controller receives what."""
        self._by_name = {c.name: c for c in self.controllers}
        watched = {kind for c in self.controllers for kind in c.watches}
        self._watchers: dict[str, list[Controller]] = {
            kind: [c for c in self.controllers if kind in c.watches] for kind in watched
        }
        owners = {kind for c in self.controllers for kind in c.reads_conditions_of}
        readers = [c for c in self._watchers.get("Pod", ()) if c.reads_conditions_of]
        self._readers_of_all = [c for c in readers if ANY_OWNER in c.reads_conditions_of]
        self._condition_readers: dict[str, list[Controller]] = {
            owner: [c for c in readers if {owner, ANY_OWNER} & c.reads_conditions_of]
            for owner in owners - {ANY_OWNER}
        }
        self._readers_of_success = {c.name for c in self.controllers if c.reads_success}

    def fork(self, numbers: ActionNumbers | None = None) -> Engine:
        """Another engine at the same point, with a cache of its own: both go on apart from here.

        Made by sharing: it costs what is under way, not what the cluster holds. Not within a step.
        `numbers`: those of the fork of the world that the engine runs on.
        """
        other = copy(self)
        other.cache = self.cache.fork()
        other.controllers = [controller.fork(other.cache) for controller in self.controllers]
        other._unsynced = set(self._unsynced)
        other._timers = self._timers.fork()
        other._numbers = copy(self._numbers) if numbers is None else numbers
        other._refused, other._written = deque(self._refused), deque()
        other._refused_actions = set(self._refused_actions)
        other._index_controllers()
        return other

    def next_due(self) -> int | None:
        """The earliest instant at which some controller wants to be woken, or None."""
        due_ns = self._timers.next_due()
        if not self._refused:
            return due_ns
        refused_ns = self._refused[0][0]
        return refused_ns if due_ns is None else min(refused_ns, due_ns)

    @property
    def rests(self) -> bool:
        """True if no controller decides anything any more, unless something happens: what is due
        are rounds that look at nothing."""
        if not self.started or self._refused:
            return False
        due = cast("Iterator[tuple[str, Hashable]]", iter(self._timers))
        return all(self._by_name[name].rests(key) for name, key in due if name in self._by_name)

    def due(self) -> Iterator[tuple[int, str, Hashable]]:
        """(instant, controller, key) of all that is due and does not rest."""
        for entry in self._timers:
            name, key = cast("tuple[str, Hashable]", entry)
            at_ns = self._timers.get(entry)
            if at_ns is not None and name in self._by_name and not self._by_name[name].rests(key):
                yield at_ns, name, key

    def wake(self, requeue: Requeue) -> None:
        """Let a controller be woken at another instant than it asked for itself."""
        self._timers.set((requeue.controller, requeue.key), requeue.at_ns)

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[Action]:
        """Take in the events, wake controllers due at or before now, and yield what they decide.

        Raises RequeueInThePast.
        """
        return chain.from_iterable(self.turns(now_ns, events))

    def turns(self, now_ns: int, events: Iterable[Event]) -> Iterator[Sequence[Action]]:
        """The same, by what is decided together: of a node in a monitor pass often nothing, but a
        live driver may pause there too.
        """
        self.decides, cache = True, self.cache
        for taken in self._take_in(events, now_ns):
            if type(taken) is Outcome:
                yield from self._ended(taken, now_ns)
                yield from self._go_on(now_ns)
                continue
            if type(taken) is WritesDone:
                self._written.append((taken.controller, taken.key))
                yield from self._go_on(now_ns)
                continue
            for controller in self._concerned(taken):
                try:
                    actions = controller.changed(taken, cache, now_ns)
                except Exception as error:
                    self._note_bug(controller.name, _about(taken), error, now_ns)
                    continue
                if type(actions) is list:
                    yield self._decide(TurnPart(controller.name, _about(taken), actions), now_ns)
                elif actions:
                    yield from self._settle(controller.name, taken, actions, now_ns)
                elif cache.quarantine.bugs:
                    cache.quarantine.worked(controller.name, _about(taken))
            if self._written:
                yield from self._go_on(now_ns)
        while self._refused and self._refused[0][0] <= now_ns:
            _, outcome = self._refused.popleft()
            self._refused_actions.discard(id(outcome.action))
            yield from self._ended(outcome, now_ns)
            yield from self._go_on(now_ns)
        if not self.started and not self._unsynced:
            self.started = True
            for controller in list(self.controllers):
                yield from self._begin(controller, now_ns)
                yield from self._go_on(now_ns)
        if self.started and not self.timers_wait:
            yield from self._wake_due(now_ns)
        self.decides = False

    def _wake_due(self, now_ns: int) -> Iterator[Sequence[Action]]:
        """Wake the controllers that asked for this instant or an earlier one."""
        self._waking = True
        for due in self._timers.pop_due(now_ns):
            name, key = cast("tuple[str, Hashable]", due)
            if name in self._by_name:
                turn = _turn(self._by_name[name].reconcile, key, self.cache, now_ns)
                bug = yield from self._settle(name, key, turn, now_ns)
                if bug is not None:  # a turn that fails comes again
                    self._timers.set(due, now_ns + bug.retry_ns())
                if self._written:
                    yield from self._go_on(now_ns)
        self._waking = False

    def _go_on(self, now_ns: int) -> Iterator[Sequence[Action]]:
        """Wake controllers whose writes are done."""
        while self._written:
            name, key = self._written.popleft()
            if name in self._by_name:
                turn = _turn(self._by_name[name].reconcile, key, self.cache, now_ns)
                yield from self._settle(name, key, turn, now_ns)

    # Calls of controllers

    def _ended(self, outcome: Outcome, now_ns: int) -> Iterator[Sequence[Action]]:
        """A controller learns what came of an action of its own."""
        controller = self._by_name.get(outcome.action.controller)
        if controller is not None:
            turn = _turn(controller.outcome, outcome, self.cache, now_ns)
            about = outcome.action.target
            # hearing of a call is no sign that what had failed here works again
            yield from self._settle(controller.name, about, turn, now_ns, clears_bugs=False)

    def _begin(self, controller: Controller, now_ns: int) -> Iterator[Sequence[Action]]:
        """A controller begins; one that cannot does not take part."""
        begin = controller.join if self._join else controller.start
        turn = _turn(begin, self.cache, now_ns)
        if (yield from self._settle(controller.name, _BEGINNING, turn, now_ns)) is not None:
            self.controllers.remove(controller)
            self._index_controllers()

    def _note_bug(self, controller: str, about: Hashable, error: Exception, now_ns: int) -> Bug:
        """Contain an exception, or raise it where bugs are not reported."""
        if self._on_bug is None:
            raise error
        bug = self.cache.quarantine.failed(controller, about, error, now_ns)
        self._on_bug(bug)
        return bug

    def _set_aside(self, event: Event, error: Exception, now_ns: int) -> None:
        """Contain an object at which the cache failed, and leave all others as they are."""
        if self._on_bug is None or not isinstance(event, (Put, Gone)):
            raise error
        self._on_bug(self.cache.quarantine.set_aside(event, error, now_ns))

    def _concerned(self, change: Change) -> Sequence[Controller]:
        """The controllers that receive the change."""
        old, new = change.old, change.new
        if type(new) is Pod and type(old) is Pod and same_but_for_conditions(old, new):
            owner = controller_of(new.metadata)
            kind = owner.kind if owner is not None else ""
            return self._condition_readers.get(kind, self._readers_of_all)
        return self._watchers.get(change.kind, ())

    def _take_in(self, events: Iterable[Event], now_ns: int) -> list[Change | Outcome | WritesDone]:
        """Bring the cache up to date with all events, before a controller decides on one of them.

        Upstream's handlers only queue names, and workers read the cache when their turn comes: what
        happened at one instant is seen as a whole.
        """
        taken: list[Change | Outcome | WritesDone] = []
        for event in events:
            if type(event) is Outcome:
                if not event.done or event.action.controller in self._readers_of_success:
                    taken.append(event)
            elif type(event) is ConditionsChanged:
                taken += self._take_in_conditions(event, now_ns)
            elif type(event) is WritesDone:
                taken.append(event)
            elif type(event) is Synced:
                self._unsynced.discard(event.kind)
            elif type(event) is LeaseReads:
                changes = self.cache.apply_lease_reads(event, now_ns)
                taken += changes if self.started else ()
            else:
                try:
                    change = self.cache.apply(event, now_ns)
                except Exception as error:
                    self._set_aside(event, error, now_ns)
                    continue
                if change is not None and self.started:
                    taken.append(change)
        return taken

    def _take_in_conditions(
        self, event: ConditionsChanged, now_ns: int
    ) -> Sequence[Change | Outcome | WritesDone]:
        """Bring the cache up to date with pods whose conditions a controller may read."""
        if self._readers_of_all or self.cache.quarantine.unreadable:
            return self._take_in(event.puts(), now_ns)
        changes = self.cache.apply_conditions(event, self._condition_readers)
        return changes if self.started else ()

    def _settle(
        self,
        controller: str,
        about: Hashable | Change,
        actions: Actions,
        now_ns: int,
        *,
        clears_bugs: bool = True,
    ) -> Generator[Sequence[Action], None, Bug | None]:
        """Yield what a controller decides about an object, as it comes to it.

        Returns the bug that ended the turn, None where it came to its end. `clears_bugs`: a turn
        that comes to its end shows that a bug at the object is over.
        """
        try:
            for action in actions:
                if type(action) is TurnPart:
                    yield self._decide(action, now_ns)
                elif self._goes_out(action, now_ns):
                    yield (self._numbers.give(action),)
        except Exception as error:
            return self._note_bug(controller, _about(about), error, now_ns)
        if clears_bugs and self.cache.quarantine.bugs:
            self.cache.quarantine.worked(controller, _about(about))
        return None

    def _decide(self, part: TurnPart, now_ns: int) -> list[Action]:
        """All that is decided in a part of a turn; what fails in it leaves the rest to go on."""
        decided: list[Action] = []
        quarantine = self.cache.quarantine
        calm = not (quarantine.unreadable or quarantine.bugs)
        try:
            for action in part.actions:
                if type(action) is Requeue or action.takes_time_only:
                    if self._goes_out(action, now_ns):
                        decided.append(action)
                elif calm or self._goes_out(action, now_ns):
                    decided.append(action)
        except Exception as error:
            self._note_bug(part.controller, part.about, error, now_ns)
        else:
            if self.cache.quarantine.bugs:
                self.cache.quarantine.worked(part.controller, part.about)
        self._numbers.give_all(decided)
        return decided

    def _goes_out(self, action: Action | Requeue, now_ns: int) -> TypeGuard[Action]:
        """True if it is an action, and not refused. Otherwise it is done with here."""
        if type(action) is Requeue:
            if action.at_ns < now_ns or (self._waking and action.at_ns == now_ns):
                raise RequeueInThePast(f"{action} at {now_ns}")
            self._timers.set((action.controller, action.key), action.at_ns)
            return False
        if action.takes_time_only:
            if type(action) is AfterWrites and not self._awaits_writes:
                self._written.append((action.controller, action.key))
            return self._awaits_writes
        quarantine = self.cache.quarantine
        if not (quarantine.unreadable or quarantine.bugs):
            return True
        follows_refused = any(id(cause) in self._refused_actions for cause in action.causes())
        if not follows_refused and not is_refused(action, self.cache, self._watched_by(action)):
            return True
        if action.writes and type(action) is not RecordEvent:
            outcome = Outcome(action, QUARANTINED, "an object that it needs is quarantined")
            self._refused.append((now_ns + _REFUSAL_NS, outcome))
            self._refused_actions.add(id(action))
        return False

    def _watched_by(self, action: Action) -> frozenset[str]:
        """The kinds on which the action's controller bases its decisions."""
        controller = self._by_name.get(action.controller)
        return controller.watches if controller is not None else frozenset()


Tick = tuple[int, Iterable[Event]]
"""An instant in ns since the epoch, and what happened until then."""


NextTick = Callable[[int | None], Tick | None]
"""Of a source: the next instant at which something happened or a timer is due, with its events;
None: the end. It receives when the host is due.
"""


class Host(Protocol):
    """An engine with what belongs to it, as a driver sees it."""

    def next_due(self) -> int | None:
        """The earliest instant at which some controller wants to be woken, or None."""

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[object]:
        """Take one tick in; yields after each decision, for a pause, and must be exhausted."""


class EngineHost:
    """The plain host: each decision is begun by the executor."""

    def __init__(self, engine: Engine, executor: Executor) -> None:
        self.engine = engine
        self._executor = executor

    def next_due(self) -> int | None:
        """When the engine is due."""
        return self.engine.next_due()

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[Sequence[Action]]:
        """The decisions of one tick, each begun before it is yielded: what was decided together, of
        a node for example, is one.
        """
        executor = self._executor
        for decided in self.engine.turns(now_ns, events):
            if decided:
                executor.start_all(decided, now_ns)
            yield decided


def drive(next_tick: NextTick, host: Host) -> None:
    """Drive the host on virtual time until the source ends."""
    while (tick := next_tick(host.next_due())) is not None:
        deque(host.step(*tick), maxlen=0)


class Executor(Protocol):
    """Carries actions out on virtual time, where nothing waits for a pause between two of them."""

    def start_all(self, actions: Sequence[Action], now_ns: int) -> None:
        """Carry out what was decided together, in that order; raises nothing that an API server may
        answer, which arrives as an event.
        """


def _turn(decide: Callable[P, Actions], *args: P.args, **kwargs: P.kwargs) -> Actions:
    """A controller's turn, which begins when its first action is asked for."""
    yield from decide(*args, **kwargs)


def _about(about: Hashable | Change) -> Hashable:
    """The subject of a turn; of a change its object: a heartbeat may come without its node."""
    if type(about) is not Change:
        return about
    obj = about.new if about.new is not None else about.old
    return (about.kind, obj.key if obj is not None else ("", ""))


def is_refused(action: Action, cache: Cache, watches: Collection[str]) -> bool:
    """True if the action concerns something in quarantine. `watches`: its controller's kinds."""
    quarantine, target = cache.quarantine, action.target
    if cache.is_quarantined(*target) or (action.controller, target) in quarantine.bugs:
        return True
    if isinstance(action, CreatePod) and quarantine.holds_room_on(action.node):
        return True
    if "Heartbeat" in watches and _is_heartbeat_unknown(target, cache):
        return True
    if _may_be_nameless(target, cache, watches):
        return True
    owner = _owner(action, cache)
    if owner is None or owner[0] not in watches:
        return False
    return quarantine.holds(owner) or (action.controller, owner) in quarantine.bugs


def _may_be_nameless(target: Ref, cache: Cache, watches: Collection[str]) -> bool:
    """True if what the action's target lacks may be there, without a name."""
    quarantine = cache.quarantine
    if "ControllerRevision" in watches and quarantine.is_nameless("ControllerRevision"):
        return True
    node = target[1][1] if target[0] == "Node" else ""
    if target[0] == "Pod" and (pod := cache.pods.get(target[1])) is not None:
        node = pod.spec.node_name
        if quarantine.is_nameless("Node") and node not in cache.nodes:
            return True
    return quarantine.is_nameless("Lease") and bool(node) and node not in cache.heartbeats


def _is_heartbeat_unknown(target: Ref, cache: Cache) -> bool:
    """True if the target is a pod, and its node's Lease cannot be read."""
    pod = cache.pods.get(target[1]) if target[0] == "Pod" else None
    return pod is not None and cache.quarantine.holds(("Node", ("", pod.spec.node_name)))


def _owner(action: Action, cache: Cache) -> Ref | None:
    """The object that controls the action's target."""
    kind, key = action.target
    if isinstance(action, CreatePod):
        return ("DaemonSet", (action.namespace, action.owner))
    if isinstance(action, CreateControllerRevision):
        obj: KubeObject | None = action.revision
    else:
        obj = cache.get(kind, key)
    owner = controller_of(obj.metadata) if obj is not None else None
    return (owner.kind, (key[0], owner.name)) if owner is not None else None
