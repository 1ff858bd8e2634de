"""The interface of a controller: it receives changes and returns actions, without I/O.

All methods may be generators; the engine exhausts them in order, and takes time off between two
actions where it runs live. What `changed` returns as a list is yielded as one. A controller
keeps its own memory, reads the cache, and never writes to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol, Union, final

from kubectl_nodelife.engine.actions import Action, Requeue
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Change, Outcome

Actions = Iterable[Union[Action, Requeue, "TurnPart"]]

ANY_OWNER: Final = "*"
"""In `reads_conditions_of`: pods whatever controls them, and those that nothing controls."""


@final
class TurnPart(NamedTuple):
    """Part of a turn, about one object: an exception in it is noted there and ends only this part.

    `about`: the (kind, (namespace, name)) of the object, or a key of the controller's own.
    """

    controller: str
    about: Hashable
    actions: Iterable[Action | Requeue]


def flat(actions: Actions) -> Iterator[Action | Requeue]:
    """A turn without its parts, for a driver of a controller without an engine."""
    for action in actions:
        if type(action) is TurnPart:
            yield from action.actions
        else:
            yield action


class Controller(Protocol):
    """One of the ordered list of controllers."""

    name: str
    watches: frozenset[str]
    """The kinds of which it receives each change."""
    reads_conditions_of: frozenset[str]
    """Of whose pods it receives changes of only what their status says within its phase: kinds of
    controlling owners, "" for pods without a controller, `ANY_OWNER`. A lost zone is tens of
    thousands of these changes.
    """
    reads_success: bool
    """True if it receives the outcomes of its actions that were done, not only of failed ones: one
    that takes for done what it has decided need not receive them.
    """

    def start(self, cache: Cache, now_ns: int) -> Actions:
        """Begin as a controller that was restarted: caches are filled, nothing is remembered."""

    def join(self, cache: Cache, now_ns: int) -> Actions:
        """Begin beside a running controller: take over what its writes show of its memory."""

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Actions:
        """An object of a watched kind came, changed or went; the cache shows it already."""

    def reconcile(self, key: Hashable, cache: Cache, now_ns: int) -> Actions:
        """The time of a `Requeue` has come."""

    def rests(self, key: Hashable) -> bool:
        """True if the turn of that `Requeue` and those after it decide nothing, if nothing happens
        before: a round that would look at nothing."""

    def fork(self, cache: Cache) -> Controller:
        """Another one with the same memory, made by sharing, for the fork of the cache.

        Not while a method of it is under way.
        """

    def outcome(self, outcome: Outcome, cache: Cache, now_ns: int) -> Actions:
        """An action of this controller did not happen: what was taken for done is taken back. Or it
        was done, where that is asked for (`reads_success`).
        """
