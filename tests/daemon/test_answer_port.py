"""The answer port: loopback alone, answers alone, to our client alone. Raw requests."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.daemon import server
from kubectl_nodelife.daemon.client import ORDERS, PROTOCOL
from kubectl_nodelife.daemon.cluster_view import NotReadYet, WatchedCluster
from kubectl_nodelife.daemon.listener import MOST_CONNECTIONS
from kubectl_nodelife.daemon.server import AnswerPort, Server, port_warning
from kubectl_nodelife.errors import BadInput
from tests.loopback import free_port

PACKAGE = Path(__file__).parents[2] / "kubectl_nodelife"
OURS = {"Host": "nodelife", "X-Nodelife-Protocol": str(PROTOCOL)}


class Obeyed(Exception):
    """An order was obeyed."""


async def _answer(query: Any) -> dict[str, Any]:
    return {"text": "an answer"}


async def _obey(query: Any) -> dict[str, Any]:
    raise Obeyed


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[AnswerPort]:
    orders = dict.fromkeys(ORDERS, _obey)
    cluster = WatchedCluster("identity", "context", "https://server")
    asked = Server(
        cluster,
        {"status": _answer, "slow": _slow, "early": ListedLater(3)},
        {},
        orders,
        lambda: "uid",
    )
    port = AnswerPort(asked, free_port())
    await port.start()
    try:
        yield port
    finally:
        await port.close()


class ListedLater:
    """An answer that is there once it was asked for so often."""

    def __init__(self, asked: int) -> None:
        self._asked = asked

    async def __call__(self, query: Any) -> dict[str, Any]:
        self._asked -= 1
        if self._asked > 0:
            raise NotReadYet("the daemon has not read the nodes yet")
        return {"text": "an answer"}


async def _slow(query: Any) -> dict[str, Any]:
    await asyncio.sleep(60)
    return {}


async def sent(port: int, line: str, headers: dict[str, str], body: str = "") -> tuple[int, str]:
    """The status and the body of a raw request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    writer.write(f"{line} HTTP/1.0\r\n{head}{length}\r\n{body}".encode())
    text = (await reader.read()).decode()
    writer.close()
    status, _, rest = text.partition("\r\n\r\n")
    return int(status.split()[1]), rest


async def test_an_answer_says_of_which_cluster_it_is() -> None:
    async with served() as port:
        status, body = await sent(port.port, "GET /v1/status", OURS)
        answer = json.loads(body)
        assert status == 200 and answer["text"] == "an answer"
        assert answer["clusterUid"] == "uid" and answer["server"] == "https://server"


async def test_a_question_waits_for_the_first_list_of_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as port:
        status, body = await sent(port.port, "GET /v1/early", OURS)
        assert status == 200 and json.loads(body)["text"] == "an answer"
    monkeypatch.setattr(server, "FIRST_LIST_S", 0.0)
    async with served() as port:
        status, body = await sent(port.port, "GET /v1/early", OURS)
        assert status == 422 and "has not read the nodes yet" in body


METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "FOO")


async def test_no_order_passes_by_any_method_on_any_path() -> None:
    async with served() as port:
        for order in (*sorted(ORDERS), "enforce", "status"):
            for method in METHODS:
                for path in (f"/v1/{order}", f"/v1/{order}?watch=true", f"/{order}"):
                    status, body = await sent(port.port, f"{method} {path}", OURS)
                    assert status in (400, 403), (method, path, body)
                    if method == "POST":
                        assert json.loads(body)["error"]["exitCode"] == 5
            if order == "status":
                continue
            for path in (f"/v1/{order}", f"/v1/{order}?watch=true"):
                status, body = await sent(port.port, f"GET {path}", OURS)
                assert status == 404, (path, body)
        override = {**OURS, "X-HTTP-Method-Override": "POST"}
        status, _ = await sent(port.port, "GET /v1/stop", override, "order=stop")
        assert status == 404


async def test_its_only_route_reads() -> None:
    async with served() as port:
        routes = [(route.method, route.resource) for route in port.app.router.routes()]
        assert [method for method, _ in routes] == ["GET"]
        assert [resource.canonical for _, resource in routes if resource] == ["/v1/{question}"]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"X-Nodelife-Protocol": str(PROTOCOL)}, id="no-host"),
        pytest.param({**OURS, "Host": "evil.example:9877"}, id="a-name-that-was-rebound"),
        pytest.param({**OURS, "Host": "127.0.0.1:9877"}, id="its-address"),
        pytest.param({**OURS, "Host": "localhost"}, id="its-name"),
        pytest.param({**OURS, "Origin": "http://nodelife"}, id="an-origin"),
        pytest.param({**OURS, "Referer": "http://nodelife/"}, id="a-referer"),
        pytest.param({**OURS, "Sec-Fetch-Site": "none"}, id="a-browser"),
        pytest.param({**OURS, "Sec-Fetch-Mode": "no-cors"}, id="a-browsers-image"),
    ],
)
async def test_a_browser_is_refused_on_every_path(headers: dict[str, str]) -> None:
    async with served() as port:
        for path in ("/v1/status", "/v1/none", "/", "/v1/status?watch=true"):
            status, body = await sent(port.port, f"GET {path}", headers)
            assert (status, body) == (403, ""), path


async def test_another_protocol_is_told_ours() -> None:
    async with served() as port:
        for headers in ({"Host": "nodelife"}, {**OURS, "X-Nodelife-Protocol": "9"}):
            status, body = await sent(port.port, "GET /v1/status", headers)
            assert status == 426 and json.loads(body)["protocol"] == PROTOCOL
            assert "text" not in json.loads(body)


async def test_it_listens_on_loopback_alone() -> None:
    async with served() as port:
        (bound,) = port._listener._sockets
        assert bound.getsockname() == ("127.0.0.1", port.port)
        with pytest.raises(BadInput, match="cannot listen at"):
            await AnswerPort(port._server, port.port).start()


async def test_connections_and_questions_are_bounded() -> None:
    async with served() as port:
        held = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(200)]
        port._listener._forget_ended()
        assert len(port._listener._held) <= MOST_CONNECTIONS
        status, _ = await sent(port.port, "GET /v1/status", OURS)
        assert status == 200, "a connection that asks nothing makes room"
        for _, each in held:
            each.close()
        long = "x" * (2 << 20)
        status, _ = await sent(port.port, "GET /v1/status", OURS, long)
        assert status == 413


def test_who_else_can_ask_is_said() -> None:
    assert "every user of this machine" in port_warning(9877, in_pod=False)[0]
    assert port_warning(9877, in_pod=True) == []


def test_what_a_question_reaches_opens_no_file_and_starts_no_program() -> None:
    worldly = re.compile(
        r"(?<![\w.])open\(|\bsubprocess\b|\bread_named\b|\bos\.(system|popen|exec)"
    )
    found = {
        str(path.relative_to(PACKAGE)): match[0]
        for folder in ("commands/answering", "answers", "outlook", "drain", "sim", "workloads")
        for path in (PACKAGE / folder).rglob("*.py")
        if (match := worldly.search(path.read_text()))
    }
    assert found == {}
