"""The leader of a run: keeps the Lease, follows the cluster, and carries out what is decided.

It is what `controllers/upgrade/controller.py` asks of a leader: an engine with a new controller for
each epoch, each action through enforce mode's gate with its intent on disk, each outcome an event.
A leader may end at any point and another go on: nothing is remembered here that the nodes'
annotations and the run's document do not say, but which commands a leader that slept has begun.

What it does is said in a sentence for each record of an action, with the states and reasons of the
nodes' Events: `start` prints them, `start --dry-run` those of a play.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.acts.session import ActSession, Show
from kubectl_nodelife.acts.upgrade.lease import LEASE_DURATION_NS, RunLease, document_or_refused
from kubectl_nodelife.acts.upgrade.live_cache import LiveCache
from kubectl_nodelife.acts.upgrade.processes import GateCommand, WorkKey, WorkRunner
from kubectl_nodelife.controllers.upgrade.controller import LeaderEngine, UpgradeController
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    OVER,
    RunDocument,
    RunPhase,
    gone_nodes,
)
from kubectl_nodelife.controllers.upgrade.marks import CONTROLLER, IN_FLIGHT, readable_mark
from kubectl_nodelife.controllers.upgrade.memory import HostState, UpgradePorts
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.report import ANNOTATION_REPORT, encode_report, report_of
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.daemon.enforce.recorder import IntentJournal
from kubectl_nodelife.engine.actions import Action, Detail, EvictPod, StartWork, StopWork
from kubectl_nodelife.engine.calls import Result
from kubectl_nodelife.engine.events import NOT_SENT, Outcome, Put
from kubectl_nodelife.engine.guard import HALF_OPEN_NS, WriteConditions
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.errors import EXIT_FAILED, EXIT_INTERRUPTED
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.executor import LiveExecutor
from kubectl_nodelife.live.executor_port import ControllerWriter, ExecutorPort, Recorder
from kubectl_nodelife.live.target import Target

PATIENCE_NS: Final = 10 * SECOND_NS
"""An action that a guard holds for longer is decided anew."""

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


class Leader(Recorder):
    """Leads a run, and says what was done, held or refused.

    `ended_because`: why it ended before its run did. `interrupted`: a person has asked for its end.
    """

    def __init__(
        self,
        order: LeadOrder,
        session: ActSession,
        cache: LiveCache,
        lease: RunLease,
        run: RunDocument,
        show: Show,
        warn: Show,
    ) -> None:
        self.ended_because = ""
        self.interrupted = False
        self._order, self._run = order, run
        self._session, self._cache, self._lease = session, cache, lease
        self._say, self._warn = show, warn
        self._epoch = -1
        self._blind, self._held = "not all lists are read", ""
        self._beside: HostState | None = None
        self._asked_ns = self._report_due_ns = 0
        self._waits = Waits()
        self._warned_of: set[str] = set()
        self._executor = self._make_executor()
        self._work = self._make_runner() if order.policy.work.runs_command else None
        gate = order.policy.gate
        self._gate = GateCommand(gate, order.environ) if gate else None

    async def run(self) -> int:
        """Lead until the run is over; the exit code. The Lease must be ours already."""
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
        self.ended_because = because
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
            interrupted=self.interrupted,
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


_NO_LONGER: Final = "no longer: "
_SELF_EVIDENT: Final = ("SetWindow", "WorkDone")


class Waits:
    """Why a leader waits, said once for each reason, and at last that it waits no more."""

    _last_reason = ""

    def line(self, unseen: str, shut: str) -> str:
        """The line that is due, "" for none. `unseen`: why the cluster is not seen, which counts
        as one reason, since it counts down the seconds; `shut`: what stops all writing. "": not so.
        """
        reason = shut or ("unseen" if unseen else "")
        if reason == self._last_reason:
            return ""
        self._last_reason = reason
        return f"waits: {shut or unseen}" if reason else "sees the whole cluster"


def sentences_of(action: Action) -> Iterable[str]:
    """One line a record, such as `node b7: cordoned, now Draining: BECAUSE`."""
    about = about_of(action)
    cordon = getattr(action, "unschedulable", None)
    for record, detail in action.records():
        if record == "SetGate":
            yield _gate(detail, action.because)
            continue
        if record in SENTENCES:
            text = SENTENCES[record](detail)
        else:
            text = " ".join([record, *(f"{key}={value}" for key, value in detail.items())])
        if cordon is not None:
            text = f"{'cordoned' if cordon else 'uncordoned'}, {text}"
        because = f": {action.because}" if action.because and record not in _SELF_EVIDENT else ""
        yield f"{about}: {text}{because}"


def about_of(action: Action) -> str:
    """The object that an action is about: `node b7`, `pod default/web-1`, `the run`."""
    kind, (namespace, name) = action.target
    if kind == "Lease":
        return "the run"
    node = getattr(action, "node", "")
    if node:
        return f"node {node}"
    return f"{kind.lower()} {f'{namespace}/' * bool(namespace)}{name}"


def _gate(detail: Detail, because: str) -> str:
    gate, because = detail["gate"], because.removeprefix(_NO_LONGER)
    return f"gate {gate} {'closes' if detail['holds'] else 'opens, closed till now'}: {because}"


def _entered(detail: Detail) -> str:
    return f"now {detail['to']}" if detail.get("to") else "marks taken off"


def _work_ended(detail: Detail) -> str:
    code = f", exit code {detail['code']}" if "code" in detail else ""
    return f"work ended (try {detail['try']}{code})"


def _stepped(detail: Detail) -> str:
    window = detail["window"]
    if not window:
        return "the steps are over; nodes are taken whenever the limits allow"
    return f"step {detail['step']} begins, with {counted(window, 'node')} at most"


SENTENCES: Final[dict[str, Callable[[Detail], str]]] = {
    **dict.fromkeys(("ClaimNode", "SetUpgradeState", "OpenForProof"), _entered),
    **dict.fromkeys(("ReleaseNode", "RestoreNode", "FailNode", "SetUpgradePhase"), _entered),
    "MarkNode": lambda detail: "marks changed",
    "StartWork": lambda detail: f"work begins (--{detail['mode']})",
    "StopWork": lambda detail: f"work is stopped (try {detail['try']})",
    "WorkDone": _work_ended,
    "EvictPod": lambda detail: "evicted",
    "CreateCanary": lambda detail: "canary pod created",
    "DeleteCanary": lambda detail: "canary pod deleted",
    "CreateJob": lambda detail: "Job created",
    "DeleteJob": lambda detail: "Job deleted",
    "SetWindow": _stepped,
}
