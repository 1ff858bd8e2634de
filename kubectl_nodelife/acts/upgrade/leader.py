"""The leader of a run: acquires the Lease, opens the run, follows the cluster, and carries out what
is decided; what `start` and `prove` share.

It is what `controllers/upgrade/controller.py` asks of a leader: an engine with a new controller for
each epoch, each action through enforce mode's gate with its intent on disk, each outcome an event.
A leader may end at any point and another go on: nothing is remembered here that the nodes'
annotations and the run's document do not say, but which commands a leader that slept has begun.

The first SIGINT asks for a pause and waits for what is in work; a second one, SIGTERM, or SIGHUP of
a terminal that closes, leaves at once. The exit code is 0 where the run has finished; 1 where it is
paused by failures, or ended with nodes that failed or are Held; 130 where it was interrupted, and
what was in work has come to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.acts.session import ActOrder, ActSession, LiveCarrier, Show, act_session
from kubectl_nodelife.acts.upgrade.lease import (
    LEASE_DURATION_NS,
    RunLease,
    ask,
    document_or_refused,
    edit_run,
    open_run,
    read_lease,
)
from kubectl_nodelife.acts.upgrade.live_cache import LiveCache
from kubectl_nodelife.acts.upgrade.processes import GateCommand, WorkKey, WorkRunner
from kubectl_nodelife.acts.upgrade.sentences import Waits, about_of, sentences_of
from kubectl_nodelife.controllers.upgrade.controller import READS, LeaderEngine, UpgradeController
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    OVER,
    RunDocument,
    RunPhase,
    UpgradeRequest,
    Verb,
    gone_nodes,
)
from kubectl_nodelife.controllers.upgrade.leaving import leftovers
from kubectl_nodelife.controllers.upgrade.marks import (
    CONTROLLER,
    IN_FLIGHT,
    LEFT_TO_A_PERSON,
    readable_mark,
)
from kubectl_nodelife.controllers.upgrade.memory import HostState, UpgradePorts
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.controllers.upgrade.report import ANNOTATION_REPORT, encode_report, report_of
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.daemon.enforce.recorder import IntentJournal, user_and_host
from kubectl_nodelife.daemon.permissions import rights
from kubectl_nodelife.engine.actions import Action, EvictPod, StartWork, StopWork
from kubectl_nodelife.engine.calls import Result
from kubectl_nodelife.engine.events import NOT_SENT, Outcome, Put
from kubectl_nodelife.engine.guard import HALF_OPEN_NS, Caps, WriteConditions
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.errors import EXIT_FAILED, EXIT_INTERRUPTED, NodelifeError
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.executor import LiveExecutor
from kubectl_nodelife.live.executor_port import ControllerWriter, ExecutorPort, Recorder
from kubectl_nodelife.live.target import Target

PATIENCE_NS: Final = 10 * SECOND_NS
"""An action that a guard holds for longer is decided anew."""

GRANT: Final = (
    "`kubectl nodelife rbac --upgrade | kubectl apply -f -` makes an account that has them"
)
LEAST_REQUEST_S: Final = 5.0
EVICTIONS_A_MINUTE: Final = 300
CLAIMS_A_MINUTE: Final = 60
GROUPS: Final = ("policy/v1", "coordination.k8s.io/v1", "apps/v1", "storage.k8s.io/v1")
REQUEST_QPS: Final = 20.0
REQUEST_BURST: Final = 40
"""Of changes of the run's document."""
QPS: Final = 50.0
BURST: Final = 100
_EVENT_QPS: Final = 5.0
_EVENT_BURST: Final = 25
LOOK_NS: Final = SECOND_NS
REPORT_NS: Final = 3 * SECOND_NS
_LEAST_BETWEEN_S: Final = 0.2
_MOST_BETWEEN_S: Final = 2.0
_REST: Final = 24
"""Between two turns, as a multiple of the CPU time of the last: to decide takes 4 % of a core. A
first pass over a big fleet takes seconds, and is no reason to wait for a minute.
"""


class WorkEnded(NamedTuple):
    """A try of the work on a node ended with that exit code."""

    node: str
    number: int
    code: int


class LeadOrder(msgspec.Struct):
    """The run to lead, and how. `identity`: of cluster and user, for the journal. `nodes`: as they
    were read before. `resumes`: an open run goes on by this policy; `proof_only`: the nodes are
    proven, and nothing else is done.
    """

    policy: UpgradePolicy
    settings: Settings
    ports: UpgradePorts
    nodes: Sequence[Node]
    target: Target
    environ: Mapping[str, str]
    identity: str
    max_writes: int
    insecure: bool = False
    lease_duration_ns: int = LEASE_DURATION_NS
    resumes: bool = False
    proof_only: bool = False


async def lead(order: LeadOrder, show: Show, warn: Show) -> int:
    """Acquire the Lease, open the run, lead it; the exit code. Raises NodelifeError."""
    policy = order.policy
    act = ActOrder(
        CONTROLLER,
        rights(policy),
        (*GROUPS, *(("batch/v1",) if policy.work.mode is WorkMode.JOB else ())),
        order.max_writes,
        insecure=order.insecure,
        caps=Caps(
            *(None, EVICTIONS_A_MINUTE, None, None),
            nodes_gone_share=None,
            claims_a_minute=CLAIMS_A_MINUTE,
        ),
        request_s=request_seconds(order.lease_duration_ns),
        needs_clock=True,
        grant=GRANT,
    )
    opened = act_session(act, order.target, order.environ, order.identity, warn)
    async with opened as session:
        leader = Leader(order, session, show, warn)
        try:
            with leader.signals():
                return await leader.run()
        finally:
            await leader.close()


def request_seconds(lease_duration_ns: int) -> float:
    """So long a request may take: a quarter of the Lease's duration, 15 s of 60 s.

    No write is begun after two thirds of it, so that the last one is over before another may lead.
    Leases of less than 20 s, for labs, do without that: there the nodes' versions and epochs alone
    keep two leaders apart.
    """
    return max(LEAST_REQUEST_S, lease_duration_ns / 4 / SECOND_NS)


class Leader(Recorder):
    """One leader's process, which says what was done, held or refused."""

    def __init__(self, order: LeadOrder, session: ActSession, show: Show, warn: Show) -> None:
        self._order, self._session = order, session
        self._say, self._warn = show, warn
        self._client = Client(Session(order.target, order.environ))
        self._cache = LiveCache(self._client, READS, order.settings)
        self._lease = RunLease(
            session,
            order.policy.lease_namespace,
            order.lease_duration_ns,
            lambda lease: self._cache.queue.put_nowait(Put("Lease", lease)),
        )
        self._carrier = LiveCarrier(session, TokenBucket(REQUEST_QPS, REQUEST_BURST))
        self._run: RunDocument
        self._executor: LiveExecutor
        self._work: WorkRunner | None = None
        gate = order.policy.gate
        self._gate = GateCommand(gate, order.environ) if gate else None
        self._is_open = self._interrupted = False
        self._pausing: asyncio.Task[None] | None = None
        self._ended_because = ""
        self._epoch = -1
        self._blind, self._held = "not all lists are read", ""
        self._beside: HostState | None = None
        self._asked_ns = self._report_due_ns = 0
        self._waits = Waits()
        self._warned_of: set[str] = set()

    async def run(self) -> int:
        """Acquire the Lease, open the run, lead it to its end; the exit code."""
        await self._open()
        code = await self._lead()
        if self._ended_because:
            self._warn(f"ends: {self._ended_because}")
            return code
        for leftover in leftovers(self._cache.cache.nodes.values()):
            if leftover.stays and leftover.state in LEFT_TO_A_PERSON:
                self._say(f"node {leftover.node.name} is left to you: {leftover.because}")
                for line in leftover.by_hand:
                    self._say(f"    {line}")
        return code

    async def _open(self) -> None:
        """Acquire the Lease, and open the run."""
        order, lease = self._order, self._lease
        await lease.acquire(self._say)
        async with lease.renewed():
            self._run = await open_run(
                *(self._session, self._carrier, order.nodes, order.policy),
                proof_only=order.proof_only,
                resumes=order.resumes,
            )
        seen = await read_lease(self._session, order.policy.lease_namespace)
        if seen is not None:
            self._cache.put(seen)  # with what was asked for just now
        self._say(f"run {self._run.run}: {self._run.phase}, epoch {lease.epoch}")
        self._executor = self._make_executor()
        if order.policy.work.runs_command:
            self._work = self._make_runner()
        self._is_open = True

    async def close(self) -> None:
        """Give the Lease up, and close everything."""
        if self._pausing is not None:
            self._pausing.cancel()
        await self._carrier.stop()
        await self._lease.release()
        await self._client.close()

    async def _lead(self) -> int:
        """Lead until the run is over; the exit code."""
        loop = asyncio.get_running_loop()
        running = [self._cache.run(), self._lease.run(), self._events.run()]
        if self._gate is not None:
            running.append(self._gate.run())
        tasks = [loop.create_task(part) for part in running]
        try:
            while self._cache.unread():
                await self._receive()
                _raise_bugs(tasks)
            while True:
                code = await self._turn()
                if code is not None:
                    return code
                _raise_bugs(tasks)
        finally:
            await self._executor.stop()
            self._cache.lists.follow(())
            if self._work is not None:
                self._work.forget_all()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Signals

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Handle signals as the module says. SIGHUP is ignored where it was (nohup)."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGINT, self._interrupt, task)
        leaving = [signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            leaving.append(signal.SIGHUP)
        for number in leaving:
            loop.add_signal_handler(number, task.cancel)
        try:
            yield
        finally:
            for number in (signal.SIGINT, *leaving):
                loop.remove_signal_handler(number)

    def _interrupt(self, task: asyncio.Task[int]) -> None:
        if not self._is_open or self._interrupted:
            task.cancel()
            return
        self._interrupted = True
        self._warn("ends once what is in work is over; Ctrl-C once more leaves at once")
        self._pausing = asyncio.get_running_loop().create_task(self._ask_for_end())

    async def _ask_for_end(self) -> None:
        """A run is paused; a proof, which is never resumed, is aborted."""
        because = f"interrupted by {user_and_host()}"
        verb = Verb.ABORT if self._run.proof_only else Verb.PAUSE
        request = UpgradeRequest(verb=verb, because=because, by=user_and_host())
        namespace = self._order.policy.lease_namespace
        try:
            edit = partial(ask, request)
            await edit_run(self._session, self._carrier, namespace, edit, because)
        except NodelifeError as error:
            self._warn(f"the run could not be asked: {error}")

    # One turn

    async def _turn(self) -> int | None:
        """Decide on what is known, then wait for news. The exit code at the end."""
        lease = self._lease
        if lease.deleted or lease.taken_by:
            by = f"{lease.taken_by} leads the upgrade now" if lease.taken_by else "it was deleted"
            return self._end(f"{lease}: {by}")
        if lease.leads() and lease.epoch != self._epoch:
            self._begin()
        began_s = time.thread_time()
        engine = self._cache.engine
        if engine is not None:
            controller, decided = engine.controller, self._step(engine)
            unanswered = controller.memory.pending.unanswered
            if controller.superseded:
                return self._end(controller.superseded)
            if not unanswered and (why := used_up(self._session)):
                return self._end(why)
            if not decided and not unanswered:
                code = self._over(controller)
                if code is not None:
                    return code
        took_s = time.thread_time() - began_s
        await asyncio.sleep(min(_MOST_BETWEEN_S, max(_LEAST_BETWEEN_S, _REST * took_s)))
        await self._receive()
        return None

    def _begin(self) -> None:
        """Lead in a new epoch, with a controller that has all to read anew."""
        self._executor.drop()
        self._epoch = self._lease.epoch
        self._beside = None
        order, now_ns = self._order, self._cache.clock.now_ns()
        controller = UpgradeController(order.policy, order.ports, self._epoch, now_ns)
        if self._cache.engine is not None:
            controller.take_over(self._cache.engine.controller)
        self._cache.lead(controller)

    def _end(self, because: str) -> int:
        self._ended_because = because
        return 5

    def _over(self, controller: UpgradeController) -> int | None:
        """The exit code where there is nothing left for a leader to do."""
        lease = self._cache.cache.get("Lease", self._order.policy.lease_key)
        run = document_or_refused(lease) if isinstance(lease, Lease) else None
        asked = lease is not None and ANNOTATION_REQUEST in (lease.metadata.annotations or {})
        if run is None or run.run != self._run.run or asked:
            return None
        return exit_code(
            run,
            self._cache.cache.nodes,
            is_cleared=controller.is_over,
            interrupted=self._interrupted,
            tolerated=self._order.policy.max_failures,
            foreign=controller.foreign,
        )

    def _step(self, engine: LeaderEngine) -> bool:
        """True if anything was decided."""
        cache, now_ns = self._cache, self._cache.clock.now_ns()
        unseen, shut = cache.blind(), why_shut(self._session, self._lease)
        self._blind = unseen or shut
        if waits := self._waits.line(unseen, shut):
            self._say(waits)
        gate = self._gate
        host = HostState(
            clock_ahead_ns=self._session.now_ns() - now_ns,
            blind=self._blind,
            unread=tuple(cache.out_of_reach()),
            gate_command=gate.last if gate is not None else None,
            gate_runs=gate.runs if gate is not None else 0,
            pods_listed_ns=dict(cache.lists.listed_ns),
        )
        # A pass where the cluster changed, or what is known beside it; and once a second, since no
        # event shows that a Lease is not renewed.
        beside = msgspec.structs.replace(host, clock_ahead_ns=0)
        if beside != self._beside or now_ns >= self._asked_ns + LOOK_NS:
            self._beside, self._asked_ns = beside, now_ns
            engine.wake_controller(now_ns)
        controller = engine.controller
        decided, last = False, controller.last
        for action in chain.from_iterable(engine.decide(host, now_ns)):
            decided = True
            self._start(action, now_ns)
        if controller.last is not None and controller.last is not last:
            self._report(controller, controller.last)
        return decided

    def _report(self, controller: UpgradeController, last: UpgradePass) -> None:
        """Warn of nodes that are left alone; every few seconds make the report, which goes with the
        next renewal of the Lease.
        """
        for node, because in controller.foreign.items():
            if node not in self._warned_of:
                self._warned_of.add(node)
                self._warn(f"node {node}: {because}")
        self._cache.lists.follow(last.to_list)
        if last.now_ns < self._report_due_ns and not controller.is_over:
            return
        self._report_due_ns = last.now_ns + REPORT_NS
        report = encode_report(report_of(last))
        self._lease.election.annotations = {ANNOTATION_REPORT: report}

    def _start(self, action: Action, now_ns: int) -> None:
        if action.writes:
            self._executor.start(action, now_ns)
            return
        self._show(action)
        if self._work is None or not isinstance(action, StartWork | StopWork):
            return
        key = WorkKey(action.node, action.node_uid, action.try_)
        if isinstance(action, StartWork):
            self._work.start(key, action.env)
        else:
            self._work.stop(key)

    async def _receive(self) -> None:
        for message in await self._cache.receive():
            if isinstance(message, Outcome):
                if message.obj is not None:
                    self._cache.put(message.obj)
                self._cache.take_in([message], self._cache.clock.now_ns())
            elif isinstance(message, Put):
                self._cache.put(message.obj)
            elif isinstance(message, WorkEnded) and self._cache.engine is not None:
                self._cache.engine.controller.work_ended(*message)

    # The work

    def _make_runner(self) -> WorkRunner:
        order, beside = self._order, os.path.dirname(self._session.intents.path)
        folder = f"{beside}/upgrade-{self._run.run}"
        self._say(f"the output of the work on each node goes to {folder}/NODE.log")
        return WorkRunner(order.policy.work.command, folder, order.environ, self._work_ended)

    def _work_ended(self, key: WorkKey, code: int) -> None:
        if code and self._work is not None:
            last_output, log = self._work.last_words(key.node), self._work.log_path(key.node)
            self._say(f"node {key.node}: the work says: {last_output or '(no output)'} ({log})")
        self._cache.queue.put_nowait(WorkEnded(key.node, key.number, code))

    # Writing

    def _make_executor(self) -> LiveExecutor:
        session = self._session
        self._events = EventSender(session.writer, session.now_ns, self._may_send_event)
        self._event_tokens = TokenBucket(_EVENT_QPS, _EVENT_BURST)
        port = ExecutorPort(
            self._cache.cache,
            session.guard,
            self._view,
            IntentJournal(session.intents, session.now_ns, lambda: self._lease.epoch),
            self,
            session.now_ns,
            session.monotonic_ns,
            PATIENCE_NS,
            deliver=self._cache.queue.put_nowait,
            waits=lambda action: not isinstance(action, EvictPod),
        )
        writing = ControllerWriter(session.writer, TokenBucket(QPS, BURST), self._events)
        return LiveExecutor(port, {CONTROLLER: writing})

    def _view(self) -> WriteConditions:
        return msgspec.structs.replace(
            self._session.view(), leads=self._lease.leads(), blind=self._blind
        )

    async def _may_send_event(self) -> bool:
        """True if an Event may be sent now, once there is a token for it."""
        now_ns = self._session.monotonic_ns()
        wait_ns = self._event_tokens.reserve(now_ns) - now_ns
        await asyncio.sleep(max(0.0, wait_ns / SECOND_NS))
        return self._lease.leads() and not self._session.kill_switch.present

    def held(self, action: Action, because: str, until_ns: int) -> None:
        if because != self._held:
            self._held = because
            self._warn(f"held: {because}")

    def sending(self, action: Action) -> None:
        self._held = ""

    def ended(self, action: Action, result: Result, now_ns: int) -> None:
        if result.ok and result.changed:
            self._show(action)
        elif not result.ok and result.code not in (NOT_SENT, 409, 429):
            what = f"{about_of(action)}: {action.word} refused by the API server"
            self._warn(f"{what}, tried again in a minute: {result.message}")

    def _show(self, action: Action) -> None:
        for line in sentences_of(action):
            self._say(line)


def _raise_bugs(tasks: Iterable[asyncio.Task[None]]) -> None:
    """A part that ended with an exception has a bug of ours."""
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


def exit_code(
    run: RunDocument,
    nodes: Mapping[str, Node],
    *,
    is_cleared: bool,
    interrupted: bool,
    tolerated: int,
    foreign: Collection[str] = (),
) -> int | None:
    """The exit code; None while there is something to do.

    `is_cleared`: what goes with the run's end is gone. `tolerated`: failures. `foreign`: nodes that
    the leader leaves alone: a kubelet may write its own mark, which holds up no end.
    """
    if run.phase in OVER:
        if not is_cleared:
            return None
        if run.phase is RunPhase.ABORTED and interrupted:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if run.left or run.failed else 0
    if run.phase is not RunPhase.PAUSED:
        return None
    marks = [readable_mark(node) for name, node in nodes.items() if name not in foreign]
    if any(m is not None and m.run == run.run and m.state in IN_FLIGHT for m in marks):
        return None
    if gone_nodes(run.step.nodes, run.failed, nodes):
        return None
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if len(run.failed) > tolerated else None


def used_up(session: ActSession) -> str:
    """Why this leader writes no more, "" while it may: the run takes more than it can need."""
    total, sent = session.guard.caps.total, session.guard.sent
    if total is None or sent < total:
        return ""
    return (
        f"it has sent {sent} writes, twice what its plan needs: another program undoes what it "
        "does; look at `upgrade status`, then start it again"
    )


def why_shut(session: ActSession, lease: RunLease) -> str:
    """Why nothing could be written now; "" where it could.

    Then nothing is decided either, and no node's clock runs: none fails that could not be proved.
    """
    if not lease.leads():
        return f"{lease} is not held"
    if session.kill_switch.present:
        return "the ConfigMap kube-system/nodelife-stop is there"
    if session.intents.error:
        return f"the journal cannot be written: {session.intents.error}"
    for breaker in session.guard.breakers.values():
        if session.monotonic_ns() < breaker.since_ns + HALF_OPEN_NS:
            return breaker.because
    return ""
