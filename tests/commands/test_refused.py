"""A server that takes no credentials: one line says which, and what to do; no note comes first."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kubectl_nodelife import cli
from kubectl_nodelife.errors import EXIT_FAILED


class Refusing(BaseHTTPRequestHandler):
    """Answers every GET with 401, as kube-apiserver does."""

    def do_GET(self) -> None:
        body = json.dumps(
            {"kind": "Status", "status": "Failure", "message": "Unauthorized", "code": 401}
        ).encode()
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


class Server(ThreadingHTTPServer):
    """Takes many requests at once, and does not mind who goes before the answer."""

    request_queue_size = 64

    def handle_error(self, *_: object) -> None: ...


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """A kubeconfig and its server, which refuses the user ann; with a folder of its own."""
    monkeypatch.setenv("NODELIFE_RUNTIME_DIR", str(tmp_path / "run"))
    server = Server(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "ann", "user": {"token": "expired"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "ann"}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    yield str(path), address
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["explain", "node", "a1"],
        ["audit", "-A"],
        ["repair", "-A", "--dry-run=client"],
        ["what-if", "--each", "node"],
        ["drain-plan", "a1"],
        ["budgets", "-A"],
    ],
    ids=lambda words: words[0],
)
def test_it_says_which_server_refuses_whom(
    words: list[str], kubeconfig: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, server = kubeconfig
    assert cli.main([*words, "--kubeconfig", path]) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out == ""
    # To plain HTTP no credentials are sent, and a warning says so.
    assert [line for line in err.splitlines() if not line.startswith("Warning: ")] == [
        f"error: {server} (401): Unauthorized; the server does not take the credentials of user "
        "ann: log in anew, or check --context, --user and --token"
    ]
