"""HTTP server of the live page, on loopback: files, the session, the stream, and the daemon's own
answers. Nothing that writes is reachable here, neither to a cluster nor to a file.

Each request is judged before it is looked at, for paths that do not exist too (`refusal`, a pure
rule). Loopback alone keeps no web site out: a name that is rebound to 127.0.0.1 makes a browser
take the site's scripts for our own, and then it sends no Origin. So `Host` is checked before
anything else, on every path.

The page's modules are files as they are written; its head names all of them, so that a browser asks
for them at once and not one after another.

Who may see the page is said by tokens that work once, and the sessions that they begin
(`Sessions`). A token for a second screen works again and again for ten minutes; what it begins only
looks on. All of it is in memory. A token goes to the browser in the fragment of an address, which
is never sent in a request line, a Referer or a log.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import os
import secrets
import shlex
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from kubectl_nodelife.daemon.listener import REQUEST_SECONDS, BoundedListener, Rate, Rates
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.daemon.server import Answer, Query, Stream
from kubectl_nodelife.daemon.ui.live_feed import Broadcast, Subscriber
from kubectl_nodelife.errors import BadInput, NodelifeError
from kubectl_nodelife.kube.unreadable import where_raised

MOST_ANSWERS: Final = 4
WRITE_SECONDS: Final = 10.0
COMMENT_SECONDS: Final = 15.0
OF_A_SESSION: Final = Rate(20, 60)
SHARED: Final = ("clusters", "drains", "replay", "upgrade")
SHARED_SECONDS: Final = 2.0
_MOST_SHARED: Final = 16

QUESTIONS: Final = (
    *("status", "explain", "changes", "daemonset"),
    *("replay", "drains", "upgrade", "clusters"),
)
NOT_FOR_ONLOOKERS: Final = frozenset({"clusters"})
"""What sessions that only look on are not told: they were let into this cluster's page alone."""

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

SESSION: Final = "X-Nodelife-Session"
MOST_HEADER_BYTES: Final = 8 * 1024
MOST_BODY_BYTES: Final = 4 * 1024
READING: Final = frozenset({"GET", "HEAD"})
POSTED: Final = frozenset({"/session", "/logout", "/api/v1/what-if"})
"""The only paths to which something may be posted."""

_SITES: Final = frozenset({"same-origin", "none"})
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": (
        "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), "
        "microphone=(), midi=(), payment=(), usb=()"
    ),
    "Cache-Control": "no-store",
    "Server": "nodelife",
}
"""Of every response, errors and streams included."""


class ActsQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """The page's question for `what-if`: acts in the words of its command line, nothing else."""

    acts: str

    def words(self) -> list[str]:
        """As a shell splits them. Raises BadInput."""
        try:
            words = shlex.split(self.acts)
        except ValueError:
            raise BadInput("a quotation mark is not closed", on="what-if") from None
        if not words:
            raise BadInput("no act is given", on="what-if", remedy="such as: lose node worker-1")
        return words


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def page_files() -> dict[str, tuple[bytes, str]]:
    """Path -> the page's file and its type."""
    by_path = {}
    for file in files("kubectl_nodelife.daemon.ui").joinpath("page").iterdir():
        kind = TYPES.get(f".{file.name.rpartition('.')[2]}")
        if kind is not None:
            by_path[f"/{file.name}"] = file.read_bytes(), kind
    by_path["/"] = by_path["/index.html"]
    return by_path


def listen(port: int) -> list[socket.socket]:
    """Bound sockets of 127.0.0.1 and, if it is free, of ::1. `port` 0: any. Raises BadInput."""
    bound = _bound(socket.AF_INET, "127.0.0.1", port)
    if isinstance(bound, OSError):
        taken = bound.errno == errno.EADDRINUSE
        what = "is taken" if taken else f"cannot be listened at: {os.strerror(bound.errno or 0)}"
        raise BadInput(f"port {port} {what}", on="--port", remedy="give another, or 0 for any")
    port = bound.getsockname()[1]
    also = _bound(socket.AF_INET6, "::1", port)
    return [bound] if isinstance(also, OSError) else [bound, also]


def _bound(family: int, address: str, port: int) -> socket.socket | OSError:
    try:
        return socket.create_server((address, port), family=family)
    except OSError as error:
        return error


class PageEndpoint:
    """The HTTP server of the live page, on loopback; nothing behind it writes.

    `close` ends all streams.
    """

    def __init__(
        self,
        answers: Mapping[str, Answer],
        streams: Mapping[str, Stream],
        broadcast: Broadcast,
        sessions: Sessions,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`streams`: of `what_if` alone; `is_busy`: True while what is asked here should wait."""
        self.port = 0
        self._answers, self._streams = answers, streams
        self._broadcast = broadcast
        self.sessions = sessions
        self._files = page_files()
        self._answering = asyncio.Semaphore(MOST_ANSWERS)
        self._playing, self._sharing = asyncio.Lock(), asyncio.Lock()
        self._shared: dict[str, tuple[float, Any]] = {}
        self._rates = Rates(dict.fromkeys((True, False), OF_A_SESSION))
        app = web.Application(middlewares=[self._admit], client_max_size=MOST_BODY_BYTES)
        for path in self._files:
            app.router.add_get(path, self._file)
        app.router.add_get("/session", self._require_session)
        app.router.add_post("/session", self._session)
        app.router.add_post("/logout", self._logout)
        app.router.add_get("/api/v1/stream", self._stream, allow_head=False)
        app.router.add_post("/api/v1/what-if", self._what_if)
        for question in QUESTIONS:
            app.router.add_get(f"/api/v1/{question}", self._answer, allow_head=False)
        app.on_response_prepare.append(_with_headers)
        self.app = app
        self._listener = BoundedListener(app, is_busy=is_busy)

    async def start(self, bound: list[socket.socket]) -> None:
        """Listen on bound sockets of one port."""
        self.port = bound[0].getsockname()[1]
        await self._listener.start(bound)

    async def close(self) -> None:
        """Listen no more."""
        self._listener.stop_listening()
        self._broadcast.close()
        await self._listener.close()

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR
        try:
            headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.raw_headers]
            version = (request.version.major, request.version.minor)
            refused = refusal(request.method, request.path, version, headers, self.port)
            if refused is not None:
                status = refused
                return web.Response(status=refused, headers={"Connection": "close"})
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            return web.Response(status=status)
        finally:
            if status >= HTTPStatus.BAD_REQUEST:  # never the query, a session or a token
                log.info("page: %s %.100r: %d", request.method, request.path, status)

    # Files and sessions

    async def _file(self, request: web.Request) -> web.Response:
        body, kind = self._files[request.path]
        return web.Response(body=body, headers={"Content-Type": kind})

    async def _session(self, request: web.Request) -> web.Response:
        try:
            token = msgspec.json.decode(await self._body(request), type=dict[str, str])["token"]
        except (msgspec.MsgspecError, KeyError):
            raise web.HTTPBadRequest from None
        peer = self._listener.peer_of(request)
        if self.sessions.is_closed(peer):
            raise web.HTTPTooManyRequests
        session = self.sessions.begin(token, peer)
        if session is None:
            raise web.HTTPUnauthorized
        return _json({"session": session})

    async def _require_session(self, request: web.Request) -> web.Response:
        self._check(request)
        return _json({"readOnly": self._is_read_only(request)})

    async def _logout(self, request: web.Request) -> web.Response:
        self.sessions.end(_session_of(request))
        return web.Response(status=HTTPStatus.NO_CONTENT)

    def _check(self, request: web.Request) -> None:
        if not self.sessions.holds(_session_of(request)):
            raise web.HTTPUnauthorized

    def _is_read_only(self, request: web.Request) -> bool:
        return self.sessions.is_read_only(_session_of(request))

    # Answers

    async def _answer(self, request: web.Request) -> web.Response:
        await self._take_turn(request)
        question = request.path.rpartition("/")[2]
        if question in NOT_FOR_ONLOOKERS and self._is_read_only(request):
            raise web.HTTPForbidden
        query = {key: request.query.getall(key) for key in request.query}
        query["output"] = ["json"]
        async with self._answering:
            if question not in SHARED:
                return await self._respond(question, query)
            return await self._respond_shared(question, query)

    async def _what_if(self, request: web.Request) -> web.StreamResponse:
        """The effects of acts, played in a child of the daemon: one at a time, and no longer than
        the page waits. A document a line: how far it is, and last the answer.
        """
        await self._take_turn(request)
        if self._is_read_only(request):
            raise web.HTTPForbidden
        try:
            asked = msgspec.json.decode(await self._body(request), type=ActsQuestion)
        except msgspec.MsgspecError:
            raise web.HTTPBadRequest from None
        if self._playing.locked():
            raise web.HTTPTooManyRequests
        try:
            words = asked.words()
        except BadInput as error:
            return _refused(error)
        async with self._playing:
            told = self._streams["what_if"]({"word": words, "output": ["json"]})
            async with aclosing(told):
                return await self._write_lines(request, told)

    async def _write_lines(
        self, request: web.Request, told: AsyncGenerator[dict[str, Any]]
    ) -> web.StreamResponse:
        """What is refused before the first line is a response of its own."""
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        try:
            async for document in told:
                text = document.get("text")
                line = text.encode() if isinstance(text, str) else msgspec.json.encode(document)
                if not response.prepared:
                    await response.prepare(request)
                await response.write(msgspec.json.format(line, indent=-1) + b"\n")
        except NodelifeError as error:
            if not response.prepared:
                return _refused(error)
            await response.write(msgspec.json.encode({"error": error.document()}) + b"\n")
        return response

    async def _take_turn(self, request: web.Request) -> None:
        """Each session has a rate: an address for other screens may be in many hands."""
        self._check(request)
        if not await self._rates.turn(_session_of(request)):
            raise web.HTTPTooManyRequests

    async def _respond_shared(self, question: str, query: Query) -> web.Response:
        """An answer that costs a child or a look into the journal: one at a time, and the same for
        all that ask within two seconds.
        """
        key = json.dumps([question, query], sort_keys=True)
        async with self._sharing:
            at_s, shared = self._shared.get(key, (0.0, None))
            if shared is None or time.monotonic() - at_s > SHARED_SECONDS:
                response = await self._respond(question, query)
                shared = response.status, response.body
                self._shared[key] = time.monotonic(), shared
                while len(self._shared) > _MOST_SHARED:
                    del self._shared[next(iter(self._shared))]
        return _json(*reversed(shared))

    async def _respond(self, question: str, query: Query) -> web.Response:
        try:
            answer = await self._answers[question](query)
        except NodelifeError as error:
            return _refused(error)
        except Exception as error:  # a query that no page of ours sends
            log.warning("page: %s cannot be answered: %s", question, where_raised(error))
            what = {"what": "this question cannot be answered", "on": question}
            return _json({"error": what}, HTTPStatus.BAD_REQUEST)
        text = answer.get("text")
        return _json(text.encode() if isinstance(text, str) else answer)

    async def _body(self, request: web.Request) -> bytes:
        async with asyncio.timeout(REQUEST_SECONDS):
            return await request.read()

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        subscriber = self._broadcast.join(request.headers.get("Last-Event-ID", ""))
        if subscriber is None:
            raise web.HTTPServiceUnavailable
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            await self._write_all(request, response, subscriber)
        except (ConnectionError, TimeoutError):
            pass  # the reader went away, or reads too slowly
        finally:
            self._broadcast.leave(subscriber)
        return response

    async def _write_all(
        self, request: web.Request, response: web.StreamResponse, subscriber: Subscriber
    ) -> None:
        while not subscriber.dropped:
            chunk = await subscriber.take(COMMENT_SECONDS)
            if not self.sessions.holds(_session_of(request)):
                return
            async with asyncio.timeout(WRITE_SECONDS):
                await response.write(chunk or b":\n\n")


def _session_of(request: web.Request) -> str:
    """The session that is named; "" for none. Never a cookie: browsers send those to every port of
    a host (RFC 6265, 8.5), and another user of this machine may listen at one.
    """
    return request.headers.get(SESSION, "")


async def _with_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers[name] = value


def _refused(error: NodelifeError) -> web.Response:
    return _json({"error": error.document()}, HTTPStatus.UNPROCESSABLE_ENTITY)


def _json(answer: bytes | dict[str, Any], status: int = HTTPStatus.OK) -> web.Response:
    body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json"})


def refusal(
    method: str, path: str, version: tuple[int, int], headers: Sequence[tuple[str, str]], port: int
) -> HTTPStatus | None:
    """Why a request is refused; None: it is not. `headers`: as they came, names in any case."""
    if version != (1, 1) or not _is_ours(headers, port):
        return HTTPStatus.FORBIDDEN
    if sum(len(name) + len(value) for name, value in headers) > MOST_HEADER_BYTES:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    if method == "POST" and path in POSTED:
        return _refused_post(headers)
    return None if method in READING else HTTPStatus.METHOD_NOT_ALLOWED


def authorities(port: int) -> frozenset[str]:
    """The allowed values of `Host`."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))


def _is_ours(headers: Sequence[tuple[str, str]], port: int) -> bool:
    """True if the request means this server, and comes from its own page or from no page."""
    allowed = authorities(port)
    hosts = values(headers, "host")
    if len(hosts) != 1 or hosts[0].lower() not in allowed:
        return False
    if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in values(headers, "origin")):
        return False
    return all(site in _SITES for site in values(headers, "sec-fetch-site"))


def _refused_post(headers: Sequence[tuple[str, str]]) -> HTTPStatus | None:
    """A form cannot send these headers, and a script of another origin may not."""
    if values(headers, "x-nodelife") != ["1"]:
        return HTTPStatus.FORBIDDEN
    if values(headers, "content-type") != ["application/json"]:
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    lengths = values(headers, "content-length")
    if len(lengths) != 1 or not lengths[0].isdecimal():
        return HTTPStatus.LENGTH_REQUIRED
    if int(lengths[0]) > MOST_BODY_BYTES:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return None


def values(headers: Sequence[tuple[str, str]], name: str) -> list[str]:
    """All values of a header."""
    return [value for key, value in headers if key.lower() == name]


TOKEN_SECONDS: Final = 120.0
READ_ONLY_TOKEN_SECONDS: Final = 600.0
SESSION_SECONDS: Final = 12 * 3600.0
MOST_SESSIONS: Final = 16
"""So many of each kind: those that only look on end none of the owner's."""
MOST_TOKENS: Final = 16
MOST_WRONG: Final = 10
CLOSED_SECONDS: Final = 60.0
_MOST_PEERS: Final = 256


class _Pass(NamedTuple):
    """A token or a session: until when it is good, and whether it only looks on."""

    until_s: float
    read_only: bool


class Sessions:
    """`now_s`: a clock that never goes back, in seconds."""

    def __init__(self, now_s: Callable[[], float], lasts_s: float = SESSION_SECONDS) -> None:
        self._now_s = now_s
        self._lasts_s = min(lasts_s, SESSION_SECONDS)
        self._tokens: dict[str, _Pass] = {}
        self._sessions: dict[str, _Pass] = {}
        self._wrong: dict[str, int] = {}
        self._closed_until_s: dict[str, float] = {}

    def token(self, *, read_only: bool = False) -> str:
        """A new token, good once and for two minutes; `read_only`: often, and for ten. The oldest
        goes where there are many.
        """
        self._forget()
        token = secrets.token_urlsafe(32)
        lasts_s = self.token_seconds(read_only=read_only)
        self._tokens[token] = _Pass(self._now_s() + lasts_s, read_only)
        while len(self._tokens) > MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        return token

    @staticmethod
    def token_seconds(*, read_only: bool) -> float:
        """For so long a token is good."""
        return READ_ONLY_TOKEN_SECONDS if read_only else TOKEN_SECONDS

    def begin(self, token: str, peer: str = "") -> str | None:
        """The session that a token begins; None: it does not. Ten wrong ones of a peer close the
        door for a minute, for its right ones too.
        """
        self._forget()
        if self.is_closed(peer):
            return None
        matching = _find(self._tokens, token)
        if matching is None:
            self._wrong[peer] = self._wrong.pop(peer, 0) + 1
            if self._wrong[peer] >= MOST_WRONG:
                del self._wrong[peer]
                self._closed_until_s[peer] = self._now_s() + CLOSED_SECONDS
            while len(self._wrong) > _MOST_PEERS:
                del self._wrong[next(iter(self._wrong))]
            return None
        read_only = self._tokens[matching].read_only
        if not read_only:
            del self._tokens[matching]
        session = secrets.token_urlsafe(32)
        self._sessions[session] = _Pass(self._now_s() + self._lasts_s, read_only)
        for oldest in self._alike(read_only)[:-MOST_SESSIONS]:
            del self._sessions[oldest]
        return session

    def is_full(self, *, read_only: bool) -> bool:
        """True if the next session of that kind ends the oldest."""
        self._forget()
        return len(self._alike(read_only)) >= MOST_SESSIONS

    def _alike(self, read_only: bool) -> list[str]:
        return [key for key, each in self._sessions.items() if each.read_only == read_only]

    def is_closed(self, peer: str = "") -> bool:
        """True if there were so many wrong tokens of this peer that none of it is taken now."""
        return self._now_s() < self._closed_until_s.get(peer, 0.0)

    def holds(self, session: str) -> bool:
        """True if that is a session that goes on."""
        self._forget()
        return _find(self._sessions, session) is not None

    def is_read_only(self, session: str) -> bool:
        """True if it only looks on, as one that is none does."""
        self._forget()
        matching = _find(self._sessions, session)
        return matching is None or self._sessions[matching].read_only

    def end(self, session: str) -> None:
        """End it, if it is one."""
        self._sessions.pop(_find(self._sessions, session) or "", None)

    def count(self) -> int:
        """How many go on."""
        self._forget()
        return len(self._sessions)

    def _forget(self) -> None:
        now_s = self._now_s()
        for passes in (self._tokens, self._sessions):
            for key in [key for key, good in passes.items() if good.until_s <= now_s]:
                del passes[key]
        for peer in [peer for peer, until_s in self._closed_until_s.items() if until_s <= now_s]:
            del self._closed_until_s[peer]


def _find(secrets_held: Iterable[str], given: str) -> str | None:
    """The key that is the same, compared in constant time."""
    matching = None
    sent = given.encode("utf-8", "replace")
    for key in secrets_held:
        if hmac.compare_digest(key.encode(), sent):
            matching = key
    return matching
