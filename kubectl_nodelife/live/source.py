"""The events of a real cluster: every kind is listed once and watched from then on.

News go to one queue of limited length, so that a slow reader slows the connections down instead of
filling the memory; it holds as much as comes in some ten seconds. The reader turns a `ListNews`
into events itself: only it knows what was there before.

`KindFollower` follows client-go's reflector (tools/cache/reflector.go): a WatchList where the
server has it, else a consistent list in pages; a watch from there; a new list when the version has
become too old; a pause (`pacing.Backoff`) after whatever failed and whatever ended at once, so that
no sickness of a server makes it more than two requests a second for each kind. A kind that may not
be read is declared and tried again every minute, for what depends on it is then not evaluated.

All pods hold equal parts once (`SharedParts`). Thirty pods of a Deployment carry the same labels,
owner, containers and tolerations, and every pod of a cluster the same few words in its conditions.
Decoded each by itself that is most of a pod's memory. Objects are never changed, so equal parts may
be one object; a part is replaced between an object's decoding and its first use.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from sys import intern
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
from msgspec.structs import force_setattr

from kubectl_nodelife.engine.events import Gone, Put, Unreadable
from kubectl_nodelife.errors import NodelifeError, Unreachable
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.unreadable import NAMELESS, where_raised
from kubectl_nodelife.live import news
from kubectl_nodelife.live.client import ApiError, Client, describe
from kubectl_nodelife.live.clock import steady_ns
from kubectl_nodelife.live.listwatch import MalformedLine, WatchStream, list_all, most_line_bytes
from kubectl_nodelife.live.requests import Resource, WatchPacing, watch_list_url, watch_url
from kubectl_nodelife.live.same_cluster import SameCluster
from kubectl_nodelife.live.transport import Backoff

log = logging.getLogger("nodelife")
_SHORT_WATCH_S = 1.0
T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
_SPEC_PARTS: Final = (
    "affinity",
    "containers",
    "init_containers",
    "node_selector",
    "tolerations",
    "topology_spread_constraints",
    "volumes",
)


class ListWatchSource:
    """Follows the kinds and puts `News` on `queue` until it is cancelled."""

    def __init__(
        self,
        client: Client,
        resources: Iterable[Resource],
        pace: WatchPacing | None = None,
        *,
        watch_list: bool = True,
        queue_length: int = 1_000,
    ) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue(queue_length)  # others put orders in it, too
        self.cluster = same = SameCluster(client, self.queue)
        self._followers = [
            KindFollower(client, resource, self.queue, pace or WatchPacing(), watch_list, same)
            for resource in resources
        ]
        self.states = {f.state.kind: f.state for f in self._followers}

    def relist(self, kinds: Iterable[str]) -> None:
        """List these kinds anew, over fresh connections; the news come as ever."""
        wanted = set(kinds)
        for follower in self._followers:
            if follower.state.kind in wanted:
                follower.relist()

    async def run(self) -> None:
        """Follow all kinds; returns only by being cancelled, or raises a bug of ours."""
        async with asyncio.TaskGroup() as group:
            for follower in self._followers:
                group.create_task(follower.run(), name=f"follow {follower.resource}")


class _ToBeListed(Exception):
    """Raised to give up a wait, since the kind is to be listed anew."""


class KindFollower:
    """List and watch of one kind."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        queue: asyncio.Queue[news.News],
        pace: WatchPacing,
        watch_list: bool,
        same_cluster: SameCluster,
    ) -> None:
        self.resource = resource
        self.state = news.KindState(resource.kind.name)
        self._client = client
        self._queue = queue
        self._pace = pace
        self._watch_list = watch_list
        self._same_cluster = same_cluster
        self._type: Any = resource.kind.type
        self._silence_s = pace.silence_by_kind.get(self.state.kind, pace.silence_s)
        self._gather_s = pace.gather_by_kind.get(self.state.kind, pace.gather_s)
        self._sharing = SharedParts()
        self._version = ""
        self._backoff = Backoff(pace.first_backoff_s, pace.last_backoff_s)
        self._stale = False
        self._relisted = False
        self._waiting: asyncio.Timeout | None = None
        self._nameless_list_at = 0.0
        self._later: asyncio.TimerHandle | None = None

    def relist(self) -> None:
        """List anew, at once: a watch that may hang, an attempt to connect or a list that is still
        being read, and a pause after a failure are given up for it.
        """
        self._stale = True
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def _or_relist(self, awaitable: Awaitable[T], seconds: float | None = None) -> T:
        """Wait for it. Raises _ToBeListed once `relist` is called, TimeoutError after that time."""
        loop = asyncio.get_running_loop()
        until = 0.0 if self._stale else None if seconds is None else loop.time() + seconds
        try:
            async with asyncio.timeout_at(until) as self._waiting:
                return await awaitable
        except TimeoutError:
            if self._stale:
                raise _ToBeListed from None
            raise
        finally:
            self._waiting = None

    async def run(self) -> None:
        """Follow the kind for ever."""
        while True:
            try:
                await self._follow()
            except _ToBeListed:
                await self._enter(news.LISTING)
            except ApiError as error:
                await self._after_api_error(error)
            except (MalformedLine, aiohttp.ClientError, OSError) as error:
                await self._fail(f"the watch broke: {describe(error)}")
            except (Unreachable, NodelifeError) as error:
                await self._fail(str(error))
            except Exception as error:  # it is read anew; its text might quote a secret
                self._version = ""
                await self._fail(f"a bug of ours: {where_raised(error)}")

    async def _follow(self) -> None:
        """List if there is no version to go on from, then watch until the stream ends."""
        if self._stale:
            self._version, self._stale = "", False
        if not self._version and not self._watch_list:
            await self._list()
        started = time.monotonic()
        try:
            await self._watch()
        except TimeoutError:  # a hung watch is opened anew at once
            self._broken(self.state.last_sign_ns)  # what happened since then is unknown
            if not self._version:
                await self._enter(news.LISTING, "the watch said nothing for too long")
        finally:
            self._broken()
            lasted_s = time.monotonic() - started
            if lasted_s > self._pace.healthy_s:
                self._backoff.went_well()
        if lasted_s < _SHORT_WATCH_S:
            await self._fail("the server ends watches at once")

    async def _after_api_error(self, error: ApiError) -> None:
        if error.gone:
            self._version = ""
            await self._fail(f"what was known is too old for the server: {error.what}")
        elif not self._version and self._watch_list and error.code in (400, 422):
            self._watch_list = False  # a server that does not know sendInitialEvents
        elif error.code == 403:
            await self._stop_at(news.REFUSED, error.what)
        elif error.code == 404:
            await self._stop_at(news.ABSENT, "the server does not serve it")
        else:
            await self._fail(str(error), error.retry_after_s)

    async def _stop_at(self, phase: str, error: str) -> None:
        """Not to be had now; what waits for the kind is notified, and it is tried again later."""
        self._version = ""
        self._broken()
        await self._enter(phase, error)
        await self._wait(self._pace.refused_s)

    async def _fail(self, error: str, retry_after_s: float | None = None) -> None:
        self._broken()
        await self._enter(news.FAILING, error)
        await self._wait(self._backoff.next_s(retry_after_s))

    async def _wait(self, seconds: float) -> None:
        state = self.state
        state.failures += 1
        state.retry_at_ns = time.monotonic_ns() + round(seconds * 1e9)
        with contextlib.suppress(_ToBeListed):
            await self._or_relist(asyncio.sleep(seconds))
        state.retry_at_ns = 0

    def _broken(self, since_ns: int = 0) -> None:
        if self.state.broken_since_ns is None:
            self.state.broken_since_ns = since_ns or time.monotonic_ns()
            self._relisted = False

    async def _enter(self, phase: str, error: str = "") -> None:
        state = self.state
        changed = state.phase != phase
        state.phase, state.error = phase, error
        gap_ns = 0
        if phase == news.WATCHING:
            state.failures = 0
        if phase == news.WATCHING and state.broken_since_ns is not None:
            gap_ns = time.monotonic_ns() - state.broken_since_ns
            state.broken_since_ns = None
        if changed or gap_ns:
            await self._queue.put(news.KindPhase(state.kind, phase, gap_ns, self._relisted))

    async def _list(self) -> None:
        """A consistent list in pages."""
        asked_ns = steady_ns()
        reading = list_all(
            self._client,
            self.resource,
            limit=self._pace.page_size,
            on_page=self._share,
            retry=False,
        )
        listing = await self._or_relist(reading)
        listed: list[KubeObject | Unreadable] = [*listing.objects, *listing.unreadable]
        await self._listed(listed, listing.resource_version, asked_ns)

    def _share(self, objects: Iterable[KubeObject | Unreadable]) -> None:
        for obj in objects:
            if not isinstance(obj, Unreadable):
                try:
                    self._sharing.share(obj)
                except Exception as error:  # a bug of ours, which costs memory alone
                    log.debug("%s %s is not shared: %s", type(obj).__name__, obj.key, type(error))

    async def _listed(
        self, listed: Sequence[KubeObject | Unreadable], version: str, asked_ns: int
    ) -> None:
        await self._or_relist(self._same_cluster.confirm(asked_ns))
        self._version = version
        self._relisted = True
        self.state.lists += 1
        self.state.synced = True
        objects = [obj for obj in listed if not isinstance(obj, Unreadable)]
        others = [obj for obj in listed if isinstance(obj, Unreadable)]
        await self._queue.put(news.ListNews(self.state.kind, objects, asked_ns, others, version))
        if nameless := [one for one in others if one.key == NAMELESS]:
            self._list_later(nameless[-1].why)

    async def _watch(self) -> None:
        """One watch, until the server ends it. Raises TimeoutError where it hangs, ApiError, …"""
        initial: list[KubeObject | Unreadable] | None = None
        seconds = int(self._pace.watch_s * (1 + random.random()))
        url = watch_url(self.resource, self._version, seconds)
        if not self._version:
            initial = []
            url = watch_list_url(self.resource, seconds)
        most = most_line_bytes(self._client.session.target.max_response_bytes)
        stream: WatchStream[KubeObject] = WatchStream(self._type, self._version, most)
        patience_s = max(self._pace.first_byte_s, self._silence_s)
        asked_ns = steady_ns()
        async with await self._or_relist(self._client.stream(url, patience_s)) as response:
            self.state.last_sign_ns = time.monotonic_ns()
            if initial is None:
                await self._or_relist(self._same_cluster.confirm(asked_ns))
                await self._enter(news.WATCHING)
            async for chunk in self._chunks(response):
                noted = stream.nameless
                if initial is not None:
                    initial = await self._take_initial(stream, chunk, initial, asked_ns)
                else:
                    await self._take(stream, chunk)
                noted = max(noted, stream.nameless_initially)
                if stream.nameless > noted and initial is None:
                    self._note_nameless(stream, stream.nameless - noted)

    def _list_later(self, because: str) -> None:
        """A list has an object without a name: another one may have not."""
        self.state.nameless += 1
        self.state.nameless_because = because
        self._nameless_list_at = time.monotonic() + self._pace.nameless_s
        if self._later is not None:
            self._later.cancel()
        loop = asyncio.get_running_loop()
        self._later = loop.call_later(self._pace.nameless_s, self.relist)

    def _note_nameless(self, stream: WatchStream[KubeObject], events: int) -> None:
        """Some object has changed, and it is unknown which: a list shows it, not too often."""
        self.state.nameless += events
        self.state.nameless_because = stream.nameless_because
        now = time.monotonic()
        if now >= self._nameless_list_at:
            self._nameless_list_at = now + self._pace.nameless_s
            self.relist()

    async def _take_initial(
        self,
        stream: WatchStream[KubeObject],
        chunk: bytes,
        objects: list[KubeObject | Unreadable],
        asked_ns: int,
    ) -> list[KubeObject | Unreadable] | None:
        """The first part of a WatchList; None when it is complete."""
        later: list[Put | Gone | Unreadable] = []
        for event in stream.feed(chunk):
            self._share([event.object])
            if stream.initial_events_ended:
                later.append(_to_event(self.state.kind, event.type, event.object))
            else:
                objects.append(event.object)
        if not stream.initial_events_ended:
            return objects
        if stream.nameless_initially:
            objects.append(Unreadable(self.state.kind, NAMELESS, stream.nameless_because))
        await self._listed(objects, stream.resource_version, asked_ns)
        await self._enter(news.WATCHING)
        if later:
            await self._queue.put(news.WatchNews(self.state.kind, later, steady_ns()))
        return None

    async def _take(self, stream: WatchStream[KubeObject], chunk: bytes) -> None:
        kind = self.state.kind
        events: list[Put | Gone | Unreadable] = []
        try:
            for event in stream.feed(chunk):
                self._share([event.object])
                events.append(_to_event(kind, event.type, event.object))
        finally:
            self._version = stream.resource_version
            if events:
                await self._queue.put(news.WatchNews(kind, events, steady_ns()))

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The body as it comes. Raises TimeoutError after a silence that means a hung watch."""
        first = True
        while True:
            limit = self._pace.first_byte_s if first and not self._version else self._silence_s
            try:
                chunk = await self._or_relist(response.content.readany(), limit)
            except TimeoutError:
                if first:
                    self._version = ""  # opened anew and still silent: a list must show
                raise
            if not chunk:
                return
            first = False
            self.state.last_sign_ns = time.monotonic_ns()
            yield chunk
            if self.state.phase == news.WATCHING:
                await gather(response, self._gather_s)


def _to_event(kind: str, type_: str, obj: KubeObject | Unreadable) -> Put | Gone | Unreadable:
    if type_ == "DELETED":
        return Gone(kind, obj.key)
    return obj if isinstance(obj, Unreadable) else Put(kind, obj)


async def gather(response: aiohttp.ClientResponse, seconds: float) -> None:
    """Let what comes in the next moment come in one piece.

    A busy watch sends many small pieces, and each would be decrypted, parsed and passed on alone.
    """
    connection = response.connection
    transport = connection.transport if connection is not None else None
    if transport is None or transport.is_closing():
        return
    # TLS goes on reading up to its own limit while the application does not: without a limit
    # each piece would still wake us. Plain sockets have none.
    limit = getattr(transport, "set_read_buffer_limits", lambda high=None: None)
    transport.pause_reading()
    limit(1)
    try:
        await asyncio.sleep(seconds)
    finally:
        # A connection that is being closed waits to read the other side's farewell. Of one
        # that is gone asyncio says so by this error.
        with contextlib.suppress(AttributeError):
            limit()
            transport.resume_reading()


class SharedParts:
    """Parts seen so far. When there are more than `limit` it begins anew, or it would grow for ever
    in a cluster where workloads come and go.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._parts: dict[bytes, Any] = {}

    def share(self, obj: KubeObject) -> None:
        """Replace the object's parts by equal ones that were seen before."""
        meta = obj.metadata
        if meta.namespace:
            force_setattr(meta, "namespace", intern(meta.namespace))
        if meta.labels:
            self._part(meta, "labels", meta.labels)
        if meta.owner_references:
            self._part(meta, "owner_references", meta.owner_references)
        if type(obj) is Pod:
            self._share_pod(obj)
        if len(self._parts) > self._limit:
            self._parts.clear()

    def _share_pod(self, pod: Pod) -> None:
        spec, status = pod.spec, pod.status
        for name in _SPEC_PARTS:
            part = getattr(spec, name)
            if part:
                self._part(spec, name, part)
        force_setattr(spec, "node_name", intern(spec.node_name))
        force_setattr(spec, "restart_policy", intern(spec.restart_policy))
        force_setattr(spec, "scheduler_name", intern(spec.scheduler_name))
        force_setattr(status, "phase", intern(status.phase))
        force_setattr(status, "qos_class", intern(status.qos_class))
        if status.host_ip:
            force_setattr(status, "host_ip", intern(status.host_ip))
        for condition in status.conditions:
            force_setattr(condition, "type", intern(condition.type))
            force_setattr(condition, "status", intern(condition.status))
            if condition.reason:
                force_setattr(condition, "reason", intern(condition.reason))
            if condition.message:
                force_setattr(condition, "message", intern(condition.message))
        for statuses in (status.container_statuses, status.init_container_statuses):
            for container in statuses or ():
                force_setattr(container, "name", intern(container.name))
                force_setattr(container, "image", intern(container.image))

    def _part(self, owner: Any, name: str, part: Any) -> None:
        """One field: by value, which its encoding stands for, since a dict has no hash."""
        key = _encode((name, part))
        known = self._parts.get(key)
        if known is None:
            self._parts[key] = part
        else:
            force_setattr(owner, name, known)
