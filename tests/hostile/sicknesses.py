"""Sicknesses of API servers, and of what stands in between: each answers a `Request` in its way."""

import asyncio
import json
import zlib
from collections.abc import Mapping

from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.sandbox.store import ObjectStore, StoredObject
from tests.hostile.bad import BAD, line
from tests.raw_server import Gone, Request, Sickness

MIB = 1 << 20


def restore_with_lower_versions(store: ObjectStore) -> None:
    """etcd's data are those of a backup, behind the API server's back: all is there, in lower
    versions, and watches wait for versions that do not come.
    """
    for collection in store.collections.values():
        for key, entry in collection.entries.items():
            document, version = entry.document(), entry.version // 2
            document["metadata"]["resourceVersion"] = str(version)
            raw = json.dumps(document).encode()
            collection.entries[key] = StoredObject(raw, collection.to_slice(raw), version)
        collection.log.clear()
    store.version //= 2


def failing(
    code: int,
    headers: Mapping[str, str] | None = None,
    details: Mapping[str, object] | None = None,
    reason: str = "",
) -> Sickness:
    """Every request is answered with an error."""

    async def sick(request: Request) -> bool:
        body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason}
        body |= {"message": "sick", "details": dict(details or {})}
        await request.reply(body, code, headers)
        return True

    return sick


async def gone_lists(request: Request) -> bool:
    """Lists are always too old, and WatchLists are not known."""
    if request.query.get("sendInitialEvents"):
        await request.status(400, "sendInitialEvents is forbidden", "Invalid")
    else:
        await request.status(410, "the provided continue parameter is too old", "Expired")
    return True


async def expired_watches(request: Request) -> bool:
    """Lists work; each watch says at once that its version is too old."""
    if request.query.get("sendInitialEvents"):
        await request.status(400, "sendInitialEvents is forbidden", "Invalid")
        return True
    if not request.is_watch:
        return False
    await request.begin_watch()
    await request.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
    await request.send(b"0\r\n\r\n")
    return True


async def broken_after_the_first_event(request: Request) -> bool:
    """A WatchList that comes whole, and then an error: something always seems to work."""
    if not request.is_watch:
        return False
    await request.begin_watch()
    if request.query.get("sendInitialEvents"):
        meta = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
        await request.event("BOOKMARK", {"metadata": meta})
    await request.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
    await request.send(b"0\r\n\r\n")
    return True


async def login_page(request: Request) -> bool:
    """A proxy that wants a login, and says 200."""
    await request.reply(b"<html><body>Log in</body></html>", 200, {"Content-Type": "text/html"})
    return True


async def endless_list(request: Request) -> bool:
    """Each page promises another."""
    metadata = {"resourceVersion": "7", "continue": "more"}
    await request.reply({"kind": "List", "metadata": metadata, "items": []})
    return True


def redirecting(location: str) -> Sickness:
    """Everything is elsewhere."""

    async def sick(request: Request) -> bool:
        await request.reply(b"", 307, {"Location": location + request.target})
        return True

    return sick


def gzip_bomb(mebibytes: int) -> Sickness:
    """A list that is small on the wire."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = packer.compress(b'{"kind":"List","metadata":{},"items":[')
    body += b"".join(packer.compress(b" " * MIB) for _ in range(mebibytes))
    body += packer.compress(b"]}") + packer.flush()

    async def sick(request: Request) -> bool:
        if request.query.get("sendInitialEvents"):
            await request.status(400, "sendInitialEvents is forbidden", "Invalid")
        else:
            await request.reply(body, 200, {"Content-Encoding": "gzip"})
        return True

    return sick


async def endless_line(request: Request) -> bool:
    """A watch whose first event has no end."""
    if not request.is_watch:
        return False
    await request.begin_watch()
    await request.chunk(b'{"type":"ADDED","object":{"metadata":{"name":"')
    while True:
        await request.chunk(b"a" * 65_536)


def nameless_events(open_s: float = 0.0) -> Sickness:
    """A WatchList that comes whole, an event that names nothing, and the end `open_s` later."""

    async def sick(request: Request) -> bool:
        if not request.is_watch:
            return False
        await request.begin_watch()
        if request.query.get("sendInitialEvents"):
            meta = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
            await request.event("BOOKMARK", {"metadata": meta})
        await request.chunk(b'{"type":"MODIFIED","object":{"metadata":{"name":5}}}\n')
        await asyncio.sleep(open_s)
        await request.send(b"0\r\n\r\n")
        return True

    return sick


async def ending_watches(request: Request) -> bool:
    """Watches end in good order, at once."""
    if not request.is_watch:
        return False
    await request.begin_watch()
    await request.send(b"0\r\n\r\n")
    return True


async def cut(request: Request) -> bool:
    """No answer: the connection is closed."""
    raise Gone


async def half_an_answer(request: Request) -> bool:
    """A list, or a watch's line, that ends in the middle."""
    if request.is_watch:
        await request.begin_watch()
        await request.chunk(b'{"type":"ADDED","object":{"metadata":{"na')
    else:
        body = json.dumps({"kind": "List", "items": request.server.objects(request.plural)})
        await request.head(200, {"Content-Length": str(len(body))})
        await request.send(body[: len(body) // 2].encode())
    raise Gone


async def unreadable_objects(request: Request) -> bool:
    """A WatchList of all there is, and of everything bad; it ends after that."""
    if not request.query.get("sendInitialEvents"):
        return False
    await request.begin_watch()
    for obj in request.server.objects(request.plural):
        await request.event("ADDED", obj)
    for kind, document in BAD.values():
        if kind_named(kind).plural == request.plural:
            await request.chunk(line("ADDED", document))
    annotations = {"k8s.io/initial-events-end": "true"}
    meta = {"resourceVersion": str(request.server.version), "annotations": annotations}
    await request.event("BOOKMARK", {"metadata": meta})
    await request.send(b"0\r\n\r\n")
    return True
