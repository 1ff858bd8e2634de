"""The timeline of a run: every action with its instant, and its records as the Timeline contract
words them.

While the run lasts only instants and actions are kept, which costs next to nothing; all
wording is done at the end. An action may make several records (one a taint, say), some make none; a
record's cause is the first record of the action that led to its own, or of the nearest one before
that has a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.events import NOT_SENT, Outcome
from kubectl_nodelife.kube.node import zone_display
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS


class ObjectRef(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The object that a record is about. `name` of a Zone is its zone as people write it."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One record. `at`: seconds since t=0; `cause`: index of the record that led to this one.

    `error` is there only where the API server refused the action.
    """

    at: float
    controller: str
    action: str
    object: ObjectRef
    detail: dict[str, Any]
    reason: str
    cause: int | None
    error: str = ""


class Timeline:
    """The journal of a simulated run. Each action in it has a number (`actions.identity`)."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self._instants: list[int] = []
        self._actions: list[Action] = []

    @property
    def entries(self) -> list[tuple[int, Action]]:
        """(instant in ns since the epoch, action) of all that happened, in that order."""
        return list(zip(self._instants, self._actions, strict=True))

    def fork(self) -> Timeline:
        """Another one with the same entries so far."""
        other = Timeline(self.start_ns)
        other._instants, other._actions = list(self._instants), list(self._actions)
        return other

    def write(self, now_ns: int, action: Action) -> None:
        """Note one action."""
        self._instants.append(now_ns)
        self._actions.append(action)

    def write_all(self, now_ns: int, actions: Sequence[Action]) -> None:
        """Note what was decided together."""
        self._instants.extend([now_ns] * len(actions))
        self._actions.extend(actions)

    def records(self, failures: Iterable[Outcome] = ()) -> list[Record]:
        """All records in the order of what happened. `failures`: what the server refused, and what
        was not sent for that, of which there are none.
        """
        errors: dict[int, str] = {}
        unsent: set[int] = set()
        for f in failures:
            if f.code == NOT_SENT:
                unsent.add(f.action.id)
            else:
                errors[f.action.id] = f"{f.code} {f.message}".rstrip()
        first: dict[int, int] = {}
        records: list[Record] = []
        last_ns, at = self.start_ns, 0.0
        for at_ns, action in self.entries:
            if action.id in unsent:
                continue
            if at_ns != last_ns:
                last_ns, at = at_ns, self.seconds(at_ns)
            before = len(records)
            obj: ObjectRef | None = None
            for word, detail in action.records():
                if obj is None:
                    obj = _about(action)
                    cause = _first_record(action.cause, first)
                    error = errors.get(action.id, "")
                if "due_ns" in detail:
                    detail = dict(self._relative(detail))
                if "zone" in detail:
                    detail = {**detail, "zone": zone_display(detail["zone"])}
                records.append(
                    Record(at, action.controller, word, obj, detail, action.because, cause, error)
                )
            if obj is not None:
                first[action.id] = before
        return records

    def seconds(self, at_ns: int) -> float:
        """An instant as seconds since t=0, to the ms."""
        return round((at_ns - self.start_ns) / MILLISECOND_NS) * MILLISECOND_NS / SECOND_NS

    def _relative(self, detail: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for key, value in detail.items():
            yield ("due", self.seconds(value)) if key == "due_ns" else (key, value)


def _about(action: Action) -> ObjectRef:
    kind, (namespace, name) = action.target
    return ObjectRef(kind, name if kind != "Zone" else zone_display(name), namespace, action.uid)


def _first_record(action: Action | None, first: dict[int, int]) -> int | None:
    while action is not None:
        index = first.get(action.id)
        if index is not None:
            return index
        action = action.cause
    return None
