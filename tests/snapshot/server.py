"""A small API server that lists raw objects in pages, and notes what it was asked."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubectl_nodelife.kube.kinds import find_kind

Document = dict[str, Any]


class Cluster(ThreadingHTTPServer):
    """Objects by plural. `expire`: so many tokens are too old when they come; `largest`: of all
    pages that were asked for. `broken`: plurals whose second page is an error.
    """

    daemon_threads = True

    def __init__(self, objects: Iterator[Document] | list[Document]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.collections: dict[str, list[Document]] = {}
        self.forbidden: set[str] = set()
        self.absent: set[str] = set()
        self.broken: set[str] = set()
        self.expire = 0
        self.version = "v1.36.0"
        self.asked: list[tuple[str, str]] = []
        for obj in objects:
            kind = find_kind(obj["apiVersion"], obj["kind"])
            plural = kind.plural if kind else f"{obj['kind'].lower()}s"
            bare = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
            self.collections.setdefault(plural, []).append(bare)  # as a server lists them

    def page(self, url: str) -> tuple[int, Any]:
        """The answer to a GET."""
        split = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(split.query).items()}
        *_, before, plural = split.path.split("/")
        if split.path == "/version":
            return 200, {"gitVersion": self.version}
        if before == "pods":
            found = [p for p in self.collections["pods"] if p["metadata"]["name"] == plural]
            return (200, found[0]) if found else (404, {"code": 404})
        if plural in self.forbidden:
            return 403, {"kind": "Status", "message": f"{plural} is forbidden", "code": 403}
        if plural in self.absent:
            return 404, {"kind": "Status", "message": "not found", "code": 404}
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 0)) or 1 << 30
        if start and plural in self.broken:
            return 500, {"kind": "Status", "message": "etcd is gone", "code": 500}
        if start and self.expire:
            self.expire -= 1
            return 410, {"kind": "Status", "reason": "Expired", "message": "too old", "code": 410}
        items = self.collections.get(plural, [])
        if plural == "leases":
            items = [i for i in items if i["metadata"].get("namespace") == before]
        left = len(items) - start - limit
        metadata: Document = {"resourceVersion": "1"}
        if left > 0:
            metadata |= {"continue": str(start + limit), "remainingItemCount": left}
        return 200, {"kind": "List", "metadata": metadata, "items": items[start : start + limit]}


class Handler(BaseHTTPRequestHandler):
    """GETs only; any other verb is noted and refused."""

    server: Cluster
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one piece: each alone would wait for an acknowledgement

    def do_GET(self) -> None:
        self.server.asked.append(("GET", self.path))
        self._answer(*self.server.page(self.path))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            self.server.asked.append((name.removeprefix("do_"), self.path))
        raise AttributeError(name)

    def _answer(self, code: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Silence."""


@contextlib.contextmanager
def serving(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Serve; yields the path of a kubeconfig."""
    thread = threading.Thread(target=cluster.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    kubeconfig = folder / "kubeconfig"
    url = f"http://127.0.0.1:{cluster.server_address[1]}"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}],
                "current-context": "c",
            }
        )
    )
    try:
        yield str(kubeconfig)
    finally:
        cluster.shutdown()
        cluster.server_close()
        thread.join(10)
