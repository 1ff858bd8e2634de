"""A simulated API server on virtual time: a sandbox cluster, a network with faults, an audit log.

The server is the sandbox's own, called in the process. Kubelets, scheduler and owners are the
simulator's. What each request and each of them changes goes into an audit log in the form of the
real one, which the observer judges.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import msgspec
from aiohttp import web

from kubectl_nodelife.engine.events import Heartbeats
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.live.writer import Withheld
from kubectl_nodelife.sandbox.cluster import SandboxCluster
from kubectl_nodelife.sandbox.server import ApiServer
from kubectl_nodelife.sandbox.status import StatusError
from kubectl_nodelife.sim.scenario import Setting
from tests.enforce.audit import AuditLog
from tests.enforce.virtual_time import World

Json = dict[str, Any]
MOST_DELAY_S = 3
"""So much longer a request takes at most, half of it on its way to the server."""


class Sent(NamedTuple):
    """One request."""

    method: str
    url: str
    content: bytes | None
    headers: dict[str, str]


class Fault(NamedTuple):
    """What goes wrong with one request. `code`: answered by somebody on the way, with `body`;
    0: no answer. `late_ns`: so much later its answer comes. `rewrite`: what somebody on the way
    makes of the server's answer.
    """

    reaches: bool = True
    answered: bool = True
    code: int = 0
    retry_after: int = 0
    delay_ns: int = 0
    late_ns: int = 0
    twice: bool = False
    body: bytes = b'{"kind":"Status","reason":"Injected","message":"injected"}'
    rewrite: Callable[[bytes], bytes] | None = None

    @property
    def fails(self) -> bool:
        """True if the sender is told of a failure, or of nothing."""
        return not self.reaches or not self.answered or self.code != 0


class SimulatedServer:
    """The cluster with its audit log."""

    def __init__(self, world: World, setting: Setting) -> None:
        self.world = world
        self.cluster = SandboxCluster(setting, (), now_ns=lambda: world.now_ns)
        self.store = self.cluster.api.served
        self._server = ApiServer(
            self.cluster.api, git_version="v1.36.0", now_ns=lambda: world.now_ns
        )
        self.log = AuditLog(self.store, lambda: world.now_ns)
        self.changed: list[Callable[[], None]] = []
        world.next_due, world.live = self._next_due, self.live
        self.live()

    @property
    def audit(self) -> list[Json]:
        """What was written, and by whom."""
        return self.log.entries

    def _next_due(self) -> int | None:
        one, other = self.cluster.world.agenda.next_at(), self.cluster._renewals.next_due()
        if one is None or other is None:
            return one if other is None else other
        return min(one, other)

    def live(self) -> None:
        """Let the cluster's own parts do what is due."""
        cluster, now_ns = self.cluster, self.world.now_ns
        while True:
            _, events = cluster.world.advance(now_ns)
            cluster._renewals.run(now_ns)
            events = [*events, *cluster.api.pending]
            cluster.api.pending = []
            for event in cluster._react(events):
                del event
            if not any(isinstance(e, Heartbeats) for e in events) and not cluster.api.pending:
                break
        self._note_changes()

    def _note_changes(self) -> None:
        """Audit what the cluster's own parts changed; tell the watchers."""
        if self.log.note_changes():
            self._tell()

    def _tell(self) -> None:
        for tell in self.changed:
            tell()

    def answer(self, sent: Sent) -> tuple[int, bytes, dict[str, str]]:
        """Do what a request asks for."""
        self.live()
        url = urlsplit(sent.url)
        request = _Request(sent, url.path, dict(parse_qsl(url.query)))
        code, body, headers = self._served(request)
        if sent.method != "GET":
            answer, agent = msgspec.json.decode(body), sent.headers["User-Agent"]
            if self.log.note_request(sent.method, url.path, agent, sent.content, code, answer):
                self._tell()
            self.live()
        return code, body, headers

    def _served(self, request: _Request) -> tuple[int, bytes, dict[str, str]]:
        try:
            try:
                self._server._answer(request).send(None)  # type: ignore[arg-type]
            except StopIteration as end:
                response: web.Response = end.value
                assert isinstance(response.body, bytes)
                return response.status, response.body, {}
        except StatusError as error:
            retry = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else {}
            return error.code, msgspec.json.encode(error.document()), retry
        raise AssertionError("the sandbox never waits")

    def close(self) -> None:
        """Break the circles in which parts hold one another."""
        self.cluster.world.end()
        self.world.live = lambda: None
        self.world.next_due = lambda: None


class _Request:
    """As much of aiohttp's request as the sandbox's server looks at."""

    def __init__(self, sent: Sent, path: str, query: dict[str, str]) -> None:
        self.method = sent.method
        self.path = path
        self.query = query
        self.headers = sent.headers
        self.content_type = sent.headers.get("Content-Type", "")
        self._content = sent.content or b""

    async def read(self) -> bytes:
        return self._content


class _Response:
    """As much of aiohttp's response as a writer looks at."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.content = SimpleNamespace(readany=self._readany)
        self._parts = [body]

    async def _readany(self) -> bytes:
        return self._parts.pop() if self._parts else b""

    async def __aenter__(self) -> _Response:
        return self

    async def __aexit__(self, *_: object) -> None: ...


class Network:
    """Brings requests to the server and answers back, with faults. One for each process.

    `dead`: the process is no more; nothing of it goes out or comes in.
    """

    def __init__(
        self, server: SimulatedServer, dice: random.Random, fault: Callable[[Sent], Fault]
    ) -> None:
        self.dead = False
        self.on_write: Callable[[Sent], None] = lambda sent: None
        self.on_arrival: Callable[[Sent], None] = lambda sent: None
        self._server = server
        self._dice = dice
        self._fault = fault

    async def send(
        self,
        method: str,
        url: str,
        content: bytes | None,
        headers: Any,
        timeout: aiohttp.ClientTimeout,
        may_send: Callable[[], bool],
    ) -> tuple[_Response, int]:
        """As `WritingSession.send`, with credentials at hand."""
        if not may_send():
            raise Withheld
        sent = Sent(method, url, content, dict(headers))
        world, fault = self._server.world, self._fault(sent)
        if method != "GET":
            self.on_write(sent)
        done = asyncio.get_running_loop().create_future()

        def tell(code: int, body: bytes, more: dict[str, str]) -> None:
            back_ns = self._way_ns(fault) + fault.late_ns
            world.at(world.now_ns + back_ns, lambda: self._back(done, (code, body, more)))

        def arrive() -> None:
            if method != "GET":
                self.on_arrival(sent)
            answer = self._server.answer(sent)
            if fault.twice:
                self._server.answer(sent)  # a proxy that repeats what it thinks was lost
            if fault.code:
                tell(fault.code, fault.body, {})
            elif fault.answered:
                code, body, more = answer
                tell(code, fault.rewrite(body) if fault.rewrite else body, more)

        way_ns = self._way_ns(fault)
        if self.dead:
            await done
        if fault.reaches:
            world.at(world.now_ns + way_ns, arrive)
        elif fault.code:
            retry = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
            tell(fault.code, fault.body, retry)
        if not fault.answered and self._dice.random() < 0.7:
            cut_ns = world.now_ns + way_ns + 20 * MILLISECOND_NS
            world.at(cut_ns, lambda: self._back(done, None))
        async with asyncio.timeout(timeout.total):
            found = await done
        if found is None:
            raise aiohttp.ServerDisconnectedError
        return _Response(*found), 0

    def _way_ns(self, fault: Fault) -> int:
        return self._dice.randint(1, 3) * MILLISECOND_NS + fault.delay_ns // 2

    def _back(self, done: asyncio.Future[Any], answer: Any) -> None:
        if not done.done() and not self.dead:
            done.set_result(answer)

    def renew(self, serial: int) -> bool:
        """There are no credentials."""
        return False

    async def close(self) -> None:
        """Nothing to close."""


def draw_fault(dice: random.Random, sent: Sent, often: float) -> Fault:
    """A fault for that share of the requests."""
    if dice.random() >= often:
        return Fault()
    kind = dice.randrange(8)
    delay_ns = dice.randint(1, MOST_DELAY_S * SECOND_NS)
    if kind == 0:
        return Fault(reaches=False, answered=False)
    if kind == 1:
        return Fault(answered=False)
    if kind == 2:
        return Fault(code=dice.choice((500, 503, 504)))  # done, and told otherwise
    if kind == 3 and sent.method != "GET":
        return Fault(reaches=False, code=409)
    if kind == 4:
        return Fault(reaches=False, code=429, retry_after=dice.choice((0, 1, 2)))
    if kind == 5:
        return Fault(reaches=False, code=dice.choice((500, 503)), retry_after=dice.choice((0, 1)))
    if kind == 6:
        return Fault(twice=sent.method != "GET", delay_ns=delay_ns)
    return Fault(delay_ns=delay_ns)
