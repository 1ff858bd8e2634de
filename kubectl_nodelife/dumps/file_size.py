"""The limits of files given with `-f`: their size, and whether all must hold Kubernetes objects.

gzip, bzip2 and xz are unpacked as a stream, in bounded memory. What is packed is known by its first
bytes, not by its name: a `must-gather.tar` is often gzip. zstd is not read: no version of Python
that is supported has it, and no library here needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import IO, Final, Protocol, cast

import click

from kubectl_nodelife.errors import BadInput

TYPE_CHECKING = False  # as typing's: `--help` and the quick path need no paths
if TYPE_CHECKING:
    import bz2
    import lzma
    from pathlib import Path

PACKED_SUFFIXES: Final = (".gz", ".bz2", ".xz")
ZSTD_SUFFIXES: Final = (".zst", ".tzst")

MOST_XZ_BYTES: Final = 128 << 20
"""Of memory for one xz stream: what `xz -9` wrote wants 65 MiB, a hostile header up to 4 GiB."""

_CHUNK: Final = 64 << 10
_MAGIC_BYTES: Final = 6


MAX_FILE_BYTES: Final = 2 << 30
"""Of one file, unpacked.

150,000 pods of a realistic size take 1.5 GB as `kubectl get -o json` prints them, and 2.7 GB with
--show-managed-fields, for which the flag is needed. A List is read piece by piece, of YAML
too, and costs some 4 KB a pod; any other document is held as a whole.
"""
SIZE_GIVEN: Final = "nodelife.max_file_bytes"
STRICT_GIVEN: Final = "nodelife.strict_files"
"""Where click's context keeps what the flags say, for whoever reads a file of this command."""

_PIECE: Final = 8 << 20


class Readable(Protocol):
    """A stream that is read from front to back."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes, none at the end."""


class Peekable(Readable, Protocol):
    """A stream that shows its next bytes and keeps them, as `io.BufferedReader` does."""

    def peek(self, size: int, /) -> bytes:
        """Some of the next bytes."""


def first_bytes(file: Peekable) -> bytes:
    """The first bytes, which identify the format."""
    return file.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]


def damage() -> tuple[type[Exception], ...]:
    """The errors of reading a damaged stream; bzip2 raises OSError without an errno."""
    import lzma
    import zlib
    from gzip import BadGzipFile

    return (EOFError, zlib.error, BadGzipFile, lzma.LZMAError)


def unpacked(file: Peekable) -> Readable:
    """The unpacked stream of the file, or the file itself. Reading raises `damage` and OSError."""
    begins = first_bytes(file)
    if begins.startswith(b"\x1f\x8b"):
        import gzip

        return cast(Readable, gzip.GzipFile(fileobj=cast(IO[bytes], file)))
    if begins.startswith(b"BZh"):
        import bz2

        return _Decompressed(file, bz2.BZ2Decompressor)
    if begins.startswith(b"\xfd7zXZ"):
        import lzma

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


def is_strict() -> bool:
    """True if --strict is given."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(STRICT_GIVEN))


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises OSError, and BadInput for one that is too long."""
    with path.open("rb") as file:
        if path.stat().st_size > most_bytes():
            raise too_long(str(path))
        return file.read() if path.is_file() else _read(file, str(path))


def read_named(name: str) -> bytes:
    """The bytes of the file of that name. Raises BadInput, also where it cannot be read."""
    from pathlib import Path

    try:
        return read_file(Path(name))
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise BadInput(what, on=name, remedy="check the path") from None
    except ValueError:
        raise BadInput("is no path: it holds a null byte", on=repr(name)) from None


def read_stdin() -> bytes:
    """The bytes of standard input. Raises BadInput."""
    return _read(sys.stdin.buffer, "standard input")


def pieces_of_stdin() -> Iterator[bytes]:
    """Standard input, piece by piece. Raises BadInput for too much of it."""
    return limited_pieces(sys.stdin.buffer, "standard input")


def pieces_of(path: Path) -> Iterator[bytes]:
    """A file, piece by piece, unpacked where it is gzip, bzip2 or xz. Raises BadInput.

    What is packed is unpacked twice where it may be too long: the first pass keeps nothing.
    """
    name = str(path)
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size > most_bytes():
                raise too_long(name)
            plain = unpacked(file)
            if plain is not file and size * _tightest(first_bytes(file)) > most_bytes():
                for _ in limited_pieces(plain, name):
                    pass
                file.seek(0)
                plain = unpacked(file)
            yield from limited_pieces(plain, name)
    except damage() as error:
        raise BadInput(f"cannot be unpacked: {error}", on=name, remedy="write it again") from None
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise BadInput(what, on=name, remedy="check the path") from None


def _tightest(begins: bytes) -> int:
    """So many bytes are packed into one at most; only deflate has a limit that helps."""
    return 1032 if begins.startswith(b"\x1f\x8b") else MAX_FILE_BYTES


def _read(file: IO[bytes], source: str) -> bytes:
    """All that the file holds: a pipe does not say how much will come."""
    pieces = list(limited_pieces(file, source))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def limited_pieces(file: Readable, source: str) -> Iterator[bytes]:
    """The bytes, piece by piece, none of them empty. Raises BadInput beyond the limit."""
    most, length = most_bytes(), 0
    while piece := file.read(_PIECE):
        length += len(piece)
        if length > most:
            raise too_long(source)
        yield piece


def most_bytes() -> int:
    """How much a file may hold, unpacked."""
    context = click.get_current_context(silent=True)
    given = context.meta.get(SIZE_GIVEN) if context is not None else None
    return MAX_FILE_BYTES if given is None else int(given)


def too_long(source: str) -> BadInput:
    """The refusal of a file that holds more."""
    what = f"holds more than {most_bytes():,} bytes"
    return BadInput(what, on=source, remedy="if it is what it should be, raise --max-file-size")
