"""Listens on a TCP port for an aiohttp application, with limits for each peer.

Any user of this machine may connect to loopback, and any host that the network lets through to
another address. So nobody's connections may use up what this process needs itself (descriptors,
time), nor keep others out: connections, their silence and the rate of requests are bounded for each
peer. A peer is a user of this machine where both ends are on loopback, else an address. Which user,
the kernel of Linux says (sock_diag(7), as `ss -e` asks); elsewhere it cannot be known, and each
counts as our own. Where there is no room, the peer with the most connections loses an idle one.

Requests wait while `is_busy`: what the daemon writes to a cluster comes before what it shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import struct
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from aiohttp import web

from kubectl_nodelife.errors import BadInput

OWN: Final = "own"
"""Our own user, or root, who can do everything to this process."""

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ALL_STATES: Final = 0xFFFFFFFF
_NO_COOKIE: Final = 0xFFFFFFFF
_HEADER: Final = struct.Struct("=IHHII")
_ASKED: Final = struct.Struct("=BBBxI")
_END: Final = struct.Struct("=III")
_TOLD: Final = struct.Struct("=4B48xIIIII")
"""inet_diag_msg: family, state, timer, retrans; the id; expires, rqueue, wqueue, uid, inode."""


class LocalPeers:
    """Asks the kernel which user is at the other end of a TCP connection over loopback.

    It holds a socket of its own until `close`.
    """

    def __init__(self) -> None:
        family = getattr(socket, "AF_NETLINK", None)
        self._kernel: socket.socket | None = None
        if family is not None:
            try:
                self._kernel = socket.socket(family, socket.SOCK_RAW, _SOCK_DIAG)
                self._kernel.settimeout(0.2)
                self._check()
            except OSError:
                self.close()

    def close(self) -> None:
        """Ask no more."""
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def peer_of(self, accepted: socket.socket, address: Any) -> str:
        """`own`, `uid 1001` or an address; "" where the other end has gone already."""
        host = str(address[0])
        if not ip_address(host.partition("%")[0]).is_loopback:
            return host
        if self._kernel is None:
            return OWN
        try:
            uid = self._uid(accepted, address)
        except (OSError, struct.error):
            return OWN
        if uid is None:
            return ""
        return OWN if uid in (os.geteuid(), 0) else f"uid {uid}"

    def _check(self) -> None:
        """Ask about a connection of our own. Raises OSError where the kernel does not know it."""
        server = socket.create_server(("127.0.0.1", 0))
        with server, socket.create_connection(server.getsockname()):
            accepted, address = server.accept()
            with accepted:
                if self._uid(accepted, address) != os.geteuid():
                    raise OSError

    def _uid(self, accepted: socket.socket, address: Any) -> int | None:
        """Of the socket whose own address is our connection's other end; None: it has none."""
        assert self._kernel is not None
        here = accepted.getsockname()
        asked = _ASKED.pack(accepted.family, socket.IPPROTO_TCP, 0, _ALL_STATES)
        asked += struct.pack("!HH", address[1], here[1])
        for host in (address[0], here[0]):
            asked += socket.inet_pton(accepted.family, host.partition("%")[0]).ljust(16, b"\0")
        asked += _END.pack(0, _NO_COOKIE, _NO_COOKIE)
        header = _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 0, 0)
        self._kernel.send(header + asked)
        told = self._kernel.recv(4096)
        if _HEADER.unpack_from(told)[1] != _BY_FAMILY:
            return None
        *_, uid, inode = _TOLD.unpack_from(told, _HEADER.size)
        return int(uid) if inode else None  # a socket that nobody has any more is no user's


MOST_CONNECTIONS: Final = 64
"""Of our own user; as many of all other peers together."""
MOST_OF_ANOTHER: Final = 16
REQUEST_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 30.0
"""So long a connection may stay open between two requests."""

_KEPT_BACK: Final = 160
"""Descriptors for the API server, the journals and answers in children."""
_LISTENERS: Final = 3
_MOST_PEERS: Final = 256
_PAUSE_S: Final = 0.1
_REFUSED_PAUSE_S: Final = 0.003
MOST_WAIT_S: Final = 1.0
_BACKLOG: Final = 128

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Rate(NamedTuple):
    """So many a second, and so many at once after a pause."""

    a_second: float
    at_once: float


REQUESTS: Final = {True: Rate(200, 400), False: Rate(20, 40)}
CONNECTIONS: Final = {True: Rate(1_000, 2_000), False: Rate(20, 64)}
"""By whether the peer is our own user."""


class Rates:
    """A token bucket for each of the last peers."""

    def __init__(self, rates: dict[bool, Rate], now_s: Callable[[], float] = time.monotonic):
        self._rates = rates
        self._now_s = now_s
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, peer: str) -> float:
        """Take one; so many seconds later it is this one's turn."""
        rate, now_s = self._rates[peer == OWN], self._now_s()
        at_s, tokens = self._left.pop(peer, (now_s, rate.at_once))
        tokens = min(rate.at_once, tokens + (now_s - at_s) * rate.a_second) - 1
        self._left[peer] = now_s, tokens
        if len(self._left) > _MOST_PEERS:
            self._left.popitem(last=False)
        return max(0.0, -tokens / rate.a_second)

    async def turn(self, peer: str) -> bool:
        """Wait until it is this one's turn; False where that is too far away."""
        wait_s = self.wait_s(peer)
        if wait_s > MOST_WAIT_S:
            self.give_back(peer)
            return False
        if wait_s:
            await asyncio.sleep(wait_s)
        return True

    def give_back(self, peer: str) -> None:
        """What was taken last is not used."""
        at_s, tokens = self._left[peer]
        self._left[peer] = at_s, tokens + 1


class _Held:
    """A connection. `serving`: requests that are being answered; `asked`: there was one."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.asked = False
        self.serving = 0


def room_for_connections() -> int:
    """How many connections of our own user a port may have, and as many of others, so that enough
    descriptors are left.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(4, min(MOST_CONNECTIONS, (soft - _KEPT_BACK) // (2 * _LISTENERS)))


class BoundedListener:
    """A TCP listener of an application, with limits for each peer."""

    def __init__(
        self,
        app: web.Application,
        tls: ssl.SSLContext | None = None,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self.most = room_for_connections()
        self._tls = tls
        self._is_busy = is_busy
        self._peers = LocalPeers()
        self._requests, self._connections = Rates(REQUESTS), Rates(CONNECTIONS)
        self._held: dict[Any, _Held] = {}
        self._beginning: set[Any] = set()
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        app.middlewares.insert(0, self._admit)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=1.0,
            keepalive_timeout=IDLE_SECONDS,
            handler_cancellation=True,  # an answer whose client has gone is not made
        )

    async def start(self, bound: Sequence[socket.socket]) -> None:
        """Listen on bound sockets."""
        await self._runner.setup()
        for each in bound:
            each.setblocking(False)
            each.listen(_BACKLOG)
            self._sockets.append(each)
            self._begin(self._accept(each))

    def stop_listening(self) -> None:
        """Take no more connections."""
        for task in self._tasks:
            task.cancel()
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            each.close()

    async def close(self) -> None:
        """Listen no more, and finish what is being answered, for a second."""
        self.stop_listening()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()
        self._peers.close()

    def peer_of(self, request: web.Request) -> str:
        """Who asks."""
        held = self._held.get(request.protocol)
        return held.peer if held is not None else ""

    # Connections

    def _begin(self, part: Any) -> None:
        task = asyncio.get_running_loop().create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError:  # no descriptor is left: some connection ends sooner or later
                await asyncio.sleep(_PAUSE_S)
                continue
            peer, server = self._peers.peer_of(accepted, address), self._runner.server
            is_let_in = peer and not self._connections.wait_s(peer) and self._make_room(peer)
            if is_let_in and server is not None:
                connection = server()
                self._beginning.add(connection)
                held = self._held[connection] = _Held(peer)
                self._begin(self._serve(accepted, connection, held))
                await asyncio.sleep(0)
                continue
            accepted.close()
            if peer:
                self._connections.give_back(peer)
            await asyncio.sleep(_REFUSED_PAUSE_S)  # whoever is turned away must not keep us busy

    async def _serve(self, accepted: socket.socket, connection: Any, held: _Held) -> None:
        """Begin the conversation, and end it where no whole request comes in time."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._tls)
        except (OSError, TimeoutError):
            accepted.close()
            return
        finally:
            self._beginning.discard(connection)
        loop.call_later(REQUEST_SECONDS, self._cut_silent, connection, held)

    def _cut_silent(self, connection: Any, held: _Held) -> None:
        if not held.asked and connection.transport is not None:
            connection.transport.abort()

    def _make_room(self, peer: str) -> bool:
        """True if one more of this peer may be served, perhaps in place of an idle one."""
        self._forget_ended()
        own = peer == OWN
        group = {c: h for c, h in self._held.items() if (h.peer == OWN) == own}
        of_peer = sum(held.peer == peer for held in group.values())
        if len(group) < self.most and (own or of_peer < min(MOST_OF_ANOTHER, self.most)):
            return True
        counts = Counter(held.peer for held in group.values())
        most = peer if of_peer >= MOST_OF_ANOTHER else counts.most_common(1)[0][0]
        idle = [c for c, h in group.items() if h.peer == most and not h.serving]
        idle.sort(key=lambda connection: group[connection].asked)  # silent ones first, then by age
        for connection in idle:
            if connection.transport is not None:
                connection.transport.abort()
                del self._held[connection]
                return True
        return False

    def _forget_ended(self) -> None:
        server = self._runner.server
        there = set(server.connections) if server is not None else set()
        for connection in self._held.keys() - there - self._beginning:
            del self._held[connection]

    # Requests

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Asked before anything else about a request."""
        held = self._held.get(request.protocol) or _Held("")
        held.asked = True
        held.serving += 1
        try:
            if not await self._requests.turn(held.peer):
                return web.Response(status=429, headers={"Retry-After": "1"})
            await self._give_way()
            return await handler(request)
        finally:
            held.serving -= 1

    async def _give_way(self) -> None:
        """Wait a while for writes to the cluster that are on their way."""
        until_s = time.monotonic() + MOST_WAIT_S
        while self._is_busy() and time.monotonic() < until_s:
            await asyncio.sleep(_PAUSE_S)


def listen_at(host: str, port: int, flag: str) -> socket.socket:
    """A socket that listens there. Raises BadInput with the flag that named the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)
        remedy = f"give another port to {flag}"
        raise BadInput(f"cannot listen at {host}:{port}: {what}", on=flag, remedy=remedy) from None


_MOST_FILES: Final = 4096


def raise_descriptor_limit() -> None:
    """Let this process have more open files than a shell gives it, where it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
