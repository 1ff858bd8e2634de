"""What a decision task drives: an engine over the cache of what the cluster shows. No I/O.

`ClusterHost` is what every such host has; where it enforces it is `enforce/host.py`. Here is that
of a dry run, `ControllerHost`. What the cluster shows comes in by `observe`; `step` brings it and
what is due through the engine, and lays each decision over the view, whose events go through the
engine again, until nothing is left to decide. Every decision is noted in the ledger, and none is
sent. What other controllers do in the cluster is the follower's affair (`follower`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import ClassVar, Final, TypeVar

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.nodelifecycle.taints import is_for_lost_node
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.daemon.changes import node_of, patch_text
from kubectl_nodelife.daemon.follower import ControllerFollower
from kubectl_nodelife.daemon.gate import ShownEvent, same_version
from kubectl_nodelife.daemon.ledger import Ledger, outcome_of
from kubectl_nodelife.daemon.logs import log_bug, take_in
from kubectl_nodelife.engine.actions import Action, ActionNumbers, RecordEvent
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.calls import request_of
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Engine, OnBug
from kubectl_nodelife.engine.events import Event, Gone, Put, Unreadable
from kubectl_nodelife.engine.overlay import Overlay
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.settlement import CONFIRMED, SUPERSEDED
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.news import News

ChangeListener = Callable[[KubeObject, KubeObject | None, int], None]
"""Called with an object as the cluster showed it before and shows it now (None: gone), and when."""

T = TypeVar("T")

_ORDER: Final = "the order of events"
FOLLOWER: Final = "follower"
OVERLAY: Final = "overlay"
DIVERGENCE: Final = "divergence"
_ONLOOKERS: Final = (FOLLOWER, OVERLAY, DIVERGENCE)
"""What looks at the cluster besides the controllers; a bug there is named so."""

_AT_ONCE: Final = 1_000
"""How many events the engine takes in without a pause: some milliseconds' worth."""


class ClusterHost:
    """An engine over the cache of what a cluster shows. `engine` is None before the controllers
    begin; `lifecycle` and `eviction` are None where the controller does not run.

    `one_instant`: all that was seen since the last decision counts as seen now. `warms_up_anew`:
    after a change of flags no node is called lost for a grace period.
    """

    one_instant: ClassVar[bool] = False
    warms_up_anew: ClassVar[bool] = False

    def __init__(self) -> None:
        self.cache = Cache()
        self.engine: Engine | None = None
        self.lifecycle: NodeLifecycleController | None = None
        self.eviction: TaintEvictionController | None = None

    def shown(self, kind: str, key: Key) -> KubeObject | None:
        """The object as the cluster shows it."""
        return self.cache.get(kind, key)

    def shown_keys(self, kind: str) -> Iterator[Key]:
        """The keys of all objects of a kind as the cluster shows them."""
        return iter([obj.key for obj in self.cache.all(kind)])

    def settled_controllers(self) -> Sequence[Controller]:
        """The controllers, where each has heard of all that the cache shows."""
        engine = self.engine
        if engine is None or not engine.started or engine.decides or self.cache.quarantine.bugs:
            return ()
        return engine.controllers

    def forget(self, kind: str) -> None:
        """Drop all objects of a kind that can no longer be read."""
        for obj in list(self.cache.all(kind)):
            self.cache.set(kind, obj.key, None)

    def next_due(self) -> int | None:
        """The earliest instant at which a controller is due, or None."""
        return self.engine.next_due() if self.engine is not None else None

    def settle_inherited(self, now_ns: int) -> None:
        """End what a process before this one had planned; it may have planned nothing."""

    def note(self, item: News, now_ns: int) -> None:
        """Look at news before they are taken in."""

    def time_passed_unseen(self) -> None:
        """Something may have happened of which nothing is known: a suspend, a stop, a halt."""

    def begins_warm(self) -> bool:
        """True if the first decisions may call a node lost."""
        return False

    def _make_engine(
        self,
        settings: Settings,
        names: Iterable[str],
        *,
        join: bool,
        numbers: ActionNumbers,
        on_bug: OnBug = log_bug,
    ) -> Engine:
        """An engine of the controllers of these names, all new, over the cache."""
        controllers = make_controllers(settings, list(names))
        self.lifecycle = self.eviction = None
        for controller in controllers:
            if isinstance(controller, NodeLifecycleController):
                self.lifecycle = controller
            elif isinstance(controller, TaintEvictionController):
                self.eviction = controller
        self.engine = Engine(controllers, self.cache, join=join, on_bug=on_bug, numbers=numbers)
        return self.engine


class ControllerHost(ClusterHost):
    """Runs the controllers that plan only, on one engine with its overlay. `on_change` receives
    each change that the cluster shows.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self.overlay = Overlay(self.cache, ledger.numbers)
        self.on_change: ChangeListener = lambda old, new, now_ns: None
        self.follower: ControllerFollower | None = None
        self._now_ns = 0

    def join(self, settings: Settings, names: Iterable[str], *, restarted: bool = False) -> None:
        """Look over the shoulder of the running controllers from here on; they begin cold.

        `restarted`: those have just begun themselves and remember nothing, nor do ours.
        """
        join, numbers = not restarted, self.ledger.numbers
        engine = self._make_engine(settings, names, join=join, numbers=numbers)
        if self.lifecycle is not None:
            memory = self.lifecycle.memory
            memory.begins_cold = memory.stays_beside = join
        self.follower = ControllerFollower(engine, self.overlay, self.ledger)

    def shows_taints_of(self, began_ns: int) -> bool:
        """True if controllers that began then have tainted a lost node anew already: then what they
        began with is done, and the cluster shows it.
        """
        return any(
            is_for_lost_node(taint) and (taint.time_added or 0) + SECOND_NS > began_ns
            for node in self.cache.nodes.values()
            for taint in node.spec.taints
        )

    def began_at(self, began_ns: int, watched_ns: int, now_ns: int) -> None:
        """The controllers began then, and their passes have gone on since.

        No silence counts from before `watched_ns`, when the cluster was not in sight.
        """
        lifecycle = self.lifecycle
        if lifecycle is None or self.engine is None:
            return
        lifecycle.memory.watch_afresh(watched_ns)
        lifecycle.memory.phase_seen_ns = began_ns
        period_ns = lifecycle.settings.node_monitor_period_ns
        passes = max(0, now_ns - began_ns) // period_ns + 1
        self.engine.wake(lifecycle.pass_at(began_ns + passes * period_ns))

    def withdraw(self, now_ns: int, because: str) -> None:
        """Nothing is planned any more: the view is what the cluster shows."""
        for action in list(self.overlay.pending()):
            self.ledger.settle(action, SUPERSEDED, now_ns, because)
        self.ledger.end_decisions(now_ns, because)
        for (kind, key), obj in list(self.overlay.observed().items()):
            self.cache.set(kind, key, obj)
        self.overlay = Overlay(self.cache, self.ledger.numbers)
        take_in(self.cache, self._deferred(), now_ns)

    def shown(self, kind: str, key: Key) -> KubeObject | None:
        return self.overlay.shown(kind, key)

    def shown_keys(self, kind: str) -> Iterator[Key]:
        observed = self.overlay.observed()
        for obj in list(self.cache.all(kind)):
            if observed.get((kind, obj.key), obj) is not None:
                yield obj.key
        for (other, key), shown in list(observed.items()):
            if other == kind and shown is not None and self.cache.get(kind, key) is None:
                yield key

    def shown_count(self, kind: str) -> int:
        """How many objects of a kind the cluster shows, whatever is planned."""
        count = sum(1 for _ in self.cache.all(kind))
        for (other, key), shown in self.overlay.observed().items():
            if other == kind:
                count += (shown is not None) - (self.cache.get(kind, key) is not None)
        return count

    def observe(self, event: Event, now_ns: int) -> list[Event]:
        """The events for the view that follow from an event of the cluster."""
        if isinstance(event, Unreadable):
            self.cache.apply(event, now_ns)
            return []
        if not isinstance(event, (Put, Gone)):
            return self.overlay.observe(event, now_ns)
        self.cache.quarantine.lift(*event.target)
        if isinstance(event, Put) and event.kind == "Lease":
            view = self.overlay.observe(event, now_ns)
            self._settle()
            return view
        new = event.obj if isinstance(event, Put) else None
        target = event.target
        old = self.overlay.shown(*target)
        if (old is None and new is None) or (old and new and same_version(old, new)):
            return []
        if old is not None:
            about = (kind_of(old), old.key)
            self._contained(DIVERGENCE, about, now_ns, None, self.on_change, old, new, now_ns)
        as_it_is: tuple[Put | Gone, list[Event]] = (event, [])
        event, view = self._follow(target, as_it_is, ControllerFollower.before, event, now_ns)
        view += self.overlay.observe(event, now_ns)
        view += self._follow(target, [], ControllerFollower.after, event)
        confirmed = self._settle()
        if new is None:
            self.ledger.gone(target, now_ns)
        view += self._follow(target, [], ControllerFollower.learn, confirmed, now_ns)
        self._settle()
        return view

    def _deferred(self) -> list[Put | Gone]:
        """The events that the follower has put off, which it then has no more."""
        return self.follower.pop_deferred() if self.follower is not None else []

    def _follow(self, about: Hashable, otherwise: T, ask: Callable[..., T], *question: object) -> T:
        """The follower's answer to a question; `otherwise` where there is none yet, and where it
        fails, which is logged as a bug.
        """
        if self.follower is None:
            return otherwise
        asked = (self.follower, *question)
        return self._contained(FOLLOWER, about, self._now_ns, otherwise, ask, *asked)

    def _contained(
        self,
        who: str,
        about: Hashable,
        now_ns: int,
        otherwise: T,
        do: Callable[..., T],
        *arguments: object,
    ) -> T:
        """What comes of it; `otherwise` where it fails, which is logged as a bug of that part."""
        try:
            return do(*arguments)
        except Exception as error:
            log_bug(self.cache.quarantine.failed(who, about, error, now_ns))
            return otherwise

    def step(self, now_ns: int, events: Iterable[Event]) -> Iterator[None]:
        """Take in what was seen and wake what is due; yields after each decision, for a pause.

        Must be exhausted before anything else is asked of this object.
        """
        view: list[Event] = []
        self._now_ns = now_ns
        seen: Sequence[Event] = [*self._deferred(), *events]
        for event in self._follow(_ORDER, seen, ControllerFollower.arrange, seen):
            about = _about(event)
            if self.cache.quarantine.bugs:
                for who in _ONLOOKERS:  # another try, which may fail again
                    self.cache.quarantine.worked(who, about)
            act = self._follow(about, False, ControllerFollower.is_act, event)
            if act:
                yield from self._step(view, now_ns)
                view, now_ns = [], now_ns + 1  # what waits for an instant's end is due
                yield from self._step(view, now_ns)
                yield
            if self._follow(about, False, ControllerFollower.defers, event, act, now_ns):
                continue
            # an object at which we fail is shown as it is
            view += self._contained(OVERLAY, about, now_ns, [event], self.observe, event, now_ns)
            if not (isinstance(event, Put) and event.kind == "Lease"):
                yield from self._step(view, now_ns)  # the next event may be about the same object
                view = []
        yield from self._step(view, now_ns)

    def _step(self, view: list[Event], now_ns: int) -> Iterator[None]:
        """Bring these events of the view through the engine, and what follows from them."""
        assert self.engine is not None
        waiting = view
        while True:
            view, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            view = [event for event in view if not self._is_set_aside(event)]
            for decided in self.engine.turns(now_ns, view):
                for action in decided:
                    # one at which we fail is its controller's bug, and left out
                    who, plan = action.controller, (self._plan, action, now_ns)
                    waiting += self._contained(who, action.target, now_ns, [], *plan)
                    yield
                if not decided:
                    yield
            if not waiting:
                self.overlay.applied()
                return
            yield

    def _is_set_aside(self, event: Event) -> bool:
        """True if it only shows what of a plan is left on an object that cannot be read: the engine
        would take it for the object itself, and for readable again.
        """
        unreadable = self.cache.quarantine.unreadable
        return bool(unreadable) and isinstance(event, (Put, Gone)) and event.target in unreadable

    def settle_inherited(self, now_ns: int) -> None:
        """End what a daemon before this one had planned and this one has not planned again."""
        for change in list(self.ledger.inherited()):
            outcome, why = outcome_of(change, self.overlay)
            self.ledger.settle_inherited(change, outcome, now_ns, why)

    def _plan(self, action: Action, now_ns: int) -> list[Event]:
        """Lay a decision over the view, and note it unless there was nothing left to do."""
        self.ledger.numbers.ensure(action)
        within = self._follow(action.target, None, ControllerFollower.within, action, now_ns)
        if not action.writes or isinstance(action, RecordEvent):
            node = node_of(action, self.shown(*action.target))
            self.ledger.note(action, now_ns, node, "", within)
            nothing: list[Event] = []
            decided = ControllerFollower.decided
            events = self._follow(action.target, nothing, decided, action, now_ns)
            self._settle()
            return events
        before = self.overlay.view(action.target)
        events = self.overlay.project(action, now_ns)
        if not any(end.action.id == action.id for end in self.overlay.settled):
            patch = patch_text(request_of(action, before), self.ledger.digest)
            node = node_of(action, self.shown(*action.target))
            self.ledger.note(action, now_ns, node, patch, within)
        self._settle()
        return events

    def _settle(self) -> list[Action]:
        """Note how plans ended. Those that were confirmed."""
        settled = self.overlay.settled
        for end in settled:
            self.ledger.settle(end.action, end.outcome, end.at_ns, end.why)
        done = [end.action for end in settled if end.outcome == CONFIRMED]
        settled.clear()
        return done


def _about(event: Event) -> Hashable:
    """The object that an event is about, for a bug's name."""
    return event.target if isinstance(event, ShownEvent) else ("", "")
