"""HTTP endpoint of the metrics: /metrics, /healthz and /readyz, GET only.

Nothing else of the daemon is reachable here. The text is made in a thread and kept for a second, so
that a second scraper costs nothing. With a token file /metrics wants its content as bearer token;
the file is read anew for each request, since tokens rotate.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from kubectl_nodelife.daemon.metrics.exposition import Exposition, expose
from kubectl_nodelife.daemon.metrics.options import MetricsOptions
from kubectl_nodelife.daemon.metrics.recorder import MetricsRecorder
from kubectl_nodelife.errors import BadInput

KEPT_SECONDS: Final = 1.0
_METHODS: Final = ("GET", "HEAD")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class MetricsEndpoint:
    """See the module."""

    def __init__(self, recorder: MetricsRecorder, options: MetricsOptions) -> None:
        self._recorder = recorder
        self._options = options
        self._runner: web.AppRunner | None = None
        self._kept: dict[str, tuple[float, Exposition]] = {}
        self._making = asyncio.Lock()

    async def start(self) -> None:
        """Listen. Raises BadInput where the address or the certificate is of no use."""
        tls = self._tls()
        host, port = self._options.address()
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=1.0
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=tls).start()
        except OSError as error:
            await self.close()
            raise BadInput(
                f"cannot listen: {os.strerror(error.errno) if error.errno else error}",
                on=self._options.bind_address,
                remedy="give another port to --metrics-bind-address",
            ) from None

    async def close(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _tls(self) -> ssl.SSLContext | None:
        options = self._options
        if not options.tls_cert_file:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(options.tls_cert_file, options.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            raise BadInput(f"cannot be used: {error}", on=options.tls_cert_file) from None
        return context

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in _METHODS:
            raise web.HTTPMethodNotAllowed(request.method, _METHODS)
        response = await handler(request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    def _may(self, request: web.Request) -> bool:
        path = self._options.token_file
        if not path:
            return True
        try:
            with open(path, "rb") as file:
                token = file.read(64 * 1024).strip()
        except OSError:
            return False
        given = request.headers.get("Authorization", "").encode("utf-8", "replace")
        return bool(token) and hmac.compare_digest(given, b"Bearer " + token)

    async def _metrics(self, request: web.Request) -> web.Response:
        if not self._may(request):
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"})
        made = await self._made(request.headers.get("Accept", ""))
        return web.Response(body=made.body, headers={"Content-Type": made.content_type})

    async def _made(self, accept: str) -> Exposition:
        async with self._making:
            kept = self._kept.get(accept)
            now = time.monotonic()
            if kept is not None and now - kept[0] < KEPT_SECONDS:
                return kept[1]
            plain = self._options.plain_zones
            values = self._recorder.values()
            made = await asyncio.to_thread(expose, values, accept, plain_zones=plain)
            self._kept = {
                word: old for word, old in self._kept.items() if now - old[0] < KEPT_SECONDS
            }
            self._kept[accept] = now, made
            return made

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        missing = self._recorder.not_ready()
        return web.Response(
            text="".join(f"{line}\n" for line in missing) or "ok\n",
            status=503 if missing else 200,
        )
