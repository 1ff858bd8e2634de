"""Accepts a bounded number of TCP connections for an aiohttp application, each of which must send a
whole request in time. For what is served on loopback, where any user of this machine may connect.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final
from weakref import WeakSet

from aiohttp import web

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
