"""How kube-controller-manager's controllers meet the API server: what one decides is written at the
pace of its client, and its view of Leases may stand still.

Each controller has a clientset with one token bucket (`--kube-api-qps`, `--kube-api-burst`; client-
go's flowcontrol): each request takes a token, first come, first served. Requests that belong
together go one after another, each taking its token when the one before it is done, so that writers
at work at the same time share the bucket evenly. Events are sent by one more writer, one at a time.
Follows `NewClient` of cmd/kube-controller-manager/app, client-go's rest.Request and the broadcaster
of client-go/tools/record. Left out on purpose: the time that a request itself takes, a client's
priority in the API server, and the spam filter of Events, which repeats of one object alone meet.

How much of a controller's work goes on at once its own decisions say (`AfterWrites`), but for two
pools of workers here: pods that came to a lost node, and orphans.

Of Leases the watch may stand still, and reads may fail (`failingReads`): what reaches
node_lifecycle_controller.go from outside is its Lease informer, and since 1.37 the GET of a Lease
before a node is called lost. Nothing here decides anything; the engine's cache gets a `LeaseReads`
whenever one of the two changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.copy_on_write import fork_dict
from kubectl_nodelife.engine.actions import (
    Action,
    AddTaints,
    DeletePod,
    MarkPodNotReady,
    PodAction,
    RaiseCollisionCount,
    ReadLeases,
    RecordEvent,
    RemoveTaints,
    SetNodeConditions,
    SetNodeLabels,
    SetPodCondition,
)
from kubectl_nodelife.engine.calls.call import CONFLICT, NOT_FOUND
from kubectl_nodelife.engine.events import NO_ANSWER, LeaseReads
from kubectl_nodelife.engine.pace import Pace
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.sim import fields
from kubectl_nodelife.sim.api import Api, ForkedWorld, WorldPart
from kubectl_nodelife.sim.timeline import OWNER, SCRIPT, Agenda, Happening

UNREACHABLE: Final = "unreachable"
READ_CODES: Final = (401, 403, 404, 429, 500, 502, 503, 504)


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


class LeaseView(WorldPart):
    """The part of the world that says how the controllers see Leases."""

    def __init__(
        self, api: Api, agenda: Agenda, entries: Sequence[FailingRead], start_ns: int
    ) -> None:
        super().__init__(api, agenda)
        self._entries, self._start_ns = tuple(entries), start_ns
        self._stale = False

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


def read_failing_reads(value: Any, at: fields.FieldPath) -> tuple[FailingRead, ...]:
    """The entries of the field. Raises BadInput."""
    return fields.items(value, at, _read_entry)


def _read_entry(value: Any, at: fields.FieldPath) -> FailingRead:
    entry = fields.mapping(value, at, ("kind", "code", *_FIELDS))
    fields.one_of(entry.get("kind", "Lease"), at.key("kind"), ("Lease",))
    if "code" not in entry:
        remedy = f"name the answer, such as 403 or {UNREACHABLE}"
        raise at.key("code").fault("the field is missing", remedy)
    return FailingRead(
        _read_code(entry["code"], at.key("code")), **fields.given(entry, at, _FIELDS)
    )


_FIELDS: Final[fields.Fields] = {
    "name": ("name", fields.text),
    "from": ("from_ns", fields.duration_ns),
    "until": ("until_ns", fields.duration_ns),
}


def _read_code(value: Any, at: fields.FieldPath) -> int:
    if value == UNREACHABLE:
        return NO_ANSWER
    if isinstance(value, bool) or value not in READ_CODES:
        codes = ", ".join(map(str, READ_CODES))
        raise at.fault(f"found {fields.describe(value)}", f"give {codes} or {UNREACHABLE}")
    return int(value)


NODE_LIFECYCLE: Final = "node-lifecycle"
TAINT_EVICTION: Final = "taint-eviction"
POD_GC: Final = "pod-gc"

READS_FIRST: Final = frozenset({AddTaints, RemoveTaints, SetNodeLabels, RaiseCollisionCount})
"""Actions of two requests: the object is read, then written."""

UPDATES: Final = frozenset({SetNodeConditions, MarkPodNotReady})
"""Actions that write a whole object (UpdateStatus) as it was read: refused if it has changed."""

MOST_EVENTS_WAITING: Final = 2000
"""So many Events wait to be sent, those after them are lost: `maxQueuedEvents` of the broadcaster,
and as many of the one watcher that sends them."""

_SENDER: Final = "events"
_POD_WORKERS: Final = "pods"
_POOLS: Final = {_POD_WORKERS: 4, POD_GC: 1}


def reads_first(action: Action, pace: Pace) -> bool:
    """True if upstream's code reads the object before the action, which then takes two requests.

    Follows `addConditionAndDeletePod` for pods of taint-eviction: one read for patch and deletion.
    """
    if action.controller == TAINT_EVICTION:
        return pace.reads_pods and type(action) in (SetPodCondition, DeletePod)
    return type(action) in READS_FIRST


class WriterThread(msgspec.Struct):
    """A thread of upstream's: actions one after another, `left` requests of the first one to go.

    `pool`: the pool whose worker it takes, if any. `decided_ns`: when all of it was decided;
    `seen`: by the number of an action that writes a whole object, what that was then. `has_read`:
    the pod was read that is being deleted.
    """

    client: str
    actions: deque[Action]
    decided_ns: int
    pool: str = ""
    left: int = 0
    seen: dict[int, KubeObject | None] = {}
    has_read: bool = False

    def fork(self) -> WriterThread:
        """The same for another world."""
        return replace(self, actions=deque(self.actions))


class ServerPort(Protocol):
    """What the clients ask of the API server. `decided_ns`: when the action was decided."""

    def carry_out(self, action: Action, decided_ns: int) -> None:
        """Record the action and do it; of an `AfterWrites` all before it is done."""

    def leaves_out(self, action: Action, decided_ns: int) -> bool:
        """True if it is not to be sent, since what it depends on failed."""

    def look(self, action: Action) -> KubeObject | None:
        """The object that the action is about, as it is now."""

    def unwritten(self, action: Action, decided_ns: int, code: int, message: str) -> None:
        """It comes to nothing without having written anything."""


class Clients:
    """The API clients of the manager's controllers, each with a token bucket of its own.

    `pace`: of each of them; `longest_wait_ns`: that of one request for its token.
    """

    def __init__(self, agenda: Agenda, pace: Pace, server: ServerPort) -> None:
        self._agenda = agenda
        self.pace = pace
        self._api = server
        self._buckets: dict[str, TokenBucket] = {}
        self._writers: dict[int, WriterThread] = {}
        self._ready: deque[int] = deque()
        self._last = 0
        self.longest_wait_ns = 0
        self._pools: dict[str, int] = {}
        self._waiting: dict[str, deque[int]] = {}
        self._senders: dict[str, int] = {}

    def fork(self, world: ForkedWorld) -> Clients:
        """The same for a fork of the world: what is on its way goes on in both."""
        other = copy(self)
        other._agenda, other._api = world.agenda, world.agenda.own(self._api)
        other._buckets = {name: copy(bucket) for name, bucket in self._buckets.items()}
        self._writers, other._writers = fork_dict(self._writers, WriterThread.fork)
        other._ready, other._pools = deque(self._ready), dict(self._pools)
        other._waiting = {pool: deque(waiting) for pool, waiting in self._waiting.items()}
        other._senders = dict(self._senders)
        return other

    def end(self) -> None:
        """The process has ended: nothing that waits is sent. Removes the cycle with the server."""
        self._writers.clear()
        self._ready.clear()
        self._agenda.tokens.clear()
        del self._api

    def start(self, actions: Sequence[Action], now_ns: int) -> None:
        """Begin what was decided together."""
        if len(actions) == 1 or actions[0].controller == NODE_LIFECYCLE:
            self._begin(actions, now_ns)
            return
        by_target: dict[Hashable, list[Action]] = {}
        for action in actions:
            by_target.setdefault(action.target, []).append(action)
        for together in by_target.values():
            self._begin(together, now_ns)

    def take_tokens(self, now_ns: int) -> None:
        """Go on with all writers that have their token now."""
        self._ready.extend(self._agenda.take_tokens(now_ns))
        self.run(now_ns)

    def only_read(self, until_ns: int) -> int | None:
        """Take the tokens that come before that instant, one after another, as long as they do
        nothing but read Leases, as passes over a dark zone do for hours. For a time in which
        nothing else happens, so that nobody else asks for a token. Returns the last one's instant.
        """
        agenda, read_ns = self._agenda, None
        tokens = agenda.tokens
        while tokens and tokens[0][0] < until_ns:
            at_ns, _, number = tokens[0]
            writer = self._writers.get(number)
            if writer is None or writer.left <= 1 or type(writer.actions[0]) is not ReadLeases:
                break
            writer.left -= 1
            agenda.wait_anew(self.token(writer.client, at_ns))
            read_ns = at_ns
        return read_ns

    def run(self, now_ns: int) -> None:
        """Go on with all writers that have their token, in the order in which these came."""
        while self._ready:
            number = self._ready.popleft()
            writer = self._writers.get(number)
            if writer is not None:
                self._go_on(number, writer, now_ns)

    @property
    def busy(self) -> bool:
        """True if something is to be done at this very instant."""
        return bool(self._ready)

    def token(self, client: str, now_ns: int) -> int:
        """Take a token of a client; the instant at which it is there."""
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = TokenBucket(self.pace.qps, self.pace.burst)
        at_ns = bucket.reserve(now_ns)
        if at_ns - now_ns > self.longest_wait_ns:
            self.longest_wait_ns = at_ns - now_ns
        return at_ns

    def _begin(self, actions: Iterable[Action], now_ns: int) -> None:
        waiting = deque(actions)
        pool = _pool_of(waiting[0])
        look = self._api.look
        seen = {a.id: look(a) for a in waiting if type(a) in UPDATES}
        number = self._add(WriterThread(self._client(waiting[0]), waiting, now_ns, pool, 0, seen))
        if pool:
            if self._pools.get(pool, 0) >= _POOLS[pool]:
                self._waiting.setdefault(pool, deque()).append(number)
                return
            self._pools[pool] = self._pools.get(pool, 0) + 1
        self._ready.append(number)

    def _add(self, writer: WriterThread) -> int:
        self._last += 1
        self._writers[self._last] = writer
        return self._last

    def _client(self, action: Action) -> str:
        controller = action.controller
        return NODE_LIFECYCLE if self.pace.shared and controller == TAINT_EVICTION else controller

    def _go_on(self, number: int, writer: WriterThread, now_ns: int) -> None:
        """Make the request that has its token, and ask for the token of the next one."""
        actions, api = writer.actions, self._api
        if writer.left:
            writer.left -= 1
            if writer.left:
                if type(actions[0]) is not ReadLeases:
                    self._read(writer)
            else:
                self._write(actions.popleft(), writer, now_ns)
        while not writer.left:
            if not actions:
                self._end(number, writer)
                return
            action = actions[0]
            if type(action) is ReadLeases:
                writer.left = action.count
            elif not action.writes:
                api.carry_out(actions.popleft(), writer.decided_ns)
            elif writer.pool == _SENDER:
                writer.left = 1
            elif api.leaves_out(action, writer.decided_ns):
                actions.popleft()
            elif type(action) is RecordEvent:
                self._send(actions.popleft(), writer.client, now_ns)
            else:
                reads = reads_first(action, self.pace) and not writer.has_read
                writer.left = 2 if reads else 1
        at_ns = self.token(writer.client, now_ns)
        if at_ns <= now_ns:
            self._ready.append(number)
        else:
            self._agenda.wait_for_token(at_ns, number)

    def _read(self, writer: WriterThread) -> None:
        """The object of the next action is read: there may be none any more."""
        action = writer.actions[0]
        writer.has_read = action.controller == TAINT_EVICTION
        if self._api.look(action) is None:
            writer.actions.popleft()
            writer.left = 0
            message = f"{action.target[0]} {'/'.join(filter(None, action.target[1]))} not found"
            self._api.unwritten(action, writer.decided_ns, NOT_FOUND, message)

    def _write(self, action: Action, writer: WriterThread, now_ns: int) -> None:
        """The last request of an action."""
        if action.id in writer.seen:
            present = self._api.look(action)
            if present is not None and present is not writer.seen[action.id]:
                message = "the object has been modified"
                self._api.unwritten(action, writer.decided_ns, CONFLICT, message)
                return
        if type(action) is MarkPodNotReady:
            action = action.stamped(now_ns)
        self._api.carry_out(action, writer.decided_ns)

    def _end(self, number: int, writer: WriterThread) -> None:
        del self._writers[number]
        pool = writer.pool
        if pool == _SENDER:
            self._senders = {who: n for who, n in self._senders.items() if n != number}
        elif pool:
            waiting = self._waiting.get(pool)
            if waiting:
                self._ready.append(waiting.popleft())
            else:
                self._pools[pool] -= 1

    def _send(self, event: Action, client: str, now_ns: int) -> None:
        """Hand an Event to the one that sends its controller's."""
        number = self._senders.get(event.controller)
        if number is None:
            number = self._add(WriterThread(client, deque((event,)), now_ns, _SENDER))
            self._senders[event.controller] = number
            self._ready.append(number)
            return
        waiting = self._writers[number].actions
        if len(waiting) < MOST_EVENTS_WAITING:
            waiting.append(event)


def in_turn(agenda: Agenda, client: str, now_ns: int, write: Happening, *about: Any) -> None:
    """Write once a controller's client has a token in the world of that agenda; now where clients
    have no limit.
    """
    clients = agenda.parts.get(Clients)
    at_ns = clients.token(client, now_ns) if isinstance(clients, Clients) else now_ns
    agenda.at(at_ns, now_ns, OWNER, write, *about)


def _pool_of(action: Action) -> str:
    """The pool of workers that carries it out, "" if it goes by itself."""
    if type(action) is MarkPodNotReady and action.by_pod_worker:
        return _POD_WORKERS
    if action.controller == POD_GC and isinstance(action, PodAction) and action.if_node_gone:
        return POD_GC
    return ""
