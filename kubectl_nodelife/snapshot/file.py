"""A snapshot: how its objects are read, and the file they go to, a v1 List written as it comes,
private, and there only when complete.

Written beside its place under a name that begins with a dot, mode 0600, and renamed at the end; a
failure on the way leaves what was there before. The List's metadata comes last, as kubectl writes
it, because only then it is known what could be read. One object a line.

A kind's objects are read page by page, with GET only. Unlike `live.listing` nothing is kept: a page
is handed on and forgotten. Where the token of a list expires on the way, the list is begun anew and
what was handed on already is left out; the pages are then not of one version, which a snapshot over
minutes is not anyway.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import IO, Any, Final

import msgspec

from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.requests import PAGE_SIZE, Resource, list_url

GZIP_ENDING: Final = ".gz"

_LEVEL: Final = 4  # twice the speed of the usual 6, a tenth larger
_HEAD = b'{"apiVersion":"v1","kind":"List","items":['


class SnapshotFile:
    """A context; without `finish` in it no file comes to be. Raises BadInput, Failed.

    `written` counts the objects.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.written = 0
        self._draft = ""
        self._raw: IO[bytes] | None = None
        self._out: IO[bytes] | gzip.GzipFile | None = None

    def __enter__(self) -> SnapshotFile:
        folder, name = os.path.split(os.path.abspath(self.path))
        if not name or os.path.isdir(self.path):
            raise BadInput("is a folder", on=self.path, remedy="name a file")
        draft = os.path.join(folder, f".{name}.{os.getpid()}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            self._raw = os.fdopen(os.open(draft, flags, 0o600), "wb", buffering=1 << 20)
        except OSError as error:
            raise self._failed(error) from None
        self._draft, self._out = draft, self._raw
        if name.endswith(GZIP_ENDING):
            self._out = gzip.GzipFile("", "wb", _LEVEL, self._raw, mtime=0)
        self._write(_HEAD)
        return self

    def add(self, document: Any) -> None:
        """Write one object."""
        self._write(b",\n" if self.written else b"\n")
        self._write(msgspec.json.encode(document))
        self.written += 1

    def finish(self, annotations: Mapping[str, str]) -> int:
        """Write the List's metadata and put the file in its place; returns its size in bytes."""
        metadata = msgspec.json.encode({"annotations": dict(annotations)})
        self._write(b'\n],"metadata":' + metadata + b"}\n")
        assert self._out is not None and self._raw is not None
        try:
            if self._out is not self._raw:
                self._out.close()
            self._raw.flush()
            os.fsync(self._raw.fileno())
            size = os.fstat(self._raw.fileno()).st_size
            self._raw.close()
            os.replace(self._draft, self.path)
        except OSError as error:
            raise self._failed(error) from None
        self._draft = ""
        return size

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._draft:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._draft)
        for stream in (self._out, self._raw):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.close()

    def _write(self, piece: bytes) -> None:
        assert self._out is not None
        try:
            self._out.write(piece)
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> Failed:
        what = f"cannot be written: {error.strerror or error}"
        return Failed(what, on=self.path, remedy="name a file in a folder of yours with room")


_MOST_EXPIRIES: Final = 3


class _RawPageMeta(msgspec.Struct, rename="camel"):
    continue_: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: int | None = None


class _SnapshotPage(msgspec.Struct):
    metadata: _RawPageMeta = msgspec.field(default_factory=_RawPageMeta)
    items: list[dict[str, Any]] | None = None


async def count(client: Client, resource: Resource) -> int:
    """About how many objects there are, as far as the server tells. Raises as `pages`."""
    page = _decode(await client.read(list_url(resource, limit=1)), resource)
    return len(page.items or ()) + (page.metadata.remaining_item_count or 0)


async def pages(
    client: Client, resource: Resource, limit: int = PAGE_SIZE
) -> AsyncIterator[list[dict[str, Any]]]:
    """All objects, each with apiVersion and kind in front. Raises ApiError, Unreachable, Failed."""
    head = {"apiVersion": resource.kind.api_version, "kind": resource.kind.name}
    seen: set[tuple[str, str]] = set()
    token, expiries = "", 0
    while True:
        try:
            body = await client.read(list_url(resource, limit=limit, continue_=token))
        except ApiError as error:
            if not (error.gone and token) or expiries == _MOST_EXPIRIES:
                raise
            token, expiries = "", expiries + 1
            continue
        page = _decode(body, resource)
        new = [{**head, **item} for item in page.items or () if _key(item) not in seen]
        seen.update(map(_key, new))
        yield new
        token = page.metadata.continue_ or ""
        if not token:
            return


def _key(item: dict[str, Any]) -> tuple[str, str]:
    metadata = item.get("metadata") or {}
    return metadata.get("namespace", ""), metadata.get("name", "")


def _decode(body: bytes, resource: Resource) -> _SnapshotPage:
    try:
        return msgspec.json.decode(body, type=_SnapshotPage)
    except msgspec.MsgspecError as error:
        raise Failed(f"the server's list cannot be decoded: {error}", on=str(resource)) from None
