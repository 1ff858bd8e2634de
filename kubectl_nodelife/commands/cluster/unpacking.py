"""Unpacks gzip, bzip2 and xz as a stream, in bounded memory.

What is packed is told by its first bytes, not by its name: a `must-gather.tar` is often gzip.
zstd is not read: no version of Python that is supported has it, and no library here needs it.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Final, Protocol, cast

PACKED_SUFFIXES: Final = (".gz", ".bz2", ".xz")
ZSTD_SUFFIXES: Final = (".zst", ".tzst")

MOST_XZ_BYTES: Final = 128 << 20
"""Of memory for one xz stream: what `xz -9` wrote wants 65 MiB, a hostile header up to 4 GiB."""

DAMAGE: Final = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
"""What reading a damaged stream raises; bzip2 raises OSError without an errno."""

_CHUNK: Final = 64 << 10
_MAGIC_BYTES: Final = 6


class Readable(Protocol):
    """What can be read from front to back."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes, none at the end."""


class Peekable(Readable, Protocol):
    """What shows its next bytes and keeps them, as `io.BufferedReader` does."""

    def peek(self, size: int, /) -> bytes:
        """Some of the next bytes."""


def first_bytes(file: Peekable) -> bytes:
    """What tells the format."""
    return file.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]


def unpacked(file: Peekable) -> Readable:
    """What is packed in the file, or the file itself. Reading raises DAMAGE and OSError."""
    begins = first_bytes(file)
    if begins.startswith(b"\x1f\x8b"):
        return cast(Readable, gzip.GzipFile(fileobj=cast(IO[bytes], file)))
    if begins.startswith(b"BZh"):
        return _Decompressed(file, bz2.BZ2Decompressor)
    if begins.startswith(b"\xfd7zXZ"):
        return _Decompressed(file, lambda: lzma.LZMADecompressor(memlimit=MOST_XZ_BYTES))
    return file


class _Decompressed:
    """The streams in a file, one after another, never more at a time than is asked for.

    `lzma.LZMAFile` takes no limit of memory.
    """

    def __init__(
        self, packed: Readable, start: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]
    ) -> None:
        self._packed = packed
        self._start = start
        self._stream = start()

    def read(self, size: int, /) -> bytes:
        """The next bytes. Raises EOFError where the file is cut off."""
        while True:
            fed = b""
            if self._stream.eof:
                fed = (self._stream.unused_data or self._packed.read(_CHUNK)).lstrip(b"\0")
                if not fed:
                    return b""
                self._stream = self._start()
            elif self._stream.needs_input:
                fed = self._packed.read(_CHUNK)
                if not fed:
                    raise EOFError("it ends in the middle of a stream")
            piece = self._stream.decompress(fed, size)
            if piece:
                return piece
