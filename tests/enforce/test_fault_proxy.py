"""The proxy does to a request what its fault says, before a server that counts what arrives."""

import base64
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.enforce.fault_proxy import FaultProxy
from tests.raw_server import RawServer, Request, in_a_thread, raw_server


@pytest.fixture
def server() -> Iterator[RawServer]:
    """Answers every request with the same object."""

    async def created(request: Request) -> bool:
        await request.reply(b'{"kind": "Pod" }', 201)
        return True

    with in_a_thread(raw_server(tls=True)) as made:
        made.sickness = created
        yield made


@pytest.fixture
def proxy(server: RawServer, tmp_path: Path) -> Iterator[FaultProxy]:
    authority = tmp_path / "up.crt"
    authority.write_bytes(base64.b64decode(server.authority))
    with FaultProxy(server.url, authority, tmp_path) as made:
        yield made


def post(proxy: FaultProxy) -> tuple[int, bytes]:
    context = ssl.create_default_context(cafile=str(proxy.ca))
    host = proxy.url.removeprefix("https://")
    connection = http.client.HTTPSConnection(host, timeout=10, context=context)
    try:
        connection.request("POST", "/api/v1/namespaces/a/pods", b"{}")
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "kind, answer, arrived",
    [
        pytest.param("drop", None, 0, id="never reaches the server"),
        pytest.param("lose-answer", None, 1, id="done, but nobody is told"),
        pytest.param("duplicate", 201, 2, id="done twice"),
        pytest.param("truncate", 201, 1, id="half an answer"),
        pytest.param("409", 409, 0, id="a conflict"),
        pytest.param("503", 503, 0, id="an overload"),
    ],
)
def test_a_fault_befalls_every_second_write(
    server: RawServer, proxy: FaultProxy, kind: str, answer: int | None, arrived: int
) -> None:
    proxy.faults.kind, proxy.faults.every = kind, 2
    assert post(proxy) == (201, b'{"kind": "Pod" }')
    server.writes.clear()
    if answer is None:
        with pytest.raises((http.client.HTTPException, OSError)):
            post(proxy)
    else:
        status, content = post(proxy)
        assert status == answer
        if kind == "truncate":
            assert content == b'{"kind":'
    assert len(server.writes) == arrived
    assert [fault for fault, _, _ in proxy.faults.done] == [kind]
    assert post(proxy)[0] == 201
