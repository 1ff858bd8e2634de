"""Leads a run from the Lease to its end: what `start` and `prove` share.

The first SIGINT asks for a pause and waits for what is in work; a second one, SIGTERM, or SIGHUP of
a terminal that closes, leaves at once. The exit code is 0 where the run has finished; 1 where it is
paused by failures, or ended with nodes that failed or are Held; 130 where it was interrupted, and
what was in work has come to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from functools import partial
from typing import Final

from kubectl_nodelife.acts.session import ActOrder, ActSession, LiveCarrier, Show, act_session
from kubectl_nodelife.acts.upgrade.leader import Leader, LeadOrder
from kubectl_nodelife.acts.upgrade.lease import RunLease, ask, edit_run, open_run, read_lease
from kubectl_nodelife.acts.upgrade.live_cache import LiveCache
from kubectl_nodelife.controllers.upgrade.controller import READS
from kubectl_nodelife.controllers.upgrade.document import UpgradeRequest, Verb
from kubectl_nodelife.controllers.upgrade.leaving import leftovers
from kubectl_nodelife.controllers.upgrade.marks import CONTROLLER, NodeState
from kubectl_nodelife.controllers.upgrade.policy import WorkMode
from kubectl_nodelife.daemon.enforce.recorder import user_and_host
from kubectl_nodelife.daemon.permissions import rights
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.engine.guard import Caps
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client

GRANT: Final = (
    "`kubectl nodelife rbac --upgrade | kubectl apply -f -` makes an account that has them"
)
LEAST_REQUEST_S: Final = 5.0
EVICTIONS_A_MINUTE: Final = 300
CLAIMS_A_MINUTE: Final = 60
GROUPS: Final = ("policy/v1", "coordination.k8s.io/v1", "apps/v1", "storage.k8s.io/v1")
QPS: Final = 20.0
BURST: Final = 40


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
        self._lease = RunLease(
            session,
            namespace,
            order.lease_duration_ns,
            lambda lease: self._cache.queue.put_nowait(Put("Lease", lease)),
        )
        self._carrier = LiveCarrier(session, TokenBucket(QPS, BURST))
        self._leader: Leader | None = None
        self._proof_only = False
        self._pausing: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Lead until the run is over."""
        order = self._order
        await self._lease.acquire(self._show)
        async with self._lease.renewed():
            document = await open_run(
                self._session,
                self._carrier,
                order.nodes,
                order.policy,
                proof_only=order.proof_only,
                resumes=order.resumes,
            )
        lease = await read_lease(self._session, order.policy.lease_namespace)
        if lease is not None:
            self._cache.put(lease)  # with what was asked for just now
        self._proof_only = document.proof_only
        self._show(f"run {document.run}: {document.phase}, epoch {self._lease.epoch}")
        self._leader = leader = Leader(
            order, self._session, self._cache, self._lease, document, self._show, self._warn
        )
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
        if self._leader is None or self._leader.interrupted:
            task.cancel()
            return
        self._leader.interrupted = True
        self._warn("ends once what is in work is over; Ctrl-C once more leaves at once")
        self._pausing = asyncio.get_running_loop().create_task(self._ask_for_end())

    async def _ask_for_end(self) -> None:
        """A run is paused; a proof, which is never resumed, is aborted."""
        because = f"interrupted by {user_and_host()}"
        verb = Verb.ABORT if self._proof_only else Verb.PAUSE
        request = UpgradeRequest(verb=verb, because=because, by=user_and_host())
        namespace = self._order.policy.lease_namespace
        try:
            edit = partial(ask, request)
            await edit_run(self._session, self._carrier, namespace, edit, because)
        except NodelifeError as error:
            self._warn(f"the run could not be asked: {error}")
