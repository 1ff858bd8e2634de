"""How much a file given with `-f` may hold, and the flag that raises it."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import IO, Final

import click

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.quantity import value as quantity_value

MAX_FILE_BYTES: Final = 2 << 30
"""Of one file, unpacked.

150,000 pods of a realistic size take 1.1 GB as `kubectl get -o json` prints them, and 2.3 GB with
--show-managed-fields, for which the flag is needed. Reading costs the file's size and some 4 KB a
pod, of which the former is given back: 1.8 GB and 3.0 GB in these two cases.
"""

_META: Final = "nodelife.max_file_bytes"
_CHUNK: Final = 1 << 20
_PIECE: Final = 32 << 20
_SLICE: Final = 1 << 16
_TIGHTEST: Final = 1032
"""Deflate packs so many bytes into one at most."""
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


def _note(context: click.Context, _: click.Parameter, text: str | None) -> None:
    if text is None:
        return
    try:
        size = quantity_value(text)
    except ValueError:
        size = 0
    if size <= 0:
        remedy = "give a number of bytes with a unit, such as 4Gi"
        raise BadInput(f'invalid size "{text}"', on="--max-file-size", remedy=remedy)
    context.meta[_META] = size


max_file_size = click.option(
    "--max-file-size",
    metavar="SIZE",
    expose_value=False,
    callback=_note,
    help="The longest file that -f takes, unpacked. Default: 2Gi.",
)
"""The flag, for verbs that take `-f`."""


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises OSError, and BadInput for one that is too long."""
    with path.open("rb") as file:
        if path.stat().st_size > _most():
            raise _too_long(str(path), _most())
        return file.read() if path.is_file() else _read(file, str(path))


def read_named(name: str) -> bytes:
    """The bytes of the file of that name. Raises BadInput, also where it cannot be read."""
    try:
        return read_file(Path(name))
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise BadInput(what, on=name, remedy="check the path") from None


def read_stdin() -> bytes:
    """The bytes of standard input. Raises BadInput."""
    return _read(sys.stdin.buffer, "standard input")


def _read(file: IO[bytes], source: str) -> bytes:
    """What is there, piece by piece: a pipe does not say how much will come."""
    most = _most()
    pieces: list[bytes] = []
    length = 0
    while piece := file.read(_PIECE):
        pieces.append(piece)
        length += len(piece)
        if length > most:
            raise _too_long(source, most)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def gunzip(packed: bytes, source: str) -> bytes:
    """What was packed with gzip. Raises BadInput, EOFError for what is cut off, zlib.error.

    What may be too long is unpacked twice: the first pass keeps nothing, so a bomb costs no memory.
    """
    import gzip

    most = _most()
    if len(packed) * _TIGHTEST > most:
        _refuse_bomb(packed, source, most)
    return gzip.decompress(packed)


def _refuse_bomb(packed: bytes, source: str, most: int) -> None:
    length = 0
    stream = zlib.decompressobj(_GZIP_WINDOW)
    for start in range(0, len(packed), _SLICE):
        rest = packed[start : start + _SLICE]
        while rest:
            length += len(stream.decompress(rest, _CHUNK))
            if length > most:
                raise _too_long(source, most)
            rest = stream.unconsumed_tail
            if stream.eof:  # another member may follow, or padding
                rest = stream.unused_data.lstrip(b"\0")
                stream = zlib.decompressobj(_GZIP_WINDOW)


def _most() -> int:
    context = click.get_current_context(silent=True)
    found = context.meta.get(_META) if context is not None else None
    return MAX_FILE_BYTES if found is None else int(found)


def _too_long(source: str, most: int) -> BadInput:
    what = f"holds more than {most:,} bytes"
    return BadInput(what, on=source, remedy="if it is what it should be, raise --max-file-size")
