"""Keeps what is seen while no decision is taken: last events and all outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubectl_nodelife.engine.events import Gone, Outcome, Put, Unreadable
from kubectl_nodelife.kube.meta import KubeObject

Key = tuple[str, str]
Seen = tuple[int | None, Sequence[Put | Gone | Unreadable | Outcome]]
"""When something was seen, None for now, and what."""


class HeldEvents:
    """See the module. `objects`: (kind, key) -> the last event about the object."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, tuple[str, str]], Put | Gone | Unreadable] = {}
        self._outcomes: list[Outcome] = []

    def add(self, seen: Iterable[Seen]) -> None:
        """Keep these until the controllers may go on."""
        for _, events in seen:
            for event in events:
                if isinstance(event, Outcome):
                    self._outcomes.append(event)
                else:
                    key = event.obj.key if isinstance(event, Put) else event.key
                    self.objects[event.kind, key] = event

    def listed(self, kind: str) -> None:
        """A list of the kind tells all that was held of it, and newer."""
        self.objects = {key: event for key, event in self.objects.items() if key[0] != kind}

    def told(self, kind: str, seen: Iterable[Seen]) -> dict[Key, KubeObject]:
        """The newest of each object of a kind that was told, and is not in the cache yet: held
        back, or just `seen`.
        """
        held = [event for (of, _), event in self.objects.items() if of == kind]
        events = [*held, *(event for _, events in seen for event in events)]
        return {e.obj.key: e.obj for e in events if isinstance(e, Put) and e.kind == kind}

    def pop(self) -> list[Put | Gone | Unreadable | Outcome]:
        """The events that were held, outcomes first; none is held any more."""
        held = [*self._outcomes, *self.objects.values()]
        self._outcomes, self.objects = [], {}
        return held


def kind_of_event(event: Put | Gone | Unreadable | Outcome) -> str:
    """The kind of the object, "" for what came of an action."""
    return "" if isinstance(event, Outcome) else event.kind
