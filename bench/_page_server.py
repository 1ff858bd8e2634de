"""A process that stands in for the API server of `snapshot save`: lists in pages, made on request.

Run as `python -m bench._page_server NODES PODS SEED`; prints one JSON line with its URL and CA. The
objects are those of `_stream_server`, as large as real ones.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from bench._stream_server import Cluster, reply
from kubectl_nodelife.kube.kinds import find_resource
from kubectl_nodelife.sandbox.tls import make_certificate


class Server:
    """The part of HTTP that a list in pages needs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self._answer(head.split(b" ", 2)[1].decode(), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, target: str, writer: asyncio.StreamWriter) -> None:
        url = urlsplit(target)
        kind = find_resource(url.path.rpartition("/")[2])
        if url.path == "/version":
            reply(writer, {"gitVersion": "v1.36.0"})
        elif kind is None:
            reply(writer, {"kind": "Status", "code": 404}, 404)
        else:
            query = parse_qs(url.query)
            start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
            reply(writer, self._page(kind.name, start, limit))

    def _page(self, kind: str, start: int, limit: int) -> dict[str, Any]:
        found: Sequence[Any] = self.cluster.objects.get(kind, ())
        make: Callable[[Any], Any] = self.cluster.document
        if kind == "Lease":
            found, make = self.cluster.names, self._lease
        left = len(found) - start - limit
        metadata: dict[str, Any] = {"resourceVersion": str(self.cluster.version)}
        if left > 0:
            metadata |= {"continue": str(start + limit), "remainingItemCount": left}
        items = [make(one) for one in found[start : start + limit]]
        return {"kind": f"{kind}List", "metadata": metadata, "items": items}

    def _lease(self, name: str) -> Any:
        return msgspec.json.decode(self.cluster.lease(name))["object"]


async def main(nodes: int, pods: int, seed: int) -> None:
    """Serve until killed."""
    keys = make_certificate()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(keys.key + keys.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    server = Server(Cluster(nodes, pods, seed))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    authority = base64.b64encode(keys.certificate.encode()).decode()
    print(json.dumps({"url": f"https://127.0.0.1:{port}", "authority": authority}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4])))
