"""How the controllers see Leases: a watch that stands still, and reads that fail (`failingReads`).

Follows what reaches node_lifecycle_controller.go from outside: its Lease informer, and since 1.37
the GET of a Lease before a node is called lost. Nothing here decides anything; the engine's cache
gets a `LeaseReads` whenever one of the two changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Final

import msgspec

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.events import NO_ANSWER, LeaseReads
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.fields import (
    FieldPath,
    describe,
    duration_ns,
    mapping,
    one_of,
    sequence,
    text,
)
from kubectl_nodelife.sim.timeline import SCRIPT, Agenda

UNREACHABLE: Final = "unreachable"
READ_CODES: Final = (401, 403, 404, 429, 500, 502, 503, 504)
_FIELDS = ("kind", "name", "code", "from", "until")


class FailingRead(msgspec.Struct, frozen=True):
    """GETs of Leases that fail with `code`; `name`: of that node, "" of every node. From `from_ns`
    after the start on, before `until_ns`.
    """

    code: int
    name: str = ""
    from_ns: int = 0
    until_ns: int | None = None

    def fails_at(self, at_ns: int) -> bool:
        """True at that time after the start."""
        return self.from_ns <= at_ns and (self.until_ns is None or at_ns < self.until_ns)


class LeaseView:
    """The part of the world that says how the controllers see Leases."""

    def __init__(
        self, api: Api, agenda: Agenda, entries: Sequence[FailingRead], start_ns: int
    ) -> None:
        self._api, self._agenda = api, agenda
        self._entries, self._start_ns = tuple(entries), start_ns
        self._stale = False

    def fork(self, api: Api, agenda: Agenda) -> LeaseView:
        """The same for a fork of the world."""
        other = copy(self)
        other._api, other._agenda = api, agenda
        return other

    def begin(self) -> None:
        """Plan each change of what fails, and say what fails from the start on."""
        for entry in self._entries:
            for at_ns in (entry.from_ns, entry.until_ns):
                if at_ns is not None:
                    self._agenda.add(self._start_ns + at_ns, SCRIPT, self._changes)

    def stand_still(self, stale: bool, cause: Action | None) -> None:
        """The watch of Leases stands still from now on, or shows again what there is."""
        self._stale = stale
        self._api.pending.append(self.at_present(cause))

    def at_present(self, cause: Action | None = None) -> LeaseReads:
        """The reads of controllers that reach the API server. Of two entries the first decides."""
        failing: dict[str, int] = {}
        at_ns = self._api.now_ns - self._start_ns
        for entry in self._entries:
            if entry.fails_at(at_ns) and "" not in failing:
                failing.setdefault(entry.name, entry.code)
        return LeaseReads(self._stale, tuple(failing.items()), cause)

    def cut_off(self) -> LeaseReads:
        """The reads of controllers that do not reach it."""
        return LeaseReads(True, (("", NO_ANSWER),))

    def _changes(self, at_ns: int) -> None:
        self._api.pending.append(self.at_present())


def read_failing_reads(value: Any, at: FieldPath) -> tuple[FailingRead, ...]:
    """The entries of the field. Raises BadInput."""
    return tuple(_read_entry(item, at.item(i)) for i, item in enumerate(sequence(value, at)))


def _read_entry(value: Any, at: FieldPath) -> FailingRead:
    entry = mapping(value, at, _FIELDS)
    one_of(entry.get("kind", "Lease"), at.key("kind"), ("Lease",))
    if "code" not in entry:
        remedy = f"name the answer, such as 403 or {UNREACHABLE}"
        raise at.key("code").fault("the field is missing", remedy)
    given: dict[str, Any] = {"code": _read_code(entry["code"], at.key("code"))}
    if "name" in entry:
        given["name"] = text(entry["name"], at.key("name"))
    for field in ("from", "until"):
        if field in entry:
            given[f"{field}_ns"] = duration_ns(entry[field], at.key(field))
    return FailingRead(**given)


def _read_code(value: Any, at: FieldPath) -> int:
    if value == UNREACHABLE:
        return NO_ANSWER
    if isinstance(value, bool) or value not in READ_CODES:
        known = ", ".join(map(str, READ_CODES))
        raise at.fault(f"found {describe(value)}", f"give {known} or {UNREACHABLE}")
    return int(value)
