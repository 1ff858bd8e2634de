"""The proxy does to a request what its fault says, before a server that counts what arrives."""

from __future__ import annotations

import http.client
import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.enforce.fault_proxy import FaultProxy, make_certificate


class Server(http.server.BaseHTTPRequestHandler):
    """Answers every request with the same object."""

    arrived = 0
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).arrived += 1
        self.send_response(201)
        self.send_header("Content-Length", "16")
        self.end_headers()
        self.wfile.write(b'{"kind": "Pod" }')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    Server.arrived = 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    make_certificate(tmp_path / "up.crt", tmp_path / "up.key")
    context.load_cert_chain(tmp_path / "up.crt", tmp_path / "up.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    upstream = f"https://127.0.0.1:{server.server_port}"
    with FaultProxy(upstream, tmp_path / "up.crt", tmp_path) as made:
        yield made
    server.shutdown()
    server.server_close()


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
    proxy: FaultProxy, kind: str, answer: int | None, arrived: int
) -> None:
    proxy.faults.kind, proxy.faults.every = kind, 2
    assert post(proxy) == (201, b'{"kind": "Pod" }')
    Server.arrived = 0
    if answer is None:
        with pytest.raises((http.client.HTTPException, OSError)):
            post(proxy)
    else:
        status, content = post(proxy)
        assert status == answer
        if kind == "truncate":
            assert content == b'{"kind":'
    assert Server.arrived == arrived
    assert [fault for fault, _, _ in proxy.faults.done] == [kind]
    assert post(proxy)[0] == 201
