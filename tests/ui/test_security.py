"""What the page's server refuses, row by row: raw requests, as an attacker sends them."""

import asyncio
import contextlib
import inspect
import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kubectl_nodelife.daemon.ui
from bench.ui import told_once
from kubectl_nodelife.daemon.ui import endpoint
from kubectl_nodelife.daemon.ui import endpoint as endpoint_module
from kubectl_nodelife.daemon.ui.live_feed import Broadcast
from kubectl_nodelife.errors import BadInput, NotFound
from tests.loopback import play

PAGE = Path(kubectl_nodelife.daemon.ui.__file__).parent / "page"
FILES = sorted(PAGE.iterdir())
STREAM, EXPLAIN = "/api/v1/stream", "/api/v1/explain?kind=Node&name=a"


class Answered(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: str


class Served:
    """The server, and who asks it. `asked`: the questions that reached the daemon's answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.under_way = self.most_under_way = 0
        self.sessions = endpoint.Sessions(asyncio.get_running_loop().time)
        self.broadcast = Broadcast(lambda: {"now": 0})
        names = (*endpoint_module.QUESTIONS, "what_if")
        answers = {name: self._answer(name) for name in names}
        self.queries: list[Any] = []
        streams = {"what_if": told_once(answers["what_if"])}
        self.endpoint = endpoint.PageEndpoint(answers, streams, self.broadcast, self.sessions)

    def _answer(self, name: str) -> Any:
        async def answer(query: Any) -> dict[str, Any]:
            self.asked.append(name)
            self.queries.append(query)
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            await self.goes_on.wait()
            self.under_way -= 1
            if query.get("name") == ["missing"]:
                raise NotFound("nodes", "missing", among=["a"])
            return {"text": '{"kind":"Explanation"}', "warnings": []}

        return answer

    @property
    def port(self) -> int:
        return self.endpoint.port

    async def ask(
        self,
        path: str,
        *headers: str,
        method: str = "GET",
        host: str | None = None,
        version: str = "1.1",
        body: str = "",
        session: str | None = None,
    ) -> Answered:
        """A request as it is typed here; `host` None: the right one; "": none."""
        host = f"127.0.0.1:{self.port}" if host is None else host
        lines = [f"{method} {path} HTTP/{version}", *([f"Host: {host}"] if host else []), *headers]
        if session is not None:
            lines.append(f"X-Nodelife-Session: {session}")
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return await self.raw("\r\n".join([*lines, "", body]))

    async def raw(self, text: str) -> Answered:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(text.encode("latin-1"))
            async with asyncio.timeout(20):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.strip().split("\r\n")
                pairs = (line.partition(": ") for line in lines)
                headers = {name: value for name, _, value in pairs}
                length = int(headers.get("Content-Length", 0))
                body = (await reader.readexactly(length)).decode()
            return Answered(int(first.split()[1]), headers, body)
        finally:
            writer.close()

    async def post(self, path: str, body: str, *headers: str, **more: Any) -> Answered:
        given = headers or ("X-Nodelife: 1", "Content-Type: application/json")
        return await self.ask(path, *given, method="POST", body=body, **more)

    def signed_in(self) -> str:
        session = self.sessions.begin(self.sessions.token())
        assert session is not None
        return session


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[Served]:
    made = Served()
    await made.endpoint.start(endpoint.listen(0))
    try:
        yield made
    finally:
        await made.endpoint.close()


def on_server(test: Any) -> Any:
    """A test that gets a server."""

    def run(**given: Any) -> None:
        async def body() -> None:
            async with served() as one:
                await test(one, **given)

        play(body)

    run.__name__ = test.__name__
    signature = inspect.signature(test)
    kept = list(signature.parameters.values())[1:]
    run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return run


PATHS = ("/", "/main.js", STREAM, EXPLAIN, "/session", "/nowhere")


@on_server
async def test_it_listens_on_loopback_alone(one: Served) -> None:
    found = [each.getsockname() for each in one.endpoint._listener._sockets]
    hosts = {address[0] for address in found}
    assert "127.0.0.1" in hosts and hosts <= {"127.0.0.1", "::1"}
    assert {address[1] for address in found} == {one.port}
    with pytest.raises(BadInput, match="is taken"):
        endpoint.listen(one.port)
    words = " ".join(inspect.signature(endpoint.listen).parameters)
    assert words == "port"  # no way to name another address


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host",
    ["", "evil.example:{port}", "127.0.0.1", "localhost", "127.0.0.1:1", "127.0.0.1:{port}.evil",
     "127.0.0.2:{port}", "0.0.0.0:{port}", "[::]:{port}", "localhost.:{port}",
     "user@127.0.0.1:{port}", "2130706433:{port}"],
)  # fmt: skip
@on_server
async def test_a_rebound_name_gets_nothing(one: Served, path: str, host: str) -> None:
    host = host.format(port=one.port)
    answered = await one.ask(path, host=host, session=one.signed_in())
    assert answered.status == 403 if host else answered.status in (400, 403)
    assert not host or answered.body == ""
    assert one.asked == [] and not one.broadcast.subscribers


@on_server
async def test_two_hosts_or_an_older_http_get_nothing(one: Served) -> None:
    host = f"127.0.0.1:{one.port}"
    assert (await one.ask("/", "Host: evil.example")).status in (400, 403)
    assert (await one.ask("/", f"Host: {host}")).status in (400, 403)
    assert (await one.ask("/", version="1.0")).status == 403
    for name in (host, f"LOCALHOST:{one.port}", f"[::1]:{one.port}"):
        assert (await one.ask("/", host=name)).status == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "header",
    ["Origin: http://evil.example", "Origin: null", "Origin: https://127.0.0.1:{port}",
     "Origin: http://localhost:{port}", "Origin: http://127.0.0.1:1",
     "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"],
)  # fmt: skip
@on_server
async def test_other_origins_get_nothing(one: Served, path: str, header: str) -> None:
    answered = await one.ask(path, header.format(port=one.port), session=one.signed_in())
    assert (answered.status, answered.body, one.asked) == (403, "", [])


@on_server
async def test_its_own_page_is_answered_without_cors(one: Served) -> None:
    session, origin = one.signed_in(), f"Origin: http://127.0.0.1:{one.port}"
    answered = await one.ask(EXPLAIN, origin, "Sec-Fetch-Site: same-origin", session=session)
    assert answered.status == 200 and one.asked == ["explain"]
    assert not [name for name in answered.headers if name.lower().startswith("access-control")]
    for path in PATHS:
        asked = ("Access-Control-Request-Method: GET", origin)
        preflight = await one.ask(path, *asked, method="OPTIONS", session=session)
        assert preflight.status == 405
        assert not [n for n in preflight.headers if n.lower().startswith("access-control")]


@on_server
async def test_a_token_gives_a_session_once_and_no_cookie(one: Served) -> None:
    """A cookie would go to every port of this host, at which another user may listen."""
    body = f'{{"token": "{one.sessions.token()}"}}'
    answered = await one.post("/session", body)
    assert answered.status == 200 and "Set-Cookie" not in answered.headers
    session = json.loads(answered.body)["session"]
    by_cookie = await one.ask("/session", f"Cookie: nodelife-{one.port}={session}")
    assert by_cookie.status == 401
    told = await one.ask("/session", session=session)
    assert (told.status, told.body) == (200, '{"readOnly":false}')
    assert (await one.post("/session", body)).status == 401
    assert (await one.post("/logout", "{}", session=session)).status == 204
    assert (await one.ask("/session", session=session)).status == 401


@on_server
async def test_a_read_only_token_works_again_and_only_looks_on(one: Served) -> None:
    token = one.sessions.token(read_only=True)
    for _ in range(2):
        answered = await one.post("/session", f'{{"token": "{token}"}}')
        assert answered.status == 200
        session = json.loads(answered.body)["session"]
        told = await one.ask("/session", session=session)
        assert (told.status, told.body) == (200, '{"readOnly":true}')
        assert (await one.ask(EXPLAIN, session=session)).status == 200
        question = '{"acts": "lose node a"}'
        assert (await one.post("/api/v1/what-if", question, session=session)).status == 403
    assert one.asked == ["explain", "explain"] and one.sessions.count() == 2


@pytest.mark.parametrize(
    "read_only, seconds, good",
    [(False, 119, True), (False, 121, False), (True, 599, True), (True, 601, False)],
)
def test_tokens_are_good_for_their_time_alone(read_only: bool, seconds: int, good: bool) -> None:
    now_s = [1000.0]
    sessions = endpoint.Sessions(lambda: now_s[0])
    token = sessions.token(read_only=read_only)
    now_s[0] += seconds
    assert (sessions.begin(token) is not None) == good


@on_server
async def test_without_a_session_there_are_files_alone(one: Served) -> None:
    token = one.sessions.token()
    resources = one.endpoint.app.router.resources()
    paths = {path.canonical for path in resources} - set(endpoint.page_files()) - endpoint.POSTED
    assert {STREAM, "/api/v1/explain", "/api/v1/changes"} <= paths
    for path in (*sorted(paths), EXPLAIN, "/session"):
        for session in (None, "", "x" * 43, token):
            assert (await one.ask(path, session=session)).status == 401
        asked = await one.ask(f"{path}{'&' if '?' in path else '?'}token={token}")
        assert asked.status == 401
    assert one.asked == [] and (await one.ask("/")).status == 200


@on_server
async def test_wrong_tokens_close_the_door(one: Served) -> None:
    token = one.sessions.token()
    found = [(await one.post("/session", '{"token": "wrong"}')).status for _ in range(11)]
    assert found == [401] * 10 + [429]
    assert (await one.post("/session", f'{{"token": "{token}"}}')).status == 429


@pytest.mark.parametrize(
    "headers, status",
    [
        (("Content-Type: application/json",), 403),
        (("X-Nodelife: 0", "Content-Type: application/json"), 403),
        (("X-Nodelife: 1",), 415),
        (("X-Nodelife: 1", "Content-Type: text/plain"), 415),
        (("X-Nodelife: 1", "Content-Type: application/json; charset=utf-8"), 415),
        (("X-Nodelife: 1", "Content-Type: application/x-www-form-urlencoded"), 415),
    ],
)
@on_server
async def test_forms_post_nothing(one: Served, headers: tuple[str, ...], status: int) -> None:
    body = f'{{"token": "{one.sessions.token()}"}}'
    assert (await one.post("/session", body, *headers)).status == status
    assert one.sessions.count() == 0


@on_server
async def test_what_if_takes_acts_alone(one: Served) -> None:
    """No file of the daemon's, no other flag: those are the command's."""
    path, good = "/api/v1/what-if", '{"acts": "lose node a \'b c\' --and drain d"}'
    assert (await one.post(path, good)).status == 401
    session = one.signed_in()
    for wrong in ("[]", "{}", '{"acts": ["lose"]}', '{"acts": "lose link", "output": "html"}',
                  '{"acts": "lose link", "files": "/etc/passwd"}'):  # fmt: skip
        assert (await one.post(path, wrong, session=session)).status == 400
    for unread in ('{"acts": ""}', '{"acts": "lose \'node a"}'):
        assert (await one.post(path, unread, session=session)).status == 422
    assert one.asked == [] and (await one.ask(path, session=session)).status == 405
    assert (await one.post(path, good, "Content-Type: text/plain", session=session)).status == 403
    assert (await one.post(path, good, session=session)).status == 200
    words = ["lose", "node", "a", "b c", "--and", "drain", "d"]
    assert one.queries == [{"word": words, "output": ["json"]}]


@on_server
async def test_four_are_answered_at_once_and_of_what_if_one(one: Served) -> None:
    session, loss = one.signed_in(), '{"acts": "lose node a"}'
    one.goes_on.clear()
    asked = [asyncio.create_task(one.ask(EXPLAIN, session=session)) for _ in range(7)]
    while len(one.asked) < endpoint.MOST_ANSWERS:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert one.most_under_way == endpoint.MOST_ANSWERS == 4
    playing = asyncio.create_task(one.post("/api/v1/what-if", loss, session=session))
    while "what_if" not in one.asked:
        await asyncio.sleep(0.01)
    assert (await one.post("/api/v1/what-if", loss, session=session)).status == 429
    one.goes_on.set()
    assert {answered.status for answered in await asyncio.gather(*asked, playing)} == {200}
    assert one.asked.count("explain") == 7 and one.asked.count("what_if") == 1


@on_server
async def test_bodies_are_small_and_json(one: Served) -> None:
    assert (await one.post("/session", "x" * (endpoint.MOST_BODY_BYTES + 1))).status == 413
    for body in ("[]", "{}", "nonsense", '{"token": 1}', "\xff"):
        assert (await one.post("/session", body)).status == 400
    chunked = (
        f"POST /session HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\nX-Nodelife: 1\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    assert (await one.raw(chunked)).status == 411


@on_server
async def test_nothing_that_writes_is_reachable(one: Served) -> None:
    """Over all routes: each takes reading methods alone, but for the two that are known."""
    session = one.signed_in()
    routes = {
        (r.method, r.resource.canonical) for r in one.endpoint.app.router.routes() if r.resource
    }
    posts = {path for method, path in routes if method not in ("GET", "HEAD")}
    assert posts == endpoint.POSTED
    for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT"):
        for _, path in routes:
            if method == "POST" and path in endpoint.POSTED:
                continue
            given = ("X-Nodelife: 1", "Content-Type: application/json", "Content-Length: 0")
            answered = await one.ask(path, *given, method=method, session=session)
            assert answered.status in (400, 403, 405), (method, path)
    assert one.asked == []
    for order in ("stop", "reload", "pause", "resume", "ui", "hello", "health", "diverge"):
        for start in ("/v1", "/api/v1"):
            assert (await one.ask(f"{start}/{order}", session=session)).status == 404


@on_server
async def test_every_response_has_the_headers(one: Served) -> None:
    session = one.signed_in()
    asked = [await one.ask(path, session=session) for path in (*PATHS, "/../../etc/passwd")]
    asked += [await one.ask("/", host="evil.example"), await one.ask("/", method="OPTIONS")]
    asked += [await one.ask("/api/v1/explain?name=missing", session=session)]
    assert {answered.status for answered in asked} == {200, 403, 404, 405, 422}
    for answered in asked:
        assert {name: answered.headers.get(name) for name in endpoint.HEADERS} == endpoint.HEADERS
    policy = endpoint.HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy


@on_server
async def test_more_connections_or_bytes_than_allowed_are_refused(one: Served) -> None:
    long = "X-Long: " + "x" * 7000
    assert (await one.ask("/", long)).status == 200
    assert (await one.ask("/", long, "X-Longer: " + "x" * 2000)).status == 431
    held = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(200)]
    try:
        assert (await one.ask("/")).status == 200, "a connection that asks nothing makes room"
    finally:
        for _, writer in held:
            writer.close()


@on_server
async def test_a_connection_that_asks_nothing_is_cut(one: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: ")
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


@on_server
async def test_a_stream_ends_with_its_session(one: Served) -> None:
    session = one.signed_in()
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        named = f"Connection: close\r\nX-Nodelife-Session: {session}"
        writer.write(
            f"GET {STREAM} HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\n{named}\r\n\r\n".encode()
        )
        assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
        assert b"snapshot" in await reader.readuntil(b"\n\n")
        one.sessions.end(session)
        one.broadcast.publish("delta", {"secret": True})
        assert b"secret" not in await reader.read()
        writer.close()


@on_server
async def test_logs_hold_no_secret(one: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        session = one.signed_in()
        await one.ask("/api/v1/explain?name=missing&x=hidden-query", session=session)
        await one.post("/session", '{"token": "hidden-token"}')
        await one.ask("/x%0aforged", "Referer: http://hidden-referer/")
    said = [r.getMessage() for r in caplog.records if "page:" in r.getMessage()]
    assert len(said) == 3 and all("\n" not in line for line in said)
    assert not [line for line in said if "hidden" in line or session in line]


def test_the_pages_files_hold_no_markup_of_others() -> None:
    """Text of the cluster is set as text; no script or style is inline; nothing is loaded."""
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|"
        r"javascript:|DOMParser|srcdoc|setHTML|createContextualFragment|https?://(?!www\.w3\.org)"
    )
    for file in FILES:
        found = forbidden.search(file.read_text())
        assert found is None, f"rule: the page has none of these; {file.name}: {found}"
    page = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=", page)
    assert set(endpoint.page_files()) == {f"/{file.name}" for file in FILES} | {"/"}
    assert sum(file.stat().st_size for file in FILES if file.suffix == ".js") <= 120 * 1024


async def test_no_other_address_of_this_machine_answers() -> None:
    async with served() as one:
        for family, address in ((socket.AF_INET, "127.0.0.2"),):
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                assert probe.connect_ex((address, one.port)) != 0
