"""The raw API server of tests, on loopback: a healthy one, whose sicknesses can be switched on.

How to use it:

    async with raw_server(objects) as server:       # healthy: lists, WatchLists, watches, gets
        server.sickness = gone_lists                # each request is shown to it first
        ...
        server.requests                             # what was asked, and when

A *sickness* is a coroutine function of a `Request`. It answers by the request's methods (`reply`,
`status`, `watch`, raw bytes by `send`) and returns True; or it returns False, and the healthy
server answers. `tests/hostile/sicknesses.py` has a collection; or write one in your test:

    async def no_pods(request: Request) -> bool:
        if request.plural != "pods":
            return False
        await request.status(500, "etcd is gone")
        return True

The server speaks HTTP/1.1 by hand, over asyncio streams, because a library would refuse to send
much of what is tested here: wrong lengths, bytes that are no text, gzip that has no end. It counts
everything and writes nothing; any verb but GET is noted in `writes`, and answered with 405 if the
sickness has no answer. Who is not an API server, but an issuer of tokens, a webhook or a proxy,
is a sickness that answers everything. `kubeconfig(folder)` writes a kubeconfig that leads to it.
With `tls=True` it serves https with a certificate of its own, which that kubeconfig trusts. A test
that is no coroutine has it `in_a_thread`.

A cluster that does what it is told is the sandbox, in `tests/loopback.py`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from kubectl_nodelife.kube.kinds import find_kind
from kubectl_nodelife.sandbox.tls import make_certificate

Document = dict[str, Any]
Sickness = Callable[["Request"], Awaitable[bool]]


class Gone(Exception):
    """The client went away, or was sent away."""


class Request:
    """One request, and the ways to answer it. `at` is monotonic seconds; `fields` are its headers
    as they came, but for the case of their names, and `headers` the last of each name."""

    def __init__(self, server: RawServer, head: str, writer: asyncio.StreamWriter) -> None:
        line, *fields = head.split("\r\n")
        self.method, self.target, _ = line.split(" ", 2)
        self.at = time.monotonic()
        self.server = server
        self.fields = [
            (name.strip().lower(), value.strip())
            for name, _, value in (field.partition(":") for field in fields if field)
        ]
        self.headers = dict(self.fields)
        self.body = b""
        split = urlsplit(self.target)
        self.path = split.path
        self.query = dict(parse_qsl(split.query))
        self.namespace, self.plural, self.name = _what_is_asked(self.path)
        self.is_watch = self.query.get("watch") == "true"
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Any bytes."""
        self._writer.write(data)
        try:
            await self._writer.drain()
        except ConnectionError:
            raise Gone from None
        if self._writer.is_closing():
            raise Gone

    async def head(self, code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """The status line and headers; `Date` and the content's type unless they are given."""
        fields = {
            "Date": self.server.date or formatdate(usegmt=True),
            "Content-Type": "application/json",
            **(headers or {}),
        }
        lines = [f"HTTP/1.1 {code} Something", *(f"{k}: {v}" for k, v in fields.items())]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def reply(
        self, body: object, code: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole answer: bytes as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.head(code, {"Content-Length": str(len(data)), **(headers or {})})
        await self.send(data)

    async def status(
        self, code: int, message: str, reason: str = "", *, headers: Mapping[str, str] | None = None
    ) -> None:
        """A `Status`, as the API server fails."""
        document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        document |= {"message": message, "reason": reason}
        await self.reply(document, code, headers)

    async def chunk(self, data: bytes) -> None:
        """One piece of a body whose head said `Transfer-Encoding: chunked`."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def begin_watch(self) -> None:
        """The head of a watch; `event` and `chunk` follow."""
        await self.head(200, {"Transfer-Encoding": "chunked"})

    async def event(self, type_: str, obj: Document) -> None:
        """One event of a watch."""
        await self.chunk(json.dumps({"type": type_, "object": obj}).encode() + b"\n")


class RawServer:
    """See the module. `date`: what `Date` says, "" for the truth; `version`: of the last change;
    `release`: of the server; `refused`: the code of the error by which a plural is refused."""

    def __init__(self, objects: Iterable[Document] = ()) -> None:
        self.url = ""
        self.authority = ""
        self.requests: list[Request] = []
        self.writes: list[str] = []
        self.sickness: Sickness | None = None
        self.date = ""
        self.version = 100
        self.release = "v1.36.0"
        self.refused: dict[str, int] = {}
        self.bookmark_s = 1.0
        self._objects: dict[str, dict[tuple[str, str], Document]] = {}
        self._watchers: dict[str, list[asyncio.Queue[tuple[str, Document]]]] = {}
        for obj in objects:
            self.put(obj)

    def put(self, obj: Document) -> None:
        """Create or change an object: watches tell of it."""
        kind = find_kind(obj["apiVersion"], obj["kind"])
        plural = kind.plural if kind else f"{obj['kind'].lower()}s"
        meta = obj["metadata"]
        key = meta.get("namespace", ""), meta["name"]
        known = self._objects.setdefault(plural, {})
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        type_ = "MODIFIED" if key in known else "ADDED"
        known[key] = obj
        for queue in self._watchers.get(plural, ()):
            queue.put_nowait((type_, json.loads(json.dumps(obj))))

    def objects(self, *plurals: str) -> list[Document]:
        """What is served now: of those plurals, or of all."""
        return [obj for p in plurals or self._objects for obj in self._objects.get(p, {}).values()]

    def asked(self, plural: str = "", since: float = 0.0) -> list[Request]:
        """The requests of that plural ("" for all) from that monotonic instant on."""
        found = [r for r in self.requests if r.at >= since]
        return [r for r in found if r.plural == plural] if plural else found

    def kubeconfig(
        self, folder: Path, user: Document | None = None, namespace: str = "", **cluster: Any
    ) -> str:
        """Write a kubeconfig; the path. `cluster` replaces fields; with None it leaves them out."""
        fields: Document = {"server": self.url}
        if self.authority:
            fields["certificate-authority-data"] = self.authority
        fields |= cluster
        context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": context}],
            "clusters": [{"name": "c", "cluster": {k: v for k, v in fields.items() if v}}],
            "users": [{"name": "u", "user": user or {}}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(document))
        return str(path)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                request = Request(self, head, writer)
                self.requests.append(request)
                request.body = await reader.readexactly(
                    int(request.headers.get("content-length", 0))
                )
                if request.method != "GET":
                    self.writes.append(f"{request.method} {request.target}")
                if self.sickness is None or not await self.sickness(request):
                    await self.answer(request)
        except (Gone, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def answer(self, request: Request) -> None:
        """As a healthy server answers."""
        known = [
            obj
            for (namespace, name), obj in self._objects.get(request.plural, {}).items()
            if request.namespace in ("", namespace) and request.name in ("", name)
        ]
        if request.method != "GET":
            await request.status(405, "this server takes no writes")
        elif request.path == "/version":
            await request.reply({"gitVersion": self.release, "major": "1", "minor": "36"})
        elif code := self.refused.get(request.plural):
            await request.status(code, f"{request.plural} is refused")
        elif request.is_watch and not request.name:
            await self._watch(request)
        elif not request.name:
            await self._list(request, known)
        elif known:
            await request.reply(known[0])
        else:
            await request.status(404, "not found", "NotFound")

    async def _list(self, request: Request, known: list[Document]) -> None:
        """A page, of objects without apiVersion and kind, as the API server has them in lists."""
        start = int(request.query.get("continue", 0))
        end = start + (int(request.query.get("limit", 0)) or len(known))
        metadata: Document = {"resourceVersion": str(self.version)}
        if len(known) > end:
            metadata |= {"continue": str(end), "remainingItemCount": len(known) - end}
        items = [
            {part: value for part, value in obj.items() if part not in ("apiVersion", "kind")}
            for obj in known[start:end]
        ]
        await request.reply({"kind": "List", "metadata": metadata, "items": items})

    async def _watch(self, request: Request) -> None:
        queue: asyncio.Queue[tuple[str, Document]] = asyncio.Queue()
        self._watchers.setdefault(request.plural, []).append(queue)
        ends = time.monotonic() + float(request.query.get("timeoutSeconds", 300))
        try:
            await request.begin_watch()
            if request.query.get("sendInitialEvents") == "true":
                for obj in self.objects(request.plural):
                    await request.event("ADDED", obj)
                await self._bookmark(request, {"k8s.io/initial-events-end": "true"})
            while time.monotonic() < ends:
                try:
                    async with asyncio.timeout(self.bookmark_s):
                        type_, obj = await queue.get()
                except TimeoutError:
                    await self._bookmark(request, {})
                else:
                    await request.event(type_, obj)
            await request.send(b"0\r\n\r\n")
        finally:
            self._watchers[request.plural].remove(queue)

    async def _bookmark(self, request: Request, annotations: Mapping[str, str]) -> None:
        metadata: Document = {"resourceVersion": str(self.version)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        await request.event("BOOKMARK", {"metadata": metadata})


def _what_is_asked(path: str) -> tuple[str, str, str]:
    """Namespace, plural and name: `x`, `pods` and `a` of `/api/v1/namespaces/x/pods/a`."""
    words = path.strip("/").split("/")
    rest = words[2:] if words[0] == "api" else words[3:] if words[0] == "apis" else []
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    return (namespace, rest[0] if rest else "", rest[1] if len(rest) > 1 else "")


@contextlib.contextmanager
def in_a_thread(made: AbstractAsyncContextManager[RawServer]) -> Iterator[RawServer]:
    """A server with an event loop of its own, for a test that is no coroutine."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextlib.asynccontextmanager
async def raw_server(
    objects: Iterable[Document] = (), *, tls: bool = False
) -> AsyncIterator[RawServer]:
    """A running server; its open connections end with the test."""
    server = RawServer(objects)
    context = None
    if tls:
        keys = make_certificate()
        server.authority = base64.b64encode(keys.certificate.encode()).decode()
        context = _context(keys.certificate, keys.key)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await server.serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            tasks.discard(task)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield server
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _context(certificate: str, key: str) -> ssl.SSLContext:
    import tempfile

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder, "crt"), Path(folder, "key")
        for path, text in zip(paths, (certificate, key), strict=True):
            path.write_text(text)
        context.load_cert_chain(*paths)
    return context
