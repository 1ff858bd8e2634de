"""The daemon's answers on a TCP port of loopback, for clients that come through the API server's
port-forward (`--via`). Off unless `--serve-answers` is given.

Anyone who may port-forward to the pod may ask; nothing more is known of them. So there are answers
alone: the server's orders are on no route here, and any request but GET is refused. A web page in a
browser of this machine reaches loopback, too, and therefore the Host is the one that our client
sends, and no header is there that browsers add.

`BoundedListener` accepts a bounded number of connections for an aiohttp application, each of which
must send a whole request in time, because any user of this machine may connect to loopback.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, Final
from weakref import WeakSet

from aiohttp import web

from kubectl_nodelife.daemon.client import PROTOCOL
from kubectl_nodelife.daemon.server import Handler, Server
from kubectl_nodelife.errors import BadInput, Refused

ADDRESS: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9877
MOST_ANSWERS: Final = 4
MOST_QUERY_BYTES: Final = 1 << 20

_HOST: Final = "nodelife"
_FLAG: Final = "--serve-answers"


class AnswerPort:
    """See the module. `port` 0: it is not opened."""

    def __init__(self, server: Server, port: int) -> None:
        self.port = port
        self._server = server
        self._answering = asyncio.Semaphore(MOST_ANSWERS)
        app = web.Application(middlewares=[self._admit], client_max_size=MOST_QUERY_BYTES)
        app.router.add_get("/v1/{question}", self._answer, allow_head=False)
        self.app = app
        self._listener = BoundedListener(app)

    async def start(self) -> None:
        """Listen. Raises BadInput where the port is taken."""
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((ADDRESS, self.port))
        except OSError as error:
            bound.close()
            what = os.strerror(error.errno) if error.errno else str(error)
            raise BadInput(
                f"cannot listen at {ADDRESS}:{self.port}: {what}",
                on=_FLAG,
                remedy=f"give another port: {_FLAG}=PORT",
            ) from None
        bound.setblocking(False)
        await self._listener.start([bound])

    async def close(self) -> None:
        """Listen no more."""
        await self._listener.close()

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Asked for every request, whatever its path."""
        self._listener.note_request(request)
        headers = request.headers
        from_browser = any(name.startswith(("Sec-", "Origin", "Referer")) for name in headers)
        if headers.getall("Host", []) != [_HOST] or from_browser:
            return web.Response(status=403)
        if request.method != "GET":
            order = request.path.rpartition("/")[2]
            refused = Refused(
                f"{order!r:.40} is an order, and orders are not taken through a port-forward",
                remedy="give it where the daemon runs",
            )
            return self._server.refused(refused, status=403)
        if headers.get("X-Nodelife-Protocol", "") != str(PROTOCOL):
            return self._server.other_protocol()
        try:
            return await self._server.handled(request, handler)
        except web.HTTPException as error:
            return web.Response(status=error.status)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._server.answer(request)
        async with self._answering:
            return await self._server.answer(request)


def port_warning(port: int, *, in_pod: bool) -> list[str]:
    """The warning where others than the daemon's own pod can reach the port."""
    if in_pod:
        return []
    return [f"every user of this machine can ask this daemon at {ADDRESS}:{port} ({_FLAG})"]


MOST_CONNECTIONS: Final = 64
REQUEST_SECONDS: Final = 10.0


class _RefusedConnection(asyncio.Protocol):
    """A connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class BoundedListener:
    """See the module. The application calls `note_request` for each request that came whole."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=1.0,
            handler_cancellation=True,  # an answer whose client has gone is not made
        )
        self._asked: WeakSet[asyncio.BaseTransport] = WeakSet()
        self._servers: list[asyncio.Server] = []

    async def start(self, bound: list[socket.socket]) -> None:
        """Listen on bound sockets."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        for sock in bound:
            self._servers.append(await loop.create_server(self._connection, sock=sock))

    def stop_listening(self) -> None:
        """Take no more connections."""
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Listen no more, and finish what is being answered, for a second."""
        self.stop_listening()
        await self._runner.cleanup()

    def note_request(self, request: web.Request) -> None:
        """The connection of this request has sent one."""
        if request.transport is not None:
            self._asked.add(request.transport)

    def _connection(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None or len(server.connections) >= MOST_CONNECTIONS:
            return _RefusedConnection()
        made = server()
        asyncio.get_running_loop().call_later(REQUEST_SECONDS, self._cut_silent, made)
        return made

    def _cut_silent(self, connection: Any) -> None:
        """End a connection that has not sent a whole request in time."""
        transport = connection.transport
        if transport is not None and transport not in self._asked:
            transport.abort()
