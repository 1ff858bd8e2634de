"""What every write of the enforcing controllers passes: the limits of its controller, and what the
guard must know right before it, such as Lease, pause, kill switch, zones.

Each controller has a writer, with a client, a token bucket and Events (`controller_writers`). The
limits are the caps of the guard and each client's QPS.

What only a person ends, a pause and an open breaker, is kept over restarts, with the journal of
writes. A breaker that closes by itself, or that each start decides anew, is not kept.

`FaultBreaker` opens breakers for what goes wrong on our own side: a controller at which we failed
writes no more before a person says so; where the fault is in what all of them need, such as the
detection of other writers or the cache, none of them does. A 403 of admission, about one object,
opens nothing; a 403 for a right that was taken away does.

`LeaderHealth` says whether this process can do a leader's work: the Lease is renewed for as long as
it can. Renewed by a timer alone, the Lease of a process whose decision task hangs, or that can open
no file any more, would keep every standby from working in its place. client-go's leader election
has the same check for its own loop alone (leaderelection/healthzadaptor.go). What a person or
another writer ordered, such as a pause, the kill switch or an open breaker, is no reason: a standby
would go on in spite of it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.node_status_index import surge_count, unavailable_count
from kubectl_nodelife.controllers.nodelifecycle.taints import is_for_lost_node
from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.flags import Orders
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.logs import log, log_bug
from kubectl_nodelife.daemon.preflight import KillSwitch
from kubectl_nodelife.daemon.settings import EMPTY_CONFIG, ClusterConfig
from kubectl_nodelife.engine.actions import Action, DeletePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.engine.calls.call import FORBIDDEN
from kubectl_nodelife.engine.guard import (
    CAP_NAMES,
    FAULT,
    UPSTREAM,
    Breaker,
    Caps,
    Guard,
    WriteConditions,
    verb_of,
)
from kubectl_nodelife.engine.pace import ENFORCED_BURST, ENFORCED_QPS
from kubectl_nodelife.engine.quarantine import Bug, words
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.errors import NodelifeError, Refused
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import zone_key
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.workload import DaemonSet, NotAPercentage
from kubectl_nodelife.live.clock import DRIFT_NS, ServerClock
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.executor_port import ControllerWriter
from kubectl_nodelife.live.lease import LeaseKeeper
from kubectl_nodelife.live.writer import Writer, WritingSession

PAUSE_S: Final = 5.0
"""For so long nothing is tried again after a bug."""


class FaultBreaker:
    """Opens the guard's breakers. `controllers`: those that enforce."""

    def __init__(
        self, guard: Guard, controllers: Collection[str], now_ns: Callable[[], int]
    ) -> None:
        self._guard = guard
        self._controllers = controllers
        self._now_ns = now_ns

    def note(self, bug: Bug) -> None:
        """An exception was contained."""
        log_bug(bug)
        controller = bug.controller if bug.controller in self._controllers else ""
        because = (
            f"a bug of ours: {bug.controller} at {words(bug.about)} ({bug.what()}): nothing of "
            f"{controller or 'any controller'} is sent"
        )
        self._guard.open(Breaker(FAULT, because, self._now_ns(), controller=controller))

    async def contain(self, what: str, part: Coroutine[Any, Any, None]) -> None:
        """Do it; where it fails, nothing is sent any more, and the daemon goes on."""
        try:
            await part
        except Exception as error:
            self.note(Bug(what, "a step of it", error, self._now_ns()))
            await asyncio.sleep(PAUSE_S)

    def part_ended(self, task: asyncio.Task[None]) -> None:
        """Called at the end of a task that must always run."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.note(Bug("enforcing", task.get_name(), error, self._now_ns()))


class ForbiddenCheck:
    """`ask` raises Refused where a right is missing that the controllers need."""

    def __init__(
        self, ask: Callable[[], Awaitable[None]], guard: Guard, now_ns: Callable[[], int]
    ) -> None:
        self._ask = ask
        self._guard = guard
        self._now_ns = now_ns
        self._asking: set[asyncio.Task[None]] = set()

    def note(self, action: Action, answer: Answer) -> None:
        """A request was answered."""
        if answer.code == FORBIDDEN and not answer.causes:
            task = asyncio.ensure_future(self._confirm(action, answer))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _confirm(self, action: Action, answer: Answer) -> None:
        try:
            await self._ask()
        except Refused as refused:
            because = f"{refused.what}; {answer.message}"  # what is wrong first: the rest is long
            self._guard.open(Breaker("forbidden", because, self._now_ns(), verb_of(action)))
        except NodelifeError:
            pass


_MARK = "paused"
_BREAKERS = "breakers"
_ADOPTED = "adopted"
SETTINGS = "settings"
"""The rule of a breaker for settings that contradict a manager's: each beginning looks anew."""


@dataclass(eq=False)
class WriteGate:
    """`quiet_until_ns`: so long nothing at all is written, to see whether another writes."""

    _keeper: LeaseKeeper
    _pause: Pause
    _kill_switch: KillSwitch
    _journal_error: Callable[[], str]
    _now_ns: Callable[[], int]
    quiet_until_ns: int = 0

    def closed_because(self) -> str:
        """Why nothing at all may be written now, "" where it may."""
        if error := self._journal_error():
            return f"the journal cannot be written: {error}"
        if not self._keeper.leads():
            why = self._keeper.error or self._keeper.election.holder
            return f"the Lease is not held ({why})"
        if paused := self._pause.because(self._now_ns()):
            return paused
        if self._kill_switch.present:
            return "the ConfigMap kube-system/nodelife-stop is there"
        return ""

    def watching_because(self) -> str:
        """Why nothing is written at the beginning, "" once that is over."""
        left_ns = self.quiet_until_ns - self._now_ns()
        return "watching for other writers for one grace period first" if left_ns > 0 else ""

    def view(self, cache: Cache, task: DecisionTask) -> WriteConditions:
        """The conditions for a write at this moment."""
        now_ns = self._now_ns()
        blind = self.watching_because() or task.stands_still or _left_behind(task)
        cold_for_ns = task.cold_for_ns()
        nodes = cache.nodes
        return WriteConditions(
            leads=self._keeper.leads(),
            synced=task.synced.is_set() or bool(task.host.engine),
            blind=blind,
            cold_until_ns=now_ns + cold_for_ns if cold_for_ns else 0,
            paused_because=self._pause.because(now_ns),
            kill_switch_absent_ns=self._kill_switch.absent_ns,
            kill_switch_present=self._kill_switch.present,
            journal_error=self._journal_error(),
            zones=lambda: {name: zone_key(node.metadata.labels) for name, node in nodes.items()},
            tainted=lambda: {
                name
                for name, node in nodes.items()
                if any(is_for_lost_node(taint) for taint in node.spec.taints)
            },
        )


def _left_behind(task: DecisionTask) -> str:
    """Why nothing is written although this machine's clocks say that all is recent: the API
    server's has gone on without them. "" where it has not.
    """
    drift_ns = task.clock.drift_ns()
    if drift_ns <= DRIFT_NS:
        return ""
    return f"the API server's clock has gone on by {drift_ns / SECOND_NS:.0f}s more than ours"


class Pause:
    """Kept with the journal of writes. Instants in ns since the epoch; 0: for ever."""

    def __init__(self, intents: Intents) -> None:
        self._intents = intents
        mark = intents.mark(_MARK)
        self._paused = bool(mark)
        self._until_ns = int(mark) if mark.isdecimal() else 0  # what cannot be read is for ever

    def begin(self, until_ns: int = 0) -> str:
        """Stop writing. Why a restart would end it, "" where it would not."""
        self._paused, self._until_ns = True, until_ns
        return self._keep(str(until_ns), "writing is paused, until the daemon ends")

    def end(self) -> str:
        """Go on. Why a restart would pause again, "" where it would not."""
        self._paused = False
        return self._keep("", "writing goes on, until the daemon ends")

    def _keep(self, text: str, meanwhile: str) -> str:
        try:
            self._intents.mark(_MARK, text)
        except sqlite3.Error as error:
            line = f"{meanwhile}: a restart will not know of it, it cannot be kept ({error})"
            log.error("%s", line)
            return line
        return ""

    def because(self, now_ns: int) -> str:
        """Why nothing is written, "" where that is allowed."""
        if not self._paused or (self._until_ns and now_ns >= self._until_ns):
            return ""
        until = f" until {format_time(self._until_ns)}" if self._until_ns else ""
        return f"paused by `daemon pause`{until}"


class KeptBreakers:
    """Opens again what was open when the last process ended, and keeps what opens from now on."""

    def __init__(self, guard: Guard, intents: Intents) -> None:
        self._guard = guard
        self._intents = intents
        for breaker in _read(intents.mark(_BREAKERS)):
            guard.open(breaker)

    def keep(self) -> None:
        """Bring what needs a person to the disk. One that cannot be kept is open all the same."""
        lasting = [b for b in self._guard.breakers.values() if not b.heals and b.rule != SETTINGS]
        try:
            self._intents.mark(_BREAKERS, msgspec.json.encode(lasting).decode())
        except sqlite3.Error as error:
            log.error("an open breaker is lost with the process, it cannot be kept: %s", error)


def adopt(own: Intents, moved: Intents) -> None:
    """Take over a pause and open breakers from a journal that was moved, once. Raises
    sqlite3.Error.
    """
    if moved.mark(_ADOPTED):
        return
    if (paused := moved.mark(_MARK)) and not own.mark(_MARK):
        own.mark(_MARK, paused)
    if breakers := [*_read(own.mark(_BREAKERS)), *_read(moved.mark(_BREAKERS))]:
        own.mark(_BREAKERS, msgspec.json.encode(breakers).decode())
    moved.mark(_ADOPTED, "yes")


def _read(text: str) -> list[Breaker]:
    """The breakers that were kept. Text that cannot be read is a breaker of its own, since a person
    must look at it.
    """
    try:
        return msgspec.json.decode(text, type=list[Breaker]) if text else []
    except msgspec.MsgspecError as error:
        return [Breaker("breakers", f"the breakers that were kept cannot be read: {error}", 0)]


UNFIT_NS: Final = 6 * SECOND_NS
"""With the two seconds between looks, and the time between the tries of a standby, a standby leads
within a Lease's duration."""
JOURNAL_NS: Final = 2 * SECOND_NS
"""The journal is tried every two seconds, which is waited for besides."""
BLIND_NS: Final = 30 * SECOND_NS
"""A watch that does not work may be the API server's trouble, in which no standby does better."""
_SPARE: Final = 4


def can_open() -> bool:
    """True if a few files or connections more can be opened."""
    opened: list[int] = []
    try:
        for _ in range(_SPARE):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        for number in opened:
            os.close(number)
    return True


@dataclass(eq=False)
class LeaderHealth:
    """Says whether this process can do a leader's work.

    It asks for the task of the controllers that enforce, None while nobody does; why nothing can be
    kept in the journal, "" where it can; and a clock that cannot be set.
    """

    _task: Callable[[], DecisionTask | None]
    _journal_error: Callable[[], str]
    _steady_ns: Callable[[], int]
    has_descriptors: Callable[[], bool] = can_open
    _since_ns: dict[str, int] = field(default_factory=dict)
    _turn: tuple[int, int] = (0, -1)

    def why_unfit(self) -> str:
        """Why another should lead, "" for no reason. To be asked every other second."""
        task = self._task()
        journal, blind = self._journal_error(), task.stands_still if task is not None else ""
        faults = {
            f"the journal cannot be written: {journal}": (bool(journal), JOURNAL_NS),
            "no file or connection can be opened": (not self.has_descriptors(), UNFIT_NS),
            "the controllers make no turn": (self._hangs(task), UNFIT_NS),
            f"nothing can be decided: {blind}": (bool(blind), BLIND_NS),
        }
        now_ns = self._steady_ns()
        present = {why: limit for why, (holds, limit) in faults.items() if holds}
        self._since_ns = {why: self._since_ns.get(why, now_ns) for why in present}
        over = (why for why, limit in present.items() if now_ns - self._since_ns[why] >= limit)
        return next(over, "")

    def _hangs(self, task: DecisionTask | None) -> bool:
        """True if the task has made no turn since this was asked last."""
        before = self._turn
        self._turn = (id(task), task.slices.turns) if task is not None else (0, -1)
        return task is not None and self._turn == before


def client_rate(settings: Settings) -> tuple[float, int]:
    """Requests a second and at once, of each controller: ours, unless the user set upstream's."""
    given = {n for n in ("kube-api-qps", "kube-api-burst") if settings.origins.get(n) == "--set"}
    qps = float(settings.flags["kube-api-qps"]) if "kube-api-qps" in given else ENFORCED_QPS
    burst = int(settings.flags["kube-api-burst"]) if "kube-api-burst" in given else ENFORCED_BURST
    return qps, burst


def daemon_set_syncs(settings: Settings) -> int:
    """How many DaemonSets have writes on their way at once."""
    return int(settings.flags["concurrent-daemonset-syncs"])


def caps_of(orders: Orders, section: ClusterConfig = EMPTY_CONFIG) -> Caps:
    """The caps that the user asked for: flags before what the config file says of the cluster, none
    of which counts beside `--caps=upstream`. `NAME=N` of a single cap: see `CAP_NAMES`.
    """
    upstream = orders.caps == "upstream"
    given = {} if upstream else dict(section.caps)
    for text in orders.single_caps:
        name, _, value = text.partition("=")
        given[name] = int(value)
    caps = UPSTREAM if upstream else Caps()
    for name, number in given.items():
        field, in_percent = CAP_NAMES[name]
        caps = replace(caps, **{field: number / 100 if in_percent else number})
        if field == "set_deletions_a_minute":
            caps = replace(caps, set_deletions_by_budget=False)
    total = section.max_writes if orders.max_writes is None else orders.max_writes
    return replace(caps, total=total)


def set_of(cache: Cache) -> Callable[[DeletePod], tuple[str, int]]:
    """For the guard: a daemon pod's set, and how many of its pods an update may take down."""

    def found(action: DeletePod) -> tuple[str, int]:
        pod = cache.pods.get(action.target[1])
        owner = controller_of(pod.metadata) if pod is not None else None
        if pod is None or owner is None:
            return "", 0
        daemon_set = cache.get("DaemonSet", (pod.namespace, owner.name))
        if not isinstance(daemon_set, DaemonSet):
            return owner.uid, 0
        desired = daemon_set.status.desired_number_scheduled
        try:
            down, surge = unavailable_count(daemon_set, desired), surge_count(daemon_set, desired)
        except NotAPercentage:
            return owner.uid, 0
        return owner.uid, max(down, surge)

    return found


_EVENT_SHARE: Final = 8
_GIVES_WAY_S: Final = 2.0
_LOOK_S: Final = 0.02


def controller_writers(
    controllers: Iterable[str],
    settings: Settings,
    session: WritingSession,
    now_ns: Callable[[], int],
    monotonic_ns: Callable[[], int],
    clock: ServerClock,
    closed_because: Callable[[], str],
    is_sending: Callable[[], bool],
) -> dict[str, ControllerWriter]:
    """By controller. Events get an eighth of its tokens, and are sent while the gate is open.

    While writes are on their way (`is_sending`) an Event waits up to two seconds: upstream sends
    both at once, here they share one thread, and a mark or taint matters more.
    """
    qps, burst = client_rate(settings)

    def writing(name: str) -> ControllerWriter:
        writer = Writer(session, name, monotonic_ns, clock)
        tokens = TokenBucket(qps / _EVENT_SHARE, max(1, burst // _EVENT_SHARE))

        async def admitted() -> bool:
            at_ns = tokens.reserve(monotonic_ns())
            await asyncio.sleep(max(0.0, (at_ns - monotonic_ns()) / SECOND_NS))
            until_ns = monotonic_ns() + int(_GIVES_WAY_S * SECOND_NS)
            while is_sending() and monotonic_ns() < until_ns:
                await asyncio.sleep(_LOOK_S)
            return not closed_because()

        events = EventSender(writer, now_ns, admitted)
        return ControllerWriter(writer, TokenBucket(qps, burst), events)

    return {name: writing(name) for name in controllers}
