"""The timeline of a run, every action with its instant and its records as the Timeline contract
words them; and the agenda of a world.

While the run lasts only instants and actions are kept, which costs very little; all records are
made at the end. An action may make several records (one for each taint, say), some make none; a
record's cause is the first record of the action that led to its own, or of the nearest one before
that has a record.

The agenda is a heap of instants, with the calls due at each in order. Calls of one instant run by
rank (the scenario's events, then kubelets; the loop runs controllers last), then in the order in
which they were added. All calls of one instant and rank share one heap entry, since thirty pods of
a node tend to become ready in the same nanosecond.

A happening is stored as data: the class of the part of the world that acts, the method and its
arguments. So a fork of the world shares the entries and calls its own parts.

Tokens that clients wait for have a heap of their own, since most instants of a large outage bring
one and nothing else; they come last at their instant.

Apart from these stand questions: calls of clients that only ask again, and learn nothing new unless
something has happened since. At one instant they come last, each by itself, and they may be put
off. Once nothing but questions is left, and each was answered, nothing will ever happen.

A play makes hundreds of thousands of objects that stay until it ends, and the garbage collector
would scan them again and again: `without_collector` runs a play without it.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.events import NOT_SENT, Outcome
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.node import zone_display
from kubectl_nodelife.kube.times import MILLISECOND_NS, MINUTE_NS, SECOND_NS


class ObjectRef(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The object that a record is about. `name` of a Zone is its zone as users write it."""

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
        """A copy with the same entries so far."""
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
        """All records in order of time. `failures`: what the server refused, and what was not sent
        because of that; these have no records.
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
                if (due_ns := detail.pop("due_ns", None)) is not None:
                    detail = {"due": self.seconds(due_ns), **detail}
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


SCRIPT = 0
KUBELET = 1
OWNER = 2

CLIENTS: Final = "Clients"
"""The part that waits for tokens, as `Agenda.due` names parts."""

Happening = Callable[..., None]
"""Is called with the arguments it was added with, and its instant."""

Part = TypeVar("Part")
_Entry = tuple[type | None, Happening, tuple[Any, ...]]
_Question = tuple[int, int, bool, type | None, Happening, tuple[Any, ...]]
"""(instant, its number, whether it may be put off), and the entry."""


PATIENCE_NS: Final = 10 * MINUTE_NS
"""For so long after the last change every question is asked at its instant."""


class Asker(Protocol):
    """Who asks the questions of a world's agenda."""

    def settled(self) -> bool:
        """Called when nothing but questions is left: True if no answer will ever be another one."""

    def answered(self) -> bool:
        """True if every question gets the same answer until something changes."""


class NotForkableError(Failed):
    """A part that acts in the world cannot be copied, such as an upgrade's leader."""


class Agenda:
    """Happenings with their instants, in ns since the epoch.

    `parts`: the parts that act in the world, by class. A happening is a method of one of them; any
    other callable works too, in a world that is not forked while it is due. `questions`: a heap of
    them, by instant.
    """

    def __init__(self) -> None:
        self.parts: dict[type, object] = {}
        self._heap: list[tuple[int, int]] = []
        self._due: dict[tuple[int, int], list[_Entry]] = {}
        self.questions: list[_Question] = []
        self.tokens: list[tuple[int, int, int]] = []
        self._asked = 0
        self._foreign = 0

    def fork(self) -> Agenda:
        """The same happenings; the parts are to be added (`join`). Raises NotForkableError."""
        if self._foreign:
            raise NotForkableError("something is under way that is no part of the world")
        other = Agenda()
        other._heap, other.questions = list(self._heap), list(self.questions)
        other.tokens, other._asked = list(self.tokens), self._asked
        self._due, other._due = fork_dict(self._due, list)
        return other

    def join(self, *parts: object) -> None:
        """Add parts that act in the world, one of each class."""
        self.parts.update((type(part), part) for part in parts)

    def own(self, part: Part) -> Part:
        """This world's own part, for that of another world."""
        return cast(Part, self.parts[type(part)])

    def mine(self, call: Callable[..., Any]) -> Any:
        """The same method of this world's own part, for a method of another world's part.

        Raises NotForkableError.
        """
        part = self.parts.get(type(getattr(call, "__self__", None)))
        if part is None:
            raise NotForkableError(f"{call} is no part of the world")
        return MethodType(call.__func__, part)  # type: ignore[attr-defined]

    def add(self, at_ns: int, rank: int, happening: Happening, *arguments: Any) -> None:
        """Add a happening. It cannot be removed, so a happening checks whether it still applies."""
        part = getattr(happening, "__self__", None)
        kind = type(part)
        entry: _Entry
        if part is not None and self.parts.get(kind) is part:
            entry = (kind, happening.__func__, arguments)  # type: ignore[attr-defined]
        else:
            self._foreign += 1
            entry = (None, happening, arguments)
        slot = (at_ns, rank)
        if slot in self._due:
            self._due[slot].append(entry)
        else:
            self._due[slot] = [entry]
            heapq.heappush(self._heap, slot)

    def at(self, at_ns: int, now_ns: int, rank: int, happening: Happening, *arguments: Any) -> None:
        """Have it happen at that instant; now, where that is not to come."""
        if at_ns > now_ns:
            self.add(at_ns, rank, happening, *arguments)
        else:
            happening(*arguments, now_ns)

    def ask(self, at_ns: int, question: Happening, *arguments: Any, waits: bool = True) -> None:
        """Add a question, which is called with the arguments alone. `waits` False: it is asked at
        that very instant, such as a deadline.
        """
        self._asked += 1
        kind = None
        if type(question) is MethodType and type(question.__self__) in self.parts:
            kind, question = type(question.__self__), question.__func__
        else:
            self._foreign += 1
        heapq.heappush(self.questions, (at_ns, self._asked, waits, kind, question, arguments))

    @property
    def goes_on(self) -> bool:
        """True if something is to happen or to be asked."""
        return bool(self._heap or self.questions or self.tokens)

    def wait_for_token(self, at_ns: int, writer: int) -> None:
        """A writer of the clients has its token at that instant."""
        self._asked += 1
        heapq.heappush(self.tokens, (at_ns, self._asked, writer))

    def wait_anew(self, at_ns: int) -> None:
        """The writer that has the first token waits for another one, until that instant."""
        self._asked += 1
        heapq.heapreplace(self.tokens, (at_ns, self._asked, self.tokens[0][2]))

    def take_tokens(self, now_ns: int) -> list[int]:
        """Take out the tokens that are there now, each as its writer's number, in the order in
        which they were asked for: those before which nothing else is to happen.
        """
        tokens, heap, taken = self.tokens, self._heap, []
        while tokens and tokens[0][0] <= now_ns and not (heap and heap[0][0] <= tokens[0][0]):
            taken.append(heapq.heappop(tokens)[2])
        return taken

    def ask_first(self) -> None:
        """Ask the first question."""
        _, _, _, kind, question, arguments = heapq.heappop(self.questions)
        if kind is not None:
            question(self.parts[kind], *arguments)
        else:
            self._foreign -= 1
            question(*arguments)

    def put_off(self, until_ns: int | None) -> None:
        """Put each question off by whole minutes, which keeps a grid of seconds, as near as may be
        to that instant and to the first question that does not wait."""
        ends = [question[0] for question in self.questions if not question[2]]
        if until_ns is not None:
            ends.append(until_ns)
        end_ns = min(ends, default=0)
        for index, (at_ns, asked, waits, kind, question, arguments) in enumerate(self.questions):
            if waits and at_ns < end_ns:
                at_ns += (end_ns - at_ns) // MINUTE_NS * MINUTE_NS
                self.questions[index] = (at_ns, asked, waits, kind, question, arguments)
        heapq.heapify(self.questions)

    def forget(self, part: object, *methods: Happening) -> None:
        """Remove what these methods of a part were to do."""
        kind = type(part)
        functions = {method.__func__ for method in methods}  # type: ignore[attr-defined]
        for slot, entries in list(self._due.items()):
            others = [
                entry for entry in entries if entry[0] is not kind or entry[1] not in functions
            ]
            if len(others) == len(entries):
                continue
            if others:
                self._due[slot] = others
            else:
                del self._due[slot]
                self._heap.remove(slot)
        heapq.heapify(self._heap)

    def next_at(self) -> int | None:
        """The earliest instant at which something happens, or None."""
        heap, tokens = self._heap, self.tokens
        if tokens and (not heap or tokens[0][0] < heap[0][0]):
            return tokens[0][0]
        return heap[0][0] if heap else None

    def next_but_tokens(self) -> int | None:
        """The earliest instant at which something else happens than that clients get tokens."""
        return self._heap[0][0] if self._heap else None

    def due(self) -> Iterator[tuple[int, str]]:
        """(instant, name of the part that acts) of all that is to happen or to be asked."""
        for (at_ns, _), entries in self._due.items():
            for kind, happening, _ in entries:
                yield at_ns, kind.__name__ if kind is not None else happening.__name__
        for at_ns, _, _ in self.tokens:
            yield at_ns, CLIENTS
        for at_ns, _, _, kind, question, _ in self.questions:
            yield at_ns, kind.__name__ if kind is not None else question.__name__

    def clear(self) -> None:
        """Remove all that was to happen, and the parts."""
        self._heap.clear()
        self._due.clear()
        self.questions.clear()
        self.tokens.clear()
        self.parts.clear()

    def run(self, now_ns: int) -> None:
        """Run everything that is due at or before now, including what becomes due meanwhile.

        What owners do in response waits for the next run: they too react only to changes that were
        reported to them before.
        """
        ran = False
        while self._heap and self._heap[0][0] <= now_ns:
            if ran and self._heap[0][1] == OWNER:
                return
            slot = heapq.heappop(self._heap)
            ran = True
            for kind, happening, arguments in self._due.pop(slot):
                if kind is not None:
                    happening(self.parts[kind], *arguments, slot[0])
                else:
                    self._foreign -= 1
                    happening(*arguments, slot[0])


@contextmanager
def without_collector(*, stay: bool = False) -> Iterator[None]:
    """`stay`: the objects made have no reference cycles left, so that the collector need never scan
    them; they are freed with the last reference to them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if stay:
                gc.freeze()
            gc.enable()
