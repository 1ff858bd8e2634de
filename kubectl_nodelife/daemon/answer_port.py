"""The daemon's answers on a TCP port of loopback, for clients that come through the API server's
port-forward (`--via`). Off unless `--serve-answers` is given.

Anyone who may port-forward to the pod may ask; nothing more is known of them. So there are answers
alone: the server's orders are on no route here, and any request but GET is refused. A web page in a
browser of this machine reaches loopback, too, and therefore the Host is the one that our client
sends, and no header is there that browsers add.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

from aiohttp import web

from kubectl_nodelife.daemon.client import PROTOCOL
from kubectl_nodelife.daemon.listener import BoundedListener
from kubectl_nodelife.daemon.server import Handler, Server
from kubectl_nodelife.errors import BadInput, Refused

ADDRESS: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9877
MOST_ANSWERS: Final = 4
MOST_QUERY_BYTES: Final = 1 << 20

_HOST: Final = "nodelife"
_FLAG: Final = "--serve-answers"


class AnswerPort:
    """Serves the daemon's answers on a TCP port of loopback.

    `port` 0: it is not opened.
    """

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
        await self._listener.start([bound])

    async def close(self) -> None:
        """Listen no more."""
        await self._listener.close()

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Asked for every request, whatever its path."""
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
