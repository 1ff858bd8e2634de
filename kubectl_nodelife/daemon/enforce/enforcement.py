"""Enforcing from preflight to the release of the Lease.

It enforces in terms. A term is a decision task with controllers that begin anew and an executor; it
ends when the Lease is lost or when writing was not allowed for longer than one monitor period, and
the next begins, on fresh lists, once all is well again. Between terms nothing is decided. Only the
first begins as `--begin` says: the others join, so that no pause ends with taints gone.

`make_enforcement` builds it from the daemon's orders; a person pauses and resumes it through the
socket (`pausing_orders`).

Its reads find that the cluster's data were restored from a backup while all connections stayed open
(`RestoredData`): etcd's revision is lower then than what the API server's watches wait for: they
stay open and say nothing, maybe for hours, and lists from its cache show the world before. What is
read from etcd itself (a GET without a version, the answer to a write) shows an object of a lower
version than the watch has, which cannot be else: so all is listed anew, and a person must say that
it goes on.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from kubectl_nodelife.daemon import server
from kubectl_nodelife.daemon.cluster_view import Sources
from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.enforce import write_gate
from kubectl_nodelife.daemon.enforce.host import JOIN, EnforcingHost
from kubectl_nodelife.daemon.enforce.manager import unproven, watch_manager
from kubectl_nodelife.daemon.enforce.recorder import (
    Announcer,
    ChangeRecorder,
    IntentJournal,
    left_behind,
    user_and_host,
)
from kubectl_nodelife.daemon.enforce.tripwires import (
    ALL_AT_ONCE,
    GoneNodes,
    Tripwires,
    WriterLookup,
)
from kubectl_nodelife.daemon.flags import Options
from kubectl_nodelife.daemon.gate import KINDS, Tee, TeeFeed
from kubectl_nodelife.daemon.intents import (
    WRITES,
    Intents,
    moved_journals,
    settle_all,
    settle_later,
)
from kubectl_nodelife.daemon.lease_check import READ_SECONDS, LeaseReread
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.daemon.permissions import ENFORCE_LEASE
from kubectl_nodelife.daemon.preflight import ClusterChecks, KillSwitch, Preflight, check_settings
from kubectl_nodelife.daemon.settings import ClusterConfig, FollowedSettings
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.engine.calls.call import CONFLICT, NO_ANSWER, NOT_FOUND
from kubectl_nodelife.engine.events import Event, Outcome
from kubectl_nodelife.engine.guard import Breaker, Guard
from kubectl_nodelife.engine.settlement import is_newer
from kubectl_nodelife.errors import BadInput, Refused
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import format_micro_time, parse_duration
from kubectl_nodelife.live.clock import MonotonicClock
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.executor import LiveExecutor
from kubectl_nodelife.live.executor_port import ExecutorPort
from kubectl_nodelife.live.lease import LeaseKeeper
from kubectl_nodelife.live.listwatch import read_all
from kubectl_nodelife.live.news import WatchNews
from kubectl_nodelife.live.requests import resource_of
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.live.worker_slots import WorkerSlots
from kubectl_nodelife.live.writer import Writer, WritingSession

_WATCHED: Final = ("Node", "Pod", "Lease", "DaemonSet", "ControllerRevision")


class RestoredData:
    """Notices that the cluster's data were restored from a backup.

    `on_restored` is called with why.
    """

    def __init__(self, cache: Cache, on_restored: Callable[[str], None]) -> None:
        self._cache = cache
        self._on_restored = on_restored

    def known(self, kind: str, key: tuple[str, str]) -> KubeObject | None:
        """What the watch has shown of it: to be asked before the request is sent."""
        return self._cache.get(kind, key) if kind in _WATCHED else None

    def judge(self, read: KubeObject, known: KubeObject | None) -> None:
        """Compare what was read with what was known before."""
        if known is None or not is_newer(known, read.metadata.resource_version):
            return
        kind, name = type(read).__name__, read.metadata.name
        self._on_restored(
            f"{kind} {name} is read in version {read.metadata.resource_version}, and the watch "
            f"has shown {known.metadata.resource_version}: the cluster's data were restored"
        )


_LOOK_S: Final = 0.1
_SLOW_S: Final = 5.0


class Enforcement:
    """Enforces from preflight to the release of the Lease.

    `why_not`: why nothing is enforced now.
    """

    _last: Tripwires | None = None
    _restored = ""

    def __init__(
        self,
        options: Options,
        sources: Sources,
        tee: Tee,
        settings: FollowedSettings,
        intents: Intents,
        moved: Sequence[Intents] = (),
    ) -> None:
        """`moved`: journals of writes of earlier processes, to be settled."""
        self.orders = orders = options.flags.orders
        self._options, self._tee, self._settings = options, tee, settings
        settings.on_section = self.take_limits
        self.guard = Guard(write_gate.caps_of(orders))
        self.why_not = "enforcing has not begun"
        self.began_ns = 0
        self.pause = write_gate.Pause(intents)
        self.intents = intents
        self._moved = list(moved)
        self._journal, self._decisions = sources.journal, sources.decisions
        self._ledger = self._journal.ledger
        self.recorder = ChangeRecorder(self._ledger)
        self._client = client = sources.client
        self._clock = clock = sources.decisions.clock
        target, environ = client.session.target, options.environ
        self._session = WritingSession(target, environ, show_plugin_stderr=False)
        self._side_session = WritingSession(target, environ, show_plugin_stderr=False)
        self.monotonic_ns = since = MonotonicClock(clock.now_ns, clock.steady_ns).now_ns
        self._side = Writer(self._side_session, "enforce", since, client.clock)
        self.kill_switch = KillSwitch(self._side, since)
        self.keeper = self._make_keeper()
        stops = self.keeper, self.pause, self.kill_switch
        self._gate = write_gate.WriteGate(*stops, self.journal_error, since)
        self._gone_nodes = GoneNodes(intents)
        sender = EventSender(self._side, clock.now_ns, self._may_announce)
        self._announcer = Announcer(self._ledger, sender, self.keeper, clock.now_ns)
        self._kept = write_gate.KeptBreakers(self.guard, intents)
        self.guard.on_change, self.guard.on_close = self._note_breaker, self._announcer.closed
        self._forbidden = write_gate.ForbiddenCheck(
            lambda: self._preflight().rights(), self.guard, since
        )
        self._faults = write_gate.FaultBreaker(self.guard, orders.controllers, since)
        self._task: DecisionTask | None = None
        self._executor: LiveExecutor | None = None
        self._newest: dict[str, int] = {}
        self._parts = self._make_parts()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def _make_keeper(self) -> LeaseKeeper:
        """The keeper of our Lease, which is made in the cluster of our journal only, and not while
        another writer leads by one elsewhere.
        """
        keeper = LeaseKeeper(
            self._side, self._clock.now_ns, self.orders.lease_namespace, name=ENFORCE_LEASE
        )
        target = self._client.session.target
        checks = ClusterChecks(target, self._side, self.intents, self.kill_switch)
        keeper.why_wrong_cluster = lambda: checks.why_not_take(self.orders.lease_namespace)
        self.health = write_gate.LeaderHealth(
            self.decision_task, self.journal_error, self._clock.steady_ns
        )
        keeper.why_unfit = self.health.why_unfit
        keeper.is_idle = lambda: not self.is_sending
        return keeper

    def decision_task(self) -> DecisionTask | None:
        """That of this term; None between terms."""
        return self._task

    def journal_error(self) -> str:
        """Why nothing can be kept, "" where it can."""
        return self.intents.error or self._journal.fault()

    def _make_parts(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """The tasks that always run beside the controllers, by their names for people."""
        now_ns, intents = self._clock.now_ns, self.intents
        return {
            "the Lease": self.keeper.run,
            "the kill switch": self.kill_switch.run,
            "the journal of writes": lambda: intents.run(now_ns),
            "the watch for a controller manager": lambda: watch_manager(
                self._side, self._unproven_with, self.guard, self.monotonic_ns
            ),
            "Events": self._announcer.run,
            "settling": lambda: settle_later(intents, self._side.call),
        }

    async def preflight(self) -> None:
        """Raises Refused, Unreachable."""
        await self._preflight().run()

    def take_credentials(self, target: Target) -> None:
        """Others for the same cluster, which the kubeconfig has now."""
        self._session.take(target)
        self._side_session.take(target)

    def take_limits(self, section: ClusterConfig) -> None:
        """Caps as the flags and the config file have them now."""
        self.guard.caps = write_gate.caps_of(self.orders, section)

    def _preflight(self) -> Preflight:
        return Preflight(
            self.orders,
            self._client.session.target,
            self._side,
            self.intents,
            self.kill_switch,
            self.keeper,
            lambda text: log.warning("%s", text),
            self._options.flags.assignments,
        )

    async def run(self) -> None:
        """Enforce until cancelled. Call `close` then."""
        for name in self._parts:
            if name != "settling":
                self._begin_part(name)
        await self._faults.contain(
            "settling", settle_all(self.intents, self._moved, self._side.call)
        )
        self._begin_part("settling")
        while True:
            self.why_not = self._gate.closed_because()
            if self.why_not:
                await asyncio.sleep(_LOOK_S)
                continue
            await self._faults.contain("enforcing", self._term())

    def _begin_part(self, name: str) -> None:
        """Begin what must always run beside the controllers; its end is a bug of ours."""
        task = asyncio.get_running_loop().create_task(self._parts[name](), name=name)
        task.add_done_callback(self._faults.part_ended)
        self._tasks[name] = task

    def _ended_parts(self) -> list[str]:
        return [name for name, task in self._tasks.items() if task.done()]

    async def stop_sending(self) -> None:
        """Send nothing more, and wait for what is on its way."""
        for line in self.left_behind():
            log.info("stays behind: %s", line)
        if self._executor is not None:
            await self._executor.stop(self.keeper.is_over)
        self._announcer.ended(f"stopped by {user_and_host()}")
        await self._announcer.flush()

    def left_behind(self) -> list[str]:
        """Sentences on what no controller tends any more once we end."""
        if self._task is None:
            return []
        host, now_ns = self._task.host, self._clock.now_ns()
        return left_behind(host.cache, host.eviction, self.orders.controllers, now_ns)

    async def close(self) -> None:
        """Release the Lease, and close everything. Nothing must be on its way any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.keeper.release()
        for journal in (*self._moved, self.intents):
            await journal.close()
        await self._session.close()
        await self._side_session.close()

    @property
    def is_sending(self) -> bool:
        """True while a write is on its way."""
        return self._executor is not None and bool(self._executor.sending)

    @property
    def stands_by(self) -> bool:
        """True if another writer leads, and this one was ordered to wait for that."""
        return self.orders.wait and self.keeper.held_by_another()

    def state(self) -> dict[str, Any]:
        """For `daemon status`."""
        election = self.keeper.election
        return {
            "controllers": list(self.orders.controllers),
            "enforcing": not self.why_not,
            "standsBy": self.stands_by,
            "because": self.why_not or self._gate.watching_because(),
            "begin": self.orders.begin,
            "caps": self.orders.caps or "default",
            "capsLeft": self.guard.left(self.monotonic_ns()),
            "lease": {"name": "/".join(election.key), "holder": election.holder},
            "breakers": [breaker.because for breaker in self.guard.breakers.values()],
            "paused": self.pause.because(self.monotonic_ns()),
            "ended": self._ended_parts(),
            "inFlight": self._executor.busy if self._executor is not None else 0,
            "writes": dict(self.recorder.counts),
        }

    def resume(self) -> str:
        """A person says go on, with what had ended begun anew. What a restart would forget of it,
        "" where nothing.
        """
        for name in self._ended_parts():
            self._begin_part(name)
        warning = self.pause.end()
        if self.guard.breakers:
            self._gone_nodes.forget()
        self.guard.resume()
        return warning

    async def _may_announce(self) -> bool:
        """True if an Event on our Lease may be sent: whenever writing is not forbidden to all."""
        return not self.kill_switch.present

    # A term

    async def _term(self) -> None:
        feed = self._tee.open()
        begin = JOIN if self.began_ns else self.orders.begin  # taints are stripped once, if at all
        host = EnforcingHost(begin, self._note_begin, self._ledger.numbers, self._faults.note)
        host.newest, host.on_time_back = self._newest, self._time_back
        host.on_unseen = self._time_passed_unseen
        self._restored = ""
        task = DecisionTask(
            feed,
            self._clock,
            self._ledger,
            await self._settings.read(Cache()),
            self.orders.controllers,
            self._settings.read,
            host,
        )
        task.on_bug = self._faults.note
        executor = self._make_executor(host.cache, task, feed)
        host.executor = self._executor = executor
        host.tripwires = self._tripwires = self._set_tripwires(host.cache, task)
        host.monotonic_ns = self.monotonic_ns
        host.dates_count_from_ns = self._clock.dates_count_from_ns
        self._task = task
        # what was listed before there was this feed, such as during a pause, did not reach it
        feed.relist([kind for kind in KINDS if feed.states[kind].synced])
        loop = asyncio.get_running_loop()
        running = [loop.create_task(task.run())]
        running += [
            loop.create_task(c.events.run())
            for c in executor.controllers.values()
            if c.events is not None
        ]
        for one in running[1:]:
            one.add_done_callback(self._faults.part_ended)
        try:
            await self._until_closed(task, running[0])
        finally:
            await executor.stop(self.keeper.is_over)
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._tee.close(feed)
            self._gone_nodes.keep(self.monotonic_ns())
            self._task = self._executor = None

    async def _until_closed(self, task: DecisionTask, running: asyncio.Task[None]) -> None:
        """Until the Lease is lost, or writing was not allowed for a monitor period."""
        closed_ns = 0
        while True:
            await asyncio.sleep(_LOOK_S)
            if running.done():
                running.result()  # a bug of ours
            now_ns = self.monotonic_ns()
            settings = self._decisions.settings
            both = task.synced.is_set() and self._decisions.synced.is_set()
            if both and settings.flags != task.settings.flags:
                await task.change_settings(settings)
            if self._restored or not self.keeper.leads():
                self._announcer.ended(self._restored or "the Lease is lost")
                return
            if self.keeper.error:
                self._tripwires.trouble(now_ns)  # a renewal failed
            self._tripwires.close_when_calm(now_ns)
            because = self._gate.closed_because()
            if because != self.why_not:
                log.warning("enforcing: %s", because or "goes on")
                self.why_not = because
            closed_ns = (closed_ns or now_ns) if because else 0
            self._gone_nodes.keep(now_ns)
            if closed_ns and now_ns - closed_ns > task.settings.node_monitor_period_ns:
                self._announcer.ended(because)
                return

    def _make_executor(self, cache: Cache, task: DecisionTask, feed: TeeFeed) -> LiveExecutor:
        now_ns, put = self._clock.now_ns, feed.queue.put_nowait

        def deliver(event: Event) -> None:
            if isinstance(event, Outcome):
                put(event)
            else:
                put(WatchNews(event.kind, [event]))  # type: ignore[union-attr,list-item]

        period_ns = task.settings.node_monitor_period_ns
        evidence = LeaseReread(
            cache,
            partial(self._side.call, timeout_s=READ_SECONDS),
            partial(read_all, self._client, resource_of("Lease")),
            *(deliver, now_ns, self.monotonic_ns, period_ns),
        )
        evidence.leases_count = task.settings.leases_count
        evidence.watch_lies = lambda: feed.relist(["Lease"])
        port = ExecutorPort(
            cache,
            self.guard,
            lambda: self._gate.view(cache, task),
            IntentJournal(self.intents, now_ns, lambda: self.keeper.election.transitions),
            self.recorder,
            now_ns,
            self.monotonic_ns,
            period_ns,
            evidence,
            deliver,
            self._faults.note,
        )
        self.guard.set_of = write_gate.set_of(cache)
        writers = write_gate.controller_writers(
            self.orders.controllers,
            task.settings,
            self._session,
            now_ns,
            self.monotonic_ns,
            self._client.clock,
            self._gate.closed_because,
            lambda: self.is_sending,
        )
        judge = RestoredData(cache, self._time_back)
        for writer in (self._side, *(each.writer for each in writers.values())):
            writer.judge = judge
        evidence.judge = judge.judge
        return LiveExecutor(
            port, writers, WorkerSlots(cache, write_gate.daemon_set_syncs(task.settings))
        )

    def _set_tripwires(self, cache: Cache, decisions: DecisionTask) -> Tripwires:
        names, gone = self.orders.controllers, self._gone_nodes
        tripwires = self._last = Tripwires(self.guard, cache, names, gone, self._last)
        tripwires.ask_writer = WriterLookup(self._side.call, self.guard, self._kept.keep).ask
        tripwires.grace_ns = decisions.settings.node_monitor_grace_period_ns

        def answered(action: Action, answer: Answer, took_s: float) -> None:
            if answer.code == NO_ANSWER or took_s > _SLOW_S:
                tripwires.trouble(self.monotonic_ns())
            # A reason is the API server's, not a proxy's; and of a request that arrived twice the
            # second is answered 404 or 409, though the first was carried out.
            is_twice = answer.code in (NOT_FOUND, CONFLICT)
            if 400 <= answer.code < 500 and answer.reason and not is_twice:
                tripwires.refused(action)
            self._forbidden.note(action, answer)

        self.recorder.on_sending, self.recorder.on_answered = tripwires.sends, answered
        return tripwires

    def _time_passed_unseen(self) -> None:
        """The Lease is tried for anew and the kill switch looked for before anything is sent. A
        machine that was halted together with its clocks cannot tell for how long; that the API
        server's clock has gone on is the only sign of it.
        """
        self.keeper.election.lose()
        self.kill_switch.absent_ns = 0

    def _time_back(self, because: str) -> None:
        """All memory is dropped with the term; a person must say that it goes on."""
        self._restored = because
        self._newest.clear()
        self.guard.open(Breaker("time runs back", because, self.monotonic_ns()))

    async def _unproven_with(self, holder: str) -> list[str]:
        orders = self.orders
        return await unproven(self._side, orders.controllers, orders.assume_stopped, holder)

    def _note_breaker(self, breaker: Breaker | None) -> None:
        """One has opened, or some were closed."""
        self._kept.keep()
        if breaker is not None and breaker.rule == ALL_AT_ONCE and self._task is not None:
            self._task.begin_anew(breaker.because)
        if breaker is not None:
            self._announcer.opened(breaker)

    def _note_begin(self, names: list[str]) -> None:
        now_ns = self.monotonic_ns()
        self.why_not = ""
        if self._task is not None:
            self._gone_nodes.begin(self._task.host.cache, now_ns)
            self._tripwires.check_gone(now_ns)
        unsaid = set(self.orders.controllers) - set(self.orders.assume_stopped)
        if unsaid and self._task is not None:
            until_ns = now_ns + self._task.settings.node_monitor_grace_period_ns
            self._gate.quiet_until_ns = until_ns
            log.info(
                "nothing is written before %s, to see whether another program does; "
                "--assume-stopped=%s skips that",
                format_micro_time(until_ns),
                ",".join(sorted(unsaid)),
            )
        try:
            check_settings(self._settings.warnings)
        except Refused as refused:
            self.guard.open(Breaker(write_gate.SETTINGS, refused.what, now_ns))
        missing = set(self.orders.controllers) - set(names)
        if missing:
            log.error("%s cannot be enforced: what it needs cannot be read", ", ".join(missing))
        began_ns = self._clock.now_ns()
        line = f"enforcing {','.join(self.orders.controllers)} since {format_micro_time(began_ns)}"
        log.info("%s", line)
        if not self.began_ns:
            self._options.report(line)
        self.began_ns = began_ns
        self._announcer.began(",".join(self.orders.controllers))


def make_enforcement(
    options: Options, sources: Sources, tee: Tee, settings: FollowedSettings
) -> Enforcement:
    """Raises Refused where there is no journal that can be kept, or it has just been replaced, and
    where one that was moved cannot be looked into.
    """
    path = sources.journal.store.path
    if fault := sources.journal.fault():
        raise Refused(
            fault,
            on="journal",
            remedy="enforcing needs a journal on disk that is whole; look at it, then start again",
        )
    intents = Intents(path.removesuffix(".db") + WRITES)
    moved: list[Intents] = []
    try:
        moved = moved_journals(intents.path)
        for journal in moved:
            write_gate.adopt(intents, journal)
    except sqlite3.Error as error:
        raise Refused(
            f"a pause or a breaker may be lost: {error}",
            on=intents.path,
            remedy="make room on the disk",
        ) from None
    sources.journal.ledger.untold = frozenset(options.flags.orders.controllers)
    return Enforcement(options, sources, tee, settings, intents, moved)


def pausing_orders(enforcement: Enforcement | None) -> dict[str, server.Answer]:
    """The orders `pause` and `resume` of the socket."""

    async def pause(query: server.Query) -> dict[str, Any]:
        if enforcement is None:
            raise BadInput("this daemon does not enforce: there is nothing to pause")
        text = (query.get("for") or [""])[0]
        now_ns = enforcement.monotonic_ns()
        warning = enforcement.pause.begin(now_ns + parse_duration(text) if text else 0)
        return {"paused": enforcement.pause.because(now_ns), "warning": warning}

    async def resume(query: server.Query) -> dict[str, Any]:
        if enforcement is None:
            raise BadInput("this daemon does not enforce: there is nothing to resume")
        return {"resumed": True, "warning": enforcement.resume()}

    return {"pause": pause, "resume": resume}
