"""A reverse proxy before an API server that mistreats every n-th write, or lets the watches of one
kind stand still, and lets the rest through.

It stands between the daemon or a controller manager and the API server, on loopback, with a
certificate of its own. What it did with which request is kept, so that a test can tell that the
fault really happened.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SPARED = ("leases", "selfsubjectaccessreviews")
"""Whose faults end the election or the preflight, which have tests of their own."""

_HOP_BY_HOP = frozenset({"transfer-encoding", "content-length", "connection", "content-encoding"})
_DELAY_S = 3.0
_LOOK_S = 0.02

Forward = Callable[[], Awaitable[web.StreamResponse]]


@dataclass
class Faults:
    """Which fault befalls each `every`-th write (0: none). `done`: fault, method, path of each."""

    kind: str = ""
    every: int = 0
    spare_leases: bool = True
    done: list[tuple[str, str, str]] = field(default_factory=list)
    _count: int = 0

    def falls_on(self, method: str, path: str) -> bool:
        """True if this request is the one; counts it."""
        if not self.every or method not in _WRITES:
            return False
        if self.spare_leases and any(word in path for word in _SPARED):
            return False
        self._count += 1
        if self._count % self.every:
            return False
        self.done.append((self.kind, method, path))
        return True


class FaultProxy:
    """The proxy, as a context: a thread with a loop of its own. `url` and `ca` are for a client.

    `held`: watches of this resource deliver nothing until it is another or none; then what came
    meanwhile, in its order.
    """

    def __init__(self, upstream: str, upstream_ca: Path | None, folder: Path) -> None:
        self.upstream = upstream
        self.faults = Faults()
        self.held = ""
        self.url = ""
        self.ca = folder / "proxy.crt"
        self._key = folder / "proxy.key"
        self._upstream_ca = upstream_ca
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault proxy", daemon=True)
        self._end: asyncio.Event | None = None

    def __enter__(self) -> FaultProxy:
        make_certificate(self.ca, self._key)
        self._thread.start()
        assert self._ready.wait(20), "the proxy did not begin to listen"
        return self

    def __exit__(self, *_: object) -> None:
        if self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        trust = ssl.create_default_context(
            cafile=str(self._upstream_ca) if self._upstream_ca else None
        )
        if self._upstream_ca is None:
            trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as session:
            app = web.Application(client_max_size=64 << 20)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._handle(request, session)

            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1)
            await runner.setup()
            own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            own.load_cert_chain(self.ca, self._key)
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=own)
            await site.start()
            self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
            self._ready.set()
            await self._end.wait()
            await runner.cleanup()

    async def _handle(
        self, request: web.Request, session: aiohttp.ClientSession
    ) -> web.StreamResponse:
        body = await request.read()

        async def forward() -> web.StreamResponse:
            return await self._forward(request, session, body)

        if self.faults.falls_on(request.method, request.path):
            return await self._mistreat(request, forward)
        return await forward()

    async def _mistreat(self, request: web.Request, forward: Forward) -> web.StreamResponse:
        kind = self.faults.kind
        if kind == "drop":
            return _cut(request)
        if kind == "lose-answer":
            await forward()
            return _cut(request)
        if kind == "delay":
            await asyncio.sleep(_DELAY_S)
            return await forward()
        if kind == "duplicate":
            await forward()
            return await forward()
        if kind == "truncate":
            answer = await forward()
            assert isinstance(answer, web.Response) and isinstance(answer.body, bytes)
            half = web.Response(body=answer.body[: len(answer.body) // 2], status=answer.status)
            half.content_type = "application/json"
            return half
        return _status(int(kind))

    async def _forward(
        self, request: web.Request, session: aiohttp.ClientSession, body: bytes
    ) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        headers.pop("Host", None)
        url = self.upstream + request.raw_path
        async with session.request(
            request.method,
            url,
            data=body or None,
            headers=headers,
            skip_auto_headers=("Content-Type", "User-Agent", "Accept", "Accept-Encoding"),
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            if encoding := answer.headers.get("Content-Encoding"):
                kept["Content-Encoding"] = encoding
            if "watch=" not in request.query_string:
                content = await answer.read()
                return web.Response(body=content, status=answer.status, headers=kept)
            stream = web.StreamResponse(status=answer.status, headers=kept)
            await stream.prepare(request)
            async for piece in answer.content.iter_any():
                while self.held and request.path.endswith(f"/{self.held}"):
                    await asyncio.sleep(_LOOK_S)
                await stream.write(piece)
            return stream


def _cut(request: web.Request) -> web.StreamResponse:
    """End the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("a fault of the test")


def _status(code: int) -> web.Response:
    reasons = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "Unavailable"}
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "a fault of the test",
        "reason": reasons[code],
        "code": code,
    }
    headers = {"Retry-After": "1"} if code in (429, 503) else {}
    text = json.dumps(status)
    return web.Response(text=text, status=code, headers=headers, content_type="application/json")


def make_certificate(certificate: Path, key: Path) -> None:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM files."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
