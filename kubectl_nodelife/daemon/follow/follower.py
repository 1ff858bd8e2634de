"""Relates a planning copy to writes that other controllers made before it.

Each such write is told as done by another controller, becomes the cause of what follows from it,
and adjusts our copy where it shows what cannot be known otherwise (`pass_phase`, `daemonset_acts`).
A host that enforces all of its controllers takes a bare `Follower`.

The events of several watches are put in the order in which they happened before, by the cluster's
one counter of versions; upstream's informers have no need of this, for their controllers wait for
expectations instead. An exception of a follower stops nothing: `ContainedFollower` logs it as a
bug, and the event is taken as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, TypeVar, cast

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset import DaemonSetController
from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.controllers.tainteviction import TaintEvictionController
from kubectl_nodelife.daemon.follow.daemonset_acts import DaemonSetFollower
from kubectl_nodelife.daemon.follow.foreign_writes import ForeignWriteDetector
from kubectl_nodelife.daemon.follow.pass_phase import PassPhase
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    RemoveTaints,
    SetPodCondition,
    SetZoneState,
)
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event, Gone, Put
from kubectl_nodelife.engine.overlay import CONFIRMED, Overlay
from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import MILLISECOND_NS

C = TypeVar("C")

BY_ANOTHER = "already done by another controller"

T = TypeVar("T")
Contain = Callable[[Hashable, Exception], None]
"""Told of what a call was about, and of its exception."""

_ORDER: Final = "the order of events"


class Follower:
    """A host's questions about each event of the cluster. The answers here are for a host whose
    controllers act: there is nobody to follow.
    """

    def arrange(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events in the order in which to take them."""
        return events

    def is_act(self, event: Event) -> bool:
        """True if our copy is to decide what is due before it takes this event in."""
        return False

    def defers(self, event: Event, act: bool, now_ns: int) -> bool:
        """True if the event is put off until what led to it has been seen."""
        return False

    def pop_deferred(self) -> list[Put | Gone]:
        """The events that are put off, which are now the caller's."""
        return []

    def before(
        self, event: Put | Gone, old: KubeObject | None, now_ns: int
    ) -> tuple[Put | Gone, list[Event]]:
        """The event with the act that it shows as its cause, and what the view makes of plans that
        end with it. `old`: the object as the cluster showed it before.
        """
        return event, []

    def after(self, event: Put | Gone) -> list[Event]:
        """The events for the view that follow where the event has just settled plans."""
        return []

    def learn(self, confirmed: Iterable[Action], now_ns: int) -> list[Event]:
        """These plans of ours turned out to be done by another; what follows for the view."""
        return []

    def within(self, action: Action, now_ns: int) -> tuple[int, int] | None:
        """Between which instants, in ns, those we follow do what our copy has just decided; None:
        nothing that cannot be seen decides that.
        """
        return None

    def decided(self, action: Action, now_ns: int) -> list[Event]:
        """Our copy decided something that it does not write; what follows for the view."""
        return []


class ControllerFollower(Follower):
    """Follows the controllers that run in the cluster. `node_of`: where an action's object is."""

    def __init__(
        self,
        engine: Engine,
        overlay: Overlay,
        ledger: Ledger,
        node_of: Callable[[Action], str],
    ) -> None:
        self._overlay = overlay
        self._ledger = ledger
        self._node_of = node_of
        lifecycle = _find(engine.controllers, NodeLifecycleController)
        self._eviction = _find(engine.controllers, TaintEvictionController)
        self._detector = ForeignWriteDetector(engine.cache, lifecycle, self._eviction)
        self._phase = PassPhase(engine, lifecycle, overlay) if lifecycle is not None else None
        sets = _find(engine.controllers, DaemonSetController)
        self._daemonsets = DaemonSetFollower(sets, overlay, ledger)
        self._told: list[Action] = []  # what was done before ours, since `learn` was last asked

    def arrange(self, events: Sequence[Event]) -> Sequence[Event]:
        """In the order in which they happened, as far as versions tell."""
        return in_order(events)

    def is_act(self, event: Event) -> bool:
        """A DaemonSet controller's syncs follow at once from what was seen before."""
        return self._daemonsets.is_act(event)

    def defers(self, event: Event, act: bool, now_ns: int) -> bool:
        """An act of the DaemonSet controller whose reason another watch has yet to tell."""
        return self._daemonsets.defers(event, act, now_ns)

    def pop_deferred(self) -> list[Put | Gone]:
        """The events that are put off."""
        return self._daemonsets.pop_deferred()

    def before(
        self, event: Put | Gone, old: KubeObject | None, now_ns: int
    ) -> tuple[Put | Gone, list[Event]]:
        """Tells of writes that come before ours, and makes them the event's cause."""
        event, ended = self._daemonsets.before(event, now_ns)
        if old is None:
            return event, ended
        if isinstance(event, Put):
            for action in self._detector.compare(old, event.obj, now_ns):
                event = Put(event.kind, event.obj, self._tell(action, now_ns) or event.cause)
            return event, ended
        for action in self._detector.removed(old):
            event = Gone(event.kind, event.key, self._tell(action, now_ns) or event.cause)
        return event, ended

    def after(self, event: Put | Gone) -> list[Event]:
        """Plans under our own hash of a revision go on under the real one."""
        return self._daemonsets.after(event)

    def learn(self, confirmed: Iterable[Action], now_ns: int) -> list[Event]:
        """Adjusts passes and tokens to what was done."""
        confirmed = list(confirmed)
        learned, self._told = [*self._told, *confirmed], []
        if self._phase is None:
            return []
        for action in confirmed:
            self._phase.confirmed(action, now_ns)
        return [event for action in learned for event in self._phase.done(action, now_ns)]

    def within(self, action: Action, now_ns: int) -> tuple[int, int] | None:
        """The earliest and latest instant of an action that waits for a pass or a run of pod-gc."""
        return self._phase.within(action, now_ns) if self._phase is not None else None

    def decided(self, action: Action, now_ns: int) -> list[Event]:
        """A zone that stops takes plans back that the running controller has not carried out."""
        if self._phase is None or not isinstance(action, SetZoneState):
            return []
        return self._phase.decided(action, now_ns)

    def _tell(self, action: Action, now_ns: int) -> Action | None:
        """Note what another did first; None where we had planned it, which is then told."""
        planned = [p for p in self._overlay.planned(action.target) if type(p) is type(action)]
        if planned and isinstance(action, (AddTaints, RemoveTaints)):
            ours = [t for p in planned for t in cast("AddTaints | RemoveTaints", p).taints]
            others = tuple(t for t in action.taints if not any(t.matches(o) for o in ours))
            if not others:
                return None
            action = replace(action, taints=others)
        elif planned:
            return None
        self._ledger.note(action, now_ns, self._node_of(action), "")
        self._ledger.settle(action, CONFIRMED, now_ns, self._how_early(action, now_ns))
        self._told.append(action)
        return action

    def _how_early(self, action: Action, now_ns: int) -> str:
        due_ns = self._phase.due_ns(action, now_ns) if self._phase is not None else None
        if isinstance(action, (DeletePod, SetPodCondition)) and self._eviction is not None:
            work = self._eviction.workers.get(action.target[1])
            due_ns = work.due_ns if work is not None else None
        if due_ns is None or due_ns <= now_ns:
            return BY_ANOTHER
        early_ns = (due_ns - now_ns) // MILLISECOND_NS * MILLISECOND_NS
        return f"{BY_ANOTHER}, {format_duration(early_ns)} before ours"


def _find(controllers: Iterable[Controller], kind: type[C]) -> C | None:
    return next((c for c in controllers if isinstance(c, kind)), None)


def in_order(events: Sequence[Event]) -> Sequence[Event]:
    """Events of several watches in the order in which they happened, as far as versions tell.

    Each kind has a connection of its own, and a pod's deletion may come before the change of the
    set that led to it. What is gone tells no version: it stays before what came next of its kind.
    Anything but numbers for versions leaves the order as it is.
    """
    if len({_kind(event) for event in events}) < 2:
        return events
    numbers: list[float] = []
    upcoming: dict[str, float] = {}
    for event in reversed(events):
        if isinstance(event, Put):
            version = event.obj.metadata.resource_version
            if not version.isdecimal():
                return events
            upcoming[event.kind] = float(version)
        numbers.append(upcoming.get(_kind(event), math.inf))
    ranked = sorted(zip(reversed(numbers), range(len(events)), strict=True))
    return [events[position] for _, position in ranked]


def _kind(event: Event) -> str:
    return event.kind if isinstance(event, (Put, Gone)) else ""


class ContainedFollower(Follower):
    """Asks another follower; where that raises, the answer is that of a bare `Follower`."""

    def __init__(self, follower: Follower, contain: Contain) -> None:
        self._follower = follower
        self._contain = contain
        self._observed: Hashable = ""  # what `before` was asked about last

    def arrange(self, events: Sequence[Event]) -> Sequence[Event]:
        return self._ask(_ORDER, events, lambda f: f.arrange(events))

    def is_act(self, event: Event) -> bool:
        return self._ask(about_event(event), False, lambda f: f.is_act(event))

    def defers(self, event: Event, act: bool, now_ns: int) -> bool:
        return self._ask(about_event(event), False, lambda f: f.defers(event, act, now_ns))

    def pop_deferred(self) -> list[Put | Gone]:
        return self._follower.pop_deferred()

    def before(
        self, event: Put | Gone, old: KubeObject | None, now_ns: int
    ) -> tuple[Put | Gone, list[Event]]:
        self._observed = about_event(event)
        as_it_is: tuple[Put | Gone, list[Event]] = (event, [])
        return self._ask(self._observed, as_it_is, lambda f: f.before(event, old, now_ns))

    def after(self, event: Put | Gone) -> list[Event]:
        return self._ask(self._observed, [], lambda f: f.after(event))

    def learn(self, confirmed: Iterable[Action], now_ns: int) -> list[Event]:
        return self._ask(self._observed, [], lambda f: f.learn(confirmed, now_ns))

    def within(self, action: Action, now_ns: int) -> tuple[int, int] | None:
        return self._ask(action.target, None, lambda f: f.within(action, now_ns))

    def decided(self, action: Action, now_ns: int) -> list[Event]:
        return self._ask(action.target, [], lambda f: f.decided(action, now_ns))

    def _ask(self, about: Hashable, otherwise: T, ask: Callable[[Follower], T]) -> T:
        try:
            return ask(self._follower)
        except Exception as error:
            self._contain(about, error)
            return otherwise


def about_event(event: Event) -> Hashable:
    """The object that an event is about, for a bug's name."""
    obj = event.obj if isinstance(event, Put) else event
    return (getattr(event, "kind", ""), getattr(obj, "key", ""))
