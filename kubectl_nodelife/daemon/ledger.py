"""Numbers the records of each planned action, links them to their causes, and settles them.

An action without a write of its own (a timer, a place in a queue, an Event) is settled with its
cause or its consequence. An action that an earlier daemon had decided and that is decided again, in
whatever words, keeps its numbers, so that a restart does not record it twice. A plan that an
earlier daemon left open and that is not decided again is judged by what the cluster shows now
(`outcome_of`): the journal keeps it as data (`engine.actions.identity`). Rows of journals older
than that hold no data, and end as superseded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from secrets import token_bytes
from typing import Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.daemon.changes import (
    ENFORCE,
    HELD,
    WOULD,
    ChangeRecord,
    Settlement,
    changes_of,
)
from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.actions.identity import decode_action
from kubectl_nodelife.engine.overlay import Overlay
from kubectl_nodelife.engine.settlement import APPLIED, CONFIRMED, SUPERSEDED, settle_action
from kubectl_nodelife.kube.redaction import KEY_BYTES, Digests

_SETTLED_KEPT: Final = 50_000
"""Settled actions that later ones can still name as their cause."""

_RESTARTED = "the daemon was restarted, and no longer plans it"

# A decision of our own -> the one about the same thing that it takes the place of.
_REPLACES: Final[dict[type[actions.Action], type[actions.Action]]] = {
    actions.ScheduleEviction: actions.ScheduleEviction,
    actions.CancelEviction: actions.ScheduleEviction,
    actions.QueueNode: actions.QueueNode,
    actions.UnqueueNode: actions.QueueNode,
    actions.SetZoneState: actions.SetZoneState,
}

_TAKES_BACK: Final = (actions.CancelEviction, actions.UnqueueNode)

_STANDS: Final = frozenset(_REPLACES.values())

# What follows from what the cluster shows, and is over when it is said: nothing visible comes of it
_STATEMENTS: Final = (actions.RecordEvent, actions.SetZoneState)
_NOTHING_PLANNED: Final = "it follows from what the cluster shows; nothing planned depends on it"

ObjectKey = tuple[str, tuple[str, str]]


class _Entry:
    """`dependents` end with this action; `events` report a decision, and end with what follows.

    Most have neither, and no list for them: after the loss of a zone there are 100,000 entries.
    """

    __slots__ = ("action", "changes", "dependents", "events", "outcome", "why")

    def __init__(self, action: actions.Action, changes: Iterable[ChangeRecord]) -> None:
        self.action = action
        self.changes = tuple(changes)
        self.outcome = WOULD
        self.why = ""
        self.dependents: list[actions.Action] | None = None
        self.events: list[actions.Action] | None = None

    def add_dependent(self, action: actions.Action) -> None:
        """The action ends when this one does."""
        self.dependents = self.dependents or []
        self.dependents.append(action)

    def add_event(self, event: actions.Action) -> None:
        """The Event reports this decision."""
        self.events = self.events or []
        self.events.append(event)


class Ledger:
    """Numbers each planned action's records, links them to their causes, and settles them.

    `new` and `settled` are what the next batch of the journal has to take.
    """

    def __init__(
        self, next_id: int = 0, inherited: Iterable[ChangeRecord] = (), next_action: int = 1
    ) -> None:
        """`next_id` numbers changes, `next_action` actions; both go on over restarts."""
        self.next_id = next_id
        self.digest = Digests(token_bytes(KEY_BYTES))  # the key is gone with the process
        self.numbers = actions.ActionNumbers(next_action)
        self.untold: frozenset[str] = frozenset()  # controllers of which no plan is kept
        self.new: list[ChangeRecord] = []
        self.settled: list[Settlement] = []
        self.changed: dict[int, ChangeRecord] = {}
        self._open: dict[int, _Entry] = {}
        self._past: OrderedDict[int, _Entry] = OrderedDict()
        self._inherited: dict[str, list[ChangeRecord]] = {}
        for change in inherited:
            self._inherited.setdefault(_identity_of(change), []).append(change)
        self._standing: dict[tuple[type[actions.Action], ObjectKey], actions.Action] = {}

    def note(
        self,
        action: actions.Action,
        now_ns: int,
        node: str,
        patch: str,
        within: tuple[int, int] | None = None,
        *,
        enforced: bool = False,
    ) -> None:
        """A decision was made; `node`: of the pod that it is about. `within`: when it is carried
        out by the controller that we follow, at the earliest and at the latest, where that cannot
        be seen. `enforced`: it is to be carried out by us.
        """
        if action.controller in self.untold and not enforced:
            return
        self.numbers.ensure(action)
        cause = action.cause
        number, digest = self._id_of(cause), self.digest
        changes = list(changes_of(action, now_ns, self.next_id, node, number, patch, digest))
        if within is not None:
            for change in changes:
                change.place_within(*within)
        inherited = self._take_inherited(changes)
        for change in inherited:
            change.patch = change.data = ""  # the file has them
        changes[: len(inherited)] = inherited
        entry = self._open[action.id] = _Entry(action, changes)
        for change in changes[len(inherited) :]:
            self._add(change)
        for change in changes if enforced else ():
            change.mode = ENFORCE
        ended = self._replace(action, now_ns)
        if ended is not None:
            self._end(action, *ended, "")
        elif _unseen(action):
            self._settle_with(entry, cause)

    def _add(self, change: ChangeRecord) -> None:
        change.id = self.next_id
        self.next_id += 1
        self.new.append(change)
        self.changed[change.id] = change

    def note_done(self, action: actions.Action, now_ns: int) -> None:
        """Something was done that was not planned, and on which nothing depends."""
        self.numbers.ensure(action)
        for change in changes_of(action, now_ns, self.next_id, "", None, "", self.digest):
            change.mode, change.outcome, change.settled_ns = ENFORCE, APPLIED, now_ns
            self._add(change)

    def hold(self, action: actions.Action, because: str, until_ns: int) -> None:
        """A guard holds a decision back; it has not ended."""
        for change in self._open_changes(action):
            change.outcome, change.why, change.held_until_ns = HELD, because, until_ns or None
            self._changed(change)

    def attempted(self, action: actions.Action) -> None:
        """A request of it is sent."""
        for change in self._open_changes(action):
            change.attempts += 1

    def _open_changes(self, action: actions.Action) -> tuple[ChangeRecord, ...]:
        entry = self._open.get(action.id)
        return entry.changes if entry is not None else ()

    def amend(self, by: actions.Action) -> None:
        """The planned action of that number is from now on described in other words."""
        entry = self._open.get(by.id)
        if entry is not None:
            entry.action = by

    def settle(
        self, action: actions.Action, outcome: str, now_ns: int, why: str, error: str = ""
    ) -> None:
        """A planned action has ended, and with it what depends on it and cannot be seen.

        One that was never noted, since nothing was left to do, ends what led to it all the same.
        """
        ended = [action]
        while ended:
            ending = ended.pop()
            entry = self._end(ending, outcome, now_ns, why, error)
            if entry is not None:
                ended += entry.dependents or ()
                if outcome not in (CONFIRMED, APPLIED):
                    ended += entry.events or ()
            elif not _same(ending, action):
                continue
            decision = self._entry(ending.cause)
            if decision is not None and _unseen(decision.action):
                ended += [*(decision.events or ()), decision.action]
                decision.events = None
                if entry is None and decision.outcome != WOULD:
                    outcome, why = decision.outcome, decision.why  # it was done before

    def gone(self, target: ObjectKey, now_ns: int) -> None:
        """An object is gone: what was decided about it and not done yet is moot."""
        for kind in _STANDS:
            decision = self._standing.pop((kind, target), None)
            if decision is not None:
                self.settle(decision, SUPERSEDED, now_ns, f"{target[0]} {target[1][1]} is gone")

    def end_decisions(self, now_ns: int, why: str) -> None:
        """All is decided anew: what cannot be seen of the decisions so far is over."""
        for entry in list(self._open.values()):
            if _unseen(entry.action):
                self._end(entry.action, SUPERSEDED, now_ns, why, "")
        self._standing.clear()

    def inherited(self) -> Iterator[ChangeRecord]:
        """Open plans of a daemon before this one that were not made again."""
        for changes in self._inherited.values():
            yield from changes

    def settle_inherited(self, change: ChangeRecord, outcome: str, now_ns: int, why: str) -> None:
        """One of these has ended."""
        identity = _identity_of(change)
        others = [c for c in self._inherited.pop(identity, []) if c.id != change.id]
        if others:
            self._inherited[identity] = others
        self._note_end(change, outcome, now_ns, why, "")

    def _take_inherited(self, changes: list[ChangeRecord]) -> list[ChangeRecord]:
        """The records that a daemon before this one made of the same action, as many as there are
        of `changes` at the most.
        """
        if not self._inherited or not changes:
            return []
        identity, count = _identity_of(changes[0]), len(changes)
        inherited = self._inherited.pop(identity, [])
        if inherited[count:]:
            self._inherited[identity] = inherited[count:]
        return inherited[:count]

    def take_batch(self) -> tuple[list[ChangeRecord], list[Settlement], list[ChangeRecord]]:
        """The new changes, those that have settled, and each change once as it is now."""
        batch = (self.new, self.settled, list(self.changed.values()))
        self.new, self.settled, self.changed = [], [], {}
        return batch

    def open_count(self) -> int:
        """How many plans are open, those included that cannot be seen."""
        return sum(len(entry.changes) for entry in self._open.values())

    def _replace(self, action: actions.Action, now_ns: int) -> tuple[str, int, str] | None:
        """A newer decision about the same thing ends the one that stands.

        One that only takes back is itself at its end then: (outcome, instant, why).
        """
        replaced = _REPLACES.get(type(action))
        if replaced is None:
            return None
        before = self._standing.pop((replaced, action.target), None)
        if before is not None:
            self._end(before, SUPERSEDED, now_ns, action.because, "")
        if type(action) is replaced:
            self._standing[replaced, action.target] = action
            return None
        if before is not None:
            return SUPERSEDED, now_ns, "what it takes back was only planned"
        return None if self._entry(action.cause) else (SUPERSEDED, now_ns, _NOTHING_PLANNED)

    def _settle_with(self, entry: _Entry, cause: actions.Action | None) -> None:
        """Settle a change that cannot be seen with its cause: now if that has ended, else then."""
        above, action = self._entry(cause), entry.action
        at_ns = entry.changes[0].time_ns if entry.changes else 0
        if above is None:
            if type(action) in _STATEMENTS:
                self._end(action, SUPERSEDED, at_ns, _NOTHING_PLANNED, "")
            return
        if isinstance(action, actions.RecordEvent) and _is_decision(above.action):
            above.add_event(action)
            return
        if above.outcome == WOULD:
            above.add_dependent(action)
        else:
            self._end(action, above.outcome, at_ns, above.why, "")

    def _entry(self, action: actions.Action | None) -> _Entry | None:
        if action is None:
            return None
        return self._open.get(action.id) or self._past.get(action.id)

    def _end(
        self, action: actions.Action, outcome: str, now_ns: int, why: str, error: str
    ) -> _Entry | None:
        entry = self._open.pop(action.id, None)
        if entry is None:
            return None
        entry.outcome, entry.why = outcome, why
        for change in entry.changes:
            self._note_end(change, outcome, now_ns, why, error)
        standing = (type(action), action.target)
        if outcome != SUPERSEDED and _same(self._standing.get(standing), action):
            del self._standing[standing]
        self._remember(entry)
        return entry

    def _remember(self, entry: _Entry) -> None:
        """Keep what later ones may name as their cause, as long as there is room."""
        first = entry.changes[:1]
        entry.changes = tuple(replace(c, detail="", patch="", data="") for c in first)
        self._past[entry.action.id] = entry
        if len(self._past) > _SETTLED_KEPT:
            self._past.popitem(last=False)

    def _note_end(
        self, change: ChangeRecord, outcome: str, now_ns: int, why: str, error: str
    ) -> None:
        change.outcome, change.settled_ns = outcome, max(now_ns, change.time_ns)
        change.why, change.error, change.data, change.held_until_ns = why, error, "", None
        self._changed(change)

    def _changed(self, change: ChangeRecord) -> None:
        """The journal has to take it in as it is now."""
        at_ns, until_ns = change.settled_ns, change.held_until_ns
        ended = (change.outcome, at_ns, change.why, change.error)
        self.settled.append(Settlement(*ended, change.attempts, until_ns, change.id))
        self.changed[change.id] = change

    def _id_of(self, action: actions.Action | None) -> int | None:
        """The first record of the action, or of the nearest one before it that has a record."""
        while action is not None:
            entry = self._entry(action)
            if entry is not None and entry.changes:
                return entry.changes[0].id
            action = action.cause
        return None


def _identity_of(change: ChangeRecord) -> str:
    """The key of its action; one of its own where the journal does not hold the key."""
    return change.identity or f"change {change.id}"


def _same(action: actions.Action | None, other: actions.Action) -> bool:
    """True if these are one decision."""
    return action is not None and action.id == other.id


def _is_decision(action: actions.Action) -> bool:
    """True if something visible will come of it."""
    return _unseen(action) and type(action) not in _TAKES_BACK


def _unseen(action: actions.Action) -> bool:
    """True if the cluster never shows it."""
    return not action.writes or isinstance(action, actions.RecordEvent)


def outcome_of(change: ChangeRecord, overlay: Overlay) -> tuple[str, str]:
    """(outcome, why) of an open plan that was not made again."""
    action = planned_action(change)
    if action is None:
        return SUPERSEDED, _RESTARTED
    shown = overlay.shown(*action.target)
    if shown is not None:
        return settle_action(action, shown) or (SUPERSEDED, _RESTARTED)
    if action.deletes:
        return CONFIRMED, f"{change.kind} {change.name} is gone"
    return SUPERSEDED, _RESTARTED


def planned_action(change: ChangeRecord) -> actions.Action | None:
    """The action of an open plan; None where the journal does not hold it."""
    if not change.data:
        return None
    try:
        return decode_action(change.data)
    except msgspec.MsgspecError:
        return None
