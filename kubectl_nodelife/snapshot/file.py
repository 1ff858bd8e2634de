"""The file of a snapshot: a v1 List written as it comes, private, and there only when complete.

Written beside its place under a name that begins with a dot, mode 0600, and renamed at the end; a
failure on the way leaves what was there before. The List's metadata comes last, as kubectl writes
it, because only then it is known what could be read. One object a line.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Any, Final

import msgspec

from kubectl_nodelife.errors import BadInput, Failed

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
