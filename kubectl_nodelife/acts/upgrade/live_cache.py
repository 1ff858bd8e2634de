"""The cluster as the leader sees it: the cache of its engine, and why it is not seen.

The same gate as the daemon's says when nothing may be decided: while a watch of Node, Lease or Pod
is down, and after a sleep, a gap or a change of the server's clock until all was listed anew. For a
grace period after that silence so far means nothing: that counts as not seen, too.

A watch does not say how far behind it is, and resource versions of nodes and pods need not be of
one count, but a drain is over only on a list newer than its claim. So `PodLists` lists the pods of
a node that is being drained, as `kubectl drain` does after its cordon, and what the cache shows
holds from that moment on, once it has seen each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from kubectl_nodelife.controllers.upgrade.controller import LeaderEngine, UpgradeController
from kubectl_nodelife.controllers.upgrade.marks import CONTROLLER
from kubectl_nodelife.daemon.gate import GatedFeed, Tee, events_of
from kubectl_nodelife.daemon.logs import log_bug, take_in
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import Event, Gone, Put
from kubectl_nodelife.engine.quarantine import Bug
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.settlement import is_newer, is_old
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.clock import DaemonClock, steady_ns
from kubectl_nodelife.live.listwatch import list_all
from kubectl_nodelife.live.news import KindPhase, ListNews, OtherCluster, WatchNews
from kubectl_nodelife.live.requests import DAEMON_PACING, resource_of
from kubectl_nodelife.live.source import ListWatchSource

AGAIN_SECONDS: Final = 0.5
AGAIN_AFTER_ERROR_SECONDS: Final = 5.0


class LiveCache(GatedFeed):
    """The cache of the leader's engine, kept by watches. `engine`: None before `lead`.

    `queue`: the news, and whatever else the leader is to be woken by.
    """

    def __init__(self, client: Client, kinds: Iterable[str], settings: Settings) -> None:
        self._source = ListWatchSource(client, map(resource_of, kinds), DAEMON_PACING)
        self._tee = Tee(self._source)
        feed = self._tee.open()
        self.queue: asyncio.Queue[Any] = feed.queue
        clock = DaemonClock(lambda: client.clock.now_ns(steady_ns()))
        super().__init__(feed, clock, settings)
        self.cache = Cache()
        self.engine: LeaderEngine | None = None
        self.lists = PodLists(client, self)

    def blind(self) -> str:
        """Why nothing may be decided or written at this moment; "" where it may."""
        if not self.gate.may_decide(self.out_of_reach()):
            return self.gate.closed_because
        left_s = self.cold_for_ns() / SECOND_NS
        return f"{self.cold_because}: watching for {left_s:.0f}s more first" if left_s else ""

    def lead(self, controller: UpgradeController) -> None:
        """All was listed: from here on silence is watched. The controller itself is cold then, and
        receives what happens from a new engine.
        """
        self.gate.begin()
        self.engine = LeaderEngine(controller, self.cache, on_bug=_end_at_bug)

    async def run(self) -> None:
        """Follow the cluster until cancelled. What went by before, such as the wait for another
        leader's Lease, was no standstill.
        """
        self.gate.begin()
        async with asyncio.TaskGroup() as group:
            for part in (self._source.run(), self._tee.run(), self.gate.watch_for_standstill()):
                group.create_task(part)

    async def receive(self) -> list[Any]:
        """Wait for news, or until a pass is due, and take them in; what is no news is returned."""
        messages = await self.gather(self.engine.next_due() if self.engine is not None else None)
        self.gate.note_running()
        self._check_clocks()
        return [one for one in messages if not await self._take_in(one)]

    def put(self, obj: KubeObject) -> None:
        """Take in an object as an answer to a write showed it, unless something newer is known.

        What is not known is left to the watch: it may be gone by now. The run's Lease has none.
        """
        kind = type(obj).__name__
        cached = self.cache.get(kind, obj.key)
        version = cached.metadata.resource_version if cached is not None else ""
        if is_newer(obj, version) if cached is not None else kind == "Lease":
            self.take_in([Put(kind, obj)], self.clock.now_ns())

    def take_in(self, events: Iterable[Event], at_ns: int) -> None:
        """Bring events into the cache, and to the controller, which decides later."""
        if self.engine is None:
            take_in(self.cache, events, at_ns)
        else:
            self.engine.take_in(events, at_ns)

    # What `events_of` asks

    def shown(self, kind: str, key: Key) -> KubeObject | None:
        """The object as the cluster shows it."""
        return self.cache.get(kind, key)

    def shown_keys(self, kind: str) -> Iterator[Key]:
        """The keys of all objects of a kind; the run's own Lease is in no list of nodes' Leases."""
        for obj in list(self.cache.all(kind)):
            if kind != "Lease" or obj.key[0] == NAMESPACE_NODE_LEASE:
                yield obj.key

    async def _take_in(self, news: Any) -> bool:
        now_ns = self.clock.now_ns()
        if isinstance(news, WatchNews):
            at_ns = self.clock.at_ns(news.seen_ns) if news.seen_ns else now_ns
            self.take_in((e for e in news.events if not is_old(e, self.cache)), at_ns)
        elif isinstance(news, ListNews):
            self._note_list(news, self.cache)
            self.take_in(await events_of(news, self, self.slices), now_ns)
        elif isinstance(news, KindPhase | OtherCluster):
            self._note_watch(news)
        else:
            return False
        for kind in self.out_of_reach():
            for obj in list(self.cache.all(kind)):
                self.take_in([Gone(kind, obj.key)], now_ns)
        return True


def _end_at_bug(bug: Bug) -> None:
    """An object at which the cache fails is set aside; a decision that fails ends the leader: the
    next one reads all anew, while this one's memory may miss what it has half decided.
    """
    log_bug(bug)
    if bug.controller == CONTROLLER:
        raise bug.error


class PodLists:
    """Lists the pods of nodes. `listed_ns`: as `HostState.pods_listed_ns`."""

    def __init__(self, client: Client, cache: LiveCache) -> None:
        self.listed_ns: dict[str, int] = {}
        self._client = client
        self._cache = cache
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def follow(self, nodes: Collection[str]) -> None:
        """List the pods of these nodes, and of no others any more."""
        for name in self._tasks.keys() - set(nodes):
            self._tasks.pop(name).cancel()
        for name in nodes:
            if name not in self._tasks or self._tasks[name].done():
                self._tasks[name] = asyncio.create_task(self._list(name))

    async def _list(self, node: str) -> None:
        """List until all that is listed is known."""
        pods_of_node = resource_of("Pod")._replace(fields=f"spec.nodeName={node}")
        while True:
            asked_ns = self._cache.clock.now_ns()
            try:
                pods = await list_all(self._client, pods_of_node)
            except NodelifeError:
                await asyncio.sleep(AGAIN_AFTER_ERROR_SECONDS)
                continue
            if not pods.unreadable and all(self._knows(pod) for pod in pods.objects):
                self.listed_ns[node] = asked_ns
                return
            await asyncio.sleep(AGAIN_SECONDS)

    def _knows(self, listed: KubeObject) -> bool:
        pod = self._cache.cache.get("Pod", listed.key)
        return pod is not None and pod.uid == listed.uid
