"""Leads a run from the Lease to its end: what `start` and `prove` share.

The first SIGINT asks for a pause and waits for what is in work; a second one, SIGTERM, or SIGHUP of
a terminal that closes, leaves at once: nodes and Lease say where the run stands, and the next
leader goes on there.

The exit code is 0 where the run has finished; 1 where it is paused by failures, or ended with nodes
that failed or are Held; 130 where it was interrupted, and what was in work has come to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Final

import msgspec

from kubectl_nodelife.acts.session import ActOrder, ActSession, LiveCarrier, Show, act_session
from kubectl_nodelife.acts.upgrade.leader import Leader, LeaderParts
from kubectl_nodelife.acts.upgrade.lease import (
    LEASE_DURATION_NS,
    RunLease,
    asking,
    document_or_refused,
    edit_run,
    read_lease,
)
from kubectl_nodelife.acts.upgrade.live_cache import LiveCache, PodLists
from kubectl_nodelife.acts.upgrade.processes import GateCommand, WorkKey, WorkRunner
from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
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
    NodeState,
    readable_mark,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.controllers.upgrade.ports import READS, UpgradePorts
from kubectl_nodelife.daemon.enforce.announcer import user_and_host
from kubectl_nodelife.daemon.paths import journal_path
from kubectl_nodelife.daemon.permissions import rights
from kubectl_nodelife.engine.guard import Caps
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.errors import EXIT_FAILED, EXIT_INTERRUPTED, NodelifeError
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.target import Target

GRANT: Final = (
    "`kubectl nodelife rbac --upgrade | kubectl apply -f -` makes an account that has them"
)
LEAST_REQUEST_S: Final = 5.0
EVICTIONS_A_MINUTE: Final = 300
CLAIMS_A_MINUTE: Final = 60
GROUPS: Final = ("policy/v1", "coordination.k8s.io/v1", "apps/v1", "storage.k8s.io/v1")
QPS: Final = 20.0
BURST: Final = 40

Opening = Callable[[ActSession, LiveCarrier], Awaitable[RunDocument]]
"""Comes to the run that is to be led, once the Lease is ours. Raises NodelifeError."""


class LeadOrder(msgspec.Struct):
    """The run to lead, and how. `identity`: of cluster and user, for the journal.

    `ports`: what the controller receives.
    """

    policy: UpgradePolicy
    settings: Settings
    ports: UpgradePorts
    opening: Opening
    target: Target
    environ: Mapping[str, str]
    identity: str
    max_writes: int
    insecure: bool = False
    lease_duration_ns: int = LEASE_DURATION_NS


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
    async with opened as session, contextlib.AsyncExitStack() as stack:
        run = _Running(order, session, show, warn)
        stack.push_async_callback(run.close)
        with run.signals():
            return await run.run()


def request_seconds(lease_duration_ns: int) -> float:
    """So long a request may take: a quarter of the Lease's duration, 15 s of 60 s.

    No write is begun after two thirds of it, so that the last one is over before another may lead.
    Leases of less than 20 s, for labs, do without that: there the nodes' versions and epochs alone
    keep two leaders apart.
    """
    return max(LEAST_REQUEST_S, lease_duration_ns / 4 / SECOND_NS)


class _Running:
    """One leader's process."""

    def __init__(self, order: LeadOrder, session: ActSession, show: Show, warn: Show) -> None:
        self._order, self._session = order, session
        self._show, self._warn = show, warn
        self._client = Client(Session(order.target, order.environ))
        self._cache = LiveCache(self._client, READS, order.settings)
        namespace = order.policy.lease_namespace
        self._lease = RunLease(session, namespace, order.lease_duration_ns, self._lease_seen)
        self._carrier = LiveCarrier(session, TokenBucket(QPS, BURST))
        self._leader: Leader | None = None
        self._work: WorkRunner | None = None
        self._run = ""
        self._interrupted = self._proof_only = False
        self._pausing: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Lead until the run is over."""
        await self._lease.acquire(self._show)
        document = await self._opened()
        lease = await read_lease(self._session, self._order.policy.lease_namespace)
        if lease is not None:
            self._cache.put(lease)  # with what was asked for just now
        self._run, self._proof_only = document.run, document.proof_only
        self._show(f"run {document.run}: {document.phase}, epoch {self._lease.epoch}")
        self._leader = leader = Leader(self._parts(document))
        code = await leader.run()
        if leader.ended_because:
            self._warn(f"ends: {leader.ended_because}")
        else:
            self._show_left()
        return code

    def _show_left(self) -> None:
        """The nodes that are left to a person, with kubectl's lines for them."""
        for leftover in leftovers(self._cache.cache.nodes.values()):
            if leftover.stays and leftover.state in (NodeState.FAILED, NodeState.HELD):
                self._show(f"node {leftover.node.name} is left to you: {leftover.because}")
                for line in leftover.by_hand:
                    self._show(f"    {line}")

    async def close(self) -> None:
        """Give the Lease up, and close everything."""
        if self._pausing is not None:
            self._pausing.cancel()
        await self._carrier.stop()
        await self._lease.release()
        await self._client.close()

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
        if self._interrupted or self._leader is None:
            task.cancel()
            return
        self._interrupted = True
        self._warn("ends once what is in work is over; Ctrl-C once more leaves at once")
        self._pausing = asyncio.get_running_loop().create_task(self._ask_for_end())

    async def _ask_for_end(self) -> None:
        """A run is paused; a proof, which is never resumed, is aborted."""
        because = f"interrupted by {user_and_host()}"
        verb = Verb.ABORT if self._proof_only else Verb.PAUSE
        request = UpgradeRequest(verb=verb, because=because, by=user_and_host())
        namespace = self._order.policy.lease_namespace
        try:
            await edit_run(self._session, self._carrier, namespace, asking(request), because)
        except NodelifeError as error:
            self._warn(f"the run could not be asked: {error}")

    async def _opened(self) -> RunDocument:
        """Open the run while the Lease is kept."""
        renewing = asyncio.get_running_loop().create_task(self._lease.run())
        try:
            return await self._order.opening(self._session, self._carrier)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    def _parts(self, run: RunDocument) -> LeaderParts:
        order, policy = self._order, self._order.policy

        def make_controller(epoch: int) -> UpgradeController:
            return UpgradeController(policy, order.ports, epoch, self._cache.clock.now_ns())

        lists = PodLists(self._client, self._cache)
        parts = LeaderParts(
            self._session, self._cache, self._lease, lists, make_controller, self._over
        )
        parts.show, parts.warn = self._show, self._warn
        if policy.work.runs_command:
            folder = os.path.join(
                os.path.dirname(journal_path(dict(order.environ), order.identity)),
                f"upgrade-{run.run}",
            )
            work = WorkRunner(policy.work.command, folder, order.environ, self._work_ended)
            parts.work = self._work = work
            self._show(f"the output of the work on each node goes to {folder}/NODE.log")
        if policy.gate:
            parts.gate = GateCommand(policy.gate, order.environ)
        return parts

    def _work_ended(self, key: WorkKey, code: int) -> None:
        work = self._work
        if code and work is not None:
            last_output = work.last_words(key.node) or "(no output)"
            self._show(f"node {key.node}: the work says: {last_output} ({work.log_path(key.node)})")
        if self._leader is not None:
            self._leader.work_ended(key, code)

    def _lease_seen(self, lease: KubeObject) -> None:
        if self._leader is not None:
            self._leader.lease_seen(lease)
        else:
            self._cache.put(lease)

    # The end

    def _over(self, is_cleared: bool, foreign: Collection[str]) -> int | None:
        """The exit code where there is nothing left for a leader to do.

        `is_cleared`: the run has ended, and what goes with its end is gone. `foreign`: nodes
        whose marks are another's.
        """
        lease = self._cache.cache.get("Lease", self._order.policy.lease_key)
        run = document_or_refused(lease) if isinstance(lease, Lease) else None
        if run is None or run.run != self._run or ANNOTATION_REQUEST in _annotations(lease):
            return None
        return exit_code(
            run,
            self._cache.cache.nodes,
            is_cleared=is_cleared,
            interrupted=self._interrupted,
            tolerated=self._order.policy.max_failures,
            foreign=foreign,
        )


def _annotations(obj: KubeObject | None) -> Mapping[str, str]:
    return (obj.metadata.annotations if obj is not None else None) or {}


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

    `is_cleared`: the run has ended, and what goes with its end is gone. `tolerated`: failures.
    `foreign`: nodes that the leader leaves alone; a kubelet may write its own mark, and what it
    says there to be in work holds up no end.
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
