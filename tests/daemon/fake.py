"""A daemon's end of the socket, which says what it is told to."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.daemon.client import PROTOCOL
from kubectl_nodelife.daemon.paths import CachedIdentity, remember, socket_path

IDENTITY = "0123456789abcdef0123"
SERVER = "https://10.0.0.1:6443"


class FakeDaemon:
    """Listens until closed; answers each request with `answer` (or the raw bytes)."""

    def __init__(self, runtime: Path, answer: dict[str, Any] | bytes) -> None:
        runtime.mkdir(mode=0o700, exist_ok=True)
        self.path = socket_path(str(runtime), IDENTITY)
        self.answer = answer
        self.requests: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> FakeDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self.requests.append(connection.recv(65536).decode())
                if isinstance(self.answer, bytes):
                    connection.sendall(self.answer)
                    continue
                body = json.dumps({"protocol": PROTOCOL, "server": SERVER, **self.answer}).encode()
                connection.sendall(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n" + body)


def known_cluster(runtime: Path, kubeconfig: Path, environ: dict[str, str]) -> None:
    """As if the kubeconfig had been resolved before."""
    runtime.mkdir(mode=0o700, exist_ok=True)
    kubeconfig.write_text("not to be parsed: [")
    known = CachedIdentity(IDENTITY, SERVER, "prod", "default")
    remember(str(runtime), Connection(), environ, known, (str(kubeconfig),))
