"""A process that stands in for a daemon's API server: WatchLists first, then leases and pods.

Run as `python -m bench._stream_server NODES PODS SEED`; prints one JSON line with its URL and CA.
It serves TLS, as real ones do. Objects are as large as real ones (managedFields, environment,
volumes); a daemon skips most of that. Leases are renewed every ten seconds, each in a write of its
own; POST /silence?zone=a stops those of a zone.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.sandbox.tls import make_certificate
from kubectl_nodelife.sim.generate import Generate, generate

LEASE_SECONDS = 10
POD_EVENTS_PER_SECOND = 20
ZONES = 3

_PLURALS = {
    "nodes": "Node",
    "pods": "Pod",
    "leases": "Lease",
    "daemonsets": "DaemonSet",
    "controllerrevisions": "ControllerRevision",
}
_FIELDS = {
    "f:metadata": {"f:labels": {f"f:label-{i}": {} for i in range(12)}},
    "f:spec": {"f:containers": {f"k:{i}": {"f:image": {}, "f:env": {}} for i in range(6)}},
    "f:status": {"f:conditions": {f"k:{i}": {"f:status": {}, "f:type": {}} for i in range(6)}},
}
MANAGED = [
    {"manager": name, "operation": "Update", "apiVersion": "v1", "fieldsV1": _FIELDS}
    for name in ("kube-controller-manager", "kubelet")
]
ENVIRONMENT = [{"name": f"SETTING_{i}", "value": f"value-{i}" * 3} for i in range(12)]
MOUNT = {"name": "kube-api-access", "readOnly": True, "mountPath": "/var/run/secrets"}
VOLUME = {
    "name": "kube-api-access",
    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}], "defaultMode": 420},
}


class Cluster:
    """The objects, and the queues of those that watch them."""

    def __init__(self, nodes: int, pods: int, seed: int) -> None:
        wanted = Generate(zones=ZONES, nodes=nodes, pods_per_node=pods // nodes, seed=seed)
        self.objects: dict[str, list[KubeObject]] = {kind: [] for kind in _PLURALS.values()}
        for obj in generate(wanted, time.time_ns(), "v1.36.0"):
            if kind_of(obj) in self.objects:
                self.objects[kind_of(obj)].append(obj)
        self.names = [node.name for node in self.objects["Node"]]
        self.silent = ""
        self.version = 1
        self.listeners: dict[str, set[asyncio.Queue[bytes]]] = {k: set() for k in self.objects}

    def initial(self, kind: str) -> Iterator[bytes]:
        """The first list as watch events."""
        if kind == "Lease":
            yield from (self.lease(name) for name in self.names)
        for obj in self.objects[kind]:
            yield line("ADDED", self.document(obj))

    def document(self, obj: KubeObject) -> dict[str, Any]:
        """An object as large as a real one."""
        document = encode(obj)
        self.version += 1
        document["metadata"] |= {"resourceVersion": str(self.version), "managedFields": MANAGED}
        if document["kind"] == "Pod":
            document["spec"]["volumes"] = [VOLUME]
            for container in document["spec"]["containers"]:
                container |= {"env": ENVIRONMENT, "volumeMounts": [MOUNT], "image": "registry/x:1"}
        return document

    def lease(self, name: str, type_: str = "ADDED") -> bytes:
        """A node's lease, renewed now."""
        self.version += 1
        metadata = {
            "name": name,
            "namespace": "kube-node-lease",
            "uid": f"lease-{name}",
            "resourceVersion": str(self.version),
            "managedFields": MANAGED[1:],
        }
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": format_micro_time(time.time_ns()),
        }
        version = "coordination.k8s.io/v1"
        return line(
            type_, {"apiVersion": version, "kind": "Lease", "metadata": metadata, "spec": spec}
        )

    def tell(self, kind: str, event: bytes) -> None:
        """Send an event to the watchers."""
        for queue in self.listeners[kind]:
            queue.put_nowait(event)

    async def renew(self) -> None:
        """Renew each node's lease every ten seconds, evenly spread."""
        while True:
            began, sent = time.monotonic(), 0
            while sent < len(self.names):
                due = (time.monotonic() - began) / LEASE_SECONDS * len(self.names)
                while sent < min(due, len(self.names)):
                    name = self.names[sent]
                    sent += 1
                    if not self.silent or not name.startswith(self.silent):
                        self.tell("Lease", self.lease(name, "MODIFIED"))
                await asyncio.sleep(0.002)

    async def change_pods(self) -> None:
        """Send changes of pods' status, each time of another pod."""
        number = 0
        while True:
            await asyncio.sleep(1 / POD_EVENTS_PER_SECOND)
            pod = self.objects["Pod"][number * 7919 % len(self.objects["Pod"])]
            number += 1
            self.tell("Pod", line("MODIFIED", self.document(pod)))


def line(type_: str, document: dict[str, Any]) -> bytes:
    """One line of a watch."""
    return msgspec.json.encode({"type": type_, "object": document}) + b"\n"


class Server:
    """The part of HTTP that a watcher needs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                target = head.split(b" ", 2)[1].decode()
                await self._answer(target, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, target: str, writer: asyncio.StreamWriter) -> None:
        url = urlsplit(target)
        plural = url.path.rpartition("/")[2]
        if url.path == "/version":
            reply(writer, {"gitVersion": "v1.36.0"})
        elif url.path == "/silence":
            self.cluster.silent = parse_qs(url.query)["zone"][0]
            reply(writer, {})
        elif plural in _PLURALS:
            await self._watch(_PLURALS[plural], writer)
        else:
            reply(writer, {"kind": "Status", "code": 404}, 404)

    async def _watch(self, kind: str, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
            + date()
            + b"\r\n"
        )
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        for piece in pieces(self.cluster.initial(kind)):
            chunk(writer, piece)
            await writer.drain()
        self.cluster.listeners[kind].add(queue)
        metadata = {
            "resourceVersion": str(self.cluster.version),
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
        chunk(writer, line("BOOKMARK", {"kind": kind, "metadata": metadata}))
        try:
            while True:
                chunk(writer, await queue.get())
                await writer.drain()
        finally:
            self.cluster.listeners[kind].discard(queue)


def pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, some thousand bytes at once."""
    held = bytearray()
    for one in lines:
        held += one
        if len(held) > 32_768:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """One chunk of a body."""
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def date() -> bytes:
    """The `Date` header."""
    return time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT\r\n", time.gmtime()).encode()


def reply(writer: asyncio.StreamWriter, document: dict[str, Any], code: int = 200) -> None:
    """A small answer."""
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\n".encode()
    writer.write(head + date() + b"\r\n" + body)


async def main(nodes: int, pods: int, seed: int) -> None:
    """Serve until killed."""
    keys = make_certificate()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(keys.key + keys.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    cluster = Cluster(nodes, pods, seed)
    server = await asyncio.start_server(Server(cluster).serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    authority = base64.b64encode(keys.certificate.encode()).decode()
    print(json.dumps({"url": f"https://127.0.0.1:{port}", "authority": authority}), flush=True)
    await asyncio.gather(cluster.renew(), cluster.change_pods())


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4])))
