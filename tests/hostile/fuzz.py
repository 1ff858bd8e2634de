"""Mutated events without end: the engine, its controllers and both hosts must survive them all.

`python -m tests.hostile.fuzz --events 1000000 --seed 1` is the mode by hand, with `--enforce` for
the host of the enforcing controllers, whose calls are answered by chance, and `--renew-every` for
daemons that live for longer, whose memory is told. Documents of generated
clusters, and of the dumps in NODELIFE_DUMPS, are mutated one to three times each, go through a
watch line as an API server would send it, and then through a daemon's inside. Any exception is a
find, contained ones included, and so is what `beliefs.py` judges to be wrong; it is shrunk to the
fewest mutations that still fail.
"""

import argparse
import copy
import json
import logging
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kubectl_nodelife.daemon.changes import patch_text
from kubectl_nodelife.daemon.controller_host import ControllerHost
from kubectl_nodelife.daemon.enforce.host import EnforcingHost
from kubectl_nodelife.daemon.enforce.recorder import action_text
from kubectl_nodelife.daemon.enforce.tripwires import Tripwires
from kubectl_nodelife.daemon.gate import KINDS, NEEDS
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.actions import Action, ActionNumbers, RecordEvent
from kubectl_nodelife.engine.calls import Answer, Result, WaitUntil, converse, request_of
from kubectl_nodelife.engine.events import NOT_SENT, Event, Gone, Outcome, Put, Unreadable
from kubectl_nodelife.engine.guard import GO, Caps, Guard, WriteConditions
from kubectl_nodelife.engine.quarantine import Bug
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.kinds import kind_named, kind_of
from kubectl_nodelife.kube.redaction import Digests
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.listwatch import MalformedLine, WatchStream
from kubectl_nodelife.outlook.node import join_controllers
from kubectl_nodelife.sim.generate import Generate, generate
from tests.hostile.beliefs import Beliefs

T0 = 1_767_225_600 * SECOND_NS
_LOOKED_AT_EVERY = 20
_RENEWED_EVERY = 400  # events: then a new daemon begins, so that a find is soon played again

STRANGE: tuple[Any, ...] = (
    None,
    "",
    "x",
    "-1",
    "NaN",
    "1e400",
    "\u0000\u202e",
    "x" * 5000,
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-23:59",
    True,
    0,
    -1,
    2**31,
    2**63 - 1,
    -(2**63),
    2**64 + 1,
    1.5,
    1e308,
    [],
    {},
    [[]],
    [None],
    {"": ""},
    {"spec": "x"},
    {"key": None},
)


class Mutation(NamedTuple):
    """Put `value` at the path; `drop`: take the member out."""

    path: tuple[str | int, ...]
    value: Any
    drop: bool = False


class Step(NamedTuple):
    """One event: the type, the kind, the document before, and what is done to it."""

    type: str
    kind: str
    document: dict[str, Any]
    mutations: tuple[Mutation, ...]


class Find(Exception):
    """Something raised. `steps`: what led there."""

    def __init__(self, error: BaseException, steps: list[Step]) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error
        self.steps = steps


def clusters(seed: int, most: int = 200) -> list[dict[str, Any]]:
    """Documents of a generated cluster, and of dumps in NODELIFE_DUMPS, `most` of each file."""
    made = []
    for obj in generate(Generate(2, 2, pods_per_node=3, daemon_sets=2, seed=seed), T0, "v1.36.3"):
        kind = kind_named(kind_of(obj))
        document = {"apiVersion": kind.api_version, "kind": kind.name, **encode(obj)}
        if kind.name in KINDS:
            made.append(document)
    folder = os.environ.get("NODELIFE_DUMPS")
    for path in sorted(Path(folder).rglob("*.json")) if folder else ():
        if path.stat().st_size < 5 << 20:
            items = json.loads(path.read_text()).get("items") or []
            found = [i for i in items if isinstance(i, dict) and i.get("kind") in KINDS]
            made += found[:most]
    return made


def paths_of(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document."""
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for name, inner in members:
        yield (*path, name)
        yield from paths_of(inner, (*path, name))


def mutated(document: dict[str, Any], mutations: tuple[Mutation, ...]) -> dict[str, Any]:
    """A copy with the mutations, those that no longer fit left out."""
    made = copy.deepcopy(document)
    for path, value, drop in mutations:
        holder: Any = made
        try:
            for name in path[:-1]:
                holder = holder[name]
            if drop:
                del holder[path[-1]]
            else:
                holder[path[-1]] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue
    return made


def steps_of(documents: list[dict[str, Any]], chance: random.Random) -> Iterator[Step]:
    """Events without end; most objects stay nameable, as an API server's are."""
    while True:
        document = chance.choice(documents)
        places = [p for p in paths_of(document) if p not in (("kind",), ("metadata", "name"))]
        mutations = tuple(
            Mutation(place, chance.choice(STRANGE), chance.random() < 0.15)
            for place in chance.sample(places, chance.randint(0, min(3, len(places))))
        )
        type_ = chance.choices(("ADDED", "MODIFIED", "DELETED"), (5, 10, 1))[0]
        yield Step(type_, document["kind"], document, mutations)


class Subject:
    """A daemon's inside, without its clock and its files."""

    host: ControllerHost | EnforcingHost
    enforces = False

    def __init__(self) -> None:
        self.now_ns = T0
        self.version = 0
        self.bugs: list[Bug] = []
        self.settings = make_settings("newest")
        self.taken = 0
        grace_ns = self.settings.node_monitor_grace_period_ns
        self.beliefs = Beliefs(grace_ns, plans=not self.enforces)
        self.host = self.make_host()
        self.host.join(self.settings, list(NEEDS))
        self.step([])

    def make_host(self) -> ControllerHost | EnforcingHost:
        """The host that is to survive."""
        return ControllerHost(Judged(self))

    def start(self, action: Action, now_ns: int) -> None:
        """Each decision is judged."""
        self.beliefs.decides(action, self.host.cache, now_ns)

    def step(self, events: list[Event]) -> None:
        """One tick."""
        for _ in self.host.step(self.now_ns, events):
            pass
        if isinstance(self.host, ControllerHost):
            self.host.ledger.take_batch()  # as a journal does

    def take(self, step: Step) -> None:
        """One event, and some seconds. Raises whatever was contained, too."""
        self.now_ns += 3 * SECOND_NS
        self.step([])
        for event in self._events(step):
            self.beliefs.sees(event, self.now_ns)
            self.step([event])
        self.taken += 1
        if self.taken % _LOOKED_AT_EVERY == 0:
            self.now_ns += SECOND_NS
            self.step([])  # what was put off until more was seen
            self.beliefs.check_view(self.host.cache, self.host.shown)
        cache = self.host.cache
        for bug in (*self.bugs, *cache.quarantine.bugs.values()):
            raise bug.error
        for found in cache.quarantine.unreadable.values():
            if "of ours" in found.why or "our check" in found.why:
                raise AssertionError(found.why)

    def answer(self) -> None:
        """What `status` makes of it, and the quarantine's own words."""
        cache = self.host.cache.copy()
        outlook = join_controllers(cache, self.settings, self.now_ns)[0]
        for node in list(cache.nodes.values()):
            outlook.node(node)
        json.dumps([cache.quarantine.lines(), cache.quarantine.documents()])

    def _events(self, step: Step) -> Iterator[Event]:
        document = mutated(step.document, step.mutations)
        self.version += 1
        if isinstance(document.get("metadata"), dict):
            document["metadata"]["resourceVersion"] = str(self.version)
        line = json.dumps({"type": step.type, "object": document}).encode() + b"\n"
        stream: WatchStream[Any] = WatchStream(kind_named(step.kind).type)
        try:
            found = list(stream.feed(line))
        except MalformedLine:
            return
        for type_, obj in ((event.type, event.object) for event in found):
            if type_ == "DELETED":
                yield Gone(step.kind, obj.key)
            else:
                yield obj if isinstance(obj, Unreadable) else Put(step.kind, obj)


class Judged(Ledger):
    """A ledger that passes on what is decided."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._subject = subject

    def note(self, action: Action, now_ns: int, *about: Any) -> None:
        super().note(action, now_ns, *about)
        if action.writes:
            self._subject.start(action, now_ns)


class EnforcingSubject(Subject):
    """The same with controllers that write, to a server that answers each call by chance."""

    enforces = True

    def make_host(self) -> EnforcingHost:
        host = EnforcingHost("restart", lambda names: None, ActionNumbers(), self.bugs.append)
        self.sending: set[Any] = set()
        self.guard = Guard(Caps())
        host.executor = self  # type: ignore[assignment]
        host.tripwires = Tripwires(self.guard, host.cache, list(NEEDS))
        self.outcomes: list[Event] = []
        self.answers = random.Random(1)
        return host

    def step(self, events: list[Event]) -> None:
        outcomes, self.outcomes = self.outcomes, []
        super().step([*outcomes, *events])

    def is_in_pass(self, controller: str) -> bool:
        """All was carried out at once."""
        return False

    def start(self, action: Action, now_ns: int) -> None:
        """`LiveExecutor.start`: what a live one does with an action, but for the waiting."""
        if not action.writes or isinstance(action, RecordEvent):
            return
        super().start(action, now_ns)
        seen = self.host.cache.get(*action.target)
        patch_text(request_of(action, seen, now_ns), Digests(bytes(32)))
        action_text(action)
        if self.guard.admit(action, WriteConditions(kill_switch_absent_ns=now_ns), now_ns) != GO:
            self.outcomes.append(Outcome(action, NOT_SENT, "held"))
            return
        conversation = converse(action, seen, now_ns)
        try:
            call = next(conversation)
            while True:
                call = conversation.send(self._answer(call, seen, now_ns))
        except StopIteration as end:
            result: Result = end.value
        self.guard.ended(action, result.code, result.message, now_ns)
        code = result.code if result.code or not result.ok else 200
        self.outcomes.append(Outcome(action, code, result.message, result.fresh))

    def refuse(self, action: Action, now_ns: int, why: str) -> None:
        """`LiveExecutor.refuse`: a bug at this action was contained."""
        raise self.bugs[-1].error

    def _answer(self, call: Any, seen: Any, now_ns: int) -> Answer:
        if isinstance(call, WaitUntil):
            return Answer(200, now_ns=call.at_ns)
        code = self.answers.choices((200, 404, 409, 422, 429, 500, 0), (8, 1, 1, 1, 1, 1, 1))[0]
        return Answer(code, seen if code == 200 else None, now_ns=now_ns)


SUBJECTS: dict[str, type[Subject]] = {"dry-run": Subject, "enforce": EnforcingSubject}


def play(steps: list[Step], make: type[Subject] = Subject) -> BaseException | None:
    """What these steps raise in a fresh subject."""
    try:
        subject = make()
        for step in steps:
            subject.take(step)
        subject.answer()
    except Exception as error:
        return error
    return None


def shrunk(
    steps: list[Step], kind: type[BaseException], make: type[Subject] = Subject
) -> list[Step]:
    """The fewest steps with the fewest mutations that raise an error of that type."""

    def fails(candidate: list[Step]) -> bool:
        return isinstance(play(candidate, make), kind)

    size = max(1, len(steps) // 2)
    while size:
        at = 0
        while at < len(steps):
            candidate = steps[:at] + steps[at + size :]
            if candidate and fails(candidate):
                steps = candidate
            else:
                at += size
        size //= 2
    for at, step in enumerate(steps):
        for mutation in step.mutations:
            fewer = tuple(m for m in steps[at].mutations if m is not mutation)
            candidate = [*steps[:at], steps[at]._replace(mutations=fewer), *steps[at + 1 :]]
            if fails(candidate):
                steps = candidate
    return steps


def fuzz(
    events: int,
    seed: int,
    seconds: float = float("inf"),
    make: type[Subject] = Subject,
    renewed_every: int = _RENEWED_EVERY,
    looks: Callable[[int], None] = lambda played: None,
) -> int:
    """Play so many events, or for so long; how many were played. `renewed_every`: so many events
    the daemon that begins lives. `looks` is told after each thousand. Raises Find.
    """
    log = logging.getLogger("nodelife")
    level = log.level
    log.setLevel(logging.CRITICAL)  # what is contained is raised anyway
    try:
        return _fuzz(events, seed, seconds, make, renewed_every, looks)
    finally:
        log.setLevel(level)


def _fuzz(
    events: int,
    seed: int,
    seconds: float,
    make: type[Subject],
    renewed_every: int,
    looks: Callable[[int], None],
) -> int:
    chance = random.Random(seed)
    source = steps_of(clusters(seed), chance)
    until = time.monotonic() + seconds
    subject, steps = make(), list[Step]()
    for played in range(events):
        if time.monotonic() > until:
            return played
        if played % 1_000 == 0:
            looks(played)
        if subject.taken >= renewed_every:
            subject, steps = make(), []
        steps = [*steps[-_RENEWED_EVERY:], next(source)]
        try:
            subject.take(steps[-1])
            if subject.taken % _RENEWED_EVERY == 0:
                subject.answer()
        except Exception as error:
            few = shrunk(steps, type(error), make)
            raise Find(play(few, make) or error, few) from error
    return events


def told(find: Find) -> str:
    """The steps as a person reads them."""
    lines = [str(find)]
    for step in find.steps:
        name = step.document.get("metadata", {}).get("name")
        lines.append(f"  {step.type} {step.kind} {name}")
        for path, value, drop in step.mutations:
            what = "dropped" if drop else msgspec.json.encode(str(value)[:80]).decode()
            lines.append(f"    {'.'.join(map(str, path))} = {what}")
    return "\n".join(lines)


def main() -> int:
    """The mode by hand."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--enforce", dest="host", action="store_const", const="enforce")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--renew-every", type=int, default=_RENEWED_EVERY)
    options = parser.parse_args()
    make = SUBJECTS[options.host or "dry-run"]
    began, mebibytes = time.monotonic(), [resident_mebibytes()]

    def looks(played: int) -> None:
        mebibytes.append(resident_mebibytes())

    try:
        played = fuzz(
            options.events, options.seed, options.seconds, make, options.renew_every, looks
        )
    except Find as find:
        print(f"seed {options.seed}: {told(find)}")
        raise find.error from None
    took_s, host = time.monotonic() - began, options.host or "dry-run"
    print(f"{host}: {played} events of seed {options.seed} in {took_s:.0f}s: no exit; ", end="")
    print(f"MiB after a tenth {mebibytes[len(mebibytes) // 10]}, at most {max(mebibytes)}")
    return 0


def resident_mebibytes() -> int:
    """What this process holds of memory now; 0 where the kernel does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize() >> 20


if __name__ == "__main__":
    sys.exit(main())
