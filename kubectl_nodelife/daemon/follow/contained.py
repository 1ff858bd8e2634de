"""A follower whose exceptions stop nothing: each is logged as a bug, the event taken as it is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, TypeVar

from kubectl_nodelife.daemon.follow.follower import Follower
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.events import Event, Gone, Put
from kubectl_nodelife.kube.meta import KubeObject

T = TypeVar("T")
Contain = Callable[[Hashable, Exception], None]
"""Told of what a call was about, and of its exception."""

_ORDER: Final = "the order of events"


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
