"""HTTP API on a Unix socket: routes, check of the peer's user, streaming. JSON out. With the
document behind `daemon status`, the daemon's own state.

Answers are passed in where the daemon is put together, one for each question, and must not block
the loop. Every answer carries protocol, version and the cluster's server; a client of another
protocol gets code 426, and may still send stop.

The same answers are given on a TCP port of loopback (`AnswerPort`; off unless `--serve-answers` is
given) to clients that come through the API server's port-forward (`--via`). Anyone who may
port-forward to the pod may ask; nothing more is known of them. So there are answers alone: the
server's orders are on no route here, and any request but GET is refused. A web page in a browser of
this machine reaches loopback, too, and therefore the Host is the one that our client sends, and no
header is there that browsers add.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from aiohttp import web

from kubectl_nodelife import __version__
from kubectl_nodelife.daemon import cluster_view
from kubectl_nodelife.daemon.client import MOST_BYTES, PROTOCOL
from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.gate import retry_seconds
from kubectl_nodelife.daemon.gate import warnings as kind_warnings
from kubectl_nodelife.daemon.listener import BoundedListener, listen_at
from kubectl_nodelife.errors import NodelifeError, Refused
from kubectl_nodelife.kube.times import format_micro_time, in_seconds

Query = Mapping[str, list[str]]
Answer = Callable[[Query], Awaitable[dict[str, Any]]]
Stream = Callable[[Query], AsyncGenerator[dict[str, Any]]]

FIRST_LIST_S: Final = 5.0
"""So long a question waits for the first list of the nodes."""

_SO_PEERCRED: Final = getattr(socket, "SO_PEERCRED", None)
_LOCAL_PEERCRED: Final = 1  # macOS: level 0, struct xucred, whose second int is the uid

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(eq=False)
class Server:
    """Serves answers (whole) and streams (line by line) until `stop` is asked for. The last
    argument gives the UID of kube-system, "" where it is not known.
    """

    cluster: cluster_view.WatchedCluster
    _answers: Mapping[str, Answer]
    _streams: Mapping[str, Stream]
    _orders: Mapping[str, Answer]
    _cluster_uid: Callable[[], str] = lambda: ""
    asked: int = 0
    _runner: web.AppRunner | None = None

    async def start(self, bound: socket.socket) -> None:
        """Listen on a bound socket."""
        app = web.Application(middlewares=[self._guard], client_max_size=MOST_BYTES)
        app.router.add_get("/v1/{question}", self.answer)
        app.router.add_post("/v1/{question}", self._obey)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=1.0
        )
        await self._runner.setup()
        await web.SockSite(self._runner, bound).start()

    async def close(self) -> None:
        """Finish what is being answered, for a second, and listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Only the daemon's own user, only this protocol; errors in our own form."""
        transport = request.transport
        peer = transport.get_extra_info("socket") if transport is not None else None
        if peer is None or peer_uid(peer) not in (os.geteuid(), 0):
            return self._error("this daemon belongs to another user", status=403)
        protocol = request.headers.get("X-Nodelife-Protocol", "")
        if protocol != str(PROTOCOL) and request.path != "/v1/stop":
            return self.other_protocol()
        return await self.handled(request, handler)

    def other_protocol(self) -> web.Response:
        """The answer to a client of another protocol: ours."""
        return self._respond({"protocol": PROTOCOL, "version": __version__}, status=426)

    async def handled(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The handler's response, or an error in our own form."""
        self.asked += 1
        try:
            return await handler(request)
        except NodelifeError as error:
            return self.refused(error, status=422)

    def refused(self, error: NodelifeError, status: int) -> web.Response:
        """An error as the client takes it apart again."""
        return self._respond({"error": error.document()}, status=status)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The answer to a question, whole or as it comes. No order is looked for."""
        question = request.match_info["question"]
        query = {key: request.query.getall(key) for key in request.query}
        if request.can_read_body:
            query |= parse_qs(await request.text())
        stream = self._streams.get(question)
        if stream is not None and query.get("watch") == ["true"]:
            return await self._stream(request, self._begun(stream, query))
        answer = self._answers.get(question)
        if answer is None:
            return self._error(f"unknown question {question!r}", status=404)
        return self._respond(await self._once_read(answer, query))

    async def _once_read(self, answer: Answer, query: Query) -> dict[str, Any]:
        """The answer. A question that comes while the nodes are listed for the first time waits for
        them, so that no command fails where one daemon takes over from another.
        """
        end_s = time.monotonic() + FIRST_LIST_S
        while True:
            try:
                return await answer(query)
            except cluster_view.NotReadYet:
                if time.monotonic() >= end_s:
                    raise
            await asyncio.sleep(0.1)

    async def _begun(self, stream: Stream, query: Query) -> AsyncGenerator[dict[str, Any]]:
        """The stream, which begins once the nodes are read."""
        told: AsyncGenerator[dict[str, Any]]

        async def first(query: Query) -> dict[str, Any]:
            nonlocal told
            told = stream(query)
            return await anext(told)

        yield await self._once_read(first, query)
        async with aclosing(told):
            async for document in told:
                yield document

    async def _obey(self, request: web.Request) -> web.StreamResponse:
        order = self._orders.get(request.match_info["question"])
        if order is None:
            return self._error("unknown order", status=404)
        query = {key: request.query.getall(key) for key in request.query}
        return self._respond(await order(query))

    async def _stream(
        self, request: web.Request, answers: AsyncGenerator[dict[str, Any]]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        try:
            async for answer in answers:
                await response.write(self._line(answer))
        except NodelifeError as error:
            await response.write(self._line({"error": error.document()}))
        except (ConnectionError, asyncio.CancelledError):
            pass  # the reader went away, or the daemon ends
        finally:
            await answers.aclose()
        return response

    def _line(self, answer: dict[str, Any]) -> bytes:
        return json.dumps(self._signed(answer), ensure_ascii=False).encode() + b"\n"

    def _respond(self, answer: dict[str, Any], status: int = 200) -> web.Response:
        body = json.dumps(self._signed(answer), ensure_ascii=False).encode()
        return web.Response(body=body, status=status, content_type="application/json")

    def _error(self, what: str, status: int) -> web.Response:
        return self._respond({"error": {"what": what}}, status=status)

    def _signed(self, answer: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "version": __version__,
            "identity": self.cluster.identity,
            "server": self.cluster.server,
            "clusterUid": self._cluster_uid(),
            **answer,
        }


def whole(stream: Stream) -> Answer:
    """The last that a stream says, as an answer."""

    async def answer(query: Query) -> dict[str, Any]:
        async with aclosing(stream(query)) as told:
            return [document async for document in told][-1]

    return answer


def peer_uid(connection: socket.socket) -> int:
    """The uid of a Unix socket's other end; -1 where the system does not say."""
    try:
        if _SO_PEERCRED is not None:
            credentials = connection.getsockopt(
                socket.SOL_SOCKET, _SO_PEERCRED, struct.calcsize("3i")
            )
            return int(struct.unpack("3i", credentials)[1])
        if sys.platform == "darwin":
            credentials = connection.getsockopt(0, _LOCAL_PEERCRED, 76)
            return int(struct.unpack_from("Ii", credentials)[1])
    except (OSError, struct.error):
        pass
    return -1


def health(
    sources: cluster_view.Sources, more: dict[str, Any], warnings: list[str]
) -> dict[str, Any]:
    """The daemon's state as JSON. `more` and `warnings` are what only the process has."""
    decisions, journal, now_ns = sources.decisions, sources.journal, sources.now_ns()
    quarantine = decisions.host.cache.quarantine
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "pid": os.getpid(),
        "context": sources.cluster.context,
        "mode": "dry-run",
        "synced": decisions.synced.is_set(),
        "cold": decisions.is_cold(now_ns),
        "coldUntil": format_micro_time(decisions.cold_until_ns)
        if decisions.cold_until_ns
        else None,
        "coldBecause": decisions.cold_because,
        "standsStill": decisions.stands_still,
        "lastNewsSeconds": _since(decisions.last_news_ns, now_ns),
        "controllers": decisions.running(),
        "kinds": _kinds(decisions),
        "settings": {
            flag: {"value": value, "origin": decisions.settings.origins[flag]}
            for flag, value in decisions.settings.flags.items()
        },
        "profile": decisions.settings.profile.name,
        "journal": {
            "path": journal.store.path,
            "open": journal.ledger.open_count(),
            "waiting": journal.waiting(),
            "error": journal.error,
        },
        "quarantine": quarantine.documents(),
        "warnings": [
            *warnings,
            *(f"{why}: nothing is decided" for why in decisions.gate.other_cluster.values()),
            *kind_warnings(decisions.feed.states),
            *quarantine.lines(),
            *cluster_view.journal_warnings(journal),
        ],
        "residentBytes": resident_bytes(),
        "cpuSeconds": round(usage.ru_utime + usage.ru_stime, 3),
        "longestStallMilliseconds": round(decisions.slices.longest_s * 1000, 1),
        **more,
    }


def _kinds(decisions: DecisionTask) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "phase": state.phase,
            "objects": decisions.host.shown_count(kind),
            "error": state.error,
            "failures": state.failures,
            "nameless": state.nameless,
            "retrySeconds": retry_seconds(state),
        }
        for kind, state in decisions.feed.states.items()
    ]


def _since(then_ns: int, now_ns: int) -> float | None:
    return in_seconds(max(0, now_ns - then_ns)) if then_ns else None


def resident_bytes() -> int:
    """The memory that is resident now; where the system does not say, the most that ever was."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def up_seconds(began: float) -> float:
    """Since `began` (monotonic)."""
    return round(time.monotonic() - began, 1)


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
        await self._listener.start([listen_at(ADDRESS, self.port, _FLAG)])

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
