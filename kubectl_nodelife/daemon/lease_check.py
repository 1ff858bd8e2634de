"""Reads the Leases once more, past the watch, before a node is called lost for silence.

A watch may look healthy and bring nothing: bookmarks come, renewals do not. No decision is taken
while a node's grace period is over and no list of Leases has come that was asked for shortly before
its end (`LeaseCheck`). A renewal that only the list shows keeps the node, and the watch is opened
anew. Nodes that fall silent together share one list, so that a mass loss costs one request a
monitor period. Who writes looks once more right before the write (`LeaseReread`), by a client that
shares no rate limit.

Up to v1.36 a kube-controller-manager believes its watch. From v1.37 on it reads the Lease of each
node before it calls it lost, and any write to that keeps the node; here a write that only the list
shows does, too. That renewals are looked for in every release is stricter than upstream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.engine.actions import SetNodeConditions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Get, Result
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.engine.events import NOT_SENT, Event, Put
from kubectl_nodelife.engine.settlement import is_newer, sign_of_life_since
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE
from kubectl_nodelife.live.clock import DaemonClock
from kubectl_nodelife.live.transport import Backoff

LIST_SECONDS: Final = 15.0
READ_SECONDS: Final = 5.0
FEW: Final = 10
"""Up to so many nodes that fall due are asked for one by one right before they are called lost."""

ReadLeases = Callable[[], Awaitable[Sequence[KubeObject]]]
ReadOne = Callable[[Get], Awaitable[Answer]]


class LeasesRead(NamedTuple):
    """A message: the Leases as of a list asked for then, by the daemon's clock; or the error.

    `is_older`: some are of a lower version than the watch had shown before the list was asked for.
    """

    asked_ns: int
    leases: Sequence[Lease] = ()
    error: str = ""
    is_older: bool = False


class LeaseCheck:
    """`waiting`: why nothing is decided, "" for no reason. Without `read` nothing is checked."""

    def __init__(
        self, read: ReadLeases | None, clock: DaemonClock, queue: asyncio.Queue[Any]
    ) -> None:
        self.waiting = ""
        self._read = read
        self._clock = clock
        self._queue = queue
        self._checked_ns = 0  # when the newest list was asked for
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._next_ns = 0
        self._error = ""

    def must_wait(self, lifecycle: NodeLifecycleController | None, cache: Cache) -> bool:
        """True if a node would now be called lost without a check. Asks for the Leases in time."""
        self.waiting = ""
        if self._read is None or lifecycle is None or not lifecycle.memory.leases_count:
            return False
        margin_ns = self._margin_ns(lifecycle)
        now_ns = self._clock.now_ns()
        lost_ns = _first_loss(lifecycle, cache, now_ns + margin_ns)
        if lost_ns is None:
            return False
        if self._checked_ns >= lost_ns - margin_ns:
            return False
        if self._task is None and now_ns >= self._next_ns:
            leases = {lease.key: lease for lease in cache.all("Lease")}
            self._task = asyncio.create_task(self._ask(self._read, leases))
        if now_ns > lost_ns:
            _, name = lifecycle.memory.expiry.first() or (0, "a node")
            why = f" ({self._error})" if self._error else ""
            self.waiting = f"{name} does not report: its Lease is read once more{why}"
        return bool(self.waiting)

    def take(
        self,
        read: LeasesRead,
        lifecycle: NodeLifecycleController | None,
        cache: Cache,
        shown: Mapping[tuple[str, str], KubeObject],
    ) -> tuple[list[Lease], bool]:
        """Writes that the watch has not shown, and whether it should have shown renewals among
        them. `shown`: Leases that it has, and which are not in the cache yet.
        """
        self._task = None
        self._error = read.error
        if read.error:
            self._next_ns = self._clock.now_ns() + round(self._backoff.next_s() * SECOND_NS)
            return [], False
        self._backoff.went_well()
        self._checked_ns = read.asked_ns
        if lifecycle is None:
            return [], False
        before = {
            lease.key: shown.get(lease.key) or cache.get("Lease", lease.key)
            for lease in read.leases
        }
        newer = {x.key: x for x in read.leases if _is_newer(x, before[x.key])}
        until_ns = self._clock.now_ns() + self._margin_ns(lifecycle)
        lies = any(
            (due_ns := _loss(lifecycle, cache, lease.name)) is not None and due_ns <= until_ns
            for lease in newer.values()
        )
        if lifecycle.memory.reads_leases:
            for lease in read.leases:  # somebody has written to it since, whatever he wrote
                old = before[lease.key]
                if old is not None and is_newer(lease, old.metadata.resource_version):
                    newer.setdefault(lease.key, lease)
        return list(newer.values()), lies

    async def _ask(self, read: ReadLeases, held: Mapping[Any, KubeObject]) -> None:
        asked_ns = self._clock.now_ns()
        try:
            async with asyncio.timeout(LIST_SECONDS):
                leases = cast(Sequence[Lease], await read())
            is_older = any(
                (before := held.get(lease.key)) is not None
                and is_newer(before, lease.metadata.resource_version)
                for lease in leases
            )
            await self._queue.put(LeasesRead(asked_ns, leases, is_older=is_older))
        except (NodelifeError, TimeoutError) as error:
            await self._queue.put(LeasesRead(asked_ns, error=str(error) or "no answer in time"))

    @staticmethod
    def _margin_ns(lifecycle: NodeLifecycleController) -> int:
        """A list is new enough if it was asked for so long before a node's time was over."""
        settings = lifecycle.settings
        half_ns = settings.node_monitor_grace_period_ns // 2
        return min(max(settings.node_monitor_period_ns, SECOND_NS), half_ns)


def _first_loss(lifecycle: NodeLifecycleController, cache: Cache, until_ns: int) -> int | None:
    """When the first node is lost unless it renews; None: none by then.

    The memory says when a pass must look at a node again. A renewal that was seen since the last
    look puts that off, or each healthy node would ask for a list once a grace period.
    """
    expiry = lifecycle.memory.expiry
    while (first := expiry.first()) is not None and first[0] <= until_ns:
        at_ns, name = first
        lost_ns = _loss(lifecycle, cache, str(name))
        if lost_ns is None or lost_ns <= at_ns:
            return at_ns
        expiry.set(name, lost_ns)
    return None


def _loss(lifecycle: NodeLifecycleController, cache: Cache, name: str) -> int | None:
    """Before when the node is not lost, by its newest renewal; None: nothing says that it will."""
    memory = lifecycle.memory
    at_ns, health, heartbeat = (
        memory.expiry.get(name),
        memory.health.get(name),
        cache.heartbeat(name),
    )
    renewal = heartbeat.renewal(0) if heartbeat is not None else None
    if at_ns is None or health is None or renewal is None or not health.lease_saved:
        return at_ns
    renew_ns, seen_ns = renewal
    if renew_ns is None or renew_ns <= (health.lease_renew_ns or 0):
        return at_ns
    settings = lifecycle.settings
    if not settings.taint_mode:  # its pods' time may be over first
        return at_ns
    grace_ns = min(settings.node_monitor_grace_period_ns, settings.node_startup_grace_period_ns)
    return max(at_ns, seen_ns + grace_ns)


def _is_newer(lease: Lease, before: KubeObject | None) -> bool:
    """True if it shows a renewal that was not seen."""
    if before is None or lease.metadata.namespace != NAMESPACE_NODE_LEASE:
        return False
    return _renewed_since(lease, cast(Lease, before).spec.renew_time)


def _renewed_since(lease: Lease, known_ns: int | None) -> bool:
    """True if it shows a later renewal than that, or one where none was known."""
    renewed_ns = lease.spec.renew_time
    return renewed_ns is not None and (known_ns is None or renewed_ns > known_ns)


class LeaseReread:
    """The last sign of life of nodes, read from the API server right before one is called lost.

    `watch_lies` is called, at most once a monitor period, where the watch has not shown a renewal
    that is there. `leases_count`: Leases are signs of life in this release. `judge`
    receives what is listed, and what was known of it.
    """

    def __init__(
        self,
        cache: Cache,
        read_one: ReadOne,
        list_all: ReadLeases,
        deliver: Callable[[Event], None],
        now_ns: Callable[[], int],
        monotonic_ns: Callable[[], int],
        period_ns: int,
    ) -> None:
        self._cache = cache
        self._read_one, self._list_all = read_one, list_all
        self._deliver = deliver
        self._now_ns = now_ns
        self._monotonic_ns = monotonic_ns
        self._period_ns = period_ns
        self.watch_lies: Callable[[], None] = lambda: None
        self.leases_count = True
        self.judge: Callable[[KubeObject, KubeObject | None], None] = lambda read, known: None
        self._lied_ns = 0
        self._asked: deque[int] = deque()
        self._listing = asyncio.Lock()
        self._listed: dict[str, KubeObject] = {}
        self._listed_ns = 0

    async def check_loss(self, node: str) -> Result:
        """Ok where the API server has no newer renewal than the cache, or no Lease at all;
        `NOT_SENT` where it has.
        """
        if not self.leases_count:
            return Result(200)
        now_ns = self._monotonic_ns()
        while self._asked and self._asked[0] < now_ns - self._period_ns:
            self._asked.popleft()
        self._asked.append(now_ns)
        if len(self._asked) > FEW:
            return await self._check_loss_by_list(node, now_ns)
        key = (NAMESPACE_NODE_LEASE, node)
        answer = await self._read_one(Get("Lease", key))
        if answer.code == NOT_FOUND:
            return Result(200)
        if not answer.ok or answer.obj is None:
            return Result(answer.code or 503, f"its Lease cannot be read: {answer.message}")
        return self._compared(node, answer.obj)

    def reported_since(self, action: SetNodeConditions, node: Node | None, decided_ns: int) -> str:
        """A sign of life that the watches showed of the kubelet since the decision, in words; ""
        for none.

        Costs no request: between the read of a Lease and the write the watch goes on.
        """
        now_ns = self._now_ns()
        heartbeat = self._cache.heartbeat(action.node) if self.leases_count else None
        renewal = heartbeat.renewal(now_ns) if heartbeat is not None else None
        if renewal is not None and renewal[1] > now_ns:
            renewal = None  # seen before our clock was set back
        return sign_of_life_since(action, node, renewal[1] if renewal else None, decided_ns)

    async def _check_loss_by_list(self, node: str, now_ns: int) -> Result:
        async with self._listing:
            if self._listed_ns < now_ns - self._period_ns:
                held = {lease.key: lease for lease in self._cache.all("Lease")}
                try:
                    leases = await self._list_all()
                except NodelifeError as error:
                    return Result(503, f"the Leases cannot be listed: {error}")
                for listed in leases:
                    self.judge(listed, held.get(listed.key))
                self._listed = {lease.name: lease for lease in leases}
                self._listed_ns = self._monotonic_ns()
        lease = self._listed.get(node)
        return Result(200) if lease is None else self._compared(node, lease)

    def _compared(self, node: str, lease: KubeObject) -> Result:
        assert isinstance(lease, Lease)
        renewed = lease.spec.renew_time
        heartbeat = self._cache.heartbeat(node)
        seen = heartbeat.renewal(self._now_ns()) if heartbeat is not None else None
        if renewed is None or not _renewed_since(lease, seen[0] if seen is not None else None):
            return Result(200)
        self._deliver(Put("Lease", lease))
        now_ns, unset_ns = self._now_ns(), self._monotonic_ns()
        if unset_ns > self._lied_ns + self._period_ns:
            self._lied_ns = unset_ns
            log.warning("the watch of Leases brings no renewals: it is opened anew")
            self.watch_lies()
        age_s = max(0, now_ns - renewed) // SECOND_NS
        return Result(NOT_SENT, f"its Lease was renewed {age_s}s ago: the watch had not said so")
