"""Reads Leases from the API server right before their nodes are called lost.

It uses a client of its own, which shares no rate limit. A node whose Lease was renewed without the
watch having shown it is not lost, and the watch is opened anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.engine.actions import SetNodeConditions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Get, Result
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.engine.events import NOT_SENT, Event, Put
from kubectl_nodelife.engine.settlement import sign_of_life_since
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.listwatch import list_all
from kubectl_nodelife.live.requests import Resource
from kubectl_nodelife.live.writer import ReadJudge, Writer

READ_SECONDS: Final = 5.0
FEW: Final = 10
"""Up to so many nodes that fall due are asked for one by one."""


class LeaseReread:
    """The last sign of life of nodes, read from the API server right before one is called lost.

    `watch_lies` is called, at most once a monitor period, where the watch has not shown a renewal
    that is there. `leases_count`: Leases are signs of life in this release. `judge`: sees what is
    listed.
    """

    def __init__(
        self,
        cache: Cache,
        client: Client,
        writer: Writer,
        deliver: Callable[[Event], None],
        now_ns: Callable[[], int],
        monotonic_ns: Callable[[], int],
        period_ns: int,
    ) -> None:
        self._cache = cache
        self._client = client
        self._writer = writer
        self._deliver = deliver
        self._now_ns = now_ns
        self._monotonic_ns = monotonic_ns
        self._period_ns = period_ns
        self.watch_lies: Callable[[], None] = lambda: None
        self.leases_count = True
        self.judge: ReadJudge | None = None
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
        answer = await self._writer.call(Get("Lease", key), timeout_s=READ_SECONDS)
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
                known = {lease.key: lease for lease in self._cache.all("Lease")}
                try:
                    resource = Resource(kind_named("Lease"), NAMESPACE_NODE_LEASE)
                    listing = await list_all(self._client, resource)
                except NodelifeError as error:
                    return Result(503, f"the Leases cannot be listed: {error}")
                for listed in listing.objects:
                    if self.judge is not None:
                        self.judge.judge(listed, known.get(listed.key))
                self._listed = {obj.name: obj for obj in listing.objects}
                self._listed_ns = self._monotonic_ns()
        lease = self._listed.get(node)
        return Result(200) if lease is None else self._compared(node, lease)

    def _compared(self, node: str, lease: KubeObject) -> Result:
        assert isinstance(lease, Lease)
        renewed = lease.spec.renew_time
        heartbeat = self._cache.heartbeat(node)
        known = heartbeat.renewal(self._now_ns()) if heartbeat is not None else None
        if renewed is None or (known is not None and known[0] is not None and renewed <= known[0]):
            return Result(200)
        self._deliver(Put("Lease", lease))
        now_ns, unset_ns = self._now_ns(), self._monotonic_ns()
        if unset_ns > self._lied_ns + self._period_ns:
            self._lied_ns = unset_ns
            log.warning("the watch of Leases brings no renewals: it is opened anew")
            self.watch_lies()
        age_s = max(0, now_ns - renewed) // SECOND_NS
        return Result(NOT_SENT, f"its Lease was renewed {age_s}s ago: the watch had not said so")
