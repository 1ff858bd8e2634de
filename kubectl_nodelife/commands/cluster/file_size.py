"""How much a file given with `-f` may hold, and the flag that raises it."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, cast

import click

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.quantity import value as quantity_value

MAX_FILE_BYTES: Final = 2 << 30
"""Of one file, unpacked.

150,000 pods of a realistic size take 1.5 GB as `kubectl get -o json` prints them, and 2.7 GB with
--show-managed-fields, for which the flag is needed. A List of JSON is read piece by piece, and
costs some 4 KB a pod; a single YAML document is held as a whole.
"""

GZIP: Final = ".gz"

_META: Final = "nodelife.max_file_bytes"
_PIECE: Final = 8 << 20
_TIGHTEST: Final = 1032
"""Deflate packs so many bytes into one at most."""


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


def pieces_of_stdin() -> Iterator[bytes]:
    """Standard input, piece by piece. Raises BadInput for too much of it."""
    return _pieces(sys.stdin.buffer, "standard input")


def pieces_of(path: Path) -> Iterator[bytes]:
    """A file, piece by piece, unpacked where its name ends with .gz. Raises BadInput.

    What is packed is unpacked twice where it may be too long: the first pass keeps nothing.
    """
    name = str(path)
    try:
        with path.open("rb") as file:
            if path.stat().st_size > _most():
                raise _too_long(name, _most())
            if path.suffix != GZIP:
                yield from _pieces(file, name)
            elif path.stat().st_size * _TIGHTEST <= _most():
                yield from _pieces(_unpacked(file), name)
            else:
                for _ in _pieces(_unpacked(file), name):
                    pass
                file.seek(0)
                yield from _pieces(_unpacked(file), name)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(f"is not gzip: {error}", on=name, remedy="write it again") from None
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise BadInput(what, on=name, remedy="check the path") from None


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=file))


def _read(file: IO[bytes], source: str) -> bytes:
    """What is there: a pipe does not say how much will come."""
    pieces = list(_pieces(file, source))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _pieces(file: IO[bytes], source: str) -> Iterator[bytes]:
    """What is there, piece by piece, none of them empty. Raises BadInput beyond the limit."""
    most, length = _most(), 0
    while piece := file.read(_PIECE):
        length += len(piece)
        if length > most:
            raise _too_long(source, most)
        yield piece


def _most() -> int:
    context = click.get_current_context(silent=True)
    found = context.meta.get(_META) if context is not None else None
    return MAX_FILE_BYTES if found is None else int(found)


def _too_long(source: str, most: int) -> BadInput:
    what = f"holds more than {most:,} bytes"
    return BadInput(what, on=source, remedy="if it is what it should be, raise --max-file-size")
