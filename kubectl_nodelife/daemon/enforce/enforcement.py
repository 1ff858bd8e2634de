"""Enforcing from preflight to the release of the Lease.

It enforces in terms. A term is a decision task with controllers that begin anew and an executor;
it ends when the Lease is lost or when writing was not allowed for longer than one monitor period,
and the next begins, on fresh lists, once all is well again. Between terms nothing is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.daemon.clock import DaemonClock
from kubectl_nodelife.daemon.enforce.host import EnforcingHost, EnforcingTask
from kubectl_nodelife.daemon.enforce.limits import caps_of, client_rate
from kubectl_nodelife.daemon.enforce.lookouts import (
    MANAGER_SECONDS,
    FreshEvidence,
    KillSwitch,
    lease_spec,
    manager_lease,
)
from kubectl_nodelife.daemon.enforce.pausing import Pause
from kubectl_nodelife.daemon.enforce.recorder import ChangeRecorder, IntentJournal
from kubectl_nodelife.daemon.enforce.settling import settle_unsettled
from kubectl_nodelife.daemon.enforce.tee import Tee
from kubectl_nodelife.daemon.enforce.tripwires import Tripwires
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.daemon.kinds import KINDS
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.daemon.preflight import Orders, Preflight, check_settings
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.engine.calls.call import FORBIDDEN, NO_ANSWER
from kubectl_nodelife.engine.events import Event, Outcome
from kubectl_nodelife.engine.guard import Breaker, Guard, View, verb_of
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.token_bucket import TokenBucket
from kubectl_nodelife.errors import NodelifeError, Refused
from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.kube.zones import zone_key
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.executor import ControllerWriter, LiveExecutor, Port
from kubectl_nodelife.live.lease import LeaseKeeper
from kubectl_nodelife.live.listing import read_leases
from kubectl_nodelife.live.source import Happened
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.live.writer import Writer, WritingSession

_EVENT_SHARE: Final = 8
_LOOK_S: Final = 0.1
_SLOW_S: Final = 5.0
_OURS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


class Enforcement:
    """See the module. `tell` prints the contract's line; `why_not`: why nothing is enforced now."""

    def __init__(
        self,
        orders: Orders,
        target: Target,
        environ: Mapping[str, str],
        client: Client,
        clock: DaemonClock,
        tee: Tee,
        intents: Intents,
        ledger: Ledger,
        pause: Pause,
        read_settings: Callable[[Cache], Awaitable[Settings]],
        tell: Callable[[str], None],
        warnings: Callable[[], Sequence[str]] = tuple,
        settings_now: Callable[[], Settings | None] = lambda: None,
        changes_fault: Callable[[], str] = str,
    ) -> None:
        self.orders = orders
        self.guard = Guard(caps_of(orders))
        self.why_not = "enforcing has not begun"
        self.began_ns = 0
        self.pause = pause
        self.intents = intents
        self.recorder = ChangeRecorder(ledger)
        self._client = client
        self._clock = clock
        self._tee = tee
        self._ledger = ledger
        self._read_settings = read_settings
        self._tell = tell
        self._warnings = warnings
        self._settings_now = settings_now
        self._changes_fault = changes_fault
        self._session = WritingSession(target, environ, show_plugin_stderr=False)
        self._side_session = WritingSession(target, environ, show_plugin_stderr=False)
        self._side = Writer(self._side_session, "enforce", clock.now_ns, client.clock)
        self.kill_switch = KillSwitch(self._side, clock.now_ns)
        self.keeper = LeaseKeeper(self._side, clock.now_ns, orders.lease_namespace)
        self._target = target
        self._task: EnforcingTask | None = None
        self._executor: LiveExecutor | None = None
        self._quiet_until_ns = 0
        self._newest: dict[str, int] = {}
        self._restored = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._asking: set[asyncio.Task[None]] = set()

    async def preflight(self) -> None:
        """Raises Refused, Unreachable."""
        await self._preflight().run()

    def _preflight(self) -> Preflight:
        return Preflight(
            self.orders,
            self._target,
            self._side,
            self.intents,
            self.kill_switch,
            self.keeper,
            lambda text: log.warning("%s", text),
        )

    async def run(self) -> None:
        """Enforce until cancelled. Call `close` then."""
        loop = asyncio.get_running_loop()
        parts = (
            self.keeper.run(),
            self.kill_switch.run(),
            self.intents.run(self._clock.now_ns),
            self._watch_manager(),
        )
        self._tasks = [loop.create_task(part) for part in parts]
        await settle_unsettled(self.intents, self._side)
        first = True
        while True:
            self.why_not = self._closed_because()
            if self.why_not:
                await asyncio.sleep(_LOOK_S)
                continue
            await self._term(relist=not first)
            first = False

    async def stop_sending(self) -> None:
        """Send nothing more, and wait for what is on its way."""
        if self._executor is not None:
            await self._executor.stop()

    async def close(self) -> None:
        """Release the Lease, and close everything. Nothing must be on its way any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.keeper.release()
        await self.intents.close()
        await self._session.close()
        await self._side_session.close()

    def state(self) -> dict[str, Any]:
        """For `daemon status`."""
        lease = self.keeper.state()
        return {
            "controllers": list(self.orders.controllers),
            "enforcing": not self.why_not,
            "because": self.why_not,
            "begin": self.orders.begin,
            "caps": self.orders.caps or "default",
            "lease": {"name": f"{lease.namespace}/{lease.name}", "holder": lease.holder},
            "breakers": [breaker.because for breaker in self.guard.breakers.values()],
            "paused": self.pause.because(self._clock.now_ns()),
            "inFlight": self._executor.busy if self._executor is not None else 0,
            "writes": dict(self.recorder.counts),
        }

    def resume(self) -> None:
        """A person says go on."""
        self.pause.end()
        self.guard.resume()

    # A term

    async def _term(self, *, relist: bool) -> None:
        feed = self._tee.open()
        host = EnforcingHost(self.orders.begin, self._note_begin, self._ledger.numbers)
        task = EnforcingTask(
            feed,
            self._clock,
            self._ledger,
            await self._read_settings(Cache()),
            self.orders.controllers,
            self._read_settings,
            host,
            lambda: read_leases(self._client),
        )
        task.newest, task.on_time_back, self._restored = self._newest, self._time_back, ""
        executor = self._make_executor(host.cache, task, feed.queue.put_nowait)
        host.executor = self._executor = executor
        host.tripwires = self._tripwires = self._set_tripwires(host.cache, task)
        self._task = task
        if relist:
            feed.relist(KINDS)
        loop = asyncio.get_running_loop()
        running = [loop.create_task(task.run())]
        running += [
            loop.create_task(c.events.run())
            for c in executor.controllers.values()
            if isinstance(c.events, EventSender)
        ]
        try:
            await self._until_closed(task, running[0])
        finally:
            await executor.stop()
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._tee.close(feed)
            self._task = self._executor = None

    async def _until_closed(self, task: EnforcingTask, running: asyncio.Task[None]) -> None:
        """Until the Lease is lost, or writing was not allowed for a monitor period."""
        closed_ns = 0
        while True:
            await asyncio.sleep(_LOOK_S)
            if running.done():
                running.result()  # a bug of ours
            now_ns = self._clock.now_ns()
            settings = self._settings_now()
            if task.synced.is_set() and settings and settings.flags != task.settings.flags:
                await task.change_settings(settings)
            if self._restored or not self.keeper.leads():
                log.warning("%s: nothing is sent", self._restored or "the Lease is lost")
                return
            because = self._closed_because()
            if because != self.why_not:
                log.warning("enforcing: %s", because or "goes on")
                self.why_not = because
            closed_ns = (closed_ns or now_ns) if because else 0
            if closed_ns and now_ns - closed_ns > task.settings.node_monitor_period_ns:
                return

    def _make_executor(
        self, cache: Cache, task: EnforcingTask, put: Callable[[Any], None]
    ) -> LiveExecutor:
        now_ns = self._clock.now_ns

        def deliver(event: Event) -> None:
            if isinstance(event, Outcome):
                put(event)
            else:
                put(Happened(event.kind, [event]))  # type: ignore[union-attr,list-item]

        evidence = FreshEvidence(
            cache, self._client, self._side, deliver, now_ns, task.settings.node_monitor_period_ns
        )
        port = Port(
            cache,
            self.guard,
            lambda: self._view(cache, task),
            IntentJournal(self.intents, now_ns, lambda: self.keeper.election.transitions),
            self.recorder,
            evidence,
            deliver,
            now_ns,
            task.settings.node_monitor_period_ns,
        )
        rate = client_rate(task.settings)
        return LiveExecutor(port, {n: self._controller(n, *rate) for n in self.orders.controllers})

    def _controller(self, name: str, qps: float, burst: int) -> ControllerWriter:
        writer = Writer(self._session, name, self._clock.now_ns, self._client.clock)
        bucket = TokenBucket(qps, burst)
        events = TokenBucket(qps / _EVENT_SHARE, max(1, burst // _EVENT_SHARE))

        async def admitted() -> bool:
            now_ns = self._clock.now_ns()
            at_ns = events.reserve(now_ns)
            await asyncio.sleep(max(0.0, (at_ns - now_ns) / 1e9))
            return not self._closed_because()

        return ControllerWriter(writer, EventSender(writer, self._clock.now_ns, admitted), bucket)

    def _set_tripwires(self, cache: Cache, decisions: EnforcingTask) -> Tripwires:
        tripwires = Tripwires(self.guard, cache, self.orders.controllers)
        tripwires.grace_ns = decisions.settings.node_monitor_grace_period_ns

        def answered(action: Action, answer: Answer, took_s: float) -> None:
            if answer.code == NO_ANSWER or took_s > _SLOW_S:
                tripwires.trouble(self._clock.now_ns())
            if answer.code == FORBIDDEN and not answer.causes:
                task = asyncio.ensure_future(self._confirm_forbidden(action, answer))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

        self.recorder.on_sending, self.recorder.on_answered = tripwires.sends, answered
        return tripwires

    async def _confirm_forbidden(self, action: Action, answer: Answer) -> None:
        """A 403 may be admission's word about one object; ask whether the right itself is gone."""
        try:
            await self._preflight().permission()
        except Refused as refused:
            because = f"{answer.message}: {refused.what}"
            self.guard.open(Breaker("forbidden", because, self._clock.now_ns(), verb_of(action)))
        except NodelifeError:
            pass

    def _time_back(self, because: str) -> None:
        """All memory is dropped with the term; a person must say that it goes on."""
        self._restored = because
        self._newest.clear()
        self.guard.open(Breaker("time runs back", because, self._clock.now_ns()))

    # The gate

    def _closed_because(self) -> str:
        """Why nothing at all may be written now, "" where it may."""
        now_ns = self._clock.now_ns()
        if not self.keeper.leads():
            return f"the Lease is not held ({self.keeper.state().holder or self.keeper.error})"
        if paused := self.pause.because(now_ns):
            return paused
        if self.kill_switch.present:
            return "the ConfigMap kube-system/nodelife-stop is there"
        if error := self._journal_error():
            return f"the journal cannot be written: {error}"
        return ""

    def _journal_error(self) -> str:
        return self.intents.error or self._changes_fault()

    def _view(self, cache: Cache, task: EnforcingTask) -> View:
        now_ns = self._clock.now_ns()
        blind = task.stands_still
        if now_ns < self._quiet_until_ns:
            blind = "watching for other writers for one grace period first"
        view = View(
            leads=self.keeper.leads(),
            synced=task.synced.is_set() or bool(task.dry_run.engine),
            blind=blind,
            cold_until_ns=task.cold_until_ns,
            paused_because=self.pause.because(now_ns),
            kill_switch_absent_ns=self.kill_switch.absent_ns,
            kill_switch_present=self.kill_switch.present,
            journal_error=self._journal_error(),
        )
        if self.guard.caps.zone_share is None and self.guard.caps.cluster_share is None:
            return view
        zones: dict[str, tuple[int, int]] = {}
        zone_of: dict[str, str] = {}
        for name, node in cache.nodes.items():
            zone = zone_of[name] = zone_key(node.metadata.labels)
            count, tainted = zones.get(zone, (0, 0))
            ours = any(t.effect == NO_EXECUTE and t.key in _OURS for t in node.spec.taints)
            zones[zone] = (count + 1, tainted + ours)
        return replace(view, zones=zones, zone_of=zone_of)

    def _note_begin(self, names: list[str]) -> None:
        now_ns = self._clock.now_ns()
        self.why_not = ""
        unproven = set(self.orders.controllers) - set(self.orders.assume_stopped)
        if unproven and self._task is not None:
            self._quiet_until_ns = now_ns + self._task.settings.node_monitor_grace_period_ns
        try:
            check_settings(self._warnings())
        except Refused as refused:
            self.guard.open(Breaker("settings", refused.what, now_ns))
        missing = set(self.orders.controllers) - set(names)
        if missing:
            log.error("%s cannot be enforced: what it needs cannot be read", ", ".join(missing))
        line = f"enforcing {','.join(self.orders.controllers)} since {format_micro_time(now_ns)}"
        log.info("%s", line)
        if not self.began_ns:
            self._tell(line)
        self.began_ns = now_ns

    # Beside the writes

    async def _watch_manager(self) -> None:
        """A controller manager that appears, or changes hands, opens the breaker."""
        if set(self.orders.controllers) <= set(self.orders.assume_stopped):
            return
        known: dict[str, Any] | None = None
        while True:
            answer = await manager_lease(self._side)
            if answer.ok or answer.code == 404:
                spec = lease_spec(answer)
                if known is not None and spec != known:
                    because = f"a kube-controller-manager runs ({spec.get('holderIdentity', '')})"
                    self.guard.open(Breaker("manager", because, self._clock.now_ns()))
                known = spec
            await asyncio.sleep(MANAGER_SECONDS)
